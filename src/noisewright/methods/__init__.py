"""Rooms: one folder per method. The registry knows their names without importing any.

A room is a package here whose ``__init__`` defines ``ROOM``. A package of your own works too: give
its dotted name, ``noisewright run my_package.my_room``.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from noisewright.types import InputError, Room, nearest_name

if TYPE_CHECKING:
    from noisewright.reports.run import RunResult

__all__ = ["names", "room", "rooms", "run"]


def names() -> list[str]:
    """Return the names of all rooms, sorted; nothing is imported."""
    return sorted(info.name for info in pkgutil.iter_modules(__path__) if info.ispkg)


def _load(module: str) -> Room:
    package = importlib.import_module(module)
    found = getattr(package, "ROOM", None)
    if not isinstance(found, Room):
        raise InputError(f"{module} has no ROOM; its __init__ must define one")
    return found


def room(name: str) -> Room:
    """Return a room by name, importing only its light ``__init__``.

    Args:
        name: A folder here (hyphens count as underscores), or the dotted name of a package.

    Raises:
        InputError: If there is no such room; the message offers the nearest name.
    """
    if "." in name:
        try:
            return _load(name)
        except ModuleNotFoundError as error:
            raise InputError(f"no room {name!r}: {error}") from None
    known = names()
    plain = name.replace("-", "_")
    if plain not in known:
        raise InputError(f"no room is called {name!r}{nearest_name(plain, known)}")
    return _load(f"{__name__}.{plain}")


def rooms() -> dict[str, Room | Exception]:
    """Return every room, or the error of one that cannot be loaded, by name."""
    found: dict[str, Room | Exception] = {}
    for name in names():
        try:
            found[name] = room(name)
        except Exception as error:  # one broken room must not hide the others
            found[name] = error
    return found


def run(name: str, settings: Any = None, **options: Any) -> RunResult:
    """Run a room's experiment from Python; what ``noisewright run`` does.

    Args:
        name: The room.
        settings: The room's settings; None means its defaults.
        options: Fields of :class:`noisewright.reports.Options`: ``quick=True``, ``out=folder``.

    Raises:
        InputError: If the name, a setting or an option cannot work.
    """
    from noisewright.reports.run import Options, execute

    return execute(room(name), None, settings, Options(**options))
