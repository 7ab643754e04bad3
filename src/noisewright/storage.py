"""Files that are whole or absent: atomic writes, and records of arrays and plain values.

A record is a nested dict or list of plain values, numpy arrays and torch tensors. It is stored as
two files: the arrays in safetensors (no pickle), the rest as JSON with a checksum of the arrays,
so that a damaged file is told apart from a missing one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

__all__ = [
    "DamagedRecordError",
    "atomic_folder",
    "load_record",
    "save_record",
    "write_atomic",
]

FORMAT = 1

# Temporary files are private; what replaces a file for good is as readable as any other.
_UMASK = os.umask(0o022)
os.umask(_UMASK)


class DamagedRecordError(OSError):
    """A stored record cannot be read back; the message names the file and the remedy."""


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; move it into place, or remove it on any error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    part = Path(name)
    try:
        part.chmod(0o666 & ~_UMASK)
        yield part
        os.replace(part, path)
    except OSError as error:
        if error.filename is None:  # a failed write does not say where
            error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)


def write_atomic(path: str | Path, content: str | bytes | Callable[[BinaryIO], object]) -> Path:
    """Write a file so that readers see the old content or the new, never a part.

    Args:
        path: Where; parent folders are made.
        content: Text, bytes, or a function that writes into an open binary file.

    Returns:
        The path.

    Raises:
        OSError: If the disk is full or the folder cannot be written; the old file stays.
    """
    path = Path(path)
    with _replacing(path) as part, part.open("wb") as file:
        if callable(content):
            content(file)
        else:
            file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    return path


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Fill a folder beside ``path`` and move it into place at the end, replacing what was there.

    Args:
        path: The folder that will exist, whole, or stay as it was if the block raises.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    try:
        part.chmod(0o777 & ~_UMASK)
        yield part
        if path.exists():
            shutil.rmtree(path)
        os.replace(part, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _pack(value: Any, arrays: dict[str, Any], place: str) -> Any:
    """Return ``value`` with arrays moved into ``arrays`` and replaced by their place."""
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        arrays[place] = value.detach().cpu().contiguous().clone()
        return {"$torch": place}
    if isinstance(value, np.ndarray):
        arrays[place] = torch.from_numpy(np.ascontiguousarray(value).copy())
        return {"$numpy": place}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(k): _pack(v, arrays, f"{place}.{k}") for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_pack(v, arrays, f"{place}.{i}") for i, v in enumerate(value)]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise TypeError(f"{place}: cannot store a {type(value).__name__}; use plain values or arrays")


def _unpack(value: Any, arrays: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"$torch"}:
            return arrays[value["$torch"]]
        if value.keys() == {"$numpy"}:
            return arrays[value["$numpy"]].numpy()
        return {k: _unpack(v, arrays) for k, v in value.items()}
    if isinstance(value, list):
        return [_unpack(v, arrays) for v in value]
    return value


def save_record(folder: str | Path, record: dict[str, Any]) -> Path:
    """Store a nested record of plain values, numpy arrays and tensors, atomically.

    Args:
        folder: Becomes ``folder/record.json`` and ``folder/arrays.safetensors``.
        record: What to store. Tuples come back as lists; tensors come back on the CPU.

    Returns:
        The folder.

    Raises:
        TypeError: If something in the record is neither plain nor an array.
        OSError: If the disk is full; nothing is left behind.
    """
    import safetensors.torch

    arrays: dict[str, Any] = {}
    plain = _pack(record, arrays, "")
    blob = safetensors.torch.save(arrays)
    head = {"format": FORMAT, "arrays": hashlib.blake2b(blob).hexdigest(), "record": plain}
    with atomic_folder(folder) as part:
        write_atomic(part / "arrays.safetensors", blob)
        write_atomic(part / "record.json", json.dumps(head))
    return Path(folder)


def load_record(folder: str | Path) -> dict[str, Any]:
    """Read what :func:`save_record` stored.

    Args:
        folder: The folder that was given to :func:`save_record`.

    Raises:
        FileNotFoundError: If there is no record.
        DamagedRecordError: If a file is missing, cut short or altered.
    """
    import safetensors.torch

    folder = Path(folder)
    if not folder.exists():
        raise FileNotFoundError(f"no record at {folder}")
    try:
        head = json.loads((folder / "record.json").read_bytes())
        blob = (folder / "arrays.safetensors").read_bytes()
        if head["format"] != FORMAT:
            raise ValueError(f"format {head['format']}, this version reads {FORMAT}")
        if hashlib.blake2b(blob).hexdigest() != head["arrays"]:
            raise ValueError("checksum of arrays.safetensors does not match")
        return _unpack(head["record"], safetensors.torch.load(blob))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedRecordError(
            f"{folder} is damaged ({error}); remove that folder and run again, or pass --fresh"
        ) from error
