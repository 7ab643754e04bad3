from __future__ import annotations

import math

import pytest
import torch

from noisewright.metrics import kernel, median_distance, mmd
from noisewright.types import InputError


def normal(*shape, seed=0):
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=stream, dtype=torch.float64)


def slow_mmd(a, b, value):
    inside = [
        sum(value(x[i], x[j]) for i in range(len(x)) for j in range(len(x)) if i != j)
        / (len(x) * (len(x) - 1))
        for x in (a, b)
    ]
    cross = sum(value(x, y) for x in a for y in b) / (len(a) * len(b))
    return float(sum(inside) - 2 * cross)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rbf", lambda x, y: torch.exp(-(x - y).square().sum() / (2 * 1.5**2))),
        ("polynomial", lambda x, y: (x @ y / 4 + 1) ** 3),
    ],
)
def test_estimate_follows_the_definition_in_parts_too(name, value, monkeypatch):
    monkeypatch.setattr(kernel, "PART", 3)
    a, b = normal(8, 4), normal(7, 4, seed=1) + 0.5
    assert mmd(a, b, kernel=name, bandwidth=1.5) == pytest.approx(slow_mmd(a, b, value))


@pytest.mark.parametrize("name", ["rbf", "polynomial"])
def test_no_bias_for_one_law_at_small_counts(name):
    values = torch.tensor(
        [
            mmd(
                normal(8, 3, seed=seed),
                normal(8, 3, seed=seed + 10_000),
                kernel=name,
                bandwidth=2.0,
            )
            for seed in range(400)
        ]
    )
    assert abs(float(values.mean())) < 4 * float(values.std()) / math.sqrt(400)
    assert float(values.min()) < 0 < float(values.max())


def test_rbf_between_gaussians_meets_the_closed_form():
    # Squared MMD of N(0,1) and N(m,1) for bandwidth h: 2 c (1 - exp(-m^2 / 2(h^2 + 2))),
    # with c = h / sqrt(h^2 + 2).
    m, h = 1.0, 1.0
    expected = 2 * h / math.sqrt(h**2 + 2) * (1 - math.exp(-(m**2) / (2 * (h**2 + 2))))
    estimate = mmd(normal(4000, 1), normal(4000, 1, seed=1) + m, bandwidth=h)
    assert estimate == pytest.approx(expected, abs=0.02)


def test_default_bandwidth_is_the_median_and_scales_with_the_features():
    a, b = normal(30, 4), normal(30, 4, seed=1) + 1
    assert mmd(a, b) == pytest.approx(mmd(a, b, bandwidth=median_distance(a, b)))
    assert mmd(10 * a, 10 * b) == pytest.approx(mmd(a, b))


def test_median_of_many_rows_is_close_to_the_median_of_all():
    a, b = normal(3000, 2), normal(3000, 2, seed=1)
    # Distances of N(0, I) pairs in two dimensions: 2 sqrt(log 2).
    assert median_distance(a, b) == pytest.approx(2 * math.sqrt(math.log(2)), rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "linear"}, "kernel must be"),
        ({"bandwidth": 0}, "bandwidth must be positive"),
        ({"bandwidth": -1.0}, "bandwidth must be positive"),
    ],
)
def test_arguments_that_cannot_work_are_refused(arguments, message, refuses):
    with refuses(message):
        mmd(normal(5, 2), normal(5, 2), **arguments)


def test_equal_rows_need_a_bandwidth():
    with pytest.raises(InputError, match="give one"):
        mmd(torch.ones(4, 2), torch.ones(4, 2))
