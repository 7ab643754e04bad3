from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pytest

from noisewright.reports.options import Options, parse, settings_text
from noisewright.types import InputError


@dataclass(frozen=True)
class Net:
    width: int = 8
    """Channels."""


@dataclass(frozen=True)
class Settings:
    size: int = 32
    """Side in pixels."""
    steps_list: tuple[int, ...] = (4, 8)
    """Numbers of steps."""
    names: tuple[str, ...] = ("tight", "edm")
    """Schedules."""
    kind: Literal["data", "noise"] = "data"
    """What the net predicts."""
    rate: float = 1e-3
    """Learning rate."""
    limit: float | None = 2.0
    """Stop there."""
    deep: bool = True
    """Whether it is deep."""
    net: Net = field(default_factory=Net)
    """The net."""

    @classmethod
    def quick(cls) -> Settings:
        return cls(size=16, rate=0.1)


def _parse(*args: str) -> tuple[Settings, Options]:
    return parse("room", Settings, args)


def test_defaults_then_quick_then_file_then_flags(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text("[run]\nseeds = 3\nseed = 7\n[settings]\nsize = 20\nkind = 'noise'\n")
    assert _parse()[0] == Settings()
    assert _parse("--quick")[0] == Settings.quick()
    settings, options = _parse("--quick", "--config", str(path), "--kind", "data", "--seed", "0")
    assert settings == replace(Settings.quick(), size=20)
    assert (options.quick, options.seeds, options.seed) == (True, 3, 0)


@pytest.mark.parametrize(
    "args",
    [
        ("--steps-list", "2", "16"),
        ("--steps-list", "2,16"),
        ("--steps-list=2,16",),
        ("--steps_list", "2, 16".replace(" ", "")),
        ("--steps-list", "2,", "16"),
    ],
)
def test_sequences_take_commas_and_blanks(args):
    settings, options = _parse(*args, "--seeds", "2")
    assert settings.steps_list == (2, 16)
    assert options.seeds == 2


def test_a_comma_in_plain_text_stays():
    assert _parse("--data", "a,b.csv")[1].data == "a,b.csv"


def test_what_a_run_writes_gives_the_same_settings_back(tmp_path):
    path = tmp_path / "settings.toml"
    odd = replace(
        Settings(), limit=None, deep=False, names=("x y", "z,1"), rate=-1e-07, net=Net(width=3)
    )
    options = Options(quick=True, seeds=2, seed=5, data="-a b/c,1.csv", jobs=3, threads=2).checked()
    path.write_text(settings_text("room", "1.0", odd, options))
    settings, again = _parse("--config", str(path))
    assert settings == odd
    assert again.checked() == replace(options, config=path)


def test_the_file_is_plain_toml_with_two_tables():
    content = tomllib.loads(settings_text("room", "1.0", Settings(), Options().checked()))
    assert content["settings"]["net"] == {"width": 8}
    assert content["run"]["method"] == "room"
    assert set(content) == {"run", "settings"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--sise", "3"), r"unknown setting --sise; did you mean 'size'"),
        (("--sed", "3"), r"did you mean 'seed'"),
        (("--net.widht", "3"), r"did you mean 'net.width'"),
        (("--config", "/nowhere/s.toml"), "cannot be read"),
        (("--config",), "needs a file"),
    ],
)
def test_what_is_misspelt_or_missing_is_refused_with_a_hint(args, message):
    with pytest.raises(InputError, match=message):
        _parse(*args)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[settings]\nsise = 3\n", "unknown setting 'sise'; did you mean 'size'"),
        ("[run]\nfresh = true\n", "unknown setting 'fresh'"),
        ("size = 3\n", "'size' at the top"),
        ("[run]\nmethod = 'parpic'\n", "is of 'parpic', not of 'room'"),
        ("[run\n", "not valid TOML"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_its_name(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"mine\.toml") as caught:
        _parse("--config", str(path))
    assert message in str(caught.value)


def test_a_value_of_the_wrong_kind_ends_with_code_2(capsys):
    with pytest.raises(SystemExit) as caught:
        _parse("--size", "big")
    assert caught.value.code == 2
    assert "--size" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        Options(seeds=0),
        Options(seed=-1),
        Options(jobs=0),
        Options(threads=0),
        Options(resume=True, fresh=True),
        Options(backend="lok"),
    ],
)
def test_options_that_cannot_work_are_refused(options):
    with pytest.raises(InputError):
        options.checked()


def test_a_setting_named_as_an_option_of_every_run_is_refused():
    @dataclass(frozen=True)
    class Clash:
        seed: int = 0

    with pytest.raises(InputError, match="field 'seed'"):
        parse("room", Clash, [])


def test_help_shows_documentation_of_options_and_settings(capsys):
    with pytest.raises(SystemExit) as caught:
        _parse("--help")
    shown = capsys.readouterr().out
    assert caught.value.code == 0
    assert "Side in pixels." in shown
    assert "--steps-list" in shown
    assert "first seed" in shown


def test_seeds_follow_the_first():
    assert Options(seeds=3, seed=5).all_seeds == (5, 6, 7)
    assert Options().all_seeds == (0,)
    assert Options(out=Path("x")).checked().out == Path("x")
