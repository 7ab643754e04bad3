"""What a fitted forecaster knows of its data, and how a request becomes windows in its units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from noisewright.methods.kineflow.cases import learnable_cycles
from noisewright.methods.kineflow.reading import Block, read_block, read_series_list
from noisewright.methods.kineflow.windows import Table, Windows
from noisewright.types import InputError

__all__ = ["Columns", "Known"]


@dataclass(frozen=True)
class Columns:
    """Names and units of columns.

    Attributes:
        names: None if they came as an array.
        centre: Means of the training rows.
        spread: Standard deviations; 1 for a constant driver.
    """

    names: tuple[str, ...] | None
    centre: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Self:
        """Learn names and units."""
        values = np.concatenate([block.values for block in blocks])
        return cls(blocks[0].names, np.nanmean(values, axis=0), np.nanstd(values, axis=0))

    @classmethod
    def none(cls) -> Self:
        """Return no columns."""
        return cls(None, np.empty(0), np.empty(0))

    def __len__(self) -> int:
        return len(self.spread)

    @property
    def shown(self) -> str:
        """The names in one line."""
        return ", ".join(self.names or map(str, range(len(self))))

    def standardised(self, block: Block, what: str) -> np.ndarray:
        """Return the values of a block in these units and this order.

        Args:
            block: What came.
            what: What to call it in messages.

        Raises:
            InputError: If columns are missing or of another number.
        """
        values = block.values
        if self.names is not None and block.names is not None:
            lost = [name for name in self.names if name not in block.names]
            if lost:
                raise InputError(
                    f"{what} lacks the columns {', '.join(lost)} that the model was fitted with; "
                    f"it has {', '.join(block.names)}"
                )
            values = values[:, [block.names.index(name) for name in self.names]]
        elif values.shape[1] != len(self):
            raise InputError(
                f"{what} has {values.shape[1]} columns, the model was fitted with {len(self)}"
            )
        return (values - self.centre) / self.spread

    def as_record(self) -> dict[str, Any]:
        """Return plain values and arrays."""
        names = None if self.names is None else list(self.names)
        return {"names": names, "centre": self.centre, "spread": self.spread}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Return what :meth:`as_record` stored."""
        names = None if record["names"] is None else tuple(record["names"])
        return cls(names, record["centre"], record["spread"])


