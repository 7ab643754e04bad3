"""The figures of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from noisewright.methods.kineflow.scores import INTERVALS
from noisewright.reports.figures import (
    BASELINES,
    INK,
    OURS,
    SOFT,
    band,
    bars,
    canvas,
    label_ends,
    line,
    log_axis,
)

__all__ = [
    "NAMES",
    "additions",
    "by_lead",
    "calls_and_noise",
    "fans",
    "lead_picture",
    "phase_portrait",
    "reliability",
    "spectra",
    "switched_force",
]

NAMES = {
    "kineflow": "kineflow (ours)",
    "first_order_forces": "same network, first order",
    "first_order_flow": "first-order flow",
    "first_order_whitened": "first order, whitened",
    "first_order_plain": "first order, plain",
    "second_order_whitened": "second order, drivers concatenated",
    "ddpm_residual": "DDPM, 50 calls",
    "quantile_linear": "linear quantiles",
    "linear_bootstrap": "linear + bootstrap",
    "linear_gaussian": "linear + Gaussian",
    "linear_gaussian_common": "linear + Gaussian, common",
    "linear_gaussian_channels": "linear + Gaussian, by channel",
    "seasonal_naive": "seasonal naive",
    "patchtst": "PatchTST (mean)",
    "driver_mlp": "MLP with drivers (mean)",
    "dlinear": "DLinear (mean)",
    "no_drivers": "without drivers",
    "state": "drivers added to the state",
    "damped": "learned damping",
    "unweighted": "loss in whitened units",
}

TRUTH = "#d55e00"


def _fan(axes: Axes, context: np.ndarray, truth: np.ndarray, samples: np.ndarray) -> None:
    """Draw the end of a context, 50 and 90 % bands, a few futures and what came."""
    shown = min(len(context), 2 * len(truth))
    past, ahead = np.arange(-shown, 0), np.arange(-1, len(truth))

    def joined(values: np.ndarray) -> np.ndarray:
        return np.concatenate([context[-1:], values])

    for low, high in ((0.05, 0.95), (0.25, 0.75)):
        ends = np.quantile(samples, [low, high], axis=0)
        band(axes, ahead, joined(ends[0]), joined(ends[1]))
    for path in samples[:4]:
        axes.plot(ahead, joined(path), color=OURS, linewidth=0.7, alpha=0.6)
    axes.plot(past, context[-shown:], color=SOFT, linewidth=1.3)
    axes.plot(ahead, joined(truth), color=TRUTH, linewidth=1.8)
    axes.axvline(-0.5, color=SOFT, linewidth=0.7, linestyle=(0, (2, 3)))


def _legend(axes: Axes, place: Any) -> None:
    axes.legend(loc=place, fontsize=9, handlelength=1.4)


def lead_picture(
    scores: Mapping[str, tuple[float, float]], fan: Mapping[str, Any], title: str
) -> Figure:
    """Return scores of all methods as bars, beside futures of one window.

    Args:
        scores: Mean and spread by method, in the order of drawing.
        fan: ``context``, ``truth``, ``samples`` of one window.
        title: What the score is of.
    """
    figure, axes = canvas(1, 2, height=4.6, width_ratios=[1.15, 1.0])
    names = {name: NAMES[name] for name in scores}
    bars(
        axes[0],
        {names[name]: value for name, (value, _) in scores.items()},
        spread={names[name]: std for name, (_, std) in scores.items()},
        ours=NAMES["kineflow"],
        unit=title,
    )
    _fan(axes[1], *(np.asarray(fan[key]) for key in ("context", "truth", "samples")))
    axes[1].set_xlabel("hours from the forecast on")
    axes[1].set_ylabel("oil temperature, standardised")
    axes[1].annotate(
        "what came", (0.03, 0.97), xycoords="axes fraction", color=TRUTH, va="top", fontsize=10
    )
    axes[1].annotate(
        "50 and 90 %", (0.03, 0.90), xycoords="axes fraction", color=OURS, va="top", fontsize=10
    )
    return figure


def fans(rows: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Return fan charts: a row a set, three windows each."""
    count = min(len(fan["truth"]) for fan in rows.values())
    figure, axes = canvas(len(rows), count, height=2.1 * len(rows), squeeze=False)
    for row, (name, fan) in enumerate(rows.items()):
        for column in range(count):
            parts = (np.asarray(fan[key])[column] for key in ("context", "truth", "samples"))
            _fan(axes[row, column], *parts)
        axes[row, 0].set_ylabel(name)
    for one in axes[-1]:
        one.set_xlabel("steps")
    return figure


