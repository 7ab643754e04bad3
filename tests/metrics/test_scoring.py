"""Scores of sampled forecasts, against closed forms and against scoringrules."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from scipy import stats

from noisewright.metrics import (
    crps_ensemble,
    crps_quantiles,
    interval_hits,
    mean_error_squared,
    randomised_ranks,
    roughness,
)
from noisewright.types import InputError

RNG = np.random.default_rng


def gaussian_crps(y):
    return y * (2 * stats.norm.cdf(y) - 1) + 2 * stats.norm.pdf(y) - 1 / np.sqrt(np.pi)


@pytest.mark.parametrize("count", [2, 5, 40])
def test_fair_score_has_the_expectation_of_the_law_whatever_the_number_of_samples(count):
    samples = RNG(0).standard_normal((60_000, count))
    y = np.full(len(samples), 0.7)
    found = crps_ensemble(samples, y, axis=1)
    error = found.std() / np.sqrt(len(found))
    assert abs(found.mean() - gaussian_crps(0.7)) < 4 * error


def test_antithetic_score_has_the_same_expectation_and_the_plain_one_has_not():
    half = RNG(0).standard_normal((60_000, 4))
    samples, y = np.concatenate([half, -half], axis=1), np.full(len(half), 0.7)
    paired, plain = (crps_ensemble(samples, y, axis=1, antithetic=a) for a in (True, False))
    assert abs(paired.mean() - gaussian_crps(0.7)) < 4 * paired.std() / np.sqrt(len(y))
    assert abs(plain.mean() - gaussian_crps(0.7)) > 8 * plain.std() / np.sqrt(len(y))


def test_scores_equal_double_sums():
    samples, y = RNG(1).standard_normal((3, 8, 2)), RNG(2).standard_normal((3, 2))
    for antithetic in (False, True):
        found = crps_ensemble(samples, y, axis=1, antithetic=antithetic)
        far = np.abs(samples[:, :, None] - samples[:, None])
        kept = ~np.eye(8, dtype=bool)
        if antithetic:
            kept &= ~np.roll(np.eye(8, dtype=bool), 4, axis=1)
        wanted = np.abs(samples - y[:, None]).mean(1) - far[:, kept].mean(1) / 2
        np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_score_is_that_of_scoringrules():
    if importlib.util.find_spec("scoringrules") is None:
        pytest.skip("the oracle scoringrules is not installed (extra 'oracles')")
    import scoringrules

    samples, y = RNG(0).standard_normal((20, 9)), RNG(1).standard_normal(20)
    theirs = scoringrules.crps_ensemble(y, samples, estimator="fair")
    np.testing.assert_allclose(crps_ensemble(samples, y, axis=1), theirs, atol=1e-10)


def test_score_moves_with_the_unit():
    samples, y = RNG(0).standard_normal((4, 30)), RNG(1).standard_normal(4)
    plain = crps_ensemble(samples, y, axis=1)
    np.testing.assert_allclose(crps_ensemble(5 - 3 * samples, 5 - 3 * y, axis=1), 3 * plain)


def test_many_quantiles_score_like_the_law():
    levels = (np.arange(2000) + 0.5) / 2000
    y = np.array([-1.0, 0.0, 2.0])
    values = np.broadcast_to(stats.norm.ppf(levels), (3, 2000))
    np.testing.assert_allclose(crps_quantiles(values, levels, y), gaussian_crps(y), atol=2e-3)


def test_error_of_the_mean_leaves_out_its_sampling_error():
    samples = 1.0 + RNG(0).standard_normal((40_000, 6))
    found = mean_error_squared(samples, np.zeros(len(samples)), axis=1)
    assert abs(found.mean() - 1.0) < 4 * found.std() / np.sqrt(len(found))
    half = RNG(1).standard_normal((4, 3))
    paired = mean_error_squared(
        np.concatenate([half, -half], axis=1), np.full(4, 2.0), axis=1, antithetic=True
    )
    np.testing.assert_allclose(paired, 4.0)  # pairs cancel: nothing is left to chance


def test_intervals_and_ranks_of_a_calibrated_forecast():
    samples = RNG(0).standard_normal((20_000, 99))
    y = RNG(1).standard_normal(20_000)
    assert interval_hits(samples, y, axis=1).mean() == pytest.approx(0.9, abs=0.02)
    assert interval_hits(samples, y, axis=1, level=0.5).mean() == pytest.approx(0.5, abs=0.02)
    ranks = randomised_ranks(samples, y, axis=1)
    assert stats.kstest(ranks, "uniform").pvalue > 0.01
    assert np.array_equal(ranks, randomised_ranks(samples, y, axis=1))


def test_ranks_of_counts_are_uniform_too():
    samples, y = RNG(0).poisson(1.0, (20_000, 20)), RNG(1).poisson(1.0, 20_000)
    assert stats.kstest(randomised_ranks(samples, y, axis=1), "uniform").pvalue > 0.01


def test_narrow_forecast_has_ranks_at_the_ends():
    samples, y = 0.2 * RNG(0).standard_normal((2000, 50)), RNG(1).standard_normal(2000)
    ranks = randomised_ranks(samples, y, axis=1)
    assert ((ranks < 0.05) | (ranks > 0.95)).mean() > 0.5


def test_roughness_ignores_level_and_slope_and_grows_with_the_square():
    path = RNG(0).standard_normal((2, 30))
    tilted = path + 3 + 0.5 * np.arange(30)
    np.testing.assert_allclose(roughness(tilted, axis=1), roughness(path, axis=1))
    np.testing.assert_allclose(roughness(2 * path, axis=1), 4 * roughness(path, axis=1))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: crps_ensemble(np.zeros((3, 1)), np.zeros(3), axis=1), "at least 2"),
        (lambda: crps_ensemble(np.zeros((3, 4)), np.zeros(4), axis=1), "the truth"),
        (lambda: crps_ensemble(np.zeros((3, 4)), np.zeros(3), axis=2), "axis=2"),
        (lambda: crps_ensemble(np.zeros(5), np.zeros(()), axis=0, antithetic=True), "pairs"),
        (lambda: interval_hits(np.zeros(5), np.zeros(()), axis=0, level=1.0), "level=1.0"),
        (lambda: crps_quantiles(np.zeros((2, 1)), np.array([1.0]), np.zeros(2)), "levels"),
        (lambda: roughness(np.zeros(2), axis=0), "at least 3"),
    ],
)
def test_what_cannot_be_scored_is_refused(call, words):
    with pytest.raises(InputError, match=words):
        call()
