"""``steps.jsonl``: one line per event of a run, appended by whoever does the work.

Workers and the main process write to the same file, each line in one go, so the terminal can
follow work wherever it runs, and a killed run leaves its history.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

__all__ = ["append_event", "mend_tail", "read_events"]


def append_event(path: Path, event: str, stage: str, **numbers: Any) -> None:
    """Append one line.

    Args:
        path: The file.
        event: ``"start"``, ``"step"``, ``"done"`` or ``"kept"``.
        stage: Name of the stage.
        numbers: Plain values; a non-finite number becomes null.

    Raises:
        OSError: If the disk is full; the error names the file.
    """
    clean = {
        name: None if isinstance(n, float) and not math.isfinite(n) else n
        for name, n in numbers.items()
    }
    line = json.dumps({"time": round(time.time(), 3), "event": event, "stage": stage, **clean})
    handle = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.write(handle, line.encode() + b"\n")
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(handle)


def mend_tail(path: Path) -> None:
    """Close a last line that a kill cut short, so that the next one starts on its own."""
    if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")


def read_events(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the whole lines after a byte offset, and the offset behind them.

    Args:
        path: The file; absent means no events.
        offset: Where to start, in bytes.
    """
    if not path.exists():
        return [], offset
    with path.open("rb") as file:
        file.seek(offset)
        content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    events = []
    for line in whole.splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            continue  # a line that a kill cut short
    return events, offset + len(whole)
