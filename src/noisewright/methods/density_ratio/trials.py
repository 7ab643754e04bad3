"""The stages of the experiment: each is one set and seed, from samples to numbers."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special, stats
from sklearn.metrics import average_precision_score, roc_auc_score

from noisewright.methods.density_ratio.baselines import (
    available_methods,
    cross_fitted,
    naive_log_ratio,
    sample_log_ratio,
)
from noisewright.methods.density_ratio.cases import (
    centred_per_group,
    correlated_pairs,
    drawn_treatment,
    gaussian_case,
    pushed_batches,
)
from noisewright.methods.density_ratio.cells import CellStateRatio
from noisewright.methods.density_ratio.diagnostics import pair_diagnostics
from noisewright.methods.density_ratio.estimator import DensityRatioFlow
from noisewright.methods.density_ratio.footprint import footprint
from noisewright.methods.density_ratio.mutual import mutual_information
from noisewright.random import derive_seed

__all__ = [
    "batch_trial",
    "gaussian_trial",
    "rank_correlation",
    "single_trial",
    "treatment_trial",
]

TIMINGS = 3
CELL_METHODS = ("knn", "logreg", "meld")
LARGE = 1.5


def gaussian_trial(
    stage: Any,
    *,
    size: int,
    shift: float,
    samples: int,
    queries: int,
    flow: dict[str, Any],
    n_steps: int,
    step_counts: tuple[int, ...],
    seed: int,
) -> dict[str, Any]:
    """Score two Gaussians by every method; errors against the closed form."""
    case = gaussian_case(size, shift, samples, queries, seed)
    model = DensityRatioFlow(**flow, random_state=derive_seed(seed, "flow") % 2**31)
    started = time.perf_counter()
    model.fit(case.X, case.y)
    trained = time.perf_counter() - started
    stage.progress(1, 3)
    curves = {
        n: _timed_pair(model, case.queries, n) for n in dict.fromkeys((*step_counts, n_steps))
    }
    found = {"ode": curves[n_steps]["ode"][0], "naive": curves[n_steps]["naive"][0]}
    stage.progress(2, 3)
    over, under = case.X[case.y == 1], case.X[case.y == 0]
    for method in available_methods():
        found[method] = sample_log_ratio(method, over, under, case.queries, seed)
    from_one, r = case.query_labels == 1, found["ode"]
    checks = pair_diagnostics(r[from_one], r[~from_one])
    return {
        "truth": case.truth,
        "found": found,
        "mse": {name: _mse(value, case.truth) for name, value in found.items()},
        "variance": float(case.truth.var()),
        "correlation": float(np.corrcoef(r, case.truth)[0, 1]),
        "seconds": {k: curves[n_steps][k][1] for k in ("ode", "naive")} | {"train": trained},
        "curves": {
            str(n): {k: [_mse(v[0], case.truth), v[1]] for k, v in pair.items()}
            for n, pair in curves.items()
        },
        "normalised": _normalised(r, case.truth),
        "checks": {k: v for k, v in checks.items() if k != "calibration"},
        "calibration": checks["calibration"],
        "exact": _consistency(model, case.queries[:100]),
    }


def _timed_pair(
    model: DensityRatioFlow, X: np.ndarray, n_steps: int
) -> dict[str, tuple[np.ndarray, float]]:
    """Return both ways' log ratios and seconds: the shortest of three turns, taken in turn."""
    ways: dict[str, Callable[[], np.ndarray]] = {
        "ode": lambda: model.log_ratio(X, 1, 0, n_steps=n_steps),
        "naive": lambda: naive_log_ratio(model, X, 1, 0, n_steps=n_steps),
    }
    best = dict.fromkeys(ways, np.inf)
    found = {}
    for _ in range(TIMINGS):
        for name, way in ways.items():
            started = time.perf_counter()
            found[name] = way()
            best[name] = min(best[name], time.perf_counter() - started)
    return {name: (found[name], best[name]) for name in ways}


def _mse(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.mean((found - truth) ** 2))


def _normalised(r: np.ndarray, truth: np.ndarray) -> float:
    """Return E_b[exp r] over points of the even mixture, each weighted by p_b / p_mixture.

    The plain mean over samples of b has a standard deviation of exp(d shift^2 / 2): it would need
    millions of them. The weight is known here, 2 / (1 + exp truth).
    """
    return float(np.exp(np.log(2.0) + r - np.logaddexp(0.0, truth)).mean())


def _consistency(model: DensityRatioFlow, X: np.ndarray) -> dict[str, float]:
    """Return the largest violations of antisymmetry and r(a, a) = 0 along one guide."""
    there, back = (model.log_ratio(X, *pair, along=0, n_steps=5) for pair in ((1, 0), (0, 1)))
    matrix = model.log_ratio_matrix(X, [0, 1, 0], along=0, n_steps=5)
    steps = (matrix[:, 0] - matrix[:, 1]) + (matrix[:, 1] - matrix[:, 2])
    return {
        "antisymmetry": float(np.abs(there + back).max()),
        "transitivity": float(np.abs(steps - (matrix[:, 0] - matrix[:, 2])).max()),
        "self": float(np.abs(matrix[:, 0] - matrix[:, 2]).max()),
    }


