"""Claims, verdicts, names; and that the words of the library load nothing heavy."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisewright.types import KINDS, Claim, InputError, NonFiniteError, Room, nearest_name

numbers = st.floats(-1e6, 1e6)


@given(numbers, numbers)
def test_opposite_relations_never_both_hold(value, target):
    def verdict(relation):
        return Claim("x", relation, target, "").judge({"x": value})

    assert {verdict("<="), verdict(">")} == {"holds", "falls short"}
    assert {verdict(">="), verdict("<")} == {"holds", "falls short"}
    assert (verdict("==") == "holds") == (value == target)


@given(numbers, st.floats(0, 10))
def test_within_is_a_closed_interval(target, tolerance):
    claim = Claim("x", "within", target, "", tolerance=tolerance)
    assert claim.judge({"x": target}) == "holds"
    assert claim.judge({"x": target + 2 * tolerance + 1}) == "falls short"


@pytest.mark.parametrize("relation", ["<=", ">=", "<", ">", "==", "within"])
def test_nan_falls_short_of_everything(relation):
    assert Claim("x", relation, 0.0, "", tolerance=1e9).judge({"x": math.nan}) == "falls short"


@pytest.mark.parametrize(
    ("key", "value"),
    [("a / b", 4.0), ("a - b", 6.0), ("a/b", 9.0), ("b / a", 0.25), ("a", 8.0), ("c / a", None)],
)
def test_key_may_be_an_expression_or_hold_a_slash(key, value):
    assert Claim(key, "<=", 0.0, "").value({"a": 8.0, "b": 2.0, "a/b": 9.0}) == value


def test_division_by_zero_falls_short_and_absence_is_not_measured():
    assert Claim("a / b", ">=", 0.0, "").judge({"a": 1.0, "b": 0.0}) == "falls short"
    assert Claim("a / b", ">=", 0.0, "").judge({"a": 1.0}) == "not measured"


def test_quick_runs_may_have_their_own_bar():
    claim = Claim("x", "<=", 1.0, "", quick_target=2.0)
    assert claim.judge({"x": 1.5}) == "falls short"
    assert claim.judge({"x": 1.5}, quick=True) == "holds"
    zero = Claim("x", "<=", 1.0, "", quick_target=0.0)  # zero is a bar like any other
    assert zero.bar(quick=True) == 0.0


@given(st.sampled_from(["spectral", "parpic", "rectified"]), st.data())
def test_a_name_with_a_letter_missing_is_found(name, data):
    place = data.draw(st.integers(0, len(name) - 1))
    misspelt = name[:place] + name[place + 1 :]
    assert f"did you mean {name!r}" in nearest_name(misspelt, ["spectral", "parpic", "rectified"])


def test_errors_are_the_built_in_kinds_people_catch():
    assert issubclass(InputError, ValueError)
    assert issubclass(NonFiniteError, FloatingPointError)


def test_rooms_do_not_share_their_commands():
    first, second = (Room(n, "t", "p", "f", "d", "m") for n in ("a", "b"))
    assert first.commands == {}
    assert first.commands is not second.commands


def test_kinds_are_told_apart():
    assert set(KINDS) == {"data", "noise", "velocity", "score", "v"}


@pytest.mark.parametrize(
    "module", ["noisewright", "noisewright.types", "noisewright.cli", "noisewright.methods"]
)
def test_light_modules_load_no_heavy_library(module):
    heavy = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "pandas"}
    code = f"import sys, {module}; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
