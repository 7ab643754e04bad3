r"""How much to blur a ratio, after training.

A flow trained with the floor :math:`\sigma_{\min}` holds every larger blur too: at the paper's
time t its states are :math:`t x + \lambda_t \varepsilon`, so that

.. math:: \log \frac{p_t(t x \mid a)}{p_t(t x \mid b)}

is the log ratio of the densities blurred by :math:`N(0, (\lambda_t / t)^2 I)`. A walk that starts
at ``t x`` at time t instead of at x at time 1 finds it, without another training. Few samples want
more blur: the ratio varies less, like that of more neighbours.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_softmax

from noisewright.methods.density_ratio.ratio import CLIPPED_START
from noisewright.methods.density_ratio.schedule import paper_time
from noisewright.paths import GaussianPath

__all__ = ["CANDIDATES", "best_per_fold", "start_of_blur"]

CANDIDATES = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Blurs that ``"auto"`` tries beside the floor, in units of the common scale."""


def start_of_blur(path: GaussianPath, blur: float) -> float:
    """Return the paper's time at which the states of a path are blurred so much.

    Args:
        path: The path of the flow.
        blur: Standard deviation in units of the data, not below the path's floor.

    Example:
        >>> from noisewright.methods.density_ratio.schedule import FloorSchedule
        >>> path = GaussianPath(FloorSchedule(0.1))
        >>> start_of_blur(path, 0.1), round(start_of_blur(path, 0.6), 6)  # 1 / (0.6 + 1 - 0.1)
        (1.0, 0.666667)
    """
    if blur == 0:
        return 1 - CLIPPED_START
    start = paper_time(float(path.schedule.time_of_logsnr(-2 * math.log(blur))))
    return min(start, 1.0 if path.schedule.has_floor else 1 - CLIPPED_START)


def best_per_fold(
    log_densities: np.ndarray, own: np.ndarray, folds: np.ndarray, models: int
) -> np.ndarray:
    """Return for each fold which candidate tells the labels of all other folds best.

    The criterion is the mean log probability of a sample's own label, by Bayes' rule from its
    densities and the shares of the labels.

    Args:
        log_densities: log p(x | c) up to a constant per sample, by models that have not seen x:
            (candidates, samples, conditions).
        own: Index of each sample's condition (samples,).
        folds: Fold of each sample (samples,).
        models: Number of folds.

    Returns:
        Index of a candidate per fold, (folds,).

    Example:
        Two samples of either label; the second candidate knows them.

        >>> unsure, sure = np.zeros((4, 2)), 3 * np.eye(2)[[0, 1, 0, 1]]
        >>> labels, folds = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
        >>> best_per_fold(np.stack([unsure, sure]), labels, folds, 2).tolist()
        [1, 1]
    """
    shares = np.bincount(own, minlength=log_densities.shape[2]) / len(own)
    with np.errstate(divide="ignore"):
        posterior = log_softmax(log_densities + np.log(shares), axis=2)
    score = posterior[:, np.arange(len(own)), own]
    return np.array([score[:, folds != fold].mean(axis=1).argmax() for fold in range(models)])
