"""The folder of a run: one writer at a time, and no results of other settings beside new ones."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noisewright.storage import write_atomic
from noisewright.types import InputError

__all__ = ["clear", "finite", "forget_figures", "sole_use", "write_json"]

RESULTS = ("metrics.json", "claims.json", "report.json", "report.html")


@contextmanager
def sole_use(folder: Path) -> Iterator[None]:
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


def clear(folder: Path, *, fresh: bool, settings: str) -> None:
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


def write_json(path: Path, content: Any) -> None:
    """Write strict JSON, whole or not at all; NaN and infinity are an error."""
    write_atomic(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """Return plain content with None for numbers that JSON has no word for."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def forget_figures(folder: Path, kept: Collection[str]) -> None:
    """Remove pictures of an earlier run that this one did not make.

    Args:
        folder: The run folder.
        kept: Names of this run's pictures, without suffix.
    """
    for file in (folder / "figures").glob("*.png"):
        if file.stem.removesuffix("-dark") not in kept and file.stem not in kept:
            file.unlink()
