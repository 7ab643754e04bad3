"""What the flow is compared with, all behind one signature: two samples, queries, a seed.

============  ==================================================================================
name          method
============  ==================================================================================
``naive``     two log densities of the same network, subtracted (:func:`naive_log_ratio`)
``logreg``    logistic regression on the features
``quad``      logistic regression on features, squares and products
``knn``       log odds among the k nearest neighbours, k chosen by held-out log loss
``rulsif``    least-squares kernels by ``densratio`` with alpha = 0, its own choice of widths
``kde``       two Gaussian kernel density estimates, Scott's rule
``meld``      labels smoothed along a graph of all points by ``meld`` (Burkhardt et al. 2021)
============  ==================================================================================

Classifiers give log odds, from which the log odds of the group sizes are taken off. The naive
difference needs the trained flow, the others see the same samples as the flow.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import gaussian_kde
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from noisewright.methods.density_ratio.estimator import DensityRatioFlow
from noisewright.random import derive_seed
from noisewright.types import InputError, nearest_name

__all__ = ["METHODS", "available_methods", "cross_fitted", "naive_log_ratio", "sample_log_ratio"]

Method = Callable[[np.ndarray, np.ndarray, np.ndarray, int], np.ndarray]

NEIGHBOURS = (10, 30, 100, 300, 1000)
HELD_OUT = 0.2
PACKAGES = {"rulsif": "densratio", "meld": "meld"}
"""What a baseline needs beyond the library's own dependencies."""

MOST_SAMPLES = 2000
"""densratio and MELD see at most this many samples a group: their cost grows fast with them."""


def naive_log_ratio(
    flow: DensityRatioFlow, X: np.ndarray, numerator: Any, denominator: Any, *, n_steps: int
) -> np.ndarray:
    """Return the difference of two log densities, each by a walk of its own."""
    over, under = (flow.log_density(X, c, n_steps=n_steps) for c in (numerator, denominator))
    return over - under


def sample_log_ratio(
    method: str, over: np.ndarray, under: np.ndarray, queries: np.ndarray, seed: int
) -> np.ndarray:
    """Return log p(over) / p(under) at the queries.

    Args:
        method: A name of the table above, but ``naive``.
        over: Samples of the numerator (n, d).
        under: Samples of the denominator (m, d).
        queries: Where, (k, d).
        seed: Of all that is random in it.

    Raises:
        InputError: If the method is unknown or its package is not installed.
    """
    if method not in METHODS:
        raise InputError(f"no baseline {method!r}{nearest_name(method, METHODS)}")
    if method not in available_methods():
        package = PACKAGES[method]
        raise InputError(f"{method!r} needs the package {package!r}; pip install {package}")
    return METHODS[method](over, under, queries, seed)


def available_methods() -> tuple[str, ...]:
    """Return the baselines whose packages are installed."""
    absent = {name for name, package in PACKAGES.items() if not importlib.util.find_spec(package)}
    return tuple(name for name in METHODS if name not in absent)


def cross_fitted(
    method: str, X: np.ndarray, over: np.ndarray, folds: np.ndarray, seed: int
) -> np.ndarray:
    """Return the log ratio of each sample by a baseline that has not seen it.

    Args:
        method: A name.
        X: Samples (n, d).
        over: Whether each belongs to the numerator (n,).
        folds: Fold of each (n,), those of the flow.
        seed: As above.
    """
    r = np.empty(len(X))
    for fold in np.unique(folds):
        seen, new = folds != fold, folds == fold
        r[new] = sample_log_ratio(method, X[seen & over], X[seen & ~over], X[new], seed)
    return r


