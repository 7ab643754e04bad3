"""The figures of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from noisewright.methods.parpic.adjacency import vertex_count
from noisewright.reports.figures import (
    OKABE_ITO,
    OURS,
    PAPER,
    RULE,
    bars,
    canvas,
    label_ends,
    line,
    log_axis,
)

__all__ = ["NAMES", "curves", "drawing", "gamma_sweep", "matrices", "ordered", "planes", "runtime"]

NAMES = {
    "parpic": "ParPIC (ours)",
    "parpic_rows": "ParPIC, unit rows",
    "sc_sym": "spectral, W + Wᵀ",
    "bibliometric": "bibliometric",
    "hermitian": "Hermitian",
    "dsc": "directed Laplacian",
    "pic": "plain PIC",
    "pagerank_pic": "PageRank PIC",
    "louvain": "Louvain, directed",
    "leiden": "Leiden, directed",
    "infomap": "Infomap",
    "dense_spectral": "dense spectral",
}

GROUPS = [OKABE_ITO[c] for c in ("blue", "vermilion", "green", "purple", "orange", "sky")]
INK = LinearSegmentedColormap.from_list("ink", [PAPER, OURS])


def density(graph: sparse.csr_array, order: np.ndarray, cells: int = 90) -> np.ndarray:
    """Return the density of edges in cells x cells blocks of the matrix in an order."""
    n = vertex_count(graph)
    cells = min(cells, n)
    place = np.empty(n, dtype=int)
    place[order] = np.arange(n) * cells // n
    ends = graph.tocoo().coords
    count = np.zeros((cells, cells))
    np.add.at(count, (place[ends[0]], place[ends[1]]), 1.0)
    size = np.bincount(place, minlength=cells)
    return count / np.outer(size, size)


def _spy(axes: Axes, graph: sparse.csr_array, labels: np.ndarray, title: str) -> None:
    picture = density(graph, np.argsort(labels, kind="stable"))
    top = float(np.quantile(picture, 0.995)) or 1.0
    axes.imshow(picture, cmap=INK, vmin=0, vmax=top, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.set_xlabel(title, fontsize=9)
    for side in axes.spines.values():
        side.set(visible=True, color=RULE)
    edges = np.cumsum(np.bincount(labels - labels.min())) / len(labels) * len(picture) - 0.5
    for edge in edges[:-1]:
        axes.axhline(edge, color=OKABE_ITO["vermilion"], linewidth=0.8)
        axes.axvline(edge, color=OKABE_ITO["vermilion"], linewidth=0.8)


def matrices(
    cases: Mapping[str, tuple[sparse.csr_array, Mapping[str, np.ndarray]]],
    scores: Mapping[str, Mapping[str, tuple[float, float]]],
    methods: Sequence[str],
) -> Figure:
    """Return adjacency matrices before and after, a row for each graph, and bars of agreement.

    Args:
        cases: Graph with shuffled vertices, and labels of ``sc_sym`` and ``parpic``, by name.
        scores: Mean and spread of the adjusted Rand index, by name and method.
        methods: Which bars.
    """
    figure, axes = canvas(
        len(cases), 4, height=2.35 * len(cases), width_ratios=[1, 1, 1, 1.35], squeeze=False
    )
    for row, (name, (graph, labels)) in zip(axes, cases.items(), strict=True):
        _spy(row[0], graph, np.zeros(vertex_count(graph), dtype=int), "as given")
        _spy(row[1], graph, labels["sc_sym"], "by spectral, W + Wᵀ")
        _spy(row[2], graph, labels["parpic"], "by ParPIC")
        row[0].set_ylabel(name.replace("_", " "))
        shown = {NAMES[m].removesuffix(" (ours)"): scores[name][m] for m in methods}
        bars(
            row[3],
            {m: score[0] for m, score in shown.items()},
            spread={m: score[1] for m, score in shown.items()},
            ours="ParPIC",
            form="{:.2f}",
            unit="adjusted Rand index",
        )
        row[3].tick_params(axis="y", labelsize=8)
        row[3].xaxis.label.set_size(9)
        row[3].margins(x=0.24)
        for text in row[3].texts:
            text.set_fontsize(8)
    return figure


def ordered(graph: sparse.csr_array, labels: np.ndarray) -> Figure:
    """Return the adjacency matrix as given and ordered by label."""
    figure, axes = canvas(1, 2, height=3.7)
    _spy(axes[0], graph, np.zeros(len(labels), dtype=int), "as given")
    _spy(axes[1], graph, labels, "ordered by group")
    return figure


def curves(records: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Return entropy curves on a common scale, with the chosen time marked on each."""
    figure, axes = canvas(height=3.6)
    palette = [OURS, *[c for k, c in OKABE_ITO.items() if k not in ("blue", "yellow")]]
    for i, (name, record) in enumerate(records.items()):
        curve = np.asarray(record["curve"])
        if not curve.size:
            continue
        rise = (curve - curve[0]) / (record["limit"] - curve[0])
        times = np.arange(1, len(curve) + 1)
        color = palette[i % len(palette)]
        line(axes, times[:100], rise[:100], label=f"{name} t* = {record['time']}", color=color)
        axes.plot(record["time"], rise[record["time"] - 1], "o", color=color, markersize=8)
    log_axis(axes, "x", [1, 2, 5, 10, 20, 50, 100])
    axes.set(
        xlabel="diffusion time t (steps)",
        ylabel="(H(t) - H(1)) / (H∞ - H(1))",
    )
    label_ends(axes)
    return figure


