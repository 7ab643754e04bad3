"""Conditions: one or more categorical labels per sample, and how a query names them.

A query is a label (one column), a sequence with one label per column, a dict that names some
columns (``{"cell_type": "B"}``; the others are left open), or ``"unconditional"``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewright.types import InputError

__all__ = ["RESERVED", "UNCONDITIONAL", "ConditionTable"]

UNCONDITIONAL = "unconditional"
RESERVED = ("numerator", "denominator", UNCONDITIONAL)
"""Words with a meaning of their own, which no condition may be called."""

MOST_NUMBERS = 20
FEW = 10
SHOWN = 10


@dataclass(frozen=True)
class ConditionTable:
    """The labels that were seen at fit.

    Attributes:
        names: Name of each column; a single column given as an array is called ``"condition"``.
        values: Sorted values of each column.
        combinations: The rows that occur, as codes, each with one code per column.
    """

    names: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    combinations: tuple[tuple[int, ...], ...]

    @classmethod
    def read(
        cls, condition: Any, *, samples: int, allow_single: bool = False
    ) -> tuple[ConditionTable, np.ndarray]:
        """Read labels and return the table and the codes (samples, columns).

        Args:
            condition: Labels (samples,), or a DataFrame with one column per label.
            samples: Number of samples that need one.
            allow_single: Accept one condition only.

        Raises:
            InputError: If lengths differ, a label is missing, or there are too few conditions.
            TypeError: If a column holds more than 20 different numbers.

        Warns:
            UserWarning: For a condition with fewer than 10 samples.
        """
        columns = _columns(condition, samples)
        values, codes = [], []
        for name, column in columns.items():
            _refuse_missing(column, name if len(columns) > 1 else "condition")
            _refuse_numbers(column, name)
            found, code = _sorted_codes(column)
            values.append(found)
            codes.append(code)
        table = np.stack(codes, axis=1)
        rows, counts = np.unique(table, axis=0, return_counts=True)
        here = cls(tuple(columns), tuple(values), tuple(map(tuple, rows.tolist())))
        here._check(counts, allow_single)
        return here, table

    @property
    def labels(self) -> list[Any]:
        """The conditions that occur: labels, or tuples of labels if there are several columns."""
        rows = [
            tuple(self.values[i][c] for i, c in enumerate(row) if c >= 0)
            for row in self.combinations
        ]
        return [row[0] if len(self.names) == 1 else row for row in rows]

    def codes(self, query: Any) -> tuple[int, ...]:
        """Return one code per column, -1 where the query leaves it open.

        Raises:
            KeyError: If a label or column is unknown, with those that exist.
        """
        if isinstance(query, str) and query == UNCONDITIONAL:
            return (-1,) * len(self.names)
        if isinstance(query, Mapping):
            for name in query:
                if name not in self.names:
                    raise KeyError(f"no label column {name!r}; there are {_listed(self.names)}")
            return tuple(
                self._code(i, query[n]) if n in query else -1 for i, n in enumerate(self.names)
            )
        if len(self.names) == 1:
            return (self._code(0, query),)
        if not isinstance(query, (tuple, list, np.ndarray)) or len(query) != len(self.names):
            raise KeyError(
                f"{query!r} does not name a condition: give a tuple with one label each of "
                f"{_listed(self.names)}, or a dict of some of them"
            )
        return tuple(self._code(i, value) for i, value in enumerate(query))

    def code_rows(self, condition: Any, samples: int) -> np.ndarray:
        """Return the codes (samples, columns) of known labels.

        Raises:
            InputError: If lengths or columns differ.
            KeyError: If a label is unknown.
        """
        columns = _columns(condition, samples)
        if len(columns) != len(self.names):
            raise InputError(f"conditions have {len(columns)} columns, fitted {len(self.names)}")
        codes = np.empty((samples, len(self.names)), dtype=np.int64)
        for i, column in enumerate(columns.values()):
            _refuse_missing(column, self.names[i])
            found, inverse = _sorted_codes(column)
            known = np.array([self._code(i, value) for value in found], dtype=np.int64)
            codes[:, i] = known[inverse] if len(found) else 0
        return codes

    def _code(self, column: int, value: Any) -> int:
        known = self.values[column]
        try:
            return known.index(value)
        except ValueError:
            kind = "condition" if len(self.names) == 1 else self.names[column]
            raise KeyError(f"unknown {kind} {value!r}; known: {_listed(known)}") from None

    def _check(self, counts: np.ndarray, allow_single: bool) -> None:
        labels = self.labels
        for label in labels:
            if isinstance(label, str) and label in RESERVED:
                raise InputError(f"a condition is called {label!r}, a reserved word; rename it")
        if len(labels) < 2 and not allow_single:
            raise InputError(
                f"need at least two conditions, got {len(labels)} ({_listed(labels)}); with "
                "allow_single=True one is enough for densities and samples"
            )
        for label, count in zip(labels, counts.tolist(), strict=True):
            if count < 2:
                raise InputError(f"condition {label!r} has {count} sample; at least 2 are needed")
            if count < FEW:
                warnings.warn(
                    f"condition {label!r} has only {count} samples: its ratios will be rough",
                    UserWarning,
                    stacklevel=4,
                )


def _listed(values: Any) -> str:
    shown = ", ".join(repr(v) for v in list(values)[:SHOWN])
    return f"{shown}, ... ({len(values)} in all)" if len(values) > SHOWN else shown


def _columns(condition: Any, samples: int) -> dict[str, np.ndarray]:
    """Return the columns by name, as arrays of plain Python values."""
    if hasattr(condition, "columns") and hasattr(condition, "iloc"):  # a DataFrame
        columns = {str(n): _plain(condition[n]) for n in condition.columns}
        shape = condition.shape
        if not columns:
            raise InputError("the DataFrame of conditions has no column")
    else:
        array = _plain(condition)
        shape = array.shape
        if array.ndim == 2 and shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1:
            raise InputError(
                f"condition has shape {shape}; give labels (n,) or a DataFrame with one column "
                "per label"
            )
        columns = {"condition": array}
    for name, column in columns.items():
        if len(column) != samples:
            raise InputError(f"X has {samples} samples but {name} has shape {shape}")
    return columns


def _plain(values: Any) -> np.ndarray:
    """Return an object array of plain values: text stays text, numbers become Python's."""
    array = np.asarray(values, dtype=object)
    plain = [v.item() if isinstance(v, np.generic) else v for v in array.ravel()]
    result = np.empty(len(plain), dtype=object)
    result[:] = plain
    return result.reshape(array.shape)


def _missing(value: Any) -> bool:
    return value is None or value != value or type(value).__name__ in ("NAType", "NaTType")


def _refuse_missing(column: np.ndarray, name: str) -> None:
    missing = sum(map(_missing, column))
    if missing:
        verb = "sample has" if missing == 1 else "samples have"
        raise InputError(f"{missing} {verb} no {name}; drop them or give them a label")


def _refuse_numbers(column: np.ndarray, name: str) -> None:
    numbers = {v for v in column if isinstance(v, (int, float)) and not isinstance(v, bool)}
    if len(numbers) > MOST_NUMBERS:
        raise TypeError(
            f"{name} holds {len(numbers)} different numbers; conditions are categories "
            f"(numbers count as such up to {MOST_NUMBERS} values), so bin it first"
        )


def _sorted_codes(column: np.ndarray) -> tuple[tuple[Any, ...], np.ndarray]:
    """Return the sorted values and the place of each entry among them."""
    found = sorted(set(column), key=lambda v: (str(type(v)), v))
    place = {value: i for i, value in enumerate(found)}
    return tuple(found), np.array([place[v] for v in column], dtype=np.int64)
