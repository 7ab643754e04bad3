"""Content keys: a stage is done if the same work was done on the same inputs by the same code.

The key of a stage is a hash of its name, its inputs (arrays by their bytes) and the source that
could change its result: the engine, the room's own package, and the versions of Python, torch and
numpy. Other rooms, reports and the command line do not count, so editing a template or another
method does not throw away an hour of training.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import platform
import struct
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from noisewright.types import InputError

__all__ = ["content_key", "module_files", "source_fingerprint"]

_WITHOUT_EFFECT = {"reports", "cli.py", "__main__.py", "testing.py", "version.py"}


def _feed(hasher: Any, value: Any, place: str) -> None:
    """Add a value to the hash; every kind of value writes a tag first."""

    def put(tag: str, content: bytes = b"") -> None:
        hasher.update(f"{tag}:{len(content)}:".encode())
        hasher.update(content)

    if value is None or isinstance(value, (bool, int, str, PurePath)):
        put(
            type(value).__name__ if not isinstance(value, PurePath) else "path", str(value).encode()
        )
    elif isinstance(value, float):
        put("float", struct.pack("<d", value))
    elif isinstance(value, bytes):
        put("bytes", value)
    elif isinstance(value, Enum):
        put("enum", f"{type(value).__qualname__}.{value.name}".encode())
    elif isinstance(value, Mapping):
        put("map", str(len(value)).encode())
        for key in sorted(value, key=lambda k: (str(type(k)), str(k))):
            _feed(hasher, key, place)
            _feed(hasher, value[key], f"{place}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        put("list", str(len(value)).encode())
        for i, entry in enumerate(value):
            _feed(hasher, entry, f"{place}[{i}]")
    elif isinstance(value, (set, frozenset)):
        _feed(hasher, sorted(value, key=lambda k: (str(type(k)), str(k))), place)
    elif is_dataclass(value) and not isinstance(value, type):
        put("record", type(value).__qualname__.encode())
        for field in fields(value):
            _feed(hasher, getattr(value, field.name), f"{place}.{field.name}")
    else:
        _feed_object(hasher, value, place, put)


def _feed_object(hasher: Any, value: Any, place: str, put: Any) -> None:
    """Add an array, a module, a sparse matrix or a function, told apart without importing them."""
    if callable(getattr(value, "state_dict", None)):  # a torch module: structure and weights
        put("module", f"{type(value).__module__}.{type(value).__qualname__} {value}".encode())
        _feed(hasher, dict(value.state_dict()), place)
    elif hasattr(value, "detach") and hasattr(value, "numpy"):
        tensor = value.detach().cpu().contiguous()
        head = f"{tensor.dtype} {tuple(tensor.shape)}"
        # Through bytes: numpy has no bfloat16.
        raw = tensor.reshape(-1).view(__import__("torch").uint8) if tensor.numel() else tensor
        put("tensor", head.encode())
        put("bytes", raw.numpy().tobytes())
    elif hasattr(value, "tocsr"):
        matrix = value.tocsr()
        put("sparse", str(matrix.shape).encode())
        for part in (matrix.indptr, matrix.indices, matrix.data):
            _feed(hasher, part, place)
    elif hasattr(value, "__array_interface__") or hasattr(value, "dtype"):
        import numpy as np

        array = np.ascontiguousarray(value)
        if array.dtype.hasobject:
            _feed(hasher, array.tolist(), place)
            return
        put("array", f"{array.dtype.str} {array.shape}".encode())
        put("bytes", array.tobytes())
    elif callable(value) and hasattr(value, "__qualname__") and "<" not in value.__qualname__:
        put("function", f"{value.__module__}.{value.__qualname__}".encode())
    else:
        raise InputError(
            f"stage input {place} is a {type(value).__name__}, which has no content key; pass "
            "plain values, arrays, tensors, modules, dataclasses or named functions"
        )


def content_key(*parts: Any, **inputs: Any) -> str:
    """Return 16 hex digits that change whenever a part or an input changes.

    Args:
        parts: Anything that an input may be.
        inputs: Plain values, numpy arrays, tensors, modules, sparse matrices, dataclasses, named
            functions, and mappings and sequences of these.

    Raises:
        InputError: If an input has no stable content; the message names it.

    Example:
        >>> content_key(1, size=2) == content_key(1, size=2) != content_key(1, size=2.0)
        True
    """
    hasher = hashlib.blake2b(digest_size=8)
    for i, part in enumerate(parts):
        _feed(hasher, part, f"part {i}")
    for name in sorted(inputs):
        _feed(hasher, name, name)
        _feed(hasher, inputs[name], name)
    return hasher.hexdigest()


def module_files(module: str) -> list[Path]:
    """Return the Python files of a package, or the one file of a module; none if unknown."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations:
        return sorted(f for d in spec.submodule_search_locations for f in Path(d).rglob("*.py"))
    return [Path(spec.origin)] if spec.origin and Path(spec.origin).is_file() else []


def _engine_files() -> list[Path]:
    root = Path(__file__).resolve().parents[1]
    return [
        file
        for file in sorted(root.rglob("*.py"))
        if (part := file.relative_to(root).parts)[0] not in _WITHOUT_EFFECT
        and not (part[0] == "methods" and len(part) > 2)
    ]


@cache
def source_fingerprint(*modules: str) -> str:
    """Return a hash of the engine's source, of these modules, and of the versions underneath.

    Args:
        modules: Dotted names: the room, and the module of the work itself.
    """
    hasher = hashlib.blake2b(digest_size=16)
    for package in ("torch", "numpy"):
        try:
            hasher.update(f"{package} {importlib.metadata.version(package)}\n".encode())
        except importlib.metadata.PackageNotFoundError:
            hasher.update(f"{package} absent\n".encode())
    hasher.update(".".join(platform.python_version_tuple()[:2]).encode())
    files = dict.fromkeys(_engine_files())
    for module in modules:
        files.update(dict.fromkeys(module_files(module)))
    for file in files:
        hasher.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return hasher.hexdigest()