def _scatter(axes: Axes, plane: np.ndarray, labels: np.ndarray, title: str) -> None:
    known = np.unique(labels)
    for label in known:
        at = labels == label
        axes.scatter(
            *plane[at].T, s=7, color=GROUPS[label % len(GROUPS)], alpha=0.7, linewidths=0, zorder=2
        )
    axes.set_xlabel(title, fontsize=10)
    axes.set_xticks([])
    axes.set_yticks([])


def _matched(groups: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the true groups, renamed to the labels that they share most vertices with."""
    names, codes = np.unique(groups, return_inverse=True)
    shared = np.zeros((len(names), max(len(names), int(labels.max()) + 1)))
    np.add.at(shared, (codes[labels >= 0], labels[labels >= 0]), 1)
    return linear_sum_assignment(-shared)[1][codes]


def planes(cases: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Figure:
    """Return embeddings in their two main directions: by label found, and by true group.

    Args:
        cases: Plane (n, 2), labels (n,) and true groups (n,) by name.
    """
    figure, axes = canvas(len(cases), 2, height=2.9 * len(cases), squeeze=False)
    for row, (name, (plane, labels, groups)) in zip(axes, cases.items(), strict=True):
        row[0].set_ylabel(name.replace("_", " "))
        _scatter(row[0], plane, labels, "coloured by the group found")
        _scatter(row[1], plane, _matched(groups, labels), "coloured by the true group")
    return figure


def drawing(
    graph: sparse.csr_array, plane: np.ndarray, labels: np.ndarray, groups: np.ndarray
) -> Figure:
    """Return the graph itself, vertices where the embedding puts them, arrows thin.

    Vertices whose label agrees with the majority of their group are discs, others crosses.
    """
    figure, axes = canvas(height=4.4)
    place = plane / np.abs(plane).max(axis=0)
    tails, heads = graph.tocoo().coords
    two = tails != heads
    start, end = place[tails[two]], place[heads[two]]
    segments = np.stack([start, start + 0.5 * (end - start), end], axis=1)
    axes.add_collection(
        LineCollection(list(segments[:, 1:]), colors=RULE, linewidths=0.4, zorder=1)
    )
    # The half of an edge at its tail takes the colour of the group that it leaves.
    colors = [GROUPS[label % len(GROUPS)] for label in labels[tails[two]]]
    axes.add_collection(
        LineCollection(list(segments[:, :2]), colors=colors, linewidths=0.5, alpha=0.5, zorder=1)
    )
    right = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        right[members] = groups[members] == np.bincount(groups[members]).argmax()
    for marker, at in (("o", right), ("X", ~right)):
        axes.scatter(
            *place[at].T,
            s=60,
            marker=marker,
            color=[GROUPS[label % len(GROUPS)] for label in labels[at]],
            edgecolors=PAPER,
            linewidths=0.8,
            zorder=3,
        )
    axes.set_axis_off()
    axes.margins(0.05)
    return figure


def gamma_sweep(
    gammas: Sequence[float], scores: Mapping[str, tuple[np.ndarray, np.ndarray]]
) -> Figure:
    """Return agreement against gamma, a curve for each set, spread as a band."""
    figure, axes = canvas(height=3.8)
    palette = [OURS, *[c for k, c in OKABE_ITO.items() if k not in ("blue", "yellow")]]
    for i, (name, (mean, spread)) in enumerate(scores.items()):
        color, style = palette[i % len(palette)], "-" if i < len(palette) else "--"
        line(axes, gammas, mean, label=name, spread=spread, color=color, linestyle=style)
    axes.set(xlabel="γ: weight of incoming against outgoing edges", ylabel="adjusted Rand index")
    label_ends(axes)
    return figure


def runtime(seconds: Mapping[str, Mapping[int, float]], exponent: float) -> Figure:
    """Return seconds against vertices, both logarithmic, a curve for each method."""
    figure, axes = canvas(height=3.8)
    for method, row in seconds.items():
        ours = method == "parpic"
        label = f"ParPIC, n^{exponent:.2f}" if ours else NAMES[method]
        line(axes, list(row), list(row.values()), label=label, ours=ours, marker="o")
    log_axis(axes, "x", sorted({n for row in seconds.values() for n in row}))
    axes.set(yscale="log", xlabel="vertices (15 edges out of each)", ylabel="seconds, one core")
    label_ends(axes)
    return figure
