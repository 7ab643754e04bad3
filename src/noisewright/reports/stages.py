"""Stages: the expensive steps of a run, each done once and kept by content key.

A stage ``train`` lives in ``DIR/stages``:

* ``train-<key>/`` is its record, there whole or not at all;
* ``train-<key>.work/`` is its working folder while it is not done: checkpoints go there, and a
  run that was killed finds them again;
* ``train-<key>.lock`` keeps a worker that outlived a killed run and the run that goes on from
  doing the same stage at once.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisewright.parallel import limited_threads
from noisewright.reports.steps import append_event
from noisewright.storage import load_record, save_record
from noisewright.types import InputError, NonFiniteError

__all__ = ["Stage", "StagePlace", "complete_stage", "load_stage", "process_rank"]

_LINES_PER_STAGE = 200


@dataclass(frozen=True)
class Stage:
    """What the work of a stage gets besides its inputs.

    Attributes:
        name: Name of the stage, as in the report and in ``steps.jsonl``.
        folder: Working folder; it stays until the stage is done, so checkpoints go here.
        device: ``"cpu"``, ``"cuda"``, ...
        seed: The input named ``seed``, if there is one.
        log: ``steps.jsonl`` of the run.
    """

    name: str
    folder: Path
    device: str = "cpu"
    seed: int | None = None
    log: Path | None = None

    @property
    def main(self) -> bool:
        """Whether this process writes files; of several launched together, one does."""
        return process_rank()[0] == 0

    def progress(self, done: int, total: int, **numbers: float) -> None:
        """Say how far the work is; about 200 lines of a stage are kept.

        Args:
            done: Steps finished, from 1 to ``total``.
            total: All steps.
            numbers: What to show beside it, a loss for instance.
        """
        if (
            self.log is not None
            and self.main
            and (done == total or done % max(1, total // _LINES_PER_STAGE) == 0)
        ):
            plain = {name: float(number) for name, number in numbers.items()}
            append_event(self.log, "step", self.name, done=int(done), total=int(total), **plain)


@dataclass(frozen=True)
class StagePlace:
    """Where a stage lives and how it runs; crosses to worker processes.

    Attributes:
        name: Name for people.
        key: Content key.
        root: ``DIR/stages``.
        log: ``DIR/steps.jsonl``.
        device: Device of the run.
        threads: Threads of the work.
        share: Part of the wall clock that the stage stands for: 1 alone, 1/n among n others.
    """

    name: str
    key: str
    root: Path
    log: Path
    device: str
    threads: int
    share: float = 1.0

    @property
    def folder(self) -> Path:
        """Folder of the record."""
        safe = re.sub(r"[^\w.=+-]+", "-", self.name).strip("-.") or "stage"
        return self.root / f"{safe[:80]}-{self.key}"

    @property
    def work_folder(self) -> Path:
        """Folder for checkpoints while the stage is not done."""
        return self.folder.with_name(self.folder.name + ".work")

    @property
    def done(self) -> bool:
        """Whether the record is there."""
        return self.folder.exists()


def process_rank() -> tuple[int, int]:
    """Return (rank, world size) under ``accelerate launch`` or torchrun; (0, 1) alone."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # Windows has no flock
        yield
        return
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def load_stage(place: StagePlace) -> dict[str, Any]:
    """Return the record of a stage that is done, with its seconds and share under their names.

    Raises:
        DamagedRecordError: If it was cut short or altered.
    """
    return load_record(place.folder)


def _work(place: StagePlace, work: Callable[..., Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    seed = inputs.get("seed")
    stage = Stage(
        name=place.name,
        folder=place.work_folder,
        device=place.device,
        seed=seed if isinstance(seed, int) else None,
        log=place.log,
    )
    try:
        with limited_threads(place.threads):
            record = work(stage, **inputs)
    except NonFiniteError as error:
        raise NonFiniteError(f"stage {place.name!r}: {error}") from error
    except Exception as error:
        error.add_note(f"in stage {place.name!r}")
        raise
    if not isinstance(record, dict):
        raise InputError(
            f"stage {place.name!r} returned a {type(record).__name__}; return a dict of plain "
            "values, arrays and tensors"
        )
    return record


def _do(place: StagePlace, work: Callable[..., Any], inputs: Mapping[str, Any]) -> None:
    started = time.perf_counter()
    place.work_folder.mkdir(parents=True, exist_ok=True)
    append_event(place.log, "start", place.name)
    record = _work(place, work, inputs)
    seconds = time.perf_counter() - started
    save_record(place.folder, {"record": record, "seconds": seconds, "share": place.share})
    append_event(place.log, "done", place.name, seconds=round(seconds, 3))


def complete_stage(
    place: StagePlace, work: Callable[..., dict[str, Any]], inputs: Mapping[str, Any]
) -> None:
    """Do a stage unless its record is there.

    Args:
        place: Where it lives.
        work: ``work(stage, **inputs)`` returns a record: a dict of plain values and arrays.
        inputs: What the content key was made from.

    Raises:
        NonFiniteError: Named with the stage.
        OSError: If the disk is full; the working folder stays.
    """
    rank, _ = process_rank()
    place.root.mkdir(parents=True, exist_ok=True)
    if rank > 0:
        _follow(place, work, inputs)
        return
    lock = place.folder.with_name(place.folder.name + ".lock")
    with _locked(lock):
        for part in place.root.glob(f".{place.folder.name}.*.part"):
            shutil.rmtree(part, ignore_errors=True)  # left by a kill; we hold the lock
        if not place.done:
            _do(place, work, inputs)
        shutil.rmtree(place.work_folder, ignore_errors=True)


def _follow(place: StagePlace, work: Callable[..., Any], inputs: Mapping[str, Any]) -> None:
    """Take part in a stage as a further process of a distributed run; the first one stores it."""
    if not place.done:
        place.work_folder.mkdir(parents=True, exist_ok=True)
        _work(place, work, inputs)
    while not place.done:
        time.sleep(0.05)
