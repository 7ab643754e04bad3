"""The driven oscillator: its exact law against many futures, and what the force does."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisewright.data import DrivenOscillator, series_oscillator
from noisewright.types import InputError

SERIES = DrivenOscillator.simulate(6000, seed=0)
STARTS = np.arange(500, 5900, 31)


def windows(horizon=24):
    return SERIES.y[STARTS[:, None] + np.arange(horizon)]


def test_law_is_calibrated_on_its_own_series():
    law = SERIES.predict(STARTS, 24)
    z = (windows() - law.mean) / law.spread
    for lead in (0, 5, 23):
        assert stats.kstest(z[:, lead], "norm").pvalue > 1e-3
    whitened = np.linalg.solve(np.linalg.cholesky(law.covariance), (windows() - law.mean).T)
    assert np.abs(np.corrcoef(whitened) - np.eye(24)).max() < 0.3
    assert whitened.std() == pytest.approx(1.0, abs=0.03)


def test_law_is_that_of_simulated_futures():
    start, horizon, count = 1000, 12, 4000
    law = SERIES.predict(np.array([start]), horizon)
    rng = np.random.default_rng(1)
    states, cover = SERIES._filtered(start)
    state = states[-1] + rng.multivariate_normal(np.zeros(2), cover, size=count)
    paths = np.empty((count, horizon))
    for lead in range(horizon):
        kick = SERIES.force[start + lead] + series_oscillator.PROCESS * rng.standard_normal(count)
        state = state @ series_oscillator.STEP.T + kick[:, None] * series_oscillator.PUSH
        paths[:, lead] = state[:, 0] + series_oscillator.NOISE * rng.standard_normal(count)
    error = law.spread / np.sqrt(count)
    assert (np.abs(paths.mean(0) - law.mean[0]) < 4 * error).all()
    np.testing.assert_allclose(np.cov(paths.T), law.covariance, atol=0.06 * law.covariance.max())


def test_score_of_the_law_is_the_expected_absolute_error_of_a_gaussian():
    law = SERIES.predict(STARTS, 24)
    # E crps = spread / sqrt(pi) for a calibrated Gaussian
    ratio = law.crps(windows()).mean(axis=0) / (law.spread / np.sqrt(np.pi))
    assert ratio.mean() == pytest.approx(1.0, abs=0.08)
    assert law.log_score(windows()).shape == STARTS.shape


def test_flipped_force_changes_the_mean_linearly_and_not_the_spread():
    force = SERIES.force[STARTS[:, None] + np.arange(24)]
    law, none, flipped = (SERIES.predict(STARTS, 24, force=k * force) for k in (1.0, 0.0, -1.0))
    np.testing.assert_allclose(law.mean - none.mean, none.mean - flipped.mean, atol=1e-12)
    np.testing.assert_array_equal(law.covariance, flipped.covariance)
    assert np.abs(law.mean - flipped.mean).mean() > 0.3  # against a spread of the series of 0.6


def test_series_follows_its_seed_and_switches_in_range():
    again = DrivenOscillator.simulate(6000, seed=0)
    np.testing.assert_array_equal(again.y, SERIES.y)
    switches = np.flatnonzero(np.diff(SERIES.force))
    assert set(np.unique(SERIES.force)) == {-0.05, 0.05}
    assert np.diff(switches).min() >= 6
    assert np.diff(switches).max() <= 48
    with pytest.raises(InputError, match="hours=0"):
        DrivenOscillator.simulate(0, seed=0)
