"""A run: what an experiment computes with, and the folder that it leaves behind.

``execute`` opens the folder, hands a :class:`Run` to the experiment, judges the claims and writes::

    settings.toml     options and settings; feed it back with --config
    metrics.json      every value: mean, standard deviation, per seed
    claims.json       every claim with its verdict and, where it does not hold, why
    environment.json  versions, processor, threads, commit, command
    steps.jsonl       the history of the work
    figures/*.png     light and dark
    report.json       what the page shows besides; report.html is made from these files alone
    weights/          what the experiment kept with Run.weights
    stages/           finished stages: the same command goes on from them
"""

from __future__ import annotations

import dataclasses
import importlib
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from noisewright.reports.claims import Judged, judge, load_claims
from noisewright.reports.environment import describe_environment, shown_command
from noisewright.reports.folder import clear, finite, forget_figures, sole_use, write_json
from noisewright.reports.options import Options, settings_text
from noisewright.reports.rooms import room_folder, room_problem
from noisewright.reports.session import Run
from noisewright.reports.stages import process_rank
from noisewright.storage import write_atomic
from noisewright.types import InputError, Room
from noisewright.version import __version__

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Options", "Run", "RunFailedError", "RunResult", "execute"]


class RunFailedError(RuntimeError):
    """A run ended in an error after it had begun to compute."""


@dataclass(frozen=True)
class RunResult:
    """What :func:`execute` returns.

    Attributes:
        folder: Where everything was written.
        metrics: Content of ``metrics.json``.
        judged: Claims with verdicts.
        finding: The title of the report.
        seconds: Wall clock of the work, earlier sessions of the same run included.
    """

    folder: Path
    metrics: dict[str, Any]
    judged: tuple[Judged, ...]
    finding: str
    seconds: float

    @property
    def values(self) -> dict[str, float]:
        """Mean value per key."""
        return {key: entry["mean"] for key, entry in self.metrics["values"].items()}

    @property
    def falls_short(self) -> bool:
        """Whether any claim falls short."""
        return any(one.verdict == "falls short" for one in self.judged)


def _resolved_device(name: str) -> str:
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"--device {name!r} is not a device; use auto, cpu, cuda or mps") from None
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(device.type, True):
        raise InputError(f"--device {name!r} is not available here; use auto or cpu")
    return name


def _experiment(room: Room) -> ModuleType:
    return importlib.import_module(f"{room.module}.experiment")


def default_folder(room: Room, options: Options) -> Path:
    """Return ``--out``, or runs/NAME, or runs/NAME-quick."""
    return options.out or Path("runs") / (room.name + ("-quick" if options.quick else ""))


def execute(
    room: Room,
    experiment: Any = None,
    settings: Any = None,
    options: Options | None = None,
    *,
    command: Sequence[str] | None = None,
    console: Console | None = None,
) -> RunResult:
    """Run a room's experiment and write its folder.

    Args:
        room: Which room.
        experiment: Its module, with ``Settings`` and ``run(settings, run)``; None imports it.
        settings: Its settings; None means the defaults (the quick ones for a quick run).
        options: Options of the run.
        command: The command line as words, for the report; made up if absent.
        console: Where progress goes; None is silent.

    Raises:
        InputError: If settings, options or claims cannot work; raised before any work.
        RunFailedError: If the experiment raises an InputError after it has begun.
    """
    given = options or Options()
    options = given.checked()
    experiment = experiment or _experiment(room)
    if settings is None:
        cls = experiment.Settings
        settings = cls.quick() if options.quick and hasattr(cls, "quick") else cls()
    claims = load_claims(room_folder(room) / "claims.toml")
    device = _resolved_device(options.device)
    if given.jobs is None and device != "cpu":  # tasks share the one accelerator by turns
        options = dataclasses.replace(given, jobs=1).checked()
    rank, world = process_rank()
    if world > 1 and options.fresh:
        raise InputError("--fresh does not go with several processes; remove the folder instead")
    folder = default_folder(room, options)
    folder.mkdir(parents=True, exist_ok=True)
    command = command or ["noisewright", "run", room.name]
    with sole_use(folder) if rank == 0 else nullcontext():
        text = settings_text(room.name, __version__, settings, options)
        if rank == 0:
            clear(folder, fresh=options.fresh, settings=text)
            write_atomic(folder / "settings.toml", text)
            facts = describe_environment(
                command, device=device, jobs=options.jobs or 1, threads=options.threads or 1
            )
            write_json(folder / "environment.json", facts)
        run = Run(
            folder,
            seeds=options.all_seeds,
            quick=options.quick,
            device=device,
            jobs=options.jobs or 1,
            threads=options.threads or 1,
            backend=options.backend,
            data=options.data,
            module=room.module,
        )
        _perform(experiment, settings, run, console if rank == 0 else None)
        return _conclude(room, run, claims, command, write=rank == 0)


def _perform(experiment: Any, settings: Any, run: Run, console: Console | None) -> None:
    from noisewright.reports.progress import follow

    with follow(run.log, console) if console is not None else nullcontext():
        try:
            experiment.run(settings, run)
        except InputError as error:
            if run.began:
                raise RunFailedError(str(error)) from error
            raise


def _conclude(
    room: Room, run: Run, claims: Sequence[Any], command: Sequence[str], *, write: bool
) -> RunResult:
    """Judge the claims and write the results; ``report.html`` is the last file."""
    from noisewright.reports.html import render_report

    means, spreads = run.values.means(), run.values.spreads([c.key for c in claims])
    judged = judge(claims, means, spreads=spreads, reasons=run.reasons, quick=run.quick)
    finding = run.title or room.title
    seconds = round(run.seconds, 2)
    metrics = {
        "method": room.name,
        "version": __version__,
        "quick": run.quick,
        "seeds": list(run.seeds),
        "seconds": seconds,
        "values": run.values.as_json(),
    }
    if write:
        write_json(run.folder / "metrics.json", metrics)
        write_json(run.folder / "claims.json", [one.as_dict() for one in judged])
        about = {f.name: getattr(room, f.name) for f in dataclasses.fields(room)}
        about["commands"] = dict(about["commands"])
        report = {
            "format": 1,
            "room": about,
            "question": room_problem(room),
            "finding": finding,
            "figures": run.figures,
            "tables": run.tables,
            "notes": run.notes,
            "command": shown_command(command),
            "jobs": run.jobs,
            "finished": time.strftime("%Y-%m-%d"),
        }
        write_json(run.folder / "report.json", finite(report))
        forget_figures(run.folder, [figure["name"] for figure in run.figures])
        write_atomic(run.folder / "report.html", render_report(run.folder))
    return RunResult(run.folder, metrics, tuple(judged), finding, seconds)
