from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from noisewright import methods
from noisewright.cli import main
from noisewright.types import Room
from noisewright.version import __version__

ROOMS = str(Path(__file__).parent / "reports")
QUICK = ("run", "sample_rooms.pond", "--quick", "--jobs", "1", "--threads", "1", "--out")


@pytest.fixture(autouse=True)
def sample_rooms(monkeypatch):
    monkeypatch.syspath_prepend(ROOMS)


@pytest.fixture
def say(capsys):
    """Run a command; return its code, what it printed and what it complained about."""

    def say(*args):
        code = main([str(a) for a in args])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return say


@pytest.mark.parametrize("args", [["--help"], ["list"], ["list", "--json"], ["--version"]])
def test_light_commands_load_nothing_heavy(args):
    code = (
        "import sys; from noisewright.cli import main; "
        f"assert main({args!r}) == 0; "
        "heavy = {'torch', 'numpy', 'matplotlib', 'sklearn', 'pandas'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_package_itself_loads_nothing_heavy_and_offers_its_names():
    code = (
        "import sys, noisewright; assert not {'torch', 'numpy'} & set(sys.modules); "
        "assert all(hasattr(noisewright, name) for name in noisewright.__all__); "
        "assert 'torch' in sys.modules; print(noisewright.__version__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == __version__, done.stderr


def test_help_names_every_command(say):
    code, out, _ = say("--help")
    assert code == 0
    for command in ("list", "show", "run", "compare", "scoreboard", "report", "data", "doctor"):
        assert f"\n  {command} " in out
    assert say()[0] == 2
    assert say("scoreboard", "--help")[:2] == (0, out_line(out, "scoreboard"))


def out_line(text, word):
    return next(line for line in text.splitlines() if line.startswith(f"  {word}")) + "\n"


def test_list_shows_every_room_and_survives_a_broken_one(say, monkeypatch, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "__init__.py").write_text("raise RuntimeError('half written')\n")
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    code, out, _ = say("list", "--json")
    entries = {entry["name"]: entry for entry in json.loads(out)}
    assert code == 0
    assert "half written" in entries["broken"]["error"]
    assert set(entries) == set(methods.names())
    assert "half written" in " ".join(say("list")[1].split())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "sampel"], "no room is called 'sampel'"),
        (["run", "sample_rooms.pnod"], "no room 'sample_rooms.pnod'"),
        (["run", "sample_rooms.pond", "--stepz", "3"], "did you mean 'steps'"),
        (["run", "sample_rooms.pond", "--backend", "lok"], "did you mean 'loky'"),
        (
            ["run", "sample_rooms.pond", "--size", "2", "--out", "{out}"],
            "size=2 must be at least 4",
        ),
        (["show"], "usage: noisewright show ROOM"),
        (["shwo", "x"], "did you mean 'show'"),
        (["list", "--jsno"], "unexpected '--jsno'"),
        (["compare", "a"], "two run folders"),
        (["compare", "{out}", "{out}"], "is not a folder"),
        (["report", "{out}"], "is not a folder"),
        (["scoreboard"], "usage"),
        (["scoreboard", "{out}"], "does not exist"),
        (["data", "fetch", "cifar01"], "did you mean 'cifar10'"),
        (["data"], "usage"),
    ],
)
def test_wrong_usage_ends_with_code_2_and_a_hint_and_no_traceback(say, tmp_path, args, message):
    code, _, err = say(*[a.format(out=tmp_path / "out") for a in args])
    assert code == 2
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err


def test_a_misspelt_room_gets_the_nearest_name(say):
    assert "did you mean 'spectral_schedule'" in say("show", "spectral_shedule")[2]


def test_a_run_ends_with_the_finding_the_verdicts_and_the_path(say, tmp_path):
    code, out, err = say(*QUICK, tmp_path / "r")
    assert (code, err) == (0, "")
    tail = out[out.index("Without the echo") :].splitlines()
    assert len(tail) <= 10
    assert tail[1].startswith("✓ holds")
    assert "– not measured" in out
    assert tail[-1] == str(tmp_path / "r" / "report.html")
    assert "survey: done in" in out


