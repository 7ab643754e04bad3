"""What a room's folder tells: where it is, and the problem it solves."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from noisewright.types import InputError, Room

__all__ = ["room_folder", "room_problem"]

_NOT_TEXT = ("#", "!", "<", "|", "```", ">", "- ", "* ", "$$", "\\[", "[![", "---", "{")


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
    paragraphs = [" ".join(p.split()) for p in path.read_text(encoding="utf-8").split("\n\n")]
    plain = (p for p in paragraphs if p and not p.startswith(_NOT_TEXT))
    return _without_markup(next(plain, room.title))


def _without_markup(text: str) -> str:
    """Return a Markdown paragraph as plain text.

    Example:
        >>> _without_markup("Which *levels* does `sigma` need? See [the paper](https://x.org).")
        'Which levels does sigma need? See the paper.'
    """
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"(\*\*|__|`|(?<!\w)[*_]|[*_](?!\w))", "", text)
