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
import importlib.util
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from noisewright.reports.claims import Judged, judge, load_claims
from noisewright.reports.environment import describe_environment, shown_command
from noisewright.reports.keys import content_key, source_fingerprint
from noisewright.reports.options import Options, settings_text
from noisewright.reports.stages import StagePlace, complete_stage, load_stage, process_rank
from noisewright.reports.steps import append_event, mend_tail
from noisewright.reports.values import Values
from noisewright.storage import atomic_folder, write_atomic
from noisewright.types import InputError, Room
from noisewright.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console
    from torch import nn

__all__ = ["Options", "Run", "RunFailedError", "RunResult", "execute", "room_folder"]

RESULTS = ("metrics.json", "claims.json", "report.json", "report.html")


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


class Run:
    """What an experiment gets as ``run``.

    Attributes:
        folder: Folder of the run.
        seeds: Seeds to repeat over.
        quick: Whether this is a quick look.
        device: ``"cpu"``, ``"cuda"``, ...
        jobs: Tasks side by side.
        threads: Threads of each task.
        backend: Who runs tasks.
        data: What ``--data`` said, or None for the room's default.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        seeds: Sequence[int] = (0,),
        quick: bool = False,
        device: str = "cpu",
        jobs: int = 1,
        threads: int = 1,
        backend: str = "loky",
        data: str | None = None,
        module: str = "",
    ) -> None:
        """Make a run in a folder; stages that the folder holds are kept.

        Args:
            folder: Made if it does not exist.
            seeds: As the attribute.
            quick: As the attribute.
            device: As the attribute.
            jobs: As the attribute.
            threads: As the attribute.
            backend: As the attribute.
            data: As the attribute.
            module: Dotted name of the room: its source is part of every stage's key.
        """
        self.folder = Path(folder)
        self.seeds = tuple(seeds)
        self.quick = quick
        self.device = device
        self.jobs = jobs
        self.threads = threads
        self.backend = backend
        self.data = data
        self.values = Values(self.seeds)
        self.reasons: dict[str, str] = {}
        self.figures: list[dict[str, Any]] = []
        self.tables: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.title = ""
        self.began = False
        self.earlier_seconds = 0.0
        self._module = module
        self._started = time.perf_counter()
        self.folder.mkdir(parents=True, exist_ok=True)
        mend_tail(self.log)

    @property
    def log(self) -> Path:
        """``steps.jsonl``."""
        return self.folder / "steps.jsonl"

    @property
    def seconds(self) -> float:
        """Wall clock so far, with that of stages kept from earlier sessions."""
        return time.perf_counter() - self._started + self.earlier_seconds

    # ------------------------------------------------------------------ work

    def _place(
        self,
        name: str,
        work: Callable[..., Any],
        inputs: dict[str, Any],
        *,
        label: str,
        threads: int,
        share: float = 1.0,
    ) -> StagePlace:
        source = source_fingerprint(*filter(None, (self._module, work.__module__)))
        return StagePlace(
            name=label,
            key=content_key(name, source, work, self.device, **inputs),
            root=self.folder / "stages",
            log=self.log,
            device=self.device,
            threads=threads,
            share=share,
        )

    def _kept(self, place: StagePlace) -> None:
        stored = load_stage(place)
        self.earlier_seconds += stored["seconds"] * stored["share"]
        append_event(self.log, "kept", place.name)

    def stage(
        self, name: str, work: Callable[..., dict[str, Any]], **inputs: Any
    ) -> dict[str, Any]:
        """Return the record of an expensive step, done once and kept by content.

        Args:
            name: Short and unique among the run's steps: ``"train tight"``.
            work: ``work(stage, **inputs)`` returns a dict of plain values, numpy arrays and
                tensors; ``stage`` is a :class:`~noisewright.reports.stages.Stage`.
            inputs: Everything the result depends on: plain values, arrays, dataclasses, modules.
                It runs with all the threads of the run.

        Returns:
            The record as it was stored: tuples are lists, tensors are on the CPU.

        Raises:
            InputError: If an input has no content key.
            NonFiniteError: Named with the stage.
        """
        place = self._place(name, work, inputs, label=name, threads=self.threads * self.jobs)
        if place.done:
            self._kept(place)
        else:
            self.began = True
            complete_stage(place, work, inputs)
        return load_stage(place)["record"]

    def stages(
        self, name: str, work: Callable[..., dict[str, Any]], tasks: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the records of many independent steps, computed side by side, each kept.

        A killed run loses only the ones that were being computed.

        Args:
            name: What the steps are.
            work: As in :meth:`stage`; a function that worker processes can import, and so no
                lambda and nothing defined inside another function.
            tasks: Inputs of each step.
        """
        from noisewright.parallel import fan_out

        share = 1.0 / min(max(1, len(tasks)), self.jobs)
        labels = _labels(name, tasks)
        places = [
            self._place(name, work, task, label=label, threads=self.threads, share=share)
            for label, task in zip(labels, tasks, strict=True)
        ]
        waiting = [
            {"place": p, "work": work, "inputs": t}
            for p, t in zip(places, tasks, strict=True)
            if not p.done
        ]
        for place in places:
            if place.done:
                self._kept(place)
        self.began = self.began or bool(waiting)
        # Under a distributed launch every process takes part in every stage, one after the other.
        jobs = 1 if process_rank()[1] > 1 else self.jobs
        fan_out(complete_stage, waiting, jobs=jobs, backend=self.backend, threads=self.threads)
        return [load_stage(place)["record"] for place in places]

    # ------------------------------------------------------------------ results

    def record(self, key: str, value: float, *, seed: int | None = None) -> None:
        """Record a value for ``metrics.json``.

        Args:
            key: Flat dotted key, as in the claims.
            value: The number; one that is not finite is kept as NaN and falls short.
            seed: Which seed it belongs to; None if it holds for all of them.

        Raises:
            InputError: If the seed is not one of the run's, or the value is recorded twice.
        """
        self.values.record(key, value, seed)

    def spread(self, key: str) -> tuple[float, float]:
        """Return (mean, standard deviation) of a recorded key: a cell of a table."""
        entry = self.values.summary()[key]
        return entry["mean"], entry["std"]

    def unmeasured(self, key: str, why: str) -> None:
        """Say why a key has no value: shown beside a claim that is *not measured*."""
        self.reasons[key] = why

    def finding(self, sentence: str) -> None:
        """Set the title of the report: the finding in one sentence, with its number."""
        self.title = sentence

    def data_note(self, text: str) -> None:
        """Say what was read: counts, shapes, units, licence, what was dropped and why."""
        self.notes.append(text)

    def figure(self, name: str, figure: Figure, *, caption: str, alt: str) -> None:
        """Add a picture; the first one leads the report.

        Args:
            name: File name without suffix.
            figure: A matplotlib figure, made in the style of ``reports.figures``; it is closed.
            caption: What to see in it, one or two sentences.
            alt: What is seen, for those who cannot see it.

        Raises:
            InputError: If caption or alt text is missing, or the name is taken or no file name.
        """
        from noisewright.reports.rendering import save_figure

        if not caption.strip() or not alt.strip():
            raise InputError(f"figure {name!r} needs a caption and an alt text")
        if any(entry["name"] == name for entry in self.figures):
            raise InputError(f"figure {name!r} exists already; give each its own name")
        if not name or not all(c.isalnum() or c in "-_." for c in name) or name.startswith("."):
            raise InputError(f"figure name {name!r} is no file name; use letters, digits and -_.")
        entry = {"name": name, "caption": caption, "alt": alt}
        if process_rank()[0] == 0:
            entry |= save_figure(self.folder / "figures", name, figure)
        self.figures.append(entry)

    def table(
        self,
        caption: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        ours: str | int | None = None,
    ) -> None:
        """Add a table.

        Args:
            caption: One line above it.
            columns: Heads.
            rows: Cells: text, numbers, ``(mean, std)`` pairs as :meth:`spread` gives, or None.
            ours: Which row is our method (set in bold): its number, or the text of its first cell.

        Raises:
            InputError: If a row has another length than the heads.
        """
        for i, row in enumerate(rows):
            if len(row) != len(columns):
                raise InputError(
                    f"table {caption!r}: row {i} has {len(row)} cells for {len(columns)} columns"
                )
        cells = [[_plain_cell(cell) for cell in row] for row in rows]
        number = ours
        if isinstance(ours, str):
            number = next((i for i, row in enumerate(cells) if row and row[0] == ours), None)
        table = {"caption": caption, "columns": [*map(str, columns)], "rows": cells, "ours": number}
        self.tables.append(table)

    def weights(self, name: str, module: nn.Module) -> None:
        """Keep trained weights in ``DIR/weights/<name>/``, as safetensors.

        Args:
            name: Folder name.
            module: Saved with its own ``save_pretrained`` if it has one.
        """
        if process_rank()[0] > 0:
            return
        with atomic_folder(self.folder / "weights" / name) as part:
            if callable(save := getattr(module, "save_pretrained", None)):
                save(part)
            else:
                import safetensors.torch

                safetensors.torch.save_model(module, str(part / "model.safetensors"))


