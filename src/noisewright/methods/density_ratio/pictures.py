"""The figures of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from noisewright.reports.figures import (
    BASELINES,
    OKABE_ITO,
    OURS,
    RULE,
    SOFT,
    canvas,
    label_ends,
    line,
    log_axis,
    style,
)

__all__ = ["NAMES", "batches", "effects", "landscape", "own_cells", "scatter", "steps_curves"]

NAMES = {
    "ode": "ratio ODE (ours)",
    "naive": "two likelihoods",
    "logreg": "logistic",
    "quad": "logistic, quadratic",
    "knn": "neighbours",
    "rulsif": "densratio",
    "kde": "kernel density",
    "meld": "MELD",
}

DIVERGING = LinearSegmentedColormap.from_list(
    "less-more", [OKABE_ITO["vermilion"], "#f0c9b0", "#e4e7ea", "#a9cbe0", OURS]
)


def _cells(axes: Axes, place: np.ndarray, value: np.ndarray, limit: float, title: str) -> Any:
    """Draw cells in the plane, the strongest values on top."""
    order = np.argsort(np.abs(value))
    size = float(np.clip(9000 / len(value), 2, 14))
    dots = axes.scatter(
        *place[order].T,
        c=np.clip(value[order], -limit, limit),
        cmap=DIVERGING,
        vmin=-limit,
        vmax=limit,
        s=size,
        linewidths=0,
        rasterized=True,
    )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set(visible=True, color=RULE)
    axes.set_xlabel(title)
    return dots


def landscape(
    place: np.ndarray, r: np.ndarray, odds: np.ndarray, clusters: np.ndarray, share: float
) -> Figure:
    """Return cells coloured by what is true and by what was found, and both by cluster.

    Args:
        place: UMAP (n, 2).
        r: Log ratio found (n,).
        odds: True log odds (n,).
        clusters: Cluster of each cell (n,).
        share: Probability of treatment in the enriched cluster.
    """
    figure, axes = canvas(2, 2, height=6.4, height_ratios=[1.25, 1.0])
    limit = float(min(3.0, max(1.0, np.abs(odds[np.isfinite(odds)]).max())))
    _cells(axes[0, 0], place, odds, limit, "true log odds of treatment")
    dots = _cells(axes[0, 1], place, r, limit, "log ratio found, cell by cell")
    bar = figure.colorbar(dots, ax=axes[0, :], shrink=0.8, pad=0.02)
    bar.set_label("treated / control, nats")
    grid = axes[1, 0].get_gridspec()
    for one in axes[1, :]:
        one.remove()
    with style():
        below = figure.add_subplot(grid[1, :])
    violins(below, r, odds, clusters)
    below.set_xlabel(f"cluster (treated with probability {share:g} in 1, {1 - share:.2g} in 2)")
    return figure


def violins(axes: Axes, r: np.ndarray, odds: np.ndarray, clusters: np.ndarray) -> None:
    """Draw the log ratios of each cluster, with the truth as a bar."""
    names = sorted(set(clusters), key=lambda c: (len(str(c)), str(c)))
    groups = [r[clusters == name] for name in names]
    drawn = axes.violinplot(groups, showextrema=False, widths=0.85)
    for body in drawn["bodies"]:  # pyright: ignore[reportGeneralTypeIssues] - a list of bodies
        body.set(facecolor=OURS, alpha=0.35, edgecolor="none")
    places = np.arange(1, len(names) + 1)
    axes.plot(places, [np.median(g) for g in groups], "o", color=OURS, markersize=4)
    truth = [np.clip(odds[clusters == name][0], -6, 6) for name in names]
    axes.hlines(truth, places - 0.4, places + 0.4, color=OKABE_ITO["vermilion"], linewidth=2)
    axes.set_xticks(places, names)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("log ratio, nats")
    axes.text(
        0.99, 0.97, "bar: truth, dot: median", transform=axes.transAxes, ha="right", va="top",
        color=SOFT, fontsize=9,
    )  # fmt: skip


def scatter(truth: np.ndarray, found: Mapping[str, np.ndarray], mse: Mapping[str, float]) -> Figure:
    """Return true against estimated log ratios, one square a method.

    Args:
        truth: True log ratios.
        found: Estimates by method, at most six.
        mse: Mean squared error by method.
    """
    names = list(found)[:6]
    figure, axes = canvas(2, 3, height=5.6, sharex=True, sharey=True)
    low, high = float(truth.min()) - 1, float(truth.max()) + 1
    for one, name in zip(axes.flat, names, strict=False):
        color = OURS if name == "ode" else BASELINES[0]
        one.plot([low, high], [low, high], color=OKABE_ITO["vermilion"], linewidth=1)
        one.plot(truth, np.clip(found[name], low, high), ".", color=color, markersize=2.5)
        weight = "bold" if name == "ode" else "normal"
        one.set_title(NAMES[name], fontweight=weight, color=color if name == "ode" else SOFT)
        one.text(0.04, 0.9, f"mse {mse[name]:.3g}", transform=one.transAxes, fontsize=9)
        one.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    for one in axes.flat[len(names) :]:
        one.set_axis_off()
    for one in axes[-1]:
        one.set_xlabel("true log ratio, nats")
    for one in axes[:, 0]:
        one.set_ylabel("estimate, nats")
    return figure


def steps_curves(curves: Mapping[str, Mapping[str, list[float]]]) -> Figure:
    """Return error and seconds against solver steps, for one walk and for two.

    Args:
        curves: Number of steps to method to (mean squared error, seconds).
    """
    figure, axes = canvas(1, 2, height=3.0)
    steps = sorted(map(int, curves))
    for column, label in enumerate(("mean squared error, nats²", "seconds for the test points")):
        for name in ("ode", "naive"):
            values = [curves[str(n)][name][column] for n in steps]
            line(axes[column], steps, values, label=NAMES[name], ours=name == "ode", marker="o")
        log_axis(axes[column], "x", steps)
        axes[column].set(xlabel="solver steps", ylabel=label)
        axes[column].set_ylim(bottom=0)
        axes[column].margins(x=0.05)
    label_ends(axes[1])
    return figure


def batches(
    strengths: list[float], before: list[tuple[float, float]], after: list[tuple[float, float]]
) -> Figure:
    """Return the batch score against the strength of the push, before and after correction.

    Args:
        strengths: Of the push.
        before: (mean, spread) for each.
        after: Likewise.
    """
    figure, axes = canvas(height=3.0)
    rows = (("before correction", before, True), ("after", after, False))
    for name, values, ours in rows:
        mean, spread = np.array(values).T
        line(axes, strengths, mean, label=name, ours=ours, spread=spread, marker="o")
    axes.axhline(0, color=SOFT, linewidth=0.8)
    axes.set(xlabel="push of batch 2, in spreads of a cluster", ylabel="batch score, nats")
    axes.set_xticks(strengths)
    label_ends(axes)
    return figure


def effects(
    names: list[str], mean: np.ndarray, low: np.ndarray, high: np.ndarray, counts: np.ndarray
) -> Figure:
    """Return the effect of each group with its interval.

    Args:
        names: Of the groups.
        mean: Mean log ratio.
        low: Lower end of the interval.
        high: Upper end.
        counts: Cells.
    """
    figure, axes = canvas(height=max(2.4, 0.34 * len(names) + 1.0))
    places = np.arange(len(names))
    axes.hlines(places, low, high, color=OURS, linewidth=2)
    axes.plot(mean, places, "o", color=OURS)
    axes.axvline(0, color=SOFT, linewidth=0.8)
    axes.set_yticks(places, [f"{n} ({c})" for n, c in zip(names, counts, strict=True)])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("mean log ratio with 95 % interval, nats")
    return figure


def own_cells(place: np.ndarray, r: np.ndarray, title: str) -> Figure:
    """Return cells coloured by their log ratio.

    Args:
        place: Coordinates in a plane (n, 2).
        r: Log ratio (n,).
        title: What is shown.
    """
    figure, axes = canvas(height=5.0)
    limit = float(np.quantile(np.abs(r), 0.98)) or 1.0
    dots = _cells(axes, place, r, limit, title)
    figure.colorbar(dots, ax=axes, shrink=0.8).set_label("log ratio, nats")
    return figure