def by_lead(curves: Mapping[str, Sequence[float]], skill: tuple[Any, Any]) -> Figure:
    """Return the score by lead time, and spread beside error.

    Args:
        curves: Score by lead, by method.
        skill: Spread and error of the mean by lead, of our method.
    """
    figure, axes = canvas(1, 2, height=3.6, width_ratios=[1.5, 1.0])
    for name, values in curves.items():
        leads = np.arange(1, len(values) + 1)
        line(axes[0], leads, values, label=NAMES[name], ours=name == "kineflow")
    axes[0].set_xlabel("lead, hours")
    axes[0].set_ylabel("CRPS, standardised units")
    _legend(axes[0], "lower right")
    spread, error = (np.asarray(part) for part in skill)
    leads = np.arange(1, len(spread) + 1)
    line(axes[1], leads, spread, label="spread", ours=True)
    line(axes[1], leads, error, label="error", color=TRUTH)
    axes[1].set_xlabel("lead, hours")
    axes[1].set_ylabel("root mean square")
    _legend(axes[1], "lower right")
    return figure


def reliability(
    held: Mapping[str, Sequence[float]], ranks: Mapping[str, Sequence[float]]
) -> Figure:
    """Return how often intervals hold the truth, and the ranks of the truth.

    Args:
        held: Share of truths inside, by nominal probability, by set.
        ranks: Histogram of ranks, by set.
    """
    figure, axes = canvas(1, 2, height=3.6)
    axes[0].plot([0, 1], [0, 1], color=SOFT, linewidth=1, linestyle=(0, (3, 3)))
    for name, values in held.items():
        line(axes[0], INTERVALS, values, label=name, ours=name == "etth1", marker="o")
    axes[0].set(xlim=(0, 1), ylim=(0, 1))
    axes[0].set_xlabel("probability of the interval")
    axes[0].set_ylabel("share of what came inside")
    label_ends(axes[0])
    for name, values in ranks.items():
        edges = np.linspace(0, 1, len(values) + 1)
        color = OURS if name == "etth1" else BASELINES[len(axes[1].patches) % len(BASELINES)]
        axes[1].stairs(np.asarray(values) * len(values), edges, color=color, linewidth=1.8)
    axes[1].axhline(1, color=SOFT, linewidth=1, linestyle=(0, (3, 3)))
    axes[1].set_xlabel("rank of what came among the futures")
    axes[1].set_ylabel("density; 1 is calibrated")
    axes[1].set_ylim(bottom=0)
    return figure


def switched_force(switch: Mapping[str, Any]) -> Figure:
    """Return one window of the oscillator as it is and with the force to come flipped."""
    figure, axes = canvas(1, 2, height=3.4, sharey=True)
    parts = {key: np.asarray(value) for key, value in switch.items()}
    lead = np.arange(len(parts["exact_mean"]))
    for place, (samples, mean, words) in enumerate(
        (("as_is", "exact_mean", "force as it came"), ("flipped", "exact_flipped", "force flipped"))
    ):
        one = axes[place]
        future = parts["truth"] if samples == "as_is" else np.full(len(lead), np.nan)
        _fan(one, parts["context"], future, parts[samples])
        for sign in (-1.645, 0.0, 1.645):
            exact = parts[mean] + sign * parts["exact_spread"]
            one.plot(lead, exact, color=INK, linewidth=1.1, linestyle=(0, (4, 2)))
        one.set_xlabel(f"hours from the forecast on; {words}")
    axes[0].set_ylabel("position, standardised")
    axes[0].annotate("dashed: the exact law", (0.02, 0.03), xycoords="axes fraction", fontsize=10)
    return figure