def _plain_cell(cell: Any) -> Any:
    if isinstance(cell, (tuple, list)):
        return [float(part) for part in cell]
    if cell is None or isinstance(cell, (str, bool, int, float)):
        return cell
    return cell.item() if hasattr(cell, "item") else str(cell)


def _labels(name: str, tasks: Sequence[dict[str, Any]]) -> list[str]:
    """Name tasks by what tells them apart: ``train schedule=tight seed=0``."""
    plain = [
        {k: v for k, v in task.items() if isinstance(v, (str, int, float, bool))} for task in tasks
    ]
    keys = dict.fromkeys(k for task in plain for k in task)
    telling = [k for k in keys if len({repr(task.get(k)) for task in plain}) > 1]
    labels = [" ".join([name, *(f"{k}={t[k]}" for k in telling if k in t)]) for t in plain]
    if len(set(labels)) == len(labels):
        return labels
    return [f"{label} {i + 1}/{len(tasks)}" for i, label in enumerate(labels)]


# ---------------------------------------------------------------------------- execute


def room_folder(room: Room) -> Path:
    """Return the folder of a room's package."""
    spec = importlib.util.find_spec(room.module)
    if spec is None or spec.origin is None:
        raise InputError(f"room {room.name!r}: module {room.module!r} cannot be found")
    return Path(spec.origin).parent


