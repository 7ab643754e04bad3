"""What is measured on one graph: agreement with the truth, exactness, entropy, truncation."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from scipy import sparse
from scipy.special import entr
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

from noisewright.methods.parpic.baselines import available_methods, cluster
from noisewright.methods.parpic.block_model import as_generator
from noisewright.methods.parpic.entropy import walk_entropy
from noisewright.methods.parpic.estimator import ParPIC
from noisewright.methods.parpic.footprint import footprint
from noisewright.methods.parpic.walk import ReversibleWalk, reversible_walk, vertex_measure

__all__ = ["check_walk", "compare", "scale", "shown", "sweep"]

FIXED_TIMES = (1, 2)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what the report says itself: weak components, and few distinct points."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the graph has .* weak components", UserWarning)
        warnings.filterwarnings("ignore", "Number of distinct clusters", Warning)
        yield


def compare(
    stage: Any,
    *,
    name: str,
    graph: sparse.csr_array,
    groups: np.ndarray,
    seed: int,
    gamma: float,
    steps: int | Literal["auto"],
) -> dict[str, Any]:
    """Cluster one graph by every method; keep what the pictures need of ParPIC.

    Args:
        stage: The stage that runs it.
        name: Name of the set.
        graph: Adjacency (n, n).
        groups: True groups (n,); -1 where unknown.
        seed: Seed of every method.
        gamma: ParPIC's weight of incoming edges.
        steps: ParPIC's diffusion time.
    """
    k, methods = len(np.unique(groups[groups >= 0])), available_methods()
    record: dict[str, Any] = {"methods": {}, "labels": {}}
    with quiet():
        for done, method in enumerate(methods, 1):
            started = time.perf_counter()
            if method in ("parpic", "parpic_rows"):
                model = ParPIC(
                    k,
                    gamma=gamma,
                    diffusion_time=steps,
                    row_normalize=method == "parpic_rows",
                    random_state=seed,
                ).fit(graph)
                labels = model.labels_
                if method == "parpic":
                    record |= shown(model)
            else:
                labels = cluster(method, graph, k, seed)
            seconds = time.perf_counter() - started
            record["labels"][method] = labels
            record["methods"][method] = agreement(groups, labels) | {"seconds": seconds}
            stage.progress(done, len(methods))
        fixed = [
            ParPIC(k, gamma=gamma, diffusion_time=t, random_state=seed).fit_predict(graph)
            for t in FIXED_TIMES
        ]
    record["fixed"] = [agreement(groups, labels)["ari"] for labels in fixed]
    return record


def agreement(groups: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return adjusted Rand index and adjusted mutual information where the truth is known."""
    known = groups >= 0
    return {
        "ari": float(adjusted_rand_score(groups[known], labels[known])),
        "ami": float(adjusted_mutual_info_score(groups[known], labels[known])),
    }


def shown(model: ParPIC) -> dict[str, Any]:
    """Return what pictures need of a fitted model; ``plane`` is its embedding in two directions."""
    embedding = model.embedding_ - model.embedding_.mean(axis=0)
    _, axes = np.linalg.eigh(embedding.T @ embedding)
    return {
        "time": int(model.diffusion_time_),
        "curve": model.entropy_curve_,
        "limit": model.entropy_limit_,
        "plane": embedding @ axes[:, :-3:-1],
        "parts": model.n_weak_components_,
    }


def sweep(
    stage: Any,
    *,
    name: str,
    graph: sparse.csr_array,
    groups: np.ndarray,
    seed: int,
    gammas: Sequence[float],
) -> dict[str, Any]:
    """Return ParPIC's adjusted Rand index for each gamma."""
    k = len(np.unique(groups))
    found = []
    with quiet():
        # gamma = 1 gives sources no weight, which ParPIC says aloud.
        warnings.filterwarnings("ignore", "the vertex measure is zero", UserWarning)
        for done, gamma in enumerate(gammas, 1):
            labels = ParPIC(k, gamma=gamma, random_state=seed).fit_predict(graph)
            found.append(float(adjusted_rand_score(groups, labels)))
            stage.progress(done, len(gammas))
    return {"ari": found}


def check_walk(
    stage: Any, *, name: str, graph: sparse.csr_array, groups: np.ndarray, seed: int
) -> dict[str, float]:
    """Hold one block model against definitions: exactness, entropy, truncation."""
    k = len(np.unique(groups))
    nu = vertex_measure(graph)
    P, pi = reversible_walk(graph, nu)
    flow = sparse.csr_array(sparse.diags_array(pi) @ P)
    order = as_generator(seed).permutation(len(pi))
    turned = graph[order][:, order]
    pi_turned = reversible_walk(turned, vertex_measure(turned))[1]
    scaled = reversible_walk(3.7 * graph, vertex_measure(3.7 * graph))[0]
    whole = ParPIC(k, projection="full", random_state=seed).fit_predict(graph)
    few = ParPIC(k, n_components=100, random_state=seed).fit_predict(graph)
    return {
        "balance": float(abs(flow - flow.T).max()) / len(pi),
        "rows": float(np.abs(P.sum(axis=1) - 1).max()),
        "permutation": float((np.abs(pi_turned - pi[order]) / pi[order]).max()),
        "scale": float(abs(scaled - P).max()),
        "truncation": abs(agreement(groups, whole)["ari"] - agreement(groups, few)["ari"]),
        **_entropy_errors(graph, nu, P, pi, seed),
    }


def _entropy_errors(
    graph: sparse.csr_array, nu: np.ndarray, P: sparse.csr_array, pi: np.ndarray, seed: int
) -> dict[str, float]:
    """Compare the estimate with dense powers over the first 20 steps, and its ends over 250."""
    n = len(pi)
    dense, power = [], np.eye(n)
    matrix = P.toarray()
    for _ in range(20):
        power = power @ matrix
        dense.append(entr(power).sum(axis=1).mean())
    exact = walk_entropy(P, pi, 20, n)
    probes = walk_entropy(P, pi, 20, min(n, 100), seed)
    lazy = ReversibleWalk.of(graph, nu, lazy=True)
    curve = walk_entropy(lazy.transition, lazy.stationary, 40, n)
    end = walk_entropy(P, pi, 250, min(n, 100), seed)[-1]
    limit = float(entr(pi).sum())
    return {
        "entropy_exact": float(np.abs(exact - dense).max()),
        "entropy_probes": float((np.abs(probes - dense) / dense).max()),
        "entropy_drop": max(0.0, float(-np.diff(curve).min())),
        "entropy_end": abs(float(end) - limit) / limit,
    }


def scale(
    stage: Any, *, sizes: Sequence[int], methods: Sequence[str], limit: int, seed: int
) -> dict[str, Any]:
    """Time methods on growing graphs, a process for each graph.

    Args:
        stage: The stage that runs it.
        sizes: Numbers of vertices.
        methods: ParPIC first, so that its peak memory is its own; the others stop at ``limit``
            vertices.
        limit: See above; dense spectral clustering is timed at 3000 vertices alone.
        seed: Seed of graphs and methods.
    """
    record: dict[str, Any] = {}
    for done, n in enumerate(sizes, 1):
        named = [
            method
            for method in methods
            if method == "parpic" or (n <= limit and (method != "dense_spectral" or n == 3000))
        ]
        for method, found in footprint(named, n, seed, repeats=3 if n < 3000 else 1).items():
            record.setdefault(method, {})[str(n)] = found
        stage.progress(done, len(sizes))
    return record
