r"""Checks of a log ratio that need no truth.

If :math:`r = \log p_a / p_b`, then :math:`E_b[e^r] = E_a[e^{-r}] = 1`, and among samples of both
groups the share that comes from a, given r, is
:math:`n_a e^r / (n_a e^r + n_b)`.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from scipy import special, stats

__all__ = ["pair_diagnostics", "ratio_diagnostics", "unlikely_ends"]

UNLIKELY = 0.9999
DECILES = 10


def unlikely_ends(noise: np.ndarray) -> np.ndarray:
    """Return which points ended farther out than noise does: beyond the 0.9999 quantile of chi2.

    Args:
        noise: Where the walks ended, (n, d); N(0, I) for samples of the guide's condition.
    """
    limit = stats.chi2.ppf(UNLIKELY, noise.shape[1])
    return np.square(noise).sum(axis=1) > limit


def pair_diagnostics(over_a: np.ndarray, over_b: np.ndarray) -> dict[str, Any]:
    """Return the checks for log ratios r = log p_a / p_b.

    Args:
        over_a: r at samples of a.
        over_b: r at samples of b.

    Example:
        >>> found = pair_diagnostics(np.zeros(5), np.zeros(5))
        >>> found["mean_exp_r"], round(found["ess"]), found["auc"]
        (1.0, 5, 0.5)
    """
    found = _normalisation(over_b, "mean_exp_r", "ess")
    found |= _normalisation(-over_a, "mean_exp_minus_r", "ess_minus")
    ranks = np.asarray(stats.rankdata(np.concatenate([over_a, over_b])))[: len(over_a)]
    auc = (ranks.sum() - len(over_a) * (len(over_a) + 1) / 2) / (len(over_a) * len(over_b))
    return found | {"auc": float(auc), "calibration": _calibration(over_a, over_b)}


def _normalisation(r: np.ndarray, mean: str, ess: str) -> dict[str, float]:
    weight = np.exp(np.minimum(r, 300.0))
    spread = weight.std(ddof=1) / np.sqrt(len(weight)) if len(weight) > 1 else np.nan
    size = float(weight.sum()) ** 2 / float(np.square(weight).sum())
    return {mean: float(weight.mean()), f"{mean}_se": float(spread), ess: float(size)}


def _calibration(over_a: np.ndarray, over_b: np.ndarray) -> list[dict[str, float]]:
    """Return, for each tenth of the samples by r: predicted and observed share of a."""
    r = np.concatenate([over_a, over_b])
    from_a = np.r_[np.ones(len(over_a)), np.zeros(len(over_b))]
    predicted = special.expit(r + np.log(len(over_a) / len(over_b)))
    order = np.argsort(r, kind="stable")
    return [
        {
            "predicted": float(predicted[part].mean()),
            "observed": float(from_a[part].mean()),
            "count": len(part),
        }
        for part in np.array_split(order, DECILES)
        if len(part)
    ]


def ratio_diagnostics(
    log_density: np.ndarray, member: np.ndarray, names: list[str]
) -> dict[str, dict[str, Any]]:
    """Return :func:`pair_diagnostics` of every pair, keyed ``"a / b"``.

    Args:
        log_density: Log densities up to a constant per sample, (n, conditions).
        member: Which condition each sample belongs to, (n, conditions), bool.
        names: Of the conditions.
    """
    found = {}
    for a, b in combinations(range(len(names)), 2):
        r = log_density[:, a] - log_density[:, b]
        found[f"{names[a]} / {names[b]}"] = pair_diagnostics(r[member[:, a]], r[member[:, b]])
    return found
