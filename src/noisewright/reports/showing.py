"""``noisewright show ROOM`` and ``noisewright data list``: what there is, before anything runs."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import itertools
import textwrap
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from noisewright.reports.claims import load_claims
from noisewright.reports.html import bar, plain
from noisewright.types import InputError, Room

__all__ = ["show_room", "show_sources"]


def _table(*heads: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def _show_claims(room: Room, console: Console) -> None:
    from noisewright.reports.rooms import room_folder

    table = _table("must hold", "key", "bar", "set by")
    for claim in load_claims(room_folder(room) / "claims.toml"):
        shown = bar(dataclasses.asdict(claim))
        if claim.quick_target is not None:
            shown += f" ({plain(claim.quick_target)} for --quick)"
        source = "the paper" if claim.source == "paper" else "us"
        table.add_row(escape(claim.text), f"[dim]{escape(claim.key)}[/]", shown, source)
    console.print(table)


def _help_of(settings: type) -> dict[str, str]:
    """Return the documentation of each field: the text below it, or its line in the docstring."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(settings)))
    found: dict[str, str] = {}
    for line in (settings.__doc__ or "").splitlines():
        name, colon, text = line.strip().partition(": ")
        if colon and name.isidentifier():
            found[name] = text
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    for before, after in itertools.pairwise(body):
        match before, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found


def _show_settings(room: Room, console: Console) -> None:
    settings = importlib.import_module(f"{room.module}.experiment").Settings
    default = settings()
    quick = settings.quick() if hasattr(settings, "quick") else default
    help_lines = _help_of(settings)
    table = _table("setting", "default", "--quick", "")
    for field in dataclasses.fields(settings):
        usual, small = getattr(default, field.name), getattr(quick, field.name)
        table.add_row(
            "--" + field.name.replace("_", "-"),
            escape(str(usual)),
            "" if small == usual else escape(str(small)),
            f"[dim]{escape(help_lines.get(field.name, ''))}[/]",
        )
    console.print(table)


def show_room(room: Room, console: Console) -> None:
    """Print a room's problem, claims and settings.

    Args:
        room: Which.
        console: Where.

    Raises:
        InputError: If its claims are damaged.
    """
    from noisewright.reports.rooms import room_problem

    console.print(f"[bold]{escape(room.name)}[/]  {escape(room.title)}")
    console.print(f"[dim]{escape(room.paper)}[/]\n")
    console.print(escape(room_problem(room)) + "\n")
    extras = f"; needs noisewright[{','.join(room.extras)}]" if room.extras else ""
    console.print(f"data: {escape(room.data + extras)}\n")
    _show_claims(room, console)
    console.print()
    try:
        _show_settings(room, console)
    except ModuleNotFoundError as error:
        if error.name == f"{room.module}.experiment":
            raise InputError(f"room {room.name!r} has no experiment to run yet") from None
        console.print(f"settings need the package {error.name!r} to be shown")
    own = room.module == f"noisewright.methods.{room.name}"
    console.print(f"\nnoisewright run {room.name if own else room.module} --quick")


def show_sources(sources: Any, console: Console) -> None:
    """Print the registry of data sets with licence, size and whether each is at hand.

    Args:
        sources: The module ``noisewright.data.sources``.
        console: Where.
    """
    table = _table("set", "what it is", "licence", "size", "at hand")
    for name, source in sorted(sources.SOURCES.items()):
        packaged = getattr(source, "kind", "") == "packaged"
        here = "with the package" if packaged else "yes" if sources.find(name) else "no"
        table.add_row(
            name, escape(str(source.title)), escape(str(source.licence)), _size(source.size), here
        )
    console.print(table)
    console.print("[dim]fetch one with: noisewright data fetch SET[/]")


def _size(size: Any) -> str:
    if not isinstance(size, (int, float)) or not size:
        return str(size or "")
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
