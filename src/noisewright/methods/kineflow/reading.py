"""Reading of what a caller gives: arrays or frames, drivers, gaps; what is odd is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noisewright.data import calendar_columns, check_time_axis
from noisewright.types import InputError

__all__ = ["MISSING", "Block", "read_block", "read_series_list"]

MISSING = ("raise", "interpolate", "mask")
"""What to do about missing values of a target: refuse, fill along time, or mark and leave out."""


@dataclass(frozen=True)
class Block:
    """Columns of numbers over time.

    Attributes:
        values: (rows, columns), float64; NaN only where missing values are marked.
        names: Of the columns; None for an array.
        index: Times; None for an array.
        notes: What was done to it.
    """

    values: np.ndarray
    names: tuple[str, ...] | None = None
    index: Any = None
    notes: tuple[str, ...] = field(default=())

    @property
    def step(self) -> Any:
        """Step of the time axis, or None."""
        return None if self.index is None else check_time_axis(self.index)

    def calendar(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return calendar columns of its times; none for an array."""
        if self.index is None:
            return np.empty((len(self.values), 0)), ()
        return calendar_columns(self.index)


def read_block(
    table: Any,
    name: str,
    *,
    missing: str = "raise",
    least: int = 0,
    check_axis: bool = True,
) -> Block:
    """Read one table of numbers.

    Args:
        table: DataFrame, Series or array, (rows,) or (rows, columns).
        name: What to call it in messages.
        missing: ``"raise"``, ``"interpolate"`` or ``"mask"``.
        least: Rows that a time axis needs to be checked for even steps.
        check_axis: Whether a frame must have an even time axis.

    Raises:
        InputError: For gaps, infinities, missing values, wrong shapes, by their first place.
        TypeError: For columns that are no numbers.
    """
    import pandas as pd

    index = names = None
    if isinstance(table, pd.Series):
        table = table.to_frame(table.name if table.name is not None else "y")
    if isinstance(table, pd.DataFrame):
        if check_axis and len(table) > least:
            check_time_axis(table.index, name)
        index = table.index if isinstance(table.index, pd.DatetimeIndex) else None
        names = tuple(map(str, table.columns))
        columns: list[Any] = [table.iloc[:, i] for i in range(table.shape[1])]
        parts = [_column(column, label) for column, label in zip(columns, names, strict=True)]
        values = np.stack(parts, axis=1) if parts else np.empty((len(table), 0))
    else:
        array = np.asarray(table)
        if array.dtype.kind not in "buif":
            raise TypeError(f"{name} is not numeric (dtype {array.dtype}); give numbers")
        values = array.astype(np.float64)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2:
            raise InputError(f"{name} has shape {array.shape}; give (rows,) or (rows, columns)")
    values, notes = _without_gaps(values, name, names, index, missing)
    return Block(values, names, index, notes)


def _column(column: Any, label: str) -> np.ndarray:
    import pandas as pd

    if not (pd.api.types.is_numeric_dtype(column) or column.dtype == object):
        raise TypeError(
            f"column {label!r} is not numeric (dtype {column.dtype}); drop or encode it"
        )
    try:
        return np.asarray(column.astype(np.float64), dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"column {label!r} is not numeric; drop or encode it") from None


def _without_gaps(
    values: np.ndarray, name: str, names: Any, index: Any, missing: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    def place(bad: np.ndarray) -> str:
        row, column = (int(i[0]) for i in np.nonzero(bad))
        label = names[column] if names else column
        return f"first in column {label!r} at {index[row] if index is not None else f'row {row}'}"

    infinite = np.isinf(values)
    if infinite.any():
        raise InputError(
            f"{name} holds {int(infinite.sum())} infinite values, {place(infinite)}; remove them"
        )
    lost = np.isnan(values)
    if not lost.any():
        return values, ()
    count, where = int(lost.sum()), place(lost)
    if missing == "raise":
        raise InputError(
            f"{name} holds {count} missing values, {where}; say missing='interpolate' to fill "
            "them, or missing='mask' to leave them out"
        )
    if lost.all(axis=0).any():
        raise InputError(f"{name}: a column has no value at all, {place(lost)}")
    if missing == "mask":
        return values, (f"{name}: {count} missing values are masked, {where}.",)
    import pandas as pd

    filled = pd.DataFrame(values).interpolate(limit_direction="both").to_numpy()
    return filled, (f"{name}: {count} missing values were filled along time, {where}.",)


def read_series_list(y: Any, name: str, **options: Any) -> list[Block]:
    """Return one block per series: a table, an array (series, rows, columns), or a list of tables.

    Args:
        y: What the caller gave.
        name: What to call it in messages.
        options: As in :func:`read_block`.
    """
    if isinstance(y, (list, tuple)) and len(y) and hasattr(y[0], "shape"):
        return [read_block(part, f"{name}[{i}]", **options) for i, part in enumerate(y)]
    if isinstance(y, np.ndarray) and y.ndim == 3:
        return [read_block(part, f"{name}[{i}]", **options) for i, part in enumerate(y)]
    return [read_block(y, name, **options)]