@dataclass(frozen=True)
class Known:
    """Units, calendar and end of the training data.

    Attributes:
        length: L.
        horizon: H.
        missing: What to do about missing values of a context.
        channels: What is forecast.
        exog: Drivers known in advance.
        past_exog: Drivers known up to the forecast.
        calendar: Names of the calendar columns.
        step: Step of the time axis, None for arrays.
        tail: The last rows of the training data: ``values``, ``future``, ``past`` (standardised).
        end: Their last time, None for arrays.
    """

    length: int
    horizon: int
    missing: str
    channels: Columns
    exog: Columns
    past_exog: Columns
    calendar: tuple[str, ...]
    step: Any
    tail: dict[str, torch.Tensor]
    end: Any

    @classmethod
    def of(
        cls,
        blocks: Sequence[Block],
        exog: Any,
        past_exog: Any,
        *,
        length: int,
        horizon: int,
        missing: str,
        calendar: bool,
    ) -> tuple[Self, Table]:
        """Learn units from training data; return them and the data as a table in those units.

        Raises:
            InputError: If series, drivers and times do not fit each other, or one is constant.
        """
        first = blocks[0]
        for block in blocks:
            if block.values.shape[1] != first.values.shape[1] or block.names != first.names:
                raise InputError("all series must have the same columns")
        channels = Columns.of(blocks)
        for place in np.flatnonzero(channels.spread <= 1e-12 * np.abs(channels.centre)):
            label = channels.names[place] if channels.names else int(place)
            raise InputError(f"channel {label!r} is constant in training; leave it out")
        cycles: tuple[str, ...] = ()
        longest = max(blocks, key=lambda block: len(block.values))
        if calendar and all(block.index is not None for block in blocks):
            rows = len(longest.values)
            cycles = learnable_cycles(*longest.calendar(), longest.index, rows)[1]
        futures, pushes = _drivers(exog, blocks, "exog")
        pasts, earlier = _drivers(past_exog, blocks, "past_exog")
        last = blocks[-1]
        known = cls(
            length, horizon, missing, channels, futures, pasts, cycles,
            step=None if first.index is None else first.step,
            tail={}, end=None if last.index is None else last.index[-1],
        )  # fmt: skip
        table = known.table(blocks, pushes, earlier)
        parts = {"values": table.values, "future": table.future, "past": table.past}
        known.tail.update({name: part[-length:].clone() for name, part in parts.items()})
        return known, table

    def table(
        self, blocks: Sequence[Block], pushes: Sequence[Block], earlier: Sequence[Block]
    ) -> Table:
        """Return series and their drivers in these units."""

        def joined(parts: Sequence[Block], columns: Columns, what: str) -> np.ndarray | None:
            if not parts:
                return None
            return np.concatenate([columns.standardised(part, what) for part in parts])

        values = joined(blocks, self.channels, "y")
        assert values is not None
        return Table.of(
            values,
            future=joined(pushes, self.exog, "exog"),
            past=joined(earlier, self.past_exog, "past_exog"),
            calendar=np.concatenate([self._calendar(block) for block in blocks]),
            lengths=[len(block.values) for block in blocks],
        )

    def _calendar(self, block: Block) -> np.ndarray:
        if not self.calendar:
            return np.empty((len(block.values), 0))
        columns, names = block.calendar()
        return columns[:, [names.index(name) for name in self.calendar]]

    # ------------------------------------------------------------------ requests

    def windows(self, context: Any, exog_future: Any, exog_past: Any) -> tuple[Windows, Any]:
        """Return standardised windows, and the times ahead of the first if they are known.

        Args:
            context: As in ``KineFlowForecaster.predict_samples``.
            exog_future: As there.
            exog_past: As there.

        Raises:
            InputError: If something does not fit the training data.
        """
        several = isinstance(context, np.ndarray) and context.ndim == 3
        contexts = list(context) if several else [context]
        futures, pasts = (
            list(np.asarray(part)) if several and part is not None else [part] * len(contexts)
            for part in (exog_future, exog_past)
        )
        if not len(contexts) == len(futures) == len(pasts):
            raise InputError(
                f"{len(contexts)} windows, but drivers for {len(futures)} and {len(pasts)}"
            )
        made = [self._window(*parts) for parts in zip(contexts, futures, pasts, strict=True)]
        blocks = [torch.stack(column) for column in zip(*(m[0] for m in made), strict=True)]
        return Windows(blocks[0], blocks[1], blocks[2], blocks[3]), made[0][1]

    def _window(self, context: Any, exog_future: Any, exog_past: Any) -> tuple[Any, Any]:
        values, end = self._context(context)
        ahead = self._times_ahead(end)
        if context is None:
            if len(self.tail["values"]) < self.length:
                raise InputError(f"the last series is shorter than the context, {self.length}")
            future, past = (self.tail[name].numpy() for name in ("future", "past"))
        else:
            future, past = self._past_drivers(exog_past)
        future = np.concatenate([future, self._future_drivers(exog_future, ahead)])
        calendar = np.empty(0)
        if self.calendar:
            if ahead is None:
                raise InputError(
                    "the model was fitted with calendar columns; give the context as a DataFrame "
                    "with a DatetimeIndex, or fit with calendar=False"
                )
            calendar = self._calendar(Block(np.empty((len(ahead), 0)), (), ahead))[0]
        parts = (values, future, past, calendar)
        return [torch.as_tensor(part).float() for part in parts], ahead

    def _context(self, context: Any) -> tuple[np.ndarray, Any]:
        """Return standardised values (L, C) and their last time."""
        if context is None:
            return self.tail["values"].double().numpy(), self.end
        block = read_block(context, "context", missing=self.missing, least=2)
        values = self.channels.standardised(block, "context")
        if len(values) < self.length:
            raise InputError(f"context has {len(values)} rows, the model needs {self.length}")
        values = values[-self.length :]
        if np.isnan(values).all(axis=0).any():
            raise InputError("a channel of the context has no value at all")
        return values, None if block.index is None else block.index[-1]

    def _times_ahead(self, end: Any) -> Any:
        if end is None or self.step is None:
            return None
        import pandas as pd

        return pd.date_range(end, periods=self.horizon + 1, freq=self.step)[1:]

    def _future_drivers(self, given: Any, ahead: Any) -> np.ndarray:
        """Return standardised drivers over the horizon (H, E)."""
        if given is None:
            if len(self.exog):
                raise InputError(
                    f"the model was fitted with drivers ({self.exog.shown}); give exog_future"
                )
            return np.empty((self.horizon, 0))
        block = read_block(given, "exog_future", check_axis=False)
        if not len(self.exog):
            shown = ", ".join(block.names or map(str, range(block.values.shape[1])))
            raise InputError(f"exog_future has columns {shown}; the model was fitted without")
        sizes = f"exog_future has {len(block.values)} rows, horizon is {self.horizon}"
        if block.index is not None and ahead is not None:
            lost = ahead[~ahead.isin(block.index)]
            if len(lost):
                raise InputError(f"{sizes}: no row for {lost[0]}")
            block = Block(block.values[block.index.get_indexer(ahead)], block.names, ahead)
        if len(block.values) != self.horizon:
            raise InputError(sizes)
        return self.exog.standardised(block, "exog_future")

    def _past_drivers(self, given: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return standardised drivers over the context: (L, E) and (L, P)."""
        both = len(self.exog) + len(self.past_exog)
        if given is None:
            if both:
                raise InputError(
                    f"the model was fitted with {both} drivers; give exog_past, their last "
                    f"{self.length} rows (or context=None to go on from the training series)"
                )
            return np.empty((self.length, 0)), np.empty((self.length, 0))
        block = read_block(given, "exog_past", check_axis=False)
        if not both:
            raise InputError("exog_past was given; the model was fitted without drivers")
        if len(block.values) < self.length:
            raise InputError(f"exog_past has {len(block.values)} rows, the context {self.length}")
        if block.names is None and block.values.shape[1] != both:
            raise InputError(
                f"exog_past has {block.values.shape[1]} columns, the model was fitted with {both}"
            )
        parts, first = [], 0
        for columns in (self.exog, self.past_exog):
            part = block
            if block.names is None or columns.names is None:
                part = Block(block.values[:, first : first + len(columns)])
            parts.append(columns.standardised(part, "exog_past")[-self.length :])
            first += len(columns)
        return parts[0], parts[1]

    # ------------------------------------------------------------------ storage

    def as_record(self) -> dict[str, Any]:
        """Return plain values and arrays."""
        zone = None if self.end is None or self.end.tz is None else str(self.end.tz)
        return {
            "length": self.length,
            "horizon": self.horizon,
            "missing": self.missing,
            "channels": self.channels.as_record(),
            "exog": self.exog.as_record(),
            "past_exog": self.past_exog.as_record(),
            "calendar": list(self.calendar),
            "step": None if self.step is None else self.step.freqstr,
            "tail": self.tail,
            "end": None if self.end is None else self.end.isoformat(),
            "zone": zone,
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Return what :meth:`as_record` stored."""
        import pandas as pd
        from pandas.tseries.frequencies import to_offset

        end: Any = None if record["end"] is None else pd.Timestamp(record["end"])
        if record["zone"] is not None:
            end = end.tz_convert(record["zone"])
        return cls(
            record["length"],
            record["horizon"],
            record["missing"],
            Columns.from_record(record["channels"]),
            Columns.from_record(record["exog"]),
            Columns.from_record(record["past_exog"]),
            tuple(record["calendar"]),
            None if record["step"] is None else to_offset(record["step"]),
            record["tail"],
            end,
        )


def _drivers(given: Any, blocks: Sequence[Block], what: str) -> tuple[Columns, list[Block]]:
    """Read drivers beside the series that they belong to."""
    if given is None:
        return Columns.none(), []
    read = read_series_list(given, what)
    if len(read) != len(blocks):
        raise InputError(f"{what} holds {len(read)} series, y {len(blocks)}")
    for block, target in zip(read, blocks, strict=True):
        if len(block.values) != len(target.values):
            raise InputError(
                f"{what} has {len(block.values)} rows, y {len(target.values)}; every row of y "
                "needs its drivers"
            )
        if block.index is None or target.index is None:
            continue
        if not block.index.equals(target.index):
            odd = next(a for a, b in zip(target.index, block.index, strict=True) if a != b)
            raise InputError(f"{what} and y have different times, from {odd} on")
    columns = Columns.of(read)
    spread = np.where(columns.spread > 0, columns.spread, 1.0)
    return Columns(columns.names, columns.centre, spread), read