def mutual_trial(
    *,
    size: int,
    nats: float,
    samples: int,
    flow: dict[str, Any],
    n_steps: int,
    seed: int,
) -> dict[str, Any]:
    """Estimate the mutual information of correlated Gaussian pairs."""
    X, Y = correlated_pairs(size, nats, samples, seed)
    value, error = mutual_information(X, Y, n_steps=n_steps, seed=seed, **flow)
    return {"estimate": value, "std_error": error}


def treatment_trial(
    stage: Any,
    *,
    points: np.ndarray,
    clusters: np.ndarray,
    share: float,
    flow: dict[str, Any],
    n_steps: int,
    seed: int,
) -> dict[str, Any]:
    """Score cells whose treatment was drawn by cluster, cross-fitted, by every method."""
    treated, odds = drawn_treatment(clusters, share, seed)
    label = treated.astype(int)
    model = DensityRatioFlow(
        **flow, blur="auto", random_state=derive_seed(seed, "cells") % 2**31
    ).fit(points, label)
    assert model.folds_ is not None
    found = {
        "ode": model.log_ratio(points, 1, 0, along=label, n_steps=n_steps),
        "naive": naive_log_ratio(model, points, 1, 0, n_steps=n_steps),
    }
    for method in (name for name in CELL_METHODS if name in available_methods()):
        found[method] = cross_fitted(method, points, treated, model.folds_, seed)
    moved = np.isin(clusters, ["1", "2"])
    up = clusters[moved] == "1"
    scores = {
        name: {
            "auprc": float(average_precision_score(moved, np.abs(r))),
            "sign_auc": float(roc_auc_score(up, r[moved])),
            "spearman": rank_correlation(r, special.expit(odds)),
        }
        for name, r in found.items()
    }
    null = odds == 0
    checks = pair_diagnostics(found["ode"][treated], found["ode"][~treated])
    return {
        "found": found,
        "odds": odds,
        "treated": label,
        "scores": scores,
        "base_rate": float(moved.mean()),
        "blur": float(model.blur_.mean()),
        "null_abs_mean": float(np.abs(found["ode"][null]).mean()),
        "share_small": float((np.abs(found["ode"]) <= LARGE).mean()),
        "checks": {k: v for k, v in checks.items() if k != "calibration"},
    }


def rank_correlation(one: Any, other: Any) -> float:
    """Return Spearman's correlation; 0 where one side is constant and there is none to find."""
    if len(np.unique(one)) == 1 or len(np.unique(other)) == 1:
        return 0.0
    found: Any = stats.spearmanr(one, other)
    return round(float(found.statistic), 12)  # a perfect order is 1, not 1 - 1e-16


def batch_trial(
    stage: Any,
    *,
    points: np.ndarray,
    clusters: np.ndarray,
    strength: float,
    corrected: bool,
    flow: dict[str, Any],
    n_steps: int,
    seed: int,
) -> dict[str, Any]:
    """Return the batch score of cells of which one half was pushed."""
    from anndata import AnnData

    moved, batch = pushed_batches(points, clusters, strength, seed)
    if corrected:
        moved = centred_per_group(moved, clusters, batch)
    cells = AnnData(np.zeros((len(moved), 1), dtype=np.float32))
    cells.obs["type"], cells.obs["batch"] = clusters, batch
    cells.obsm["X_pca"] = moved
    model = CellStateRatio(
        cells,
        "batch",
        n_dims=moved.shape[1],
        cell_type_key="type",
        batch_key="batch",
        random_state=derive_seed(seed, "batches") % 2**31,
        **flow,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "condition .* has only", UserWarning)
        model.fit()
    table = model.batch_score(n_steps=n_steps)
    return {
        "score": float(model.batch_ratio.mean()),
        "std_error": float(stats.sem(model.batch_ratio)),
        "per_type": {
            f"{row['group']}/{row['batch']}": [row["score"], row["n"]]
            for row in table.to_dict("records")
        },
    }


def scale_trial(*, counts: tuple[int, ...], large: int) -> dict[str, Any]:
    """Return seconds against the number of samples, and the peak memory with many features."""
    small = footprint(10, 4, counts)
    wide = footprint(512, 1, (large,))
    return {
        "seconds": {count: row["seconds"] for count, row in small.items()},
        "peak_mb": wide[str(large)]["peak_mb"],
    }


def single_trial(stage: Any, *, kind: str, **inputs: Any) -> dict[str, Any]:
    """Do what there is only one of: ``"pairs"`` or ``"scale"``; together they fill two cores."""
    return mutual_trial(**inputs) if kind == "pairs" else scale_trial(**inputs)
