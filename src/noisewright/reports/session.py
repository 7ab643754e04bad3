"""A run while it is going: what an experiment computes with and records into."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisewright.parallel import fan_out
from noisewright.reports.keys import content_key, source_fingerprint
from noisewright.reports.stages import StagePlace, complete_stage, load_stage, process_rank
from noisewright.reports.steps import append_event, mend_tail
from noisewright.reports.values import Values
from noisewright.storage import atomic_folder
from noisewright.types import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

__all__ = ["Run"]


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
        if waiting:
            append_event(self.log, "plan", name, total=len(waiting))
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