def test_strict_turns_a_claim_that_falls_short_into_code_3(say, tmp_path):
    args = ["run", "sample_rooms.pond", "--jobs", "1", "--out", tmp_path / "r"]
    assert say(*args)[0] == 0
    code, out, _ = say(*args, "--strict")
    assert code == 3
    assert "✗ falls short" in out
    assert say(*QUICK, tmp_path / "q", "--strict")[0] == 0


def test_a_full_disk_ends_with_code_1_and_the_name_of_the_file(say, tmp_path, monkeypatch):
    from noisewright import storage

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(storage.os, "fsync", full)
    code, _, err = say(*QUICK, tmp_path / "r")
    assert code == 1
    assert "the disk is full while writing" in err
    assert "settings.toml" in err
    assert "run the same command again" in err
    assert [p.name for p in (tmp_path / "r").iterdir()] == [".lock"]


def test_a_failure_in_the_experiment_ends_with_code_1(say, tmp_path, monkeypatch):
    from sample_rooms.pond import experiment

    monkeypatch.setattr(experiment, "run", lambda settings, run: 1 / 0)
    code, _, err = say(*QUICK, tmp_path / "r")
    assert code == 1
    assert err.strip().endswith("error: ZeroDivisionError: division by zero")


def test_a_wrong_value_ends_with_code_2(say, tmp_path):
    code, _, err = say(*QUICK, tmp_path / "r", "--size", "big")
    assert code == 2
    assert "--size" in err


def test_show_tells_problem_claims_and_settings(say):
    code, out, _ = say("show", "sample_rooms.pond")
    flat = " ".join(out.split())
    assert code == 0
    assert "People who count frogs at night hear them twice" in flat
    assert "It works on a lake." in flat
    assert "< 0.5 the paper" in flat
    assert "--steps 20 5 Listening steps of each arm." in flat


def test_compare_tells_what_differs(say, tmp_path):
    say(*QUICK, tmp_path / "a")
    say(*QUICK, tmp_path / "b", "--seed", "5")
    code, out, _ = say("compare", tmp_path / "a", tmp_path / "b")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert rows["error.ours"].rstrip().endswith("differs")
    assert rows["growth"].rstrip().endswith("same")


def test_report_and_scoreboard_are_made_from_the_files(say, tmp_path):
    say(*QUICK, tmp_path / "a")
    before = (tmp_path / "a" / "report.html").read_text()
    (tmp_path / "a" / "report.html").unlink()
    assert say("report", tmp_path / "a")[0] == 0
    assert (tmp_path / "a" / "report.html").read_text() == before
    code, out, _ = say("scoreboard", tmp_path / "a", "--out", tmp_path / "all.html")
    assert (code, out.strip()) == (0, str(tmp_path / "all.html"))
    assert 'href="a/report.html"' in (tmp_path / "all.html").read_text()


def test_a_room_may_bring_its_own_command(say, monkeypatch):
    module = types.ModuleType("own_command")
    module.main = lambda args: len(args)
    monkeypatch.setitem(sys.modules, "own_command", module)
    room = Room(
        name="r", title="t", paper="p", field="f", data="d", module="m",
        commands={"ripple": "own_command:main"},
    )  # fmt: skip
    monkeypatch.setattr(methods, "rooms", lambda: {"r": room})
    assert say("ripple", "a", "b", "c")[0] == 3
    assert "ripple" in say("--help")[1]
    assert "did you mean 'ripple'" in say("rippel")[2]


def test_data_list_shows_licences(say):
    code, out, _ = say("data", "list")
    assert code == 0
    assert "photos" in out
    assert "licence" in out


def test_doctor_examines_the_machine(say, monkeypatch, tmp_path):
    monkeypatch.setenv("NOISEWRIGHT_DATA", str(tmp_path / "nowhere"))
    code, out, _ = say("doctor")
    assert code == 1
    assert "✗ data mirror" in out
    assert "✓ torch" in out
    assert "✓ write access" in out


def test_python_can_run_a_room_by_name(tmp_path):
    result = methods.run("sample_rooms.pond", quick=True, out=tmp_path / "r", jobs=1, threads=1)
    assert result.values["growth"] == 2.01
