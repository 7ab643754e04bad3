"""Settings of a run: from defaults, a file and flags, in that order, and back into a file.

A room declares its settings once, as a frozen dataclass with documented fields. Here they become
flags (through tyro) and ``settings.toml`` (a table ``[run]`` for the run's own options and a table
``[settings]`` for the room's). Feeding that file back with ``--config`` gives the same numbers.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisewright.parallel import available_cores, check_backend
from noisewright.reports.command import call_tyro
from noisewright.types import InputError, nearest_name

__all__ = ["Options", "parse", "read_settings", "settings_text"]


@dataclass(frozen=True)
class Options:
    """What every run understands, whatever the room."""

    quick: bool = False
    """Small sizes and one seed: a look in about a minute."""
    seeds: int = 1
    """How many seeds; values are means over them, with their spread."""
    seed: int = 0
    """The first seed; the others follow it."""
    out: Path | None = None
    """Folder of the run; the default is runs/NAME, and runs/NAME-quick for quick runs."""
    device: str = "auto"
    """Where tensors live: auto, cpu, cuda, cuda:1, mps."""
    data: str | None = None
    """Another data source: a set's name, or a path to your own data."""
    jobs: int | None = None
    """How many tasks run side by side; the default is one per core."""
    threads: int | None = None
    """Threads of each task; the default is cores / jobs."""
    backend: str = "loky"
    """Who runs the tasks: loky (processes on this machine), ray or dask."""
    resume: bool = False
    """Go on from what the folder holds; this is the default, the flag only says it aloud."""
    fresh: bool = False
    """Forget the stages that the folder holds and compute everything again."""
    config: Path | None = None
    """Read options and settings from a settings.toml; flags win over it."""
    strict: bool = False
    """End with exit code 3 if a claim falls short."""

    def checked(self) -> Options:
        """Return the options with jobs and threads filled in.

        Raises:
            InputError: If a value cannot work, with the value and what can.
        """
        for name in ("seeds", "jobs", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"--{name} {value} must be at least 1")
        if self.seed < 0:
            raise InputError(f"--seed {self.seed} must not be negative")
        if self.resume and self.fresh:
            raise InputError("--resume and --fresh contradict each other; give one")
        check_backend(self.backend)
        cores = _usable_cores()
        jobs = self.jobs or cores
        return dataclasses.replace(self, jobs=jobs, threads=self.threads or max(1, cores // jobs))

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds: first, first + 1, ..."""
        return tuple(range(self.seed, self.seed + self.seeds))


KEPT = ("quick", "seeds", "seed", "device", "data", "jobs", "threads", "backend")
"""The options that settings.toml holds: those that bear on the numbers."""


def _usable_cores() -> int:
    """Cores, or what OMP_NUM_THREADS allows if that is less."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    cores = available_cores()
    return min(cores, int(limit)) if limit.isdigit() and int(limit) > 0 else cores


# ---------------------------------------------------------------------------- into a file


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if value is None:
        return "None"
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def settings_text(room: str, version: str, settings: Any, options: Options) -> str:
    """Return ``settings.toml``.

    Args:
        room: Name of the room.
        version: Version of noisewright.
        settings: The room's settings, a dataclass.
        options: Options with jobs and threads filled in.
    """
    import tomlkit

    document = tomlkit.document()
    document.add(tomlkit.comment(f"noisewright run {room} --config settings.toml"))
    run = {"method": room, "version": version}
    run |= {n: v for n in KEPT if (v := getattr(options, n)) is not None}
    document["run"] = run
    document["settings"] = _plain(settings)
    return tomlkit.dumps(document)


# ---------------------------------------------------------------------------- from a file


def read_settings(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tables ``[run]`` and ``[settings]`` of a settings file.

    Raises:
        InputError: If the file is absent, damaged, or has other tables.
    """
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--config {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"--config {path} is not valid TOML: {error}") from None
    for name, table in content.items():
        if name not in ("run", "settings") or not isinstance(table, dict):
            raise InputError(
                f"--config {path} has {name!r} at the top; it holds a table [run] and a table "
                "[settings]"
            )
    return content.get("run", {}), content.get("settings", {})


def _as_flags(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Turn a table into flags, so that files and flags go through one typed parser."""
    for name, value in table.items():
        flag = f"--{prefix}{name.replace('_', '-')}"
        if isinstance(value, dict):
            yield from _as_flags(value, f"{prefix}{name.replace('_', '-')}.")
        elif isinstance(value, bool):
            yield flag if value else _negated(flag)
        elif isinstance(value, list):
            yield flag
            yield from map(str, value)
        else:
            yield f"{flag}={value}"


def _negated(flag: str) -> str:
    head, dot, last = flag.removeprefix("--").rpartition(".")
    return f"--{head}{dot}no-{last}"


# ---------------------------------------------------------------------------- flags


def _types(record: type) -> dict[str, Any]:
    return typing.get_type_hints(record)


def _flags(record: type, prefix: str = "") -> dict[str, Any]:
    """Return every flag of a dataclass with the type of its field; nested ones with a dot."""
    found: dict[str, Any] = {}
    for name, kind in _types(record).items():
        if not any(f.name == name for f in dataclasses.fields(record)):
            continue
        flag = prefix + name.replace("_", "-")
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            found |= _flags(kind, f"{flag}.")
        else:
            found[flag] = kind
    return found


def _takes_many(kind: Any) -> bool:
    if typing.get_origin(kind) in (tuple, list):
        return True
    return any(_takes_many(part) for part in typing.get_args(kind))


def _normalised(args: Sequence[str], known: Mapping[str, Any]) -> list[str]:
    """Check the names of flags, write them with hyphens, and split ``4,8`` for sequences."""
    names = set(known) | {
        _negated(f"--{n}").removeprefix("--") for n, k in known.items() if k is bool
    }
    result: list[str] = []
    many = False
    for arg in args:
        if arg.startswith("--") and len(arg) > 2:
            name, equals, value = arg[2:].partition("=")
            name = name.replace("_", "-")
            if name not in names:
                raise InputError(f"unknown setting --{name}{nearest_name(name, names)}")
            many = _takes_many(known.get(name))
            result.append(f"--{name}")
            if equals:
                result.extend(value.split(",") if many else [value])
        elif many and "," in arg:
            result.extend(part for part in arg.split(",") if part)
        else:
            result.append(arg)
    return result


def _check_collisions(settings: type) -> None:
    ours = {f.name for f in dataclasses.fields(Options)}
    for field in dataclasses.fields(settings):
        if field.name in ours:
            raise InputError(
                f"{settings.__module__}.Settings has a field {field.name!r}, which is an option of "
                "every run; give it another name"
            )


def _config_of(args: Sequence[str]) -> str | None:
    """Find ``--config FILE`` before anything is parsed: it decides the defaults."""
    for i, arg in enumerate(args):
        if arg.startswith("--config="):
            return arg.partition("=")[2]
        if arg == "--config":
            if i + 1 == len(args):
                raise InputError("--config needs a file")
            return args[i + 1]
    return None


def _checked_table(table: Mapping[str, Any], known: Mapping[str, Any], where: str) -> list[str]:
    flags = list(_as_flags(table))
    negated = {_negated(f"--{n}"): n for n in known}
    for flag in flags:
        name = flag.removeprefix("--").partition("=")[0]
        if flag.startswith("--") and name not in known and flag not in negated:
            raise InputError(f"{where}: unknown setting {name!r}{nearest_name(name, known)}")
    return flags


def _help(room: str, settings: Any, description: str) -> typing.NoReturn:
    import tyro

    both = dataclasses.make_dataclass(
        "Command",
        [
            ("run", tyro.conf.OmitArgPrefixes[Options], dataclasses.field(default=Options())),
            (
                "settings",
                tyro.conf.OmitArgPrefixes[type(settings)],
                dataclasses.field(default=settings),
            ),
        ],
    )
    call_tyro(both, args=["--help"], prog=f"noisewright run {room}", description=description)
    raise SystemExit(0)


def parse(
    room: str, settings: type, args: Sequence[str], *, description: str = ""
) -> tuple[Any, Options]:
    """Read settings and options: default, then ``--quick``'s, then the file, then flags.

    Args:
        room: Name of the room, for messages.
        settings: The room's settings class; ``quick()`` gives the quick defaults, if it has one.
        args: What follows the room's name on the command line.
        description: First lines of ``--help``.

    Returns:
        Settings of that class, and options.

    Raises:
        InputError: For an unknown flag (with the nearest name) or a file that does not fit.
        SystemExit: With code 2 for a value of the wrong type, printed with its flag; with 0 after
            ``--help``.
    """
    _check_collisions(settings)
    ours, theirs = _flags(Options), _flags(settings)
    wants_help = "-h" in args or "--help" in args
    if wants_help:
        _help(room, settings(), description)
    args = _normalised(args, ours | theirs)
    run_table: dict[str, Any] = {}
    room_table: dict[str, Any] = {}
    if (config := _config_of(args)) is not None:
        run_table, room_table = read_settings(config)
        if (method := run_table.pop("method", room)) != room:
            raise InputError(f"--config {config} is of {method!r}, not of {room!r}")
        run_table.pop("version", None)
    prog = f"noisewright run {room}"
    where = f"--config {config}"
    file_options = call_tyro(
        Options, prog=prog, args=_checked_table(run_table, dict.fromkeys(KEPT), where)
    )
    options, rest = call_tyro(
        Options, prog=prog, args=args, default=file_options, return_unknown_args=True
    )
    default = settings.quick() if options.quick and hasattr(settings, "quick") else settings()
    filed = call_tyro(
        settings, prog=prog, args=_checked_table(room_table, theirs, where), default=default
    )
    return call_tyro(settings, prog=prog, args=rest, default=filed), options
