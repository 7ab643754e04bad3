"""Stored states of a training run: whole or absent, checked when read, the last two kept.

A checkpoint is a record (safetensors and JSON, no pickle) in ``folder/step-00000120``. It holds the
weights, their average, the optimizer, the loss trace, the number of finished steps and the settings
of the run. Data order, noise, times and dropout are functions of (seed, step), so these two numbers
are their whole state.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from noisewright.storage import DamagedRecordError, load_record, save_record
from noisewright.types import InputError

__all__ = [
    "checkpoints",
    "latest_checkpoint",
    "load_optimizer",
    "read_checkpoint",
    "refuse_other_settings",
    "write_checkpoint",
]

KEPT = 2
PIECES = ("settings", "shapes", "step", "module", "average", "optimizer", "scaler", "losses")


def checkpoints(folder: str | Path) -> dict[int, Path]:
    """Return the stored checkpoints of a run by number of finished steps, oldest first."""
    found = {
        int(path.name.removeprefix("step-")): path
        for path in Path(folder).glob("step-*")
        if path.name.removeprefix("step-").isdigit()
    }
    return dict(sorted(found.items()))


def latest_checkpoint(folder: str | Path | None) -> Path | None:
    """Return the newest checkpoint of a run, or None if there is none."""
    found = list(checkpoints(folder).values()) if folder is not None else []
    return found[-1] if found else None


def write_checkpoint(folder: str | Path, pieces: Mapping[str, Any]) -> Path:
    """Store the state of a run and drop all but the newest two checkpoints.

    Args:
        folder: Folder of the run; becomes ``folder/step-<finished steps>``.
        pieces: Everything in :data:`PIECES`; the optimizer as its ``state_dict``.

    Returns:
        Where it was written.

    Raises:
        OSError: If the disk is full; older checkpoints stay as they are.
    """
    folder = Path(folder)
    record = dict(pieces) | {"optimizer": _storable(pieces["optimizer"])}
    path = save_record(folder / f"step-{pieces['step']:08d}", record)
    for old in list(checkpoints(folder).values())[:-KEPT]:
        shutil.rmtree(old)
    for leftover in folder.glob(".step-*.part"):  # of a process that was killed while writing
        shutil.rmtree(leftover, ignore_errors=True)
    return path


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read one checkpoint.

    Args:
        path: As returned by :func:`latest_checkpoint`.

    Raises:
        DamagedRecordError: If a file is missing, cut short or altered, or a piece is not there; the
            message names the file, the checkpoint before it and the remedy.
    """
    try:
        record = load_record(path)
        missing = [piece for piece in PIECES if piece not in record]
        if missing:
            raise DamagedRecordError(f"{path} lacks {', '.join(missing)}")
    except DamagedRecordError as error:
        others = [other for other in checkpoints(path.parent).values() if other != path]
        remedy = (
            f"remove {path} to go on from the last good checkpoint, {others[-1]}"
            if others
            else f"remove {path} to start again; there is no other checkpoint"
        )
        raise DamagedRecordError(f"{error}; {remedy}") from error
    return record


def refuse_other_settings(path: Path, stored: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise if a checkpoint belongs to a run with other settings.

    Args:
        path: The checkpoint, for the message.
        stored: Its settings.
        now: Those of the present run.

    Raises:
        InputError: Naming each setting that differs with both values.
    """
    differing = list(_differences(stored, now))
    if differing:
        more = f" and {len(differing) - 4} more" if len(differing) > 4 else ""
        raise InputError(
            f"{path} was written by another run: {'; '.join(differing[:4])}{more}; "
            "use the stored settings, or another checkpoint folder to start afresh"
        )


def _differences(stored: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(stored.keys() | now.keys()):
        before, after = (side.get(name, "absent") for side in (stored, now))
        if before != after:
            yield f"{name} was {before}, is {after}"


def shapes_of(module: nn.Module) -> dict[str, list[int]]:
    """Return the shape of each weight and buffer that a checkpoint stores."""
    return {name: list(value.shape) for name, value in module.state_dict().items()}


def _storable(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return an optimizer's state_dict with text keys, its groups without parameter numbers."""
    return {
        "state": {str(number): dict(value) for number, value in state["state"].items()},
        "groups": [
            {key: value for key, value in group.items() if key != "params"}
            for group in state["param_groups"]
        ],
    }


def load_optimizer(optimizer: Optimizer, stored: Mapping[str, Any]) -> None:
    """Give an optimizer the state it had.

    Args:
        optimizer: A new optimizer over the same parameters.
        stored: The ``"optimizer"`` piece of a checkpoint.

    Raises:
        InputError: If the number of parameter groups differs.
    """
    fresh = optimizer.state_dict()["param_groups"]
    if len(fresh) != len(stored["groups"]):
        raise InputError(
            f"the checkpoint has {len(stored['groups'])} parameter groups, this optimizer has "
            f"{len(fresh)}; build it as in the stored run"
        )
    groups = [
        group | {key: _like(group.get(key), value) for key, value in old.items()}
        for group, old in zip(fresh, stored["groups"], strict=True)
    ]
    state = {int(number): value for number, value in stored["state"].items()}
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _like(fresh: Any, value: Any) -> Any:
    """Return a stored value with the tuple or tensor type it had."""
    if isinstance(fresh, tuple):
        return tuple(value)
    if isinstance(fresh, torch.Tensor) and isinstance(value, torch.Tensor):
        return value.to(fresh)
    return value
