"""Seconds and peak memory of one method on one graph, in a process of its own.

``python -m noisewright.methods.parpic.footprint METHOD N SEED REPEATS`` prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from scipy import sparse

from noisewright.types import InputError

__all__ = ["dense_spectral", "footprint", "measure"]

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def footprint(method: str, n: int, seed: int, repeats: int = 1) -> dict[str, float]:
    """Return ``seconds`` on one core, ``peak_mb`` beyond what was there before, and ``edges``.

    Args:
        method: A name of :data:`baselines.METHODS`, or ``"dense_spectral"``.
        n: Vertices of the scale graph.
        seed: Seed of graph and method.
        repeats: How often it is timed; the median counts.

    Raises:
        InputError: If the process fails; the message holds its last line.
    """
    command = [sys.executable, "-m", __name__, method, str(n), str(seed), str(repeats)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | ONE_THREAD
    )
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise InputError(f"{method} on {n} vertices failed (exit {done.returncode}): {last}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(method: str, n: int, seed: int, repeats: int) -> dict[str, float]:
    """Do what :func:`footprint` says, in this process."""
    from noisewright.methods.parpic.baselines import cluster
    from noisewright.methods.parpic.graph_sets import scale_graph

    graph = scale_graph(n, seed)
    work = dense_spectral if method == "dense_spectral" else partial(cluster, method)
    work(scale_graph(60, seed), 3, seed)  # imports, not measured
    before, seconds = _peak_mb(), []
    for _ in range(repeats):
        # One thread, so processor time is what a wall clock shows on an idle machine.
        started = time.process_time()
        work(graph, 3, seed)
        seconds.append(time.process_time() - started)
    peak = max(0.0, _peak_mb() - before)
    return {"seconds": statistics.median(seconds), "peak_mb": peak, "edges": float(graph.nnz)}


def dense_spectral(graph: sparse.csr_array, n_clusters: int, seed: int) -> np.ndarray:
    """Spectral clustering of W + W.T with a full eigen-decomposition, as the paper times it."""
    from noisewright.methods.parpic.baselines import means
    from noisewright.methods.parpic.embedding import unit_rows

    affinity = (graph + graph.T).toarray()
    degree = affinity.sum(axis=1)
    scale = np.divide(1, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    _, vectors = np.linalg.eigh(affinity * scale[:, None] * scale)
    return means(unit_rows(vectors[:, -n_clusters:]), n_clusters, seed)


def _peak_mb() -> float:
    """Return the largest resident memory of this process so far, MB."""
    status = Path("/proc/self/status")
    if status.exists():
        # ru_maxrss would count what the parent held when it started this process.
        line = next(row for row in status.read_text().splitlines() if row.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    sys.stdout.write(json.dumps(measure(name, *map(int, numbers))) + "\n")
