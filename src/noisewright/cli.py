"""The command line: rooms are listed, shown and run; runs are compared and reported.

Only what a command needs is imported, and only when it runs: ``--help`` and ``list`` load no
torch. Exit codes: 0 ran, 1 failed, 2 usage, 3 a claim falls short under ``--strict``, 130 Ctrl-C.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from noisewright import methods
from noisewright.types import InputError, NonFiniteError, Room, nearest_name
from noisewright.version import __version__

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["main"]

HELP = """\
usage: noisewright COMMAND ...

  list [--json]            every room: what it does, and for whom
  show ROOM                a room's problem, claims and settings
  run ROOM [--quick] ...   run a room's experiment; `run ROOM --help` lists its settings
  compare A B              two runs side by side
  scoreboard DIR...        one page with every room and its verdicts
  report DIR               make report.html again from the files of a run
  data list | fetch SET    named data sets: licence, size, where they are
  doctor                   what works on this machine

  noisewright --version    the version
"""


def _console() -> Console:
    from rich.console import Console

    # A pipe has no width of its own; 80 columns would fold tables for no reader.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120
    return Console(highlight=False, width=width)


def _print(text: str, *, error: bool = False) -> None:
    stream = sys.stderr if error else sys.stdout
    stream.write(text + "\n")
    stream.flush()


def _no_more(args: Sequence[str], usage: str) -> None:
    if args:
        raise InputError(f"unexpected {args[0]!r}; usage: noisewright {usage}")


# ---------------------------------------------------------------------------- rooms


def _list(args: list[str]) -> int:
    as_json = "--json" in args
    _no_more([a for a in args if a != "--json"], "list [--json]")
    found = methods.rooms()
    if as_json:
        entries = [_listed(name, room) for name, room in found.items()]
        _print(json.dumps(entries, indent=2, ensure_ascii=False))
        return 0
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for head in ("room", "what it does", "field", "data", "extras"):
        table.add_column(head, no_wrap=head == "room")
    for name, room in found.items():
        if isinstance(room, Room):
            cells = (room.title, room.field, room.data, ", ".join(room.extras))
            table.add_row(f"[bold]{name}[/]", *map(escape, cells))
        else:
            table.add_row(f"[bold]{name}[/]", f"[red]cannot be loaded: {escape(str(room))}[/]")
    _console().print(table)
    return 0


def _listed(name: str, room: Room | Exception) -> dict[str, object]:
    if not isinstance(room, Room):
        return {"name": name, "error": str(room)}
    fields = ("name", "title", "paper", "field", "data", "module")
    entry: dict[str, object] = {field: getattr(room, field) for field in fields}
    return entry | {"extras": list(room.extras), "commands": sorted(room.commands)}


def _show(args: list[str]) -> int:
    if len(args) != 1:
        raise InputError("usage: noisewright show ROOM")
    from noisewright.reports.showing import show_room

    show_room(methods.room(args[0]), _console())
    return 0


def _run(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help"):
        _print("usage: noisewright run ROOM [options]; rooms: " + ", ".join(methods.names()))
        return 0 if args else 2
    room = methods.room(args[0])
    experiment = _import_experiment(room)
    from noisewright.reports import options as opts
    from noisewright.reports.run import execute
    from noisewright.reports.stages import process_rank
    from noisewright.reports.terminal import show_result

    about = f"{room.title}. {room.paper}"
    settings, options = opts.parse(room.name, experiment.Settings, args[1:], description=about)
    command = ["noisewright", "run", *args]
    console = _console()
    try:
        result = execute(room, experiment, settings, options, command=command, console=console)
    except KeyboardInterrupt:
        again = shlex.join(word for word in command if word != "--fresh")
        _print(f"\nstopped; go on from the last finished stage with:\n  {again}", error=True)
        return 130
    if process_rank()[0] == 0:
        show_result(result.folder, console)
    return 3 if options.strict and result.falls_short else 0


def _import_experiment(room: Room) -> ModuleType:
    try:
        return importlib.import_module(f"{room.module}.experiment")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith(room.module):
            raise InputError(f"room {room.name!r} has no experiment to run yet") from None
        how = " or ".join(f"pip install 'noisewright[{extra}]'" for extra in room.extras)
        raise InputError(
            f"room {room.name!r} needs the package {error.name!r}; {how or 'install it'}"
        ) from None


# ---------------------------------------------------------------------------- runs


def _compare(args: list[str]) -> int:
    if len(args) != 2:
        raise InputError("usage: noisewright compare A B (two run folders)")
    from noisewright.reports.terminal import compare

    compare(Path(args[0]), Path(args[1]), _console())
    return 0


def _option(args: list[str], name: str) -> str | None:
    """Take ``name VALUE`` or ``name=VALUE`` out of the arguments."""
    for i, arg in enumerate(args):
        if arg == name:
            if i + 1 == len(args):
                raise InputError(f"{name} needs a value")
            del args[i]
            return args.pop(i)
        if arg.startswith(name + "="):
            return args.pop(i).partition("=")[2]
    return None


def _scoreboard(args: list[str]) -> int:
    out = Path(_option(args, "--out") or "scoreboard.html")
    if not args or args[0].startswith("-"):
        raise InputError("usage: noisewright scoreboard DIR... [--out scoreboard.html]")
    from noisewright.reports.scoreboard import render_scoreboard
    from noisewright.storage import write_atomic

    page = render_scoreboard([Path(a) for a in args], methods.rooms(), beside=out.parent)
    _print(str(write_atomic(out, page)))
    return 0


def _report(args: list[str]) -> int:
    publish = _option(args, "--publish")
    if len(args) != 1:
        raise InputError("usage: noisewright report DIR [--publish FOLDER]")
    from noisewright.reports.html import render_report
    from noisewright.storage import write_atomic

    folder = Path(args[0])
    _print(str(write_atomic(folder / "report.html", render_report(folder))))
    if publish is not None:
        from noisewright.reports.scoreboard import publish_result

        _print(str(publish_result(folder, Path(publish))))
    return 0


# ---------------------------------------------------------------------------- machine


def _data(args: list[str]) -> int:
    from noisewright.reports.showing import show_sources

    sources = importlib.import_module("noisewright.data.sources")
    if args == ["list"]:
        show_sources(sources, _console())
        return 0
    if len(args) == 2 and args[0] == "fetch":
        if args[1] not in sources.SOURCES:
            raise InputError(f"no data set {args[1]!r}{nearest_name(args[1], sources.SOURCES)}")
        source = sources.SOURCES[args[1]]
        _print(f"{source.title}\nlicence: {source.licence}\nfrom: {source.origin}")
        _print(str(sources.fetch(args[1])))
        return 0
    raise InputError("usage: noisewright data list | noisewright data fetch SET")


def _doctor(args: list[str]) -> int:
    _no_more(args, "doctor")
    from rich.markup import escape

    from noisewright.reports.doctor import examine

    console, bad = _console(), False
    signs = {"ok": "[green]✓[/]", "note": "[yellow]–[/]", "bad": "[red]✗[/]"}
    for check in examine(methods.rooms()):
        bad = bad or check.state == "bad"
        console.print(f"{signs[check.state]} [bold]{escape(check.name)}[/]  {escape(check.text)}")
    return 1 if bad else 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "list": _list,
    "show": _show,
    "run": _run,
    "compare": _compare,
    "scoreboard": _scoreboard,
    "report": _report,
    "data": _data,
    "doctor": _doctor,
}


def _room_commands() -> dict[str, str]:
    found = {}
    for room in methods.rooms().values():
        if isinstance(room, Room):
            found |= room.commands
    return found


def _dispatch(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        _print(HELP + _own_commands_help())
        return 0 if args else 2
    if args[0] == "--version":
        _print(f"noisewright {__version__}")
        return 0
    name, rest = args[0], args[1:]
    if name in COMMANDS:
        if rest and rest[0] in ("-h", "--help") and name != "run":
            _print("\n".join(line for line in HELP.splitlines() if line.startswith(f"  {name}")))
            return 0
        return COMMANDS[name](rest)
    own = _room_commands()
    if name in own:
        module, _, function = own[name].partition(":")
        return int(getattr(importlib.import_module(module), function)(rest) or 0)
    raise InputError(f"no command {name!r}{nearest_name(name, [*COMMANDS, *own])}")


def _own_commands_help() -> str:
    own = _room_commands()
    return f"\ncommands of rooms: {', '.join(sorted(own))}\n" if own else ""


def _os_error(error: OSError) -> str:
    where = f" while writing {error.filename}" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return (
            f"the disk is full{where}; nothing was left half-written. Free some space and run the "
            "same command again: it goes on from the last finished stage"
        )
    return str(error)


def main(args: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        args: What follows ``noisewright``; None takes it from the command line.
    """
    try:
        return _dispatch(list(sys.argv[1:] if args is None else args))
    except InputError as error:
        _print(f"error: {error}", error=True)
        return 2
    except KeyboardInterrupt:
        _print("\nstopped", error=True)
        return 130
    except BrokenPipeError:
        return 0
    except SystemExit as stop:  # tyro, after it has printed what was wrong
        return stop.code if isinstance(stop.code, int) else 1 if stop.code else 0
    except OSError as error:
        _print(f"error: {_os_error(error)}", error=True)
        return 1
    except NonFiniteError as error:
        _print(f"error: {error}", error=True)
        return 1
    except Exception as error:
        from noisewright.reports.run import RunFailedError

        if not isinstance(error, RunFailedError):
            traceback.print_exc()
        _print(f"error: {type(error).__name__}: {error}", error=True)
        return 1
