r"""Scores of sampled forecasts: the ranked probability score, coverage, ranks, roughness.

A forecast is an ensemble, an array with one axis of samples; the truth lacks that axis. Everything
keeps the other axes, so means over leads, channels or windows are the caller's.

The ensemble of S samples is finite, so the plain plug-in scores are biased towards small spread;
those here are not: :func:`crps_ensemble` is the fair estimator, whose expectation does not depend
on S, and :func:`mean_error_squared` takes out the sampling error of the mean. Samples drawn as
antithetic pairs (sample i opposite to sample i + S / 2) are independent between pairs only; say
``antithetic=True`` and the terms within pairs are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from noisewright.types import InputError

__all__ = [
    "crps_ensemble",
    "crps_quantiles",
    "interval_hits",
    "mean_error_squared",
    "randomised_ranks",
    "roughness",
]


def _ensemble(samples: Any, y: Any, axis: int, least: int) -> tuple[np.ndarray, np.ndarray]:
    """Return samples with their axis last, and the truth, both float64."""
    samples, y = np.asarray(samples, np.float64), np.asarray(y, np.float64)
    if not -samples.ndim <= axis < samples.ndim:
        raise InputError(f"axis={axis} is none of the {samples.ndim} axes of the samples")
    samples = np.moveaxis(samples, axis, -1)
    if samples.shape[:-1] != y.shape:
        raise InputError(
            f"samples without axis {axis} have shape {samples.shape[:-1]}, the truth {y.shape}"
        )
    if samples.shape[-1] < least:
        raise InputError(f"{samples.shape[-1]} samples; this score needs at least {least}")
    return samples, y


def _check_pairs(count: int) -> None:
    if count % 2 or count < 4:
        raise InputError(f"{count} samples are no antithetic pairs; give an even number from 4 on")


def crps_ensemble(
    samples: np.ndarray, y: np.ndarray, axis: int, *, antithetic: bool = False
) -> np.ndarray:
    r"""Return the fair continuous ranked probability score.

    .. math:: \frac{1}{S} \sum_i |x_i - y| - \frac{1}{2 S (S - 1)} \sum_{i, j} |x_i - x_j|

    (Ferro 2014). In the unit of the series; lower is better; a point forecast has its absolute
    error. It may be below 0 for a single forecast; its expectation is not.

    Args:
        samples: Forecasts.
        y: What came, the shape of ``samples`` without ``axis``.
        axis: The axis of samples, at least two.
        antithetic: Whether sample i is opposite to sample i + S / 2.

    Example:
        >>> crps_ensemble(np.array([0.0, 2.0]), np.array(1.0), axis=0)
        array(0.)
        >>> crps_ensemble(np.array([[0.0, 0.0]]), np.array([3.0]), axis=1)
        array([3.])
    """
    samples, y = _ensemble(samples, y, axis, least=2)
    count = samples.shape[-1]
    error = np.abs(samples - y[..., None]).mean(axis=-1)
    rank = 2 * np.arange(count) - count + 1
    total = 2 * (np.sort(samples, axis=-1) * rank).sum(axis=-1)  # sum over ordered pairs
    pairs = count * (count - 1)
    if antithetic:
        _check_pairs(count)
        within = np.abs(samples[..., : count // 2] - samples[..., count // 2 :]).sum(axis=-1)
        total, pairs = total - 2 * within, pairs - count
    return np.asarray(error - total / (2 * pairs))


def crps_quantiles(values: np.ndarray, levels: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the ranked probability score of a forecast that gives quantiles only.

    Twice the pinball loss, averaged over levels: an approximation of the integral over levels,
    exact in the limit of many even ones.

    Args:
        values: Quantiles, the levels on the last axis.
        levels: In (0, 1), rising, evenly spread.
        y: What came, the shape of ``values`` without its last axis.
    """
    values, y = _ensemble(values, y, -1, least=1)
    levels = np.asarray(levels, np.float64)
    if levels.shape != values.shape[-1:] or not ((levels > 0) & (levels < 1)).all():
        raise InputError(f"levels {levels.tolist()} must be in (0, 1), one per quantile")
    gap = y[..., None] - values
    return 2 * np.maximum(levels * gap, (levels - 1) * gap).mean(axis=-1)


def mean_error_squared(
    samples: np.ndarray, y: np.ndarray, axis: int, *, antithetic: bool = False
) -> np.ndarray:
    """Return the squared error of the mean forecast, without the sampling error of that mean.

    Args:
        samples: Forecasts.
        y: What came.
        axis: The axis of samples.
        antithetic: Whether sample i is opposite to sample i + S / 2.

    Example:
        >>> mean_error_squared(np.array([1.0, 3.0]), np.array(0.0), axis=0)  # 2^2 - 2 / 2
        array(3.)
    """
    samples, y = _ensemble(samples, y, axis, least=2)
    if antithetic:
        _check_pairs(samples.shape[-1])
        half = samples.shape[-1] // 2
        samples = (samples[..., :half] + samples[..., half:]) / 2
    wobble = samples.var(axis=-1, ddof=1) / samples.shape[-1]
    return np.asarray((samples.mean(axis=-1) - y) ** 2 - wobble)


def interval_hits(
    samples: np.ndarray, y: np.ndarray, axis: int, *, level: float = 0.9
) -> np.ndarray:
    """Return whether the central interval holds the truth, as 0 or 1.

    Its ends are empirical quantiles; with S samples an interval of a calibrated forecast holds the
    truth with a probability a little below ``level`` (about 2 level / S).

    Args:
        samples: Forecasts.
        y: What came.
        axis: The axis of samples.
        level: Probability of the interval, in (0, 1).
    """
    if not 0 < level < 1:
        raise InputError(f"level={level} must be in (0, 1)")
    samples, y = _ensemble(samples, y, axis, least=2)
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2], axis=-1)
    return ((low <= y) & (y <= high)).astype(np.float64)


def randomised_ranks(samples: np.ndarray, y: np.ndarray, axis: int, *, seed: int = 0) -> np.ndarray:
    """Return the probability integral transform: uniform on (0, 1) for a calibrated forecast.

    The rank of the truth among the samples, spread over its cell at random; ties are broken at
    random too, so a series of counts keeps a uniform law.

    Args:
        samples: Forecasts.
        y: What came.
        axis: The axis of samples.
        seed: Of the spreading.
    """
    samples, y = _ensemble(samples, y, axis, least=1)
    below = (samples < y[..., None]).sum(axis=-1)
    equal = (samples == y[..., None]).sum(axis=-1)
    share = np.random.default_rng(seed).random(y.shape)
    return (below + share * (equal + 1)) / (samples.shape[-1] + 1)


def roughness(paths: np.ndarray, axis: int) -> np.ndarray:
    """Return the mean square of second differences along an axis: the energy of kinks.

    Args:
        paths: Series; at least three values along ``axis``.
        axis: The axis of time.

    Example:
        >>> [float(roughness(np.array(path), axis=0)) for path in ([0, 1, 2, 3], [0, 1, 0])]
        [0.0, 4.0]
    """
    paths = np.asarray(paths, np.float64)
    if paths.shape[axis] < 3:
        raise InputError(f"{paths.shape[axis]} values along axis {axis}; kinks need at least 3")
    return (np.diff(paths, n=2, axis=axis) ** 2).mean(axis=axis)
