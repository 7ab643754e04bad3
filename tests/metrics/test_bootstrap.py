from __future__ import annotations

import math

import pytest
import torch

from noisewright.metrics import bootstrap_interval


def normal(*shape, seed=0):
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=stream, dtype=torch.float64)


def test_interval_of_a_mean_is_that_of_the_normal_law():
    rows = normal(400)
    interval = bootstrap_interval(rows, draws=4000)
    half = 1.96 * float(rows.std()) / math.sqrt(400)
    assert interval.value == pytest.approx(float(rows.mean()))
    assert interval.low == pytest.approx(interval.value - half, abs=0.15 * half)
    assert interval.high == pytest.approx(interval.value + half, abs=0.15 * half)


def test_coverage_is_near_the_nominal_one():
    inside = [
        (found := bootstrap_interval(normal(40, seed=seed), level=0.8, draws=200)).low
        <= 0
        <= found.high
        for seed in range(300)
    ]
    assert 0.72 < sum(inside) / 300 < 0.87


def test_same_seed_same_interval_and_zero_is_a_seed():
    rows = normal(30)
    assert bootstrap_interval(rows, seed=0) == bootstrap_interval(rows, seed=0)
    assert bootstrap_interval(rows, seed=0) != bootstrap_interval(rows, seed=1)


def test_pairs_stay_together():
    a = normal(50)
    b = a + 3

    def gap(x, y):
        return float((y - x).mean())

    paired = bootstrap_interval(a, b, statistic=gap, paired=True)
    apart = bootstrap_interval(a, b, statistic=gap)
    assert paired.low == pytest.approx(3)
    assert paired.high == pytest.approx(3)
    assert apart.high - apart.low > 0.3


def test_rows_of_any_shape_are_drawn_whole():
    rows = torch.arange(5).view(5, 1, 1).expand(5, 2, 3)

    def broken_rows(sample):
        return float((sample != sample[:, :1, :1]).sum())

    assert bootstrap_interval(rows, statistic=broken_rows, draws=20).high == 0


@pytest.mark.parametrize(
    ("samples", "options", "words"),
    [
        ((), {}, "at least one"),
        ((torch.zeros(0),), {}, "empty"),
        ((torch.zeros(3),), {"level": 1.0}, "level must"),
        ((torch.zeros(3),), {"draws": 0}, "draws positive"),
        ((torch.zeros(3), torch.zeros(4)), {"paired": True}, "give equal"),
    ],
)
def test_samples_that_cannot_be_drawn_are_refused(samples, options, words, refuses):
    with refuses(words):
        bootstrap_interval(*samples, **options)
