"""The sets of the experiment: values, drivers, and where training, validation and test part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from noisewright.data import (
    DrivenOscillator,
    calendar_columns,
    check_time_axis,
    ett,
    packaged_series,
)
from noisewright.methods.kineflow.scaling import Layout
from noisewright.methods.kineflow.windows import Table, Windows
from noisewright.types import InputError

__all__ = ["CASES", "Case", "Parts", "learnable_cycles", "oscillator_case", "series_case"]

HOURS = (8640, 11520, 14400)
"""Ends of training, validation and test part of the ETT sets, in hours, as in the literature."""

OSCILLATOR_SEED = 0


@dataclass(frozen=True)
class Case:
    """One set.

    Attributes:
        name: As in keys.
        values: (rows, C), in the set's own unit, no value missing.
        future: Drivers known in advance (rows, E).
        calendar: Calendar columns (rows, K).
        ends: Ends of the training, validation and test rows.
        context: L.
        horizon: H.
        period: Steps of a season.
        instance: Whether contexts are measured in their own units.
        stride: Rows between the starts of test windows.
        note: What was read, for the report.
    """

    name: str
    values: np.ndarray
    future: np.ndarray
    calendar: np.ndarray
    ends: tuple[int, int, int]
    context: int
    horizon: int
    period: int
    instance: bool
    stride: int
    note: str

    @property
    def layout(self) -> Layout:
        """Shapes of its windows."""
        return Layout(
            self.context,
            self.horizon,
            self.values.shape[1],
            future=self.future.shape[1],
            calendar=self.calendar.shape[1],
            instance=self.instance,
        )

    def without_drivers(self) -> Case:
        """Return the set with its exogenous drivers left out."""
        return replace(self, future=self.future[:, :0])

    def parts(self) -> Parts:
        """Return its windows, standardised on the training rows."""
        first, second, third = self.ends
        centre, spread = self.values[:first].mean(axis=0), self.values[:first].std(axis=0)
        if (spread == 0).any():
            raise InputError(f"{self.name}: a channel is constant in training; leave it out")
        pushes = self.future / np.maximum(self.future[:first].std(axis=0), 1e-12)
        table = Table.of((self.values - centre) / spread, future=pushes, calendar=self.calendar)
        train, length = table.part(0, first), (self.context, self.horizon)
        held = table.part(first - self.context, second)
        test = table.part(second - self.context, third)
        held_starts = held.starts(*length, stride=self.stride)
        test_starts = test.starts(*length, stride=self.stride)
        return Parts(
            train,
            train.starts(*length),
            held,
            held_starts,
            held.windows(held_starts, *length),
            test.windows(test_starts, *length),
            test_starts + second - self.context,
        )


@dataclass(frozen=True)
class Parts:
    """What a set gives to a method.

    Attributes:
        train: Training rows.
        starts: First rows of all training windows.
        held_table: Validation rows.
        held_starts: First rows of its windows.
        held: Validation windows.
        test: Test windows.
        test_rows: First rows of their contexts in the whole set.
    """

    train: Table
    starts: Tensor
    held_table: Table
    held_starts: Tensor
    held: Windows
    test: Windows
    test_rows: Tensor

    @property
    def few(self) -> Windows:
        """At most 85 validation windows, for the choice of weights."""
        count = len(self.held)
        return self.held.rows(slice(None, None, max(1, -(-count // 85))))


def learnable_cycles(
    columns: np.ndarray, names: tuple[str, ...], index: Any, training: int
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the calendar columns whose cycle the training rows hold at least twice.

    A year's phase, learned from one year, only tells training windows apart.

    Args:
        columns: (rows, K).
        names: As :func:`noisewright.data.calendar_columns` gives them.
        index: Times of the rows.
        training: Number of training rows.
    """
    days = {"hour": 1, "weekday": 7, "year": 365}
    span = (index[training - 1] - index[0]).days
    kept = [i for i, name in enumerate(names) if span >= 2 * days[name.split("_")[1]]]
    return columns[:, kept], tuple(names[i] for i in kept)


def series_case(name: str, channels: int | None = None, stride: int = 17) -> Case:
    """Return a real set.

    Args:
        name: ``etth1``, ``etth2``, or a series that statsmodels carries.
        channels: Keep the last channels only (of ETT: the oil temperature comes last).
        stride: Rows between test windows of the ETT sets; 17 passes through all hours of the day.

    Raises:
        NotAtHandError: If the set is not at hand.
    """
    if name in ("etth1", "etth2"):
        frame, provenance = ett(f"ETTh{name[-1]}")
        frame = frame.iloc[: HOURS[-1], -channels if channels else 0 :]
        lengths: tuple[int, int, int, int] = (96, 24, 24, stride)
        ends = HOURS
    else:
        frame, provenance = packaged_series(name)
        lengths = {
            "sunspots": (44, 11, 11, 1),
            "co2": (104, 26, 52, 3),
            "elnino": (48, 12, 12, 1),
            "nile": (20, 5, 1, 1),
        }[name]
        rows = len(frame)
        ends = (int(0.6 * rows), int(0.8 * rows), rows)
    check_time_axis(frame.index, name)
    missing = int(frame.isna().sum().sum())
    filled = frame.interpolate(limit_direction="both")
    index: Any = frame.index
    columns, names = calendar_columns(index)
    columns, names = learnable_cycles(columns, names, frame.index, ends[0])
    filling = f" {missing} missing values are interpolated." if missing else ""
    note = (
        f"{provenance.describe()} Used: {len(frame)} rows x {frame.shape[1]} channels; parts end "
        f"at rows {ends[0]}, {ends[1]}, {ends[2]}; context {lengths[0]}, horizon {lengths[1]}, "
        f"test windows {lengths[3]} apart; calendar: {', '.join(names) or 'none'}.{filling}"
    )
    return Case(
        name=name,
        values=filled.to_numpy(np.float64),
        future=np.empty((len(frame), 0)),
        calendar=columns,
        ends=ends,
        context=lengths[0],
        horizon=lengths[1],
        period=lengths[2],
        instance=True,
        stride=lengths[3],
        note=note,
    )


def oscillator_case(hours: int = 20_000) -> Case:
    """Return the driven oscillator; its law is stationary, so windows keep the common unit."""
    series = DrivenOscillator.simulate(hours, OSCILLATOR_SEED)
    ends = (int(0.6 * hours), int(0.8 * hours), hours)
    return Case(
        name="osc",
        values=series.y[:, None],
        future=series.force[:, None],
        calendar=np.empty((hours, 0)),
        ends=ends,
        context=96,
        horizon=24,
        period=24,
        instance=False,
        stride=17,
        note=f"osc: a driven oscillator simulated here for {hours} hours (seed {OSCILLATOR_SEED}), "
        f"one channel, one force known in advance; parts end at hours {ends[0]}, {ends[1]}, "
        f"{ends[2]}; its exact predictive law is known from a Kalman filter.",
    )


CASES = ("etth1", "etth2", "osc", "sunspots", "co2", "elnino", "nile")
"""Names of all sets."""