def phase_portrait(second: np.ndarray, first: np.ndarray, times: Sequence[float]) -> Figure:
    """Return walks in phase space beside first-order walks.

    Args:
        second: (knots, 2, samples) positions and momenta.
        first: (knots, samples) states of the usual flow.
        times: Noise time of each knot of ``first``.
    """
    figure, axes = canvas(1, 2, height=3.6)
    for path in second.transpose(2, 1, 0):
        axes[0].plot(path[0], path[1], color=OURS, linewidth=0.9, alpha=0.6)
    axes[0].plot(second[0, 0], second[0, 1], "o", color=SOFT, markersize=3)
    axes[0].plot(second[-1, 0], second[-1, 1], "o", color=TRUTH, markersize=4)
    axes[0].set_xlabel("position")
    axes[0].set_ylabel("momentum")
    shares = 1 - np.asarray(times)
    for path in first.T:
        axes[1].plot(shares, path, color=BASELINES[0], linewidth=0.9, alpha=0.8)
    for path in second[:, 0].T:
        axes[1].plot(shares, path, color=OURS, linewidth=0.9, alpha=0.6)
    axes[1].set_xlabel("share of the walk's noise levels")
    axes[1].set_ylabel("position (blue), first-order state (grey)")
    return figure


def spectra(truth: Sequence[float], found: Mapping[str, Sequence[float]]) -> Figure:
    """Return the power of futures over frequencies beside that of what came."""
    figure, axes = canvas(height=3.4)
    waves = np.arange(1, len(truth))
    axes.set(yscale="log")
    line(axes, waves, np.asarray(truth)[1:], label="what came", color=TRUTH)
    for name, values in found.items():
        line(axes, waves, np.asarray(values)[1:], label=NAMES[name], ours=name == "kineflow")
    axes.set_xlabel("waves per horizon")
    axes.set_ylabel("power, log scale")
    _legend(axes, "upper right")
    return figure


WAYS = {
    "kineflow": "second order",
    "first_order_forces": "first order",
    "context_momentum": "second order, momentum along the force",
    "even_times": "second order, even times",
}


def calls_and_noise(
    counts: Sequence[int],
    curves: Mapping[str, Sequence[float]],
    rise: Mapping[str, float],
    noise: float,
) -> Figure:
    """Return the score against network calls, and its rise under noise on the context."""
    figure, axes = canvas(2, 1, height=5.4, height_ratios=[1.6, 1.0])
    for name, values in curves.items():
        line(axes[0], counts, values, label=WAYS[name], ours=name == "kineflow", marker="o")
    log_axis(axes[0], "x", counts)
    axes[0].set_xlabel("network calls, log scale")
    axes[0].set_ylabel("CRPS, standardised units")
    _legend(axes[0], "upper right")
    bars(
        axes[1],
        {NAMES[name]: 100 * value for name, value in rise.items()},
        ours=NAMES["kineflow"],
        unit=f"rise of CRPS in %, noise {noise:g}",
        form="{:.1f}",
    )
    return figure


def additions(scores: Mapping[str, tuple[float, float]], base: float) -> Figure:
    """Return what each part adds: scores relative to the full method, in percent.

    Args:
        scores: Mean and spread by variant.
        base: The score of the full method.
    """
    figure, axes = canvas(height=0.42 * len(scores) + 1.0)
    bars(
        axes,
        {NAMES[name]: 100 * (value / base - 1) for name, (value, _) in scores.items()},
        spread={NAMES[name]: 100 * std / base for name, (_, std) in scores.items()},
        unit="CRPS above that of kineflow, %",
        form="{:+.1f}",
    )
    return figure