def room_problem(room: Room) -> str:
    """Return the first paragraph of a room's README below its title, or its one-line title."""
    path = room_folder(room) / "README.md"
    if not path.is_file():
        return room.title
    lines = path.read_text(encoding="utf-8").split("\n\n")
    paragraphs = [" ".join(p.split()) for p in lines]
    return next((p for p in paragraphs if p and p[0] not in "#!<|`>-*$["), room.title)


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


@contextmanager
def _sole_use(folder: Path) -> Iterator[None]:
    """Refuse to write into a folder that another run is writing to."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another run is writing to {folder}; wait for it, or give another --out"
            ) from None
        yield


def _clear(folder: Path, *, fresh: bool, settings: str) -> None:
    """Remove what must not be mixed with this run: everything, or results of other settings."""
    for part in folder.glob(".*.part"):
        shutil.rmtree(part, ignore_errors=True) if part.is_dir() else part.unlink()
    stored = folder / "settings.toml"
    other = not stored.is_file() or stored.read_text(encoding="utf-8") != settings
    if fresh:
        for name in ("stages", "weights"):
            shutil.rmtree(folder / name, ignore_errors=True)
        (folder / "steps.jsonl").unlink(missing_ok=True)
    if fresh or other:
        for name in RESULTS:
            (folder / name).unlink(missing_ok=True)
        shutil.rmtree(folder / "figures", ignore_errors=True)


def _write_json(path: Path, content: Any) -> None:
    write_atomic(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


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
    options = (options or Options()).checked()
    experiment = experiment or _experiment(room)
    if settings is None:
        cls = experiment.Settings
        settings = cls.quick() if options.quick and hasattr(cls, "quick") else cls()
    claims = load_claims(room_folder(room) / "claims.toml")
    device = _resolved_device(options.device)
    rank, world = process_rank()
    if world > 1 and options.fresh:
        raise InputError("--fresh does not go with several processes; remove the folder instead")
    folder = default_folder(room, options)
    folder.mkdir(parents=True, exist_ok=True)
    command = command or ["noisewright", "run", room.name]
    with _sole_use(folder) if rank == 0 else nullcontext():
        text = settings_text(room.name, __version__, settings, options)
        if rank == 0:
            _clear(folder, fresh=options.fresh, settings=text)
            write_atomic(folder / "settings.toml", text)
            facts = describe_environment(
                command, device=device, jobs=options.jobs or 1, threads=options.threads or 1
            )
            _write_json(folder / "environment.json", facts)
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
        _write_json(run.folder / "metrics.json", metrics)
        _write_json(run.folder / "claims.json", [one.as_dict() for one in judged])
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
        _write_json(run.folder / "report.json", _finite(report))
        _forget_old_figures(run)
        write_atomic(run.folder / "report.html", render_report(run.folder))
    return RunResult(run.folder, metrics, tuple(judged), finding, seconds)


def _finite(value: Any) -> Any:
    """Return plain content with None for numbers that JSON has no word for."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return None
    return value


def _forget_old_figures(run: Run) -> None:
    kept = {name for f in run.figures for name in (f"{f['name']}.png", f"{f['name']}-dark.png")}
    for file in (run.folder / "figures").glob("*.png"):
        if file.name not in kept:
            file.unlink()
