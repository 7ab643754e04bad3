"""Seconds and peak memory of methods on one graph, in a process of their own.

``python -m noisewright.methods.parpic.footprint N SEED REPEATS METHOD...`` prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy import sparse

from noisewright.parallel import peak_mb
from noisewright.types import InputError

__all__ = ["dense_spectral", "footprint", "measure"]

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def footprint(
    methods: Sequence[str], n: int, seed: int, repeats: int = 1
) -> dict[str, dict[str, float]]:
    """Return ``seconds`` on one core, ``peak_mb`` beyond what was there before, and ``edges``.

    Args:
        methods: Names of :data:`baselines.METHODS`, or ``"dense_spectral"``. They run one after
            the other, so the peak of a later one is a lower bound: it counts from the highest of
            those before.
        n: Vertices of the scale graph.
        seed: Seed of graph and methods.
        repeats: How often each is timed; the median counts.

    Raises:
        InputError: If the process fails; the message holds its last line.
    """
    command = [sys.executable, "-m", __name__, str(n), str(seed), str(repeats), *methods]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | ONE_THREAD
    )
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        named = ", ".join(methods)
        raise InputError(f"{named} on {n} vertices failed (exit {done.returncode}): {last}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(methods: Sequence[str], n: int, seed: int, repeats: int) -> dict[str, dict[str, float]]:
    """Do what :func:`footprint` says, in this process."""
    from noisewright.methods.parpic.graph_sets import scale_graph

    graph = scale_graph(n, seed)
    return {
        method: {**_timed(method, graph, seed, repeats), "edges": float(graph.nnz)}
        for method in methods
    }


def _timed(method: str, graph: sparse.csr_array, seed: int, repeats: int) -> dict[str, float]:
    from noisewright.methods.parpic.baselines import cluster
    from noisewright.methods.parpic.graph_sets import scale_graph

    work = dense_spectral if method == "dense_spectral" else partial(cluster, method)
    work(scale_graph(60, seed), 3, seed)  # imports, not measured
    before, seconds = peak_mb(), []
    for _ in range(repeats):
        # One thread, so processor time is what a wall clock shows on an idle machine.
        started = time.process_time()
        work(graph, 3, seed)
        seconds.append(time.process_time() - started)
    return {
        "seconds": statistics.median(seconds),
        "peak_mb": max(0.0, peak_mb() - before),
    }


def dense_spectral(graph: sparse.csr_array, n_clusters: int, seed: int) -> np.ndarray:
    """Spectral clustering of W + W.T with a full eigen-decomposition, as the paper times it."""
    from noisewright.methods.parpic.baselines import means
    from noisewright.methods.parpic.embedding import unit_rows

    affinity = (graph + graph.T).toarray()
    degree = affinity.sum(axis=1)
    scale = np.divide(1, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    _, vectors = np.linalg.eigh(affinity * scale[:, None] * scale)
    return means(unit_rows(vectors[:, -n_clusters:]), n_clusters, seed)


if __name__ == "__main__":
    vertices, first_seed, times, *names = sys.argv[1:]
    found = measure(names, int(vertices), int(first_seed), int(times))
    sys.stdout.write(json.dumps(found) + "\n")
