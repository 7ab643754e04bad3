"""ParPIC beside its peers on growing directed graphs: agreement, seconds, peak memory, slopes.

Each pair of method and size runs in a process of its own, on one core, methods in turn for each
size, so that all see the same machine. The graphs are chains of three groups, which only the
direction of edges tells apart, with 30 edges out of each vertex on average::

    python benchmarks/parpic.py --json --out docs/benchmarks/parpic.json

Ratios are seconds and memory of ParPIC over a peer's on the same graph: below 1, ParPIC is better.
The picture goes to ``docs/images/benchmark_parpic.png``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from timing import Row, main

EDGES = (1_000, 10_000, 100_000, 1_000_000)
METHODS = (
    "parpic",
    "sc_sym",
    "dsc",
    "hermitian",
    "bibliometric",
    "pic",
    "louvain",
    "leiden",
    "infomap",
    "leidenalg",
)
DEGREE = 30
LIMIT = 900
"""Seconds that one measurement may take."""
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def chain(edges: int, seed: int) -> tuple[Any, np.ndarray]:
    """Return a chain of three groups with about this many edges, and the groups."""
    from noisewright.methods.parpic import directed_sbm

    size = max(20, round(edges / DEGREE / 3))
    weights = np.array([[0.05, 0.6, 0.0], [0.01, 0.05, 0.6], [0.0, 0.01, 0.05]])
    probs = np.minimum(1.0, weights * edges / size**2 / weights.sum())
    return directed_sbm([size] * 3, probs, random_state=seed)


def leidenalg(graph: Any, seed: int) -> np.ndarray:
    """Cluster with leidenalg on igraph: directed modularity."""
    import igraph
    import leidenalg as package

    edges = np.transpose(graph.nonzero())
    shown = igraph.Graph(n=graph.shape[0], edges=edges.tolist(), directed=True)
    found = package.find_partition(shown, package.ModularityVertexPartition, seed=seed)
    return np.asarray(found.membership)


def one(method: str, edges: int, seed: int) -> dict[str, float]:
    """Measure one method on one graph in this process, after a warm-up on a tiny one."""
    from sklearn.metrics import adjusted_rand_score

    from noisewright.methods.parpic.baselines import cluster
    from noisewright.parallel import peak_mb

    graph, groups = chain(edges, seed)

    def work(on: Any) -> np.ndarray:
        return leidenalg(on, seed) if method == "leidenalg" else cluster(method, on, 3, seed)

    work(chain(500, seed)[0])
    before, started, cpu = peak_mb(), time.perf_counter(), time.process_time()
    labels = work(graph)
    return {
        "edges": int(graph.nnz),
        "vertices": int(graph.shape[0]),
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu,
        "peak_mb": max(0.1, peak_mb() - before),
        "ari": float(adjusted_rand_score(groups, labels)),
        "groups": len(set(labels.tolist())),
    }


def measured(method: str, edges: int, seed: int, limit: float) -> dict[str, Any]:
    """Run :func:`one` in a process; a method that fails or takes too long says so."""
    command = [sys.executable, __file__, "--one", method, str(edges), str(seed)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit,
            env=os.environ | THREADS,
        )
    except subprocess.TimeoutExpired:
        return {"method": method, "asked": edges, "error": f"more than {limit:g} s"}
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        return {"method": method, "asked": edges, "error": last}
    return {"method": method, "asked": edges} | json.loads(done.stdout.splitlines()[-1])


def slopes(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the slope of log seconds against log edges for each method."""
    found = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        points = [r for r in rows if r["method"] == method and "error" not in r]
        if len(points) > 1:
            x, y = (np.log([r[key] for r in points]) for key in ("edges", "cpu_seconds"))
            found[method] = float(np.polyfit(x, y, 1)[0])
    return found


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw agreement, seconds and peak memory against edges, a curve for each method."""
    from noisewright.methods.parpic.pictures import NAMES
    from noisewright.reports.figures import canvas, label_ends, line, log_axis

    figure, axes = canvas(3, 1, height=9.0, sharex=True)
    units = {"ari": "adjusted Rand index", "cpu_seconds": "seconds, one core", "peak_mb": "peak MB"}
    for panel, (key, unit) in zip(axes, units.items(), strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            points = [r for r in rows if r["method"] == method and "error" not in r]
            if points:
                name = NAMES.get(method, method)
                x, y = ([r[k] for r in points] for k in ("edges", key))
                line(panel, x, y, label=name, ours=method == "parpic", marker="o")
        log_axis(panel, "x", sorted({row["asked"] for row in rows}))
        panel.set(ylabel=unit, yscale="linear" if key == "ari" else "log")
        label_ends(panel)
    axes[-1].set_xlabel("directed edges")
    figure.savefig(path, dpi=200)


def rows_of(found: list[dict[str, Any]]) -> list[Row]:
    """Return measurements as lines of tables: ratios ParPIC / peer, agreement, slopes."""
    ours = {r["asked"]: r for r in found if r["method"] == "parpic" and "error" not in r}
    rows = []
    for r in found:
        base, size = ours.get(r["asked"]), f"{r['asked']:,} edges"
        if base is None or "error" in r:
            continue
        if r["method"] != "parpic":
            for key, what, unit in (("cpu_seconds", "time", "s"), ("peak_mb", "peak memory", "MB")):
                ratio = base[key] / r[key]
                section = f"ParPIC over its peers: {what}"
                rows.append(
                    Row(
                        *(section, size, r["method"], ratio, ratio, ratio, 1),
                        ours=base[key],
                        theirs=r[key],
                        side_unit=unit,
                    )
                )
        rows.append(single("agreement with the groups", f"{r['method']}, {size}", r["ari"], "ARI"))
    for method, slope in slopes(found).items():
        rows.append(single("slope of log time against log edges", method, slope, "power"))
    return rows


def single(section: str, what: str, value: float, unit: str) -> Row:
    """Return a line that compares with nothing."""
    return Row(section, what, "", value, value, value, 1, unit=unit)


def measure(quick: bool) -> list[Row]:
    """Measure all methods on all sizes, methods in turn for each size."""
    found: list[dict[str, Any]] = []
    for edges in EDGES[:2] if quick else EDGES:
        for method in METHODS:
            found.append(measured(method, edges, 0, LIMIT))
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    picture = Path(__file__).parents[1] / "docs" / "images" / "benchmark_parpic.png"
    picture.parent.mkdir(exist_ok=True)
    plot(found, picture)
    return rows_of(found)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
    else:
        main(
            "parpic",
            measure,
            title="ParPIC beside its peers on growing directed graphs",
            packages=("scikit-learn", "scikit-network", "igraph", "infomap", "leidenalg"),
        )
