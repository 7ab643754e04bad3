"""How figures look: one style, one blue for our method, and the few shapes that reports need.

Figures carry no title (the caption says it), label their units, and name lines directly where
they end. Colours are Okabe and Ito's, told apart by colour-blind readers; ours is always the same
blue, baselines are greys and muted hues. Make figures with :func:`canvas`, so that the report can
render them in a light and in a dark version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from noisewright.types import InputError

__all__ = [
    "BASELINES",
    "OKABE_ITO",
    "OURS",
    "band",
    "bars",
    "canvas",
    "image_grid",
    "label_ends",
    "line",
    "log_axis",
    "style",
]

INK = "#1b1f24"
SOFT = "#57606a"
RULE = "#d0d7de"
PAPER = "#ffffff"

OURS = "#0072b2"
OKABE_ITO = {
    "blue": OURS,
    "orange": "#e69f00",
    "sky": "#56b4e9",
    "green": "#009e73",
    "yellow": "#f0e442",
    "vermilion": "#d55e00",
    "purple": "#cc79a7",
}
BASELINES = ("#7a828b", "#b07d2b", "#6b9e8f", "#a8727f", "#a3abb3", "#8a6fa8")
"""Greys and muted hues, in the order in which baselines are drawn."""

WIDTH = 7.6  # inches, the width of a report's column

_STYLE: Any = {
    "figure.facecolor": PAPER,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "font.size": 11,
    "font.family": "sans-serif",
    "axes.titlesize": 11,
    "axes.facecolor": PAPER,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=(OURS, *BASELINES)),
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "lines.solid_capstyle": "round",
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "legend.frameon": False,
    "image.interpolation": "nearest",
    "image.cmap": "gray",
}


@contextmanager
def style() -> Iterator[None]:
    """Apply the style to figures that are made inside the block."""
    with mpl.rc_context(_STYLE):
        yield


def canvas(
    rows: int = 1,
    columns: int = 1,
    *,
    width: float = WIDTH,
    height: float | None = None,
    **subplots: Any,
) -> tuple[Figure, Any]:
    """Return an empty figure in the style, and its axes.

    Args:
        rows: Rows of axes.
        columns: Columns of axes.
        width: Inches; the default fills a report's column.
        height: Inches; the default is 0.55 of the width of one column of axes, per row.
        subplots: Passed to ``Figure.subplots``: ``sharex``, ``width_ratios``, ...

    Returns:
        The figure; one axes, or an array of them as ``Figure.subplots`` gives.

    Example:
        >>> figure, axes = canvas(1, 2, sharey=True)
        >>> axes.shape
        (2,)
    """
    if height is None:
        height = rows * max(2.2, 0.55 * width / columns)
    with style():
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, columns, **subplots)


def colour(place: int, *, ours: bool = False) -> str:
    """Return our blue, or the colour of the baseline with that number."""
    return OURS if ours else BASELINES[place % len(BASELINES)]


def _baselines_so_far(axes: Axes) -> int:
    return sum(1 for one in axes.lines if one.get_gid() == "baseline")


def log_axis(axes: Axes, which: str, ticks: Sequence[float]) -> None:
    """Make an axis logarithmic with plain numbers at these ticks, and no others.

    Args:
        axes: Where.
        which: ``"x"`` or ``"y"``.
        ticks: Positive values, for instance the numbers of steps.
    """
    from matplotlib.ticker import NullFormatter, NullLocator

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    axis.set_ticks(list(ticks), [f"{tick:g}" for tick in ticks])


def band(axes: Axes, x: Any, low: Any, high: Any, *, color: str = OURS) -> None:
    """Shade the range between two curves: spread over seeds, an interval."""
    axes.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)


def line(
    axes: Axes,
    x: Any,
    y: Any,
    *,
    label: str = "",
    ours: bool = False,
    spread: Any = None,
    color: str | None = None,
    **plot: Any,
) -> str:
    """Draw a curve, with its spread as a band; :func:`label_ends` names it.

    Args:
        axes: Where.
        x: Abscissas.
        y: Ordinates, same length.
        label: Name of the curve.
        ours: Our method: blue, thicker, on top.
        spread: Half-width of the band, same length as ``y``; or (low, high).
        color: Another colour than the next baseline's.
        plot: Passed to ``Axes.plot``.

    Returns:
        The colour.
    """
    color = color or colour(_baselines_so_far(axes), ours=ours)
    look = {"linewidth": 2.6 if ours else 1.6, "zorder": 3 if ours else 2} | plot
    gid = "ours" if ours else "baseline"
    axes.plot(x, y, color=color, label=label or "_", gid=gid, **look)
    if spread is not None:
        pair = isinstance(spread, (tuple, list)) and len(spread) == 2 and np.ndim(spread[0]) == 1
        middle = np.asarray(y, dtype=float)
        low, high = spread if pair else (middle - np.asarray(spread), middle + np.asarray(spread))
        band(axes, x, low, high, color=color)
    return color


def label_ends(axes: Axes, *, gap: float = 0.065) -> None:
    """Name each labelled curve at its right end, moved apart where names would overlap.

    Args:
        axes: Where; set its scales and limits first.
        gap: Least distance of two names, as a fraction of the height of the axes.
    """
    ends = []
    for one in axes.lines:
        name = str(one.get_label())
        xy = np.column_stack(
            [np.asarray(one.get_xdata(), float), np.asarray(one.get_ydata(), float)]
        )
        xy = xy[np.isfinite(xy).all(axis=1)]
        if name.startswith("_") or not len(xy):
            continue
        to_axes = axes.transData + axes.transAxes.inverted()
        x, y = to_axes.transform(xy[-1])
        ends.append([float(y), float(x), name, one.get_color(), one.get_gid() == "ours"])
    ends.sort(key=lambda end: end[0])
    heights = _apart([end[0] for end in ends], gap)
    for (y, x, name, color, ours), height in zip(ends, heights, strict=True):
        axes.annotate(
            name,
            xy=(x, y),
            xytext=(max(x, 0.0) + 0.02, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=color,
            fontsize=10,
            fontweight="bold" if ours else "normal",
            va="center",
            annotation_clip=False,
        )


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """Return sorted places moved as little as a few sweeps find, at least ``gap`` apart."""
    moved = list(places)
    for _ in range(200):
        worst = 0.0
        for i in range(len(moved) - 1):
            lack = gap - (moved[i + 1] - moved[i])
            if lack > 1e-9:
                moved[i] -= lack / 2
                moved[i + 1] += lack / 2
                worst = max(worst, lack)
        if worst == 0.0:
            break
    return moved


def bars(
    axes: Axes,
    values: Mapping[str, float],
    *,
    spread: Mapping[str, float] | None = None,
    ours: str | None = None,
    unit: str = "",
    form: str = "{:.3g}",
    target: float | None = None,
) -> None:
    """Draw one horizontal bar per name, each with its number at its end.

    Args:
        axes: Where.
        values: Length per name; the first is on top.
        spread: Half-width of an error bar per name.
        ours: The name drawn in our blue.
        unit: Label of the axis, with the unit.
        form: How numbers are written.
        target: A bar to clear, drawn as a dashed rule.
    """
    names = list(values)
    lengths = np.array([values[n] for n in names], dtype=float)
    errors = np.array([(spread or {}).get(n, 0.0) for n in names], dtype=float)
    colors = [OURS if n == ours else BASELINES[0] for n in names]
    places = np.arange(len(names))
    axes.barh(places, lengths, color=colors, height=0.62, zorder=2)
    if errors.any():
        look = {"ecolor": INK, "elinewidth": 1.1, "capsize": 3, "zorder": 3}
        axes.errorbar(lengths, places, xerr=errors, fmt="none", **look)
    tip = np.nanmax(np.abs(lengths) + errors) if len(names) else 1.0
    for place, name in enumerate(names):
        where = lengths[place] + np.sign(lengths[place] or 1.0) * (errors[place] + 0.015 * tip)
        axes.text(
            where,
            place,
            form.format(lengths[place]),
            va="center",
            ha="left" if lengths[place] >= 0 else "right",
            fontsize=10,
            fontweight="bold" if name == ours else "normal",
        )
    axes.set_yticks(places, names)
    for tick, name in zip(axes.get_yticklabels(), names, strict=True):
        tick.set_fontweight("bold" if name == ours else "normal")
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.14)
    if target is not None:
        axes.axvline(target, color=INK, linewidth=1.1, linestyle=(0, (4, 3)), zorder=1)
    axes.set_xlabel(unit)


def _as_picture(image: Any, span: tuple[float, float] | None) -> np.ndarray:
    """Return floats in [0, 1], (H, W) or (H, W, 3); channels may stand first or last."""
    array = np.asarray(image.detach().cpu().numpy() if hasattr(image, "detach") else image)
    if array.ndim == 3 and array.shape[0] in (1, 3):
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3):
        raise InputError(f"a picture has shape {array.shape}; give (H, W), (C, H, W) or (H, W, C)")
    if array.dtype == np.uint8:
        return array / 255.0
    low, high = (-1.0, 1.0) if span is None else span
    return np.clip((array.astype(float) - low) / (high - low), 0.0, 1.0)


def image_grid(
    images: Sequence[Sequence[Any]],
    *,
    rows: Sequence[str],
    columns: Sequence[str] | None = None,
    ours: str | None = None,
    span: tuple[float, float] | None = None,
    width: float = WIDTH,
    cmap: str = "gray",
) -> Figure:
    """Return pictures in rows (methods) and columns (cases or steps), labels outside.

    Args:
        images: ``images[row][column]``: arrays or tensors, (H, W), (C, H, W) or (H, W, C); None
            leaves a gap. uint8, or floats in ``span``.
        rows: One label per row.
        columns: One label per column.
        ours: The row label set in our blue.
        span: Values shown as black and white; None means -1 and 1.
        width: Inches.
        cmap: Colour map of pictures with one channel.

    Raises:
        InputError: If labels and pictures do not fit.
    """
    count = max((len(row) for row in images), default=0)
    if len(rows) != len(images) or count == 0 or (columns is not None and len(columns) != count):
        raise InputError(
            f"image_grid got {len(images)} rows of up to {count} pictures, {len(rows)} row labels "
            f"and {'no' if columns is None else len(columns)} column labels"
        )
    shown = [[None if i is None else _as_picture(i, span) for i in row] for row in images]
    tall, wide = next(p.shape for row in shown for p in row if p is not None)[:2]
    # Inches: room for labels, a gap between pictures, and cells of the pictures' own shape.
    gap = 0.05
    head = 0.3 if columns is not None else gap
    margin = 0.25 + 0.082 * max(len(part) for label in rows for part in label.split("\n"))
    cell = (width - margin - gap * count) / count
    step = cell * tall / wide + gap
    height = head + step * len(rows)
    with style():
        figure = Figure(figsize=(width, height))
        for r, row in enumerate(shown):
            for c in range(count):
                place = (
                    (margin + c * (cell + gap)) / width,
                    (height - head - (r + 1) * step + gap) / height,
                    cell / width,
                    (step - gap) / height,
                )
                axes = figure.add_axes(place)
                axes.set_axis_off()
                picture = row[c] if c < len(row) else None
                if picture is not None:
                    axes.imshow(picture, cmap=cmap, vmin=0, vmax=1, interpolation="nearest")
            first, mine = figure.axes[-count], rows[r] == ours
            _outside(first, -0.08, 0.5, rows[r], color=OURS if mine else INK, bold=mine)
        for axes, name in zip(figure.axes, columns or (), strict=False):
            _outside(axes, 0.5, 1.04, name, color=SOFT)
    return figure


def _outside(axes: Axes, x: float, y: float, text: str, *, color: str, bold: bool = False) -> None:
    """Write beside a picture (x < 0) or above it, in fractions of its box."""
    ha, va = ("right", "center") if x < 0 else ("center", "bottom")
    weight = "bold" if bold else "normal"
    look: Any = {"ha": ha, "va": va, "color": color, "fontweight": weight, "fontsize": 10}
    axes.text(x, y, text, transform=axes.transAxes, **look)