def _pair(over: np.ndarray, under: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([over, under]), np.r_[np.ones(len(over)), np.zeros(len(under))]


def _logistic(degree: int) -> Method:
    def log_ratio(
        over: np.ndarray, under: np.ndarray, queries: np.ndarray, seed: int
    ) -> np.ndarray:
        X, y = _pair(over, under)
        model = make_pipeline(
            PolynomialFeatures(degree, include_bias=False),
            StandardScaler(),
            LogisticRegression(C=1.0 if len(X) < 5000 else 1e3, max_iter=500, random_state=seed),
        ).fit(X, y)
        return model.decision_function(queries) - np.log(len(over) / len(under))

    return log_ratio


def _neighbours(over: np.ndarray, under: np.ndarray, queries: np.ndarray, seed: int) -> np.ndarray:
    """Log odds with half a neighbour added on either side, so that none is infinite."""
    X, y = _pair(over, under)
    rng = np.random.default_rng(derive_seed(seed, "knn"))
    order = rng.permutation(len(X))
    cut = min(round(HELD_OUT * len(X)), 2000)
    held, kept = order[:cut], order[cut:]
    choices = [k for k in NEIGHBOURS if k < len(kept) / 2] or [min(NEIGHBOURS[0], len(kept))]
    odds = _neighbour_odds(X[kept], y[kept], X[held], choices)
    share = 1 / (1 + np.exp(-odds))
    chance = np.where(y[held] == 1, share, 1 - share)
    k = choices[int(np.log(chance).mean(axis=1).argmax())]
    return _neighbour_odds(X, y, queries, [k])[0] - np.log(len(over) / len(under))


def _neighbour_odds(
    X: np.ndarray, y: np.ndarray, queries: np.ndarray, choices: list[int]
) -> np.ndarray:
    """Return log odds (choices, queries)."""
    index = NearestNeighbors(n_neighbors=max(choices)).fit(X)
    found = np.asarray(index.kneighbors(queries, return_distance=False))
    ones = np.cumsum(y[found], axis=1)
    return np.stack([np.log((ones[:, k - 1] + 0.5) / (k - ones[:, k - 1] + 0.5)) for k in choices])


def _least_squares(
    over: np.ndarray, under: np.ndarray, queries: np.ndarray, seed: int
) -> np.ndarray:
    from densratio import densratio

    few = _few(over, under, seed)
    state = np.random.get_state()  # noqa: NPY002 - densratio draws from the global stream
    try:
        np.random.seed(seed % 2**32)  # noqa: NPY002
        model = densratio(few[0], few[1], alpha=0, verbose=False)
        ratio = np.asarray(model.compute_density_ratio(queries)).ravel()
    finally:
        np.random.set_state(state)  # noqa: NPY002
    # Least squares may give zero or less; nothing below half a sample's share can be told apart.
    return np.log(np.maximum(ratio, 0.5 / len(under)))


def _smoothed_labels(
    over: np.ndarray, under: np.ndarray, queries: np.ndarray, seed: int
) -> np.ndarray:
    """Return the log ratio of MELD's densities; the queries join the graph without a label.

    Not the same to the last digit each time: its filter rests on an eigenvalue that scipy
    approximates from a start of its own.
    """
    from meld import MELD

    few = _few(over, under, seed)
    labels = np.repeat(["over", "under", "query"], [*map(len, few), len(queries)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's and scipy's, on how its libraries call them
        smoothed = MELD(verbose=0).fit_transform(np.concatenate([*few, queries]), labels)
    density = smoothed[["over", "under"]].to_numpy()[-len(queries) :]
    # The smoothing of labels may ring a little below zero; no density is.
    return np.log(np.maximum(density, density[density > 0].min())) @ [1.0, -1.0]


def _few(over: np.ndarray, under: np.ndarray, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(derive_seed(seed, "few"))
    return [rng.permutation(group)[:MOST_SAMPLES] for group in (over, under)]


def _kernels(over: np.ndarray, under: np.ndarray, queries: np.ndarray, seed: int) -> np.ndarray:
    over_law, under_law = (gaussian_kde(group.T) for group in (over, under))
    return over_law.logpdf(queries.T) - under_law.logpdf(queries.T)


METHODS: dict[str, Method] = {
    "logreg": _logistic(1),
    "quad": _logistic(2),
    "knn": _neighbours,
    "rulsif": _least_squares,
    "kde": _kernels,
    "meld": _smoothed_labels,
}
