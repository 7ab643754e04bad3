"""The figures of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from noisewright.methods.spectral_schedule.spectrum import Spectrum
from noisewright.methods.spectral_schedule.tight import TightSchedule
from noisewright.metrics import RadialPower
from noisewright.reports.figures import (
    OURS,
    band,
    canvas,
    image_grid,
    label_ends,
    line,
    log_axis,
)

__all__ = ["LABELS", "fan", "quality", "sample_grid", "sample_spectra", "transfer_bars"]

LABELS = {
    "tight": "tight (ours)",
    "tight_shared": "one tight schedule",
    "tight_unconditioned": "tight, net not told",
    "tight_edm": "EDM spacing, tight range",
    "cosine": "cosine",
    "shifted_cosine": "shifted cosine",
    "edm": "EDM",
    "sigmoid": "sigmoid",
}

EDM_RANGE = (0.002, 80.0)


def sample_grid(data: Tensor, drawn: Mapping[str, Tensor], columns: int = 10) -> Figure:
    """Return data above drawn images, a row per schedule, the same noise in each column."""
    rows = [list(data[:columns]), *(list(images[:columns]) for images in drawn.values())]
    names = ["photographs", *(LABELS[arm] for arm in drawn)]
    return image_grid(rows, rows=names, ours=LABELS["tight"])


def quality(
    values: Mapping[str, Mapping[int, tuple[float, float]]], steps: Sequence[int], unit: str
) -> Figure:
    """Return distance to the data against steps, a curve per schedule, spread as a band."""
    figure, axes = canvas(height=3.6)
    for arm, row in values.items():
        mean, spread = ([row[s][i] for s in steps] for i in (0, 1))
        line(axes, steps, mean, label=LABELS[arm], ours=arm == "tight", spread=spread, marker="o")
    log_axis(axes, "x", steps)
    axes.set(yscale="log", xlabel="steps of the walk (network calls)", ylabel=unit)
    label_ends(axes)
    return figure


def sample_spectra(data: Spectrum, drawn: Mapping[str, RadialPower]) -> Figure:
    """Return mean log spectra of drawn images over the data's, a curve per schedule."""
    figure, axes = canvas(height=3.6)
    rings = data.freq[1:]
    wanted = data.power[:, 1:].clamp(min=1e-9).log().mean(0)
    for arm, spectrum in drawn.items():
        found = spectrum.power[:, 1:].clamp(min=1e-9).log().mean(0)
        excess = (found - wanted) * 10 / torch.log(torch.tensor(10.0))
        line(axes, rings, excess, label=LABELS[arm], ours=arm == "tight")
    axes.axhline(0, color="#888888", linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlabel="frequency / cycles per image", ylabel="power beyond the data's / dB")
    label_ends(axes)
    return figure


def fan(spectrum: Spectrum, schedule: TightSchedule) -> Figure:
    """Return the spread of spectra over images beside the spread of their schedules."""
    figure, (left, right) = canvas(1, 2, height=3.2)
    shares = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=torch.float64)
    power = spectrum.power[:, 1:].clamp(min=1e-9).sqrt().quantile(shares, dim=0)
    _spread(left, spectrum.freq[1:], power)
    log_axis(left, "x", [r for r in (1, 2, 4, 8, 16, 32) if r < len(spectrum.freq)])
    left.set(
        yscale="log",
        xlabel="frequency / cycles per image",
        ylabel="amplitude √S",
    )
    times = torch.linspace(0, 1, 101, dtype=torch.float64)
    sigma = schedule.columns().levels(times)[1].quantile(shares, dim=0)
    _spread(right, times, sigma)
    for level in EDM_RANGE:
        right.axhline(level, color="#888888", linewidth=1, linestyle=(0, (4, 3)))
    right.text(0.02, EDM_RANGE[1] * 0.75, "EDM's range", color="#888888", va="top", fontsize=9)
    right.set(yscale="log", xlabel="noise time t", ylabel="noise level σ")
    return figure


def _spread(axes: Axes, x: Tensor, quantiles: Tensor) -> None:
    band(axes, x, quantiles[0], quantiles[4])
    band(axes, x, quantiles[1], quantiles[3])
    axes.plot(x, quantiles[2], color=OURS, linewidth=2.2)


def transfer_bars(errors: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Figure:
    """Return closed-form errors of five and ten steps, both measures, a group per schedule."""
    names = {
        "tight": "tight (ours)",
        "loglinear_tight": "log-linear, tight range",
        "edm_tight_range": "EDM, tight range",
        "edm": "EDM",
        "cosine": "cosine",
    }
    figure, axes = canvas(1, 2, height=2.6, sharey=True)
    measures = (("log_spectrum", "error of log S (rms)"), ("power", "error of power"))
    for ax, (measure, label) in zip(axes, measures, strict=True):
        for place, arm in enumerate(names):
            color = OURS if arm == "tight" else "#7a828b"
            for offset, steps, alpha in ((-0.2, "5", 0.55), (0.2, "10", 1.0)):
                value = errors[arm][steps][measure]
                ax.barh(place + offset, value, height=0.36, color=color, alpha=alpha)
                ax.text(value, place + offset, f" {value:.2f}", va="center", fontsize=8)
        ax.set(xlabel=label)
        ax.margins(x=0.16)
        ax.grid(axis="y", visible=False)
    axes[0].set_yticks(range(len(names)), list(names.values()))
    axes[0].invert_yaxis()
    return figure
