"""A command of a room's own: flags from a documented dataclass, lines on the terminal."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

__all__ = ["call_tyro", "parse_command", "say"]

Record = TypeVar("Record")


def parse_command(record: type[Record], args: Sequence[str], name: str) -> Record:
    """Return the settings that the words after ``noisewright NAME`` stand for.

    Args:
        record: A frozen dataclass; each field is a flag, and the string below it its help.
        args: The words.
        name: Name of the command.

    Raises:
        SystemExit: With code 2 for flags that do not exist or do not parse, 0 after ``--help``.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Greet:
        ...     '''Say a number.'''
        ...
        ...     times: int = 1
        ...     '''How often.'''
        >>> parse_command(Greet, ["--times", "3"], "greet").times
        3
    """
    return call_tyro(record, args=list(args), prog=f"noisewright {name}")


def call_tyro(record: Any, **options: Any) -> Any:
    """Call tyro and give Python's global random stream, from which it draws, back as it was."""
    import tyro

    before = random.getstate()
    try:
        return tyro.cli(record, **options)
    finally:
        random.setstate(before)


def say(line: str) -> None:
    """Print a line at once, also into a pipe."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
