"""Scores of forecasts on a set of windows, by the keys of the report."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisewright.metrics import (
    crps_ensemble,
    crps_quantiles,
    interval_hits,
    mean_error_squared,
    randomised_ranks,
    roughness,
)

__all__ = ["INTERVALS", "score_line", "score_quantiles", "score_samples"]

INTERVALS = np.linspace(0.1, 0.9, 9)
"""Probabilities of the intervals in the reliability diagram."""


def score_samples(
    samples: np.ndarray, truth: np.ndarray, *, antithetic: bool = True, detail: bool = False
) -> dict[str, Any]:
    """Score futures.

    Args:
        samples: (windows, S, H, C).
        truth: (windows, H, C).
        antithetic: Whether future i is opposite to future i + S / 2.
        detail: Also by lead, interval, rank and frequency, for pictures.
    """
    crps = crps_ensemble(samples, truth, axis=1, antithetic=antithetic)
    error = mean_error_squared(samples, truth, axis=1, antithetic=antithetic)
    found: dict[str, Any] = {
        "crps": float(crps.mean()),
        "mse": float(error.mean()),
        "coverage90": float(interval_hits(samples, truth, axis=1).mean()),
    }
    if truth.shape[1] >= 3:
        rough = roughness(samples, axis=2).mean() / roughness(truth, axis=1).mean()
        found["roughness_ratio"] = float(rough)
    if detail:
        found["crps_by_lead"] = crps.mean(axis=(0, 2))
        found["spread_by_lead"] = np.sqrt(samples.var(axis=1, ddof=1).mean(axis=(0, 2)))
        found["error_by_lead"] = np.sqrt(np.maximum(error, 0).mean(axis=(0, 2)))
        found["reliability"] = np.array(
            [interval_hits(samples, truth, axis=1, level=p).mean() for p in INTERVALS]
        )
        ranks = randomised_ranks(samples, truth, axis=1)
        found["ranks"] = np.histogram(ranks, bins=20, range=(0, 1))[0] / ranks.size
        found["spectrum"] = _spectrum(samples, axis=2).mean(axis=(0, 1, 3))
        found["spectrum_truth"] = _spectrum(truth, axis=1).mean(axis=(0, 2))
    return found


def _spectrum(paths: np.ndarray, axis: int) -> np.ndarray:
    """Return the power of paths without their means, per frequency."""
    paths = paths - paths.mean(axis=axis, keepdims=True)
    return np.abs(np.fft.rfft(paths, axis=axis)) ** 2 / paths.shape[axis]


def score_quantiles(values: np.ndarray, levels: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Score quantiles (windows, H, C, levels) of each lead by itself."""
    crps = crps_quantiles(values, levels, truth)
    ends = np.apply_along_axis(lambda row: np.interp([0.05, 0.95], levels, row), -1, values)
    hits = (ends[..., 0] <= truth) & (truth <= ends[..., 1])
    return {
        "crps": float(crps.mean()),
        "mse": float(((values.mean(axis=-1) - truth) ** 2).mean()),
        "coverage90": float(hits.mean()),
        "crps_by_lead": crps.mean(axis=(0, 2)),
    }


def score_line(line: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Score one line (windows, H, C); its ranked probability score is its absolute error."""
    error = np.abs(line - truth)
    return {
        "crps": float(error.mean()),
        "mse": float((error**2).mean()),
        "crps_by_lead": error.mean(axis=(0, 2)),
    }
