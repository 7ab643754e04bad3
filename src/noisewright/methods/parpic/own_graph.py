"""The run on a graph of the user's own: labels, pictures, and scores where groups are known."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from noisewright.data.graphs import read_graph, read_vertex_labels
from noisewright.methods.parpic import measures, pictures
from noisewright.methods.parpic.adjacency import as_adjacency, vertex_count
from noisewright.methods.parpic.baselines import available_methods
from noisewright.methods.parpic.command import count_or_auto, labels_text
from noisewright.methods.parpic.estimator import ParPIC
from noisewright.methods.parpic.settings import Settings
from noisewright.reports.run import Run
from noisewright.storage import write_atomic

__all__ = ["cluster_own_graph"]

COMPARED_UP_TO = 5000
DRAWN_UP_TO = 300


def cluster_own_graph(settings: Settings, run: Run) -> None:
    """Cluster one graph file; write ``labels.csv`` beside the report.

    Args:
        settings: The run's settings.
        run: The run; its first seed is used, and every seed where groups are known.

    Raises:
        InputError: If the file or the labels cannot be used.
    """
    graph = read_graph(Path(settings.graph or run.data or ""))
    adjacency = as_adjacency(graph.adjacency)
    run.data_note(graph.describe())
    clusters = count_or_auto(settings.clusters, "clusters")
    groups = None
    if settings.labels is not None:
        groups, names = read_vertex_labels(settings.labels, graph)
        unknown = int((groups < 0).sum())
        run.data_note(f"Known groups: {len(names)}; {unknown} vertices have none.")
    fitted = run.stage(
        "cluster",
        fit,
        graph=adjacency,
        clusters=clusters,
        gamma=settings.gamma,
        steps=count_or_auto(settings.time, "time"),
        rows=settings.row_normalize,
        seed=run.seeds[0],
    )
    labels = np.asarray(fitted["labels"])
    write_atomic(run.folder / "labels.csv", labels_text(graph.names, labels))
    for note in fitted["notes"]:
        run.data_note(f"{note[0].upper()}{note[1:]}.")
    run.record("diffusion_time.own", fitted["time"])
    _picture(run, adjacency, fitted, groups)
    scores = _scores(settings, run, adjacency, groups) if groups is not None else ""
    count = fitted["count"]
    chosen = "chosen" if clusters == "auto" else "asked for"
    run.finding(f"{count} groups ({chosen}) among {len(labels)} vertices of {graph.place}{scores}")


def fit(
    stage: Any,
    *,
    graph: sparse.csr_array,
    clusters: int | str,
    gamma: float,
    steps: int | str,
    rows: bool,
    seed: int,
) -> dict[str, Any]:
    """Fit ParPIC and return what the report shows."""
    settings: dict[str, Any] = {"gamma": gamma, "diffusion_time": steps, "row_normalize": rows}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = ParPIC(clusters, random_state=seed, **settings).fit(graph)  # pyright: ignore[reportArgumentType]
    return {
        **measures.shown(model),
        "labels": model.labels_,
        "count": model.n_clusters_,
        "notes": [str(one.message) for one in caught],
    }


def _picture(
    run: Run, graph: sparse.csr_array, fitted: dict[str, Any], groups: np.ndarray | None
) -> None:
    labels, plane = np.asarray(fitted["labels"]), np.asarray(fitted["plane"])
    run.figure(
        "matrix",
        pictures.ordered(graph, labels),
        caption="The adjacency matrix as given and ordered by group, tails down, heads across.",
        alt="Two square pictures of the density of edges; the right one shows blocks.",
    )
    if len(labels) <= DRAWN_UP_TO:
        run.figure(
            "drawing",
            pictures.drawing(graph, plane, labels, labels if groups is None else groups),
            caption="The graph, vertices where the embedding puts them, coloured by group found.",
            alt=f"A drawing of {len(labels)} vertices and their edges.",
        )
    shown = {"your graph": (plane, labels, labels if groups is None else groups)}
    run.figure(
        "embedding",
        pictures.planes(shown),
        caption="The embedding in its two main directions: found, and known where it is known.",
        alt="Scatter plots of the vertices, coloured by group.",
    )
    if len(fitted["curve"]):
        run.figure(
            "entropy",
            pictures.curves({"your graph": fitted}),
            caption="Entropy of the walk; the dot is the diffusion time.",
            alt="A rising curve with a dot at its knee.",
        )
    sizes = np.bincount(labels[labels >= 0])
    run.table("Groups", ["group", "vertices"], [[i, int(size)] for i, size in enumerate(sizes)])


def _scores(settings: Settings, run: Run, graph: sparse.csr_array, groups: np.ndarray) -> str:
    """Compare every method with the known groups where the graph is small enough."""
    if vertex_count(graph) > COMPARED_UP_TO:
        run.data_note(f"Methods are compared up to {COMPARED_UP_TO} vertices.")
        return ""
    tasks = [
        {
            "name": "own",
            "graph": graph,
            "groups": groups,
            "seed": seed,
            "gamma": settings.gamma,
            "steps": count_or_auto(settings.time, "time"),
        }
        for seed in run.seeds
    ]
    for seed, record in zip(run.seeds, run.stages("compare", measures.compare, tasks), strict=True):
        for method, found in record["methods"].items():
            run.record(f"ari.own.{method}", found["ari"], seed=seed)
            run.record(f"ami.own.{method}", found["ami"], seed=seed)
    rows = [
        [pictures.NAMES[m], run.spread(f"ari.own.{m}"), run.spread(f"ami.own.{m}")]
        for m in available_methods()
    ]
    run.table(
        "Agreement with the known groups, given their number",
        ["method", "adjusted Rand index", "adjusted mutual information"],
        rows,
        ours=pictures.NAMES["parpic"],
    )
    ours, theirs = run.spread("ari.own.parpic")[0], run.spread("ari.own.sc_sym")[0]
    return (
        f"; given the true number, agreement {ours:.2f} against {theirs:.2f} of spectral clustering"
    )
