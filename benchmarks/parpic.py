"""ParPIC beside its peers on growing directed graphs: agreement, seconds, peak memory, slopes.

Each pair of method and size runs in a process of its own, on one core, methods in turn for each
size, so that all see the same machine. The graphs are chains of three groups, which only the
direction of edges tells apart, with 30 edges out of each vertex on average::

    python benchmarks/parpic.py --json parpic.json --plot parpic.png
    python benchmarks/parpic.py --edges 1000 10000 100000

Ratios are seconds and memory of a peer over ParPIC's on the same graph: above 1, ParPIC is better.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

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
    from noisewright.methods.parpic.footprint import peak_mb

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


def with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add seconds and memory over ParPIC's on the same graph."""
    ours = {row["asked"]: row for row in rows if row["method"] == "parpic" and "error" not in row}
    for row in rows:
        base = ours.get(row["asked"])
        if base is not None and "error" not in row:
            row["seconds_ratio"] = row["cpu_seconds"] / base["cpu_seconds"]
            row["memory_ratio"] = row["peak_mb"] / base["peak_mb"]
    return rows


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


def show(row: dict[str, Any]) -> None:
    """Print the line of one measurement."""
    if "error" in row:
        print(f"{row['method']:13}{row['asked']:>10}  {row['error']}", flush=True)
        return
    print(
        f"{row['method']:13}{row['edges']:>10}{row['ari']:>7.2f}{row['cpu_seconds']:>10.3g}"
        f"{row.get('seconds_ratio', float('nan')):>8.2f}{row['peak_mb']:>8.0f}"
        f"{row.get('memory_ratio', float('nan')):>8.2f}",
        flush=True,
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edges", type=int, nargs="+", default=EDGES)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=900, help="seconds for one measurement")
    parser.add_argument("--json", type=Path, help="write rows, ratios and slopes")
    parser.add_argument("--plot", type=Path, help="write a picture")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        method, edges, seed = options.one
        print(json.dumps(one(method, int(edges), int(seed))))
        return
    print(f"{'method':13}{'edges':>10}{'ARI':>7}{'seconds':>10}{'ratio':>8}{'MB':>8}{'ratio':>8}")
    rows: list[dict[str, Any]] = []
    for edges in options.edges:
        for method in options.methods:
            rows.append(measured(method, edges, options.seed, options.limit))
            show(with_ratios(rows)[-1])
    found = slopes(rows)
    print("slope of seconds:", ", ".join(f"{m} {slope:.2f}" for m, slope in found.items()))
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "slopes": found}, indent=2) + "\n")
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
