from __future__ import annotations

import json
import math

import pytest

from noisewright.reports.values import Values
from noisewright.types import InputError


def test_mean_and_sample_spread_over_seeds():
    values = Values([4, 5, 6])
    for seed, number in zip((6, 4, 5), (3.0, 1.0, 2.0), strict=True):
        values.record("k", number, seed)
    assert values.summary()["k"] == {"mean": 2.0, "std": 1.0, "per_seed": [1.0, 2.0, 3.0]}


def test_a_value_for_all_seeds_is_the_same_in_each_and_has_no_spread():
    values = Values([0, 1])
    values.record("k", 0.1, None)
    assert values.summary()["k"] == {"mean": 0.1, "std": 0.0, "per_seed": [0.1, 0.1]}
    assert values.spreads(["k"]) == {}


def test_seeds_without_a_value_are_left_out_of_the_mean():
    values = Values([0, 1, 2])
    values.record("k", 1.0, 0)
    values.record("k", 3.0, 2)
    assert values.summary()["k"] == {"mean": 2.0, "std": math.sqrt(2), "per_seed": [1.0, None, 3.0]}


def test_the_spread_of_an_expression_is_that_of_its_value_per_seed():
    values = Values([0, 1])
    for seed in (0, 1):
        values.record("a", 2.0 * (seed + 1), seed)
        values.record("b", 1.0 * (seed + 1), seed)
    assert values.spreads(["a / b", "a - b", "a / c"]) == {
        "a / b": 0.0,
        "a - b": pytest.approx(math.sqrt(0.5)),
    }


def test_a_number_that_is_not_finite_is_null_in_the_file():
    values = Values([0, 1])
    values.record("k", math.inf, 0)
    values.record("k", 1.0, 1)
    text = json.dumps(values.as_json(), allow_nan=False)
    assert json.loads(text)["k"] == {"mean": None, "std": None, "per_seed": [None, 1.0]}
    assert math.isnan(values.means()["k"])


def test_zero_is_a_seed_and_a_value():
    values = Values([0])
    values.record("k", 0.0, 0)
    assert values.means() == {"k": 0.0}


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([("k", 0), ("k", 0)], "recorded twice"),
        ([("k", None), ("k", 0)], "recorded twice"),
        ([("k", 0), ("k", None)], "recorded twice"),
        ([("k", 9)], r"the seeds of this run are \(0, 1\)"),
        ([("", 0)], "must be text"),
    ],
)
def test_records_that_contradict_are_refused(records, message):
    values = Values([0, 1])
    *before, (key, seed) = records
    for one in before:
        values.record(one[0], 1.0, one[1])
    with pytest.raises(InputError, match=message):
        values.record(key, 1.0, seed)
