"""The figures of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor

from noisewright.methods.cacheedit.edits import OPERATIONS
from noisewright.reports.figures import (
    BASELINES,
    OKABE_ITO,
    OURS,
    bars,
    canvas,
    image_grid,
    label_ends,
    line,
    log_axis,
)

__all__ = ["NAMES", "drift", "edit_bars", "emergence", "key_map", "seconds", "strip", "threshold"]

NAMES = {
    "full": "full recomputation",
    "kv": "cacheedit, kv",
    "hidden": "cacheedit, hidden",
    "current": "cacheedit, this round's keys",
    "random": "random tokens",
    "taylorseer": "TaylorSeer",
    "first_block": "FirstBlockCache",
    "mag": "MagCache",
    "cache_dit": "cache-dit (DBCache)",
}

Spread = tuple[float, float]


def asked(instruction: Sequence[int]) -> str:
    """Return an instruction in words.

    Example:
        >>> asked([0, 0, 3])
        'invert 1,4'
    """
    operation, row, column = (int(part) for part in instruction)
    return f"{OPERATIONS[operation]} {row + 1},{column + 1}"


def strip(
    rows: Mapping[str, Sequence[Tensor]],
    instructions: Tensor,
    masks: Sequence[Tensor],
    *,
    outlined: str,
    ours: str,
) -> Figure:
    """Return one picture through the rounds: a row for each arm, key tokens outlined in one.

    Args:
        rows: Pictures in [-1, 1] by name, the one before the first round first.
        instructions: Of each round.
        masks: Key tokens of each round, bool, (rows, columns).
        outlined: The row that masks are drawn on.
        ours: The row set in blue.
    """
    columns = ["before", *map(asked, instructions.tolist())]
    figure = image_grid(
        [[image.clamp(-1, 1) for image in images] for images in rows.values()],
        rows=list(rows),
        columns=columns,
        ours=ours,
    )
    place = list(rows).index(outlined) * len(columns)
    side = next(iter(rows.values()))[0].shape[-1]
    for column, mask in enumerate(masks[1:], start=2):  # the first round computes everything
        _outline(figure.axes[place + column], np.asarray(mask), side / mask.shape[1])
    return figure


def _outline(axes: Axes, mask: np.ndarray, size: float) -> None:
    """Draw the border of the true cells of a mask."""
    padded = np.pad(mask.astype(bool), 1)
    lines = []
    for i in range(mask.shape[0] + 1):
        for j in range(mask.shape[1] + 1):
            here, above, left = padded[i + 1, j + 1], padded[i, j + 1], padded[i + 1, j]
            x, y = j * size - 0.5, i * size - 0.5
            if here != above:
                lines.append([(x, y), (x + size, y)])
            if here != left:
                lines.append([(x, y), (x, y + size)])
    for width, color in ((2.4, "#ffffff"), (1.1, OKABE_ITO["vermilion"])):
        axes.add_collection(LineCollection(lines, colors=color, linewidths=width))


def drift(curves: Mapping[str, tuple[np.ndarray, np.ndarray]], ours: str) -> Figure:
    """Return the PSNR of untouched cells after each round, with the spread over seeds."""
    figure, axes = canvas(height=3.6)
    for name, (mean, spread) in curves.items():
        look = {"color": OKABE_ITO["sky"]} if name == "hidden" and ours != name else {}
        rounds = np.arange(1, len(mean) + 1)
        line(axes, rounds, mean, label=NAMES[name], ours=name == ours, spread=spread, **look)
    axes.set(xlabel="round", ylabel="PSNR of untouched cells, dB")
    axes.set_xticks(np.arange(1, 1 + max(len(mean) for mean, _ in curves.values())))
    label_ends(axes)
    return figure


def trade(points: Mapping[str, tuple[float, float]], ours: str) -> Figure:
    """Return what untouched cells keep against what a later round costs.

    Args:
        points: Share of the arithmetic and background PSNR, by arm.
        ours: The arm in blue.
    """
    figure, axes = canvas(height=3.6)
    for number, (name, (share, decibels)) in enumerate(points.items()):
        color = OURS if name == ours else BASELINES[number % len(BASELINES)]
        axes.plot(share, decibels, "o", color=color, markersize=10 if name == ours else 7)
    axes.set(xlabel="arithmetic of a later round / full", ylabel="PSNR of untouched cells, dB")
    axes.set_xlim(0, 1.35)
    axes.margins(y=0.12)
    _name_points(axes, points, ours)
    return figure


def _name_points(axes: Axes, points: Mapping[str, tuple[float, float]], ours: str) -> None:
    """Write names right of points, moved up or down where two would overlap."""
    low, high = axes.get_ylim()
    gap, taken = 0.065 * (high - low), []
    for name, (x, y) in sorted(points.items(), key=lambda item: item[1][1]):
        height = y
        while any(abs(x - other) < 0.34 and abs(height - at) < gap for other, at in taken):
            height += gap / 8
        taken.append((x, height))
        weight = "bold" if name == ours else "normal"
        look: Any = {"va": "center", "fontsize": 9, "fontweight": weight}
        axes.text(x + 0.025, height, NAMES[name], **look)


def edit_bars(values: Mapping[str, Spread], ours: str) -> Figure:
    """Return the PSNR of edited cells, a bar an arm."""
    figure, axes = canvas(height=0.36 * len(values) + 0.9)
    named = {NAMES[name]: value for name, value in values.items()}
    bars(
        axes,
        {name: value[0] for name, value in named.items()},
        spread={name: value[1] for name, value in named.items()},
        ours=NAMES[ours],
        unit="PSNR of edited cells against what was asked for, dB",
        form="{:.1f}",
    )
    return figure


def key_map(shares: np.ndarray, steps: Sequence[int]) -> Figure:
    """Return the share of key tokens at each full step of each later round.

    Args:
        shares: (rounds, full steps), in [0, 1].
        steps: The full steps.
    """
    figure, axes = canvas(height=0.42 * len(shares) + 1.3)
    top = max(0.3, float(shares.max()))
    axes.imshow(100 * shares, cmap="Blues", vmin=0, vmax=100 * top, aspect="auto")
    for i, row in enumerate(shares):
        for j, share in enumerate(row):
            color = "white" if share > 0.6 * top else "black"
            axes.text(j, i, f"{100 * share:.0f} %", ha="center", va="center", color=color)
    axes.set_xticks(range(len(steps)), [str(step) for step in steps])
    axes.set_yticks(range(len(shares)), [str(i + 2) for i in range(len(shares))])
    axes.set(xlabel="step that computes everything", ylabel="round")
    axes.grid(visible=False)
    return figure


def emergence(found: Mapping[str, np.ndarray]) -> Figure:
    """Return how far apart two rounds are at each step, in latents and in deep activations.

    Args:
        found: ``latent_inside`` and so on, a value a step.
    """
    figure, both = canvas(1, 2, height=3.0, sharey=True)
    for axes, name, title in zip(both, ("latent", "deep"), ("latents", "last block"), strict=True):
        for place, ours in (("inside", True), ("outside", False)):
            values = np.maximum(found[f"{name}_{place}"], 1e-8)
            label = f"{place} the edited cell"
            line(axes, np.arange(len(values)), values, label=label, ours=ours)
        axes.set(xlabel=f"step ({title})", yscale="log")
    both[0].set_ylabel("1 - similarity of two rounds")
    both[1].legend(fontsize=9, loc="lower right")
    return figure


def seconds(measured: Mapping[str, Mapping[float, tuple[float, float]]]) -> Figure:
    """Return how much faster a later round is against the share of key tokens.

    Args:
        measured: By mode and share: measured and expected speedup.
    """
    figure, axes = canvas(height=3.4)
    colors = {"kv": OURS, "hidden": OKABE_ITO["orange"]}
    for mode, points in measured.items():
        shares = 100 * np.array(list(points))
        found, expected = np.array(list(points.values())).T
        axes.plot(shares, found, "o", color=colors[mode], markersize=7, zorder=3)
        line(axes, shares, expected, label=f"{mode}: model", color=colors[mode], linestyle="--")
    axes.axhline(1, color="#57606a", linewidth=0.8)
    log_axis(axes, "x", [round(100 * share) for share in next(iter(measured.values()))])
    axes.set(xlabel="key tokens, % of image tokens", ylabel="full round / cached round")
    axes.legend(fontsize=9)
    return figure


def threshold(
    thresholds: Sequence[float], recall: np.ndarray, share: np.ndarray, chosen: Sequence[float]
) -> Figure:
    """Return recall and share of key tokens against the threshold, on validation pictures.

    Args:
        thresholds: Tried.
        recall: Of edited tokens, a row a seed.
        share: Of all latent tokens, likewise.
        chosen: Threshold of each seed.
    """
    figure, axes = canvas(height=3.0)
    place = np.arange(len(thresholds))
    for values, label, ours in (
        (recall, "edited tokens found", True),
        (share, "key tokens", False),
    ):
        line(axes, place, 100 * values.mean(0), label=label, ours=ours, spread=100 * values.std(0))
    axes.axhline(90, color="#57606a", linewidth=0.8, linestyle=(0, (4, 3)))
    for one in chosen:
        where = float(np.interp(one, thresholds, place))
        axes.axvline(where, color="#57606a", linewidth=0.8)
    axes.set_xticks(place, [f"{one:g}" for one in thresholds])
    axes.set(xlabel="threshold", ylabel="% of latent tokens, step 0", ylim=(0, 103))
    label_ends(axes)
    return figure


def as_arrays(records: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    """Return one entry of several records, stacked."""
    return np.stack([np.asarray(record[name], dtype=float) for record in records])
