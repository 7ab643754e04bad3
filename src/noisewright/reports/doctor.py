"""``noisewright doctor``: what works on this machine, what does not, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from noisewright.types import Room

__all__ = ["Check", "examine"]

_NAMES = {  # distributions whose package has another name
    "scikit-network": "sknetwork",
    "scikit-learn": "sklearn",
    "scikit-image": "skimage",
    "scikit-video": "skvideo",
    "opencv-python-headless": "cv2",
    "simpleitk": "SimpleITK",
    "faster-coco-eval": "faster_coco_eval",
    "flow-matching": "flow_matching",
}


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        name: What was looked at.
        state: ``"ok"``, ``"note"`` (works, with a limit) or ``"bad"``.
        text: What was found and, unless ok, what to do.
    """

    name: str
    state: Literal["ok", "note", "bad"]
    text: str


def _torch() -> Check:
    try:
        import torch
    except ImportError as error:
        return Check("torch", "bad", f"cannot be imported: {error}; pip install torch")
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU only"
    return Check("torch", "ok", f"{torch.__version__}, {where}, {torch.get_num_threads()} threads")


def _threads() -> Check:
    from noisewright.parallel import available_cores

    limit = os.environ.get("OMP_NUM_THREADS")
    text = f"{available_cores()} cores"
    if limit is not None:
        return Check("threads", "note", f"{text}, OMP_NUM_THREADS={limit} limits them")
    return Check("threads", "ok", text)


def _packages(extra: str) -> list[str]:
    """Return the distributions that an extra names, extras of extras resolved."""
    try:
        required = importlib.metadata.requires("noisewright") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found = []
    for line in required:
        name = re.match(r"[\w.-]+", line)
        if name and re.search(rf"extra == ['\"]{re.escape(extra)}['\"]", line):
            found.append(name.group().lower())
    return found


def _extras(rooms: Mapping[str, Room | Exception]) -> Iterator[Check]:
    wanted: dict[str, list[str]] = {}
    for name, room in rooms.items():
        if isinstance(room, Exception):
            yield Check(f"room {name}", "bad", f"cannot be loaded: {room}")
            continue
        for extra in room.extras:
            wanted.setdefault(extra, []).append(name)
    for extra, users in sorted(wanted.items()):
        absent = [p for p in _packages(extra) if _absent(p)]
        by = f"for {', '.join(users)}"
        if absent:
            how = f"pip install 'noisewright[{extra}]'"
            yield Check(f"extra {extra}", "note", f"{by}: {', '.join(absent)} missing; {how}")
        else:
            yield Check(f"extra {extra}", "ok", by)


def _absent(distribution: str) -> bool:
    module = _NAMES.get(distribution, distribution.replace("-", "_"))
    try:
        return importlib.util.find_spec(module) is None
    except (ImportError, ValueError):
        return True


def _mirror() -> Check:
    folder = os.environ.get("NOISEWRIGHT_DATA")
    if not folder:
        return Check(
            "data mirror", "note", "NOISEWRIGHT_DATA is not set; named sets are fetched on demand"
        )
    if not Path(folder).is_dir():
        return Check("data mirror", "bad", f"NOISEWRIGHT_DATA={folder} is not a folder")
    sets = sorted(p.name for p in Path(folder).iterdir() if p.is_dir())
    return Check("data mirror", "ok", f"{len(sets)} sets: {', '.join(sets[:6])}")


def _disk(folder: Path) -> Iterator[Check]:
    free = shutil.disk_usage(folder).free / 2**30
    state = "ok" if free > 2 else "bad"
    hint = "" if free > 2 else "; a run needs about 1 GiB, free some space"
    yield Check("disk", state, f"{free:.1f} GiB free here{hint}")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        yield Check("write access", "bad", f"{error.strerror} in this folder; give --out elsewhere")
    else:
        yield Check("write access", "ok", "this folder can be written")


def examine(rooms: Mapping[str, Room | Exception]) -> Iterator[Check]:
    """Yield checks, one at a time, so that slow ones show as they end.

    Args:
        rooms: From the registry; their extras are looked for.
    """
    python = platform.python_version_tuple()
    old = (int(python[0]), int(python[1])) < (3, 11)
    yield Check("python", "bad" if old else "ok", platform.python_version())
    yield _torch()
    yield _threads()
    yield from _extras(rooms)
    yield _mirror()
    yield from _disk(Path.cwd())
