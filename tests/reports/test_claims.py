from __future__ import annotations

import math

import pytest

from noisewright.reports.claims import judge, load_claims
from noisewright.types import Claim, InputError

GOOD = """
[[claim]]
key = "a / b"
relation = "<="
target = 1
text = "A is no worse."
source = "paper"
quick_target = 2.5
"""


def _file(tmp_path, text):
    path = tmp_path / "claims.toml"
    path.write_text(text)
    return path


def test_a_claim_is_read_with_all_its_fields(tmp_path):
    (claim,) = load_claims(_file(tmp_path, GOOD))
    assert claim == Claim("a / b", "<=", 1.0, "A is no worse.", "paper", 2.5, 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("target = 1", 'target = "low"'), "target='low'; give a number"),
        (("target = 1", "target = true"), "target=True; give a number"),
        (("relation", "relatoin"), "unknown field 'relatoin'; did you mean 'relation'"),
        (("text = ", "# text = "), "misses text"),
        (('"<="', '"=<"'), "relation='=<'; use one of"),
        (('"paper"', '"theirs"'), "source='theirs'; use 'paper' or 'ours'"),
        (('"<="', '"within"'), "tolerance > 0 go together"),
        (("[[claim]]", "[[clam]]"), "unknown table 'clam'"),
        (("= 1", "= ="), "not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path, change, message):
    with pytest.raises(InputError, match=r"claims\.toml") as caught:
        load_claims(_file(tmp_path, GOOD.replace(*change)))
    assert message in str(caught.value)


def test_a_claim_stated_twice_is_refused(tmp_path):
    with pytest.raises(InputError, match="'a / b' <= twice"):
        load_claims(_file(tmp_path, GOOD + GOOD))


def test_a_missing_file_says_what_it_is_for(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        load_claims(tmp_path / "claims.toml")


@pytest.mark.parametrize(
    ("values", "quick", "verdict", "why"),
    [
        ({"a": 1.0, "b": 1.0}, False, "holds", ""),
        ({"a": 3.0, "b": 2.0}, False, "falls short", "misses the bar by 0.5"),
        ({"a": 3.0, "b": 2.0}, True, "holds", ""),
        ({"a": 1.0, "b": 0.0}, False, "falls short", "the value is not a finite number"),
        ({"a": math.nan, "b": 1.0}, True, "falls short", "the value is not a finite number"),
        ({"a": 1.0}, False, "not measured", "this run did not record b"),
        ({}, True, "not measured", "left out of --quick runs"),
    ],
)
def test_verdicts_come_with_their_reason(tmp_path, values, quick, verdict, why):
    (one,) = judge(load_claims(_file(tmp_path, GOOD)), values, quick=quick)
    assert (one.verdict, one.why) == (verdict, why)


def test_a_key_with_a_slash_in_its_name_is_no_quotient():
    claim = Claim("t.tight/edm", "<=", 0.8, "")
    (one,) = judge([claim], {"t.tight/edm": 0.7, "t.tight": 9.0, "edm": 1.0})
    assert one.value == 0.7


def test_the_reason_of_an_unmeasured_operand_is_shown():
    claim = Claim("a - b", "<", 0.0, "")
    (one,) = judge([claim], {"a": 1.0}, reasons={"b": "noisewright data fetch b"})
    assert one.why == "noisewright data fetch b"
