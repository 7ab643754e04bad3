"""Recorded values: one number per key and seed, or one that holds for all seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from noisewright.reports.claims import operands
from noisewright.types import InputError

__all__ = ["Values"]


class Values:
    """What a run measured.

    The mean is over the seeds that were recorded; the spread is the sample standard deviation
    (n - 1 in the denominator), 0 for a single number.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        """Start empty.

        Args:
            seeds: Seeds of the run.
        """
        self.seeds = tuple(seeds)
        self._entries: dict[str, dict[int | None, float]] = {}

    def record(self, key: str, value: float, seed: int | None) -> None:
        """Add one number.

        Raises:
            InputError: If the key is empty, the seed is not of this run, or the place is taken.
        """
        number = float(value)
        if not key or key != key.strip():
            raise InputError(f"key {key!r} must be text without blanks around it")
        if seed is not None and seed not in self.seeds:
            raise InputError(
                f"record({key!r}, seed={seed}): the seeds of this run are {self.seeds}"
            )
        entry = self._entries.setdefault(key, {})
        if seed in entry or (entry and (seed is None or None in entry)):
            raise InputError(
                f"{key!r} is recorded twice; record it once for all seeds, or once per seed"
            )
        entry[seed] = number if math.isfinite(number) else math.nan

    def per_seed(self, key: str) -> list[float | None]:
        """Return the numbers of a key in the order of the seeds; None where there is none."""
        entry = self._entries[key]
        return [entry.get(seed, entry.get(None)) for seed in self.seeds]

    def summary(self) -> dict[str, dict[str, Any]]:
        """Return mean, std and per_seed of every key, in the order of recording."""
        summary = {}
        for key in self._entries:
            numbers = self.per_seed(key)
            mean, std = _mean_and_std([n for n in numbers if n is not None])
            summary[key] = {"mean": mean, "std": std, "per_seed": numbers}
        return summary

    def means(self) -> dict[str, float]:
        """Return the mean of every key."""
        return {key: entry["mean"] for key, entry in self.summary().items()}

    def spreads(self, keys: Sequence[str]) -> dict[str, float]:
        """Return the standard deviation over seeds of keys and expressions that vary."""
        spreads = {}
        for key in keys:
            parts = operands(key, self._entries)
            if any(p not in self._entries for p in parts) or len(self.seeds) < 2:
                continue
            if all(None in self._entries[p] for p in parts):
                continue
            columns = [self.per_seed(p) for p in parts]
            numbers = [_apply(key, row) for row in zip(*columns, strict=True) if None not in row]
            if len(numbers) > 1:
                spreads[key] = _mean_and_std(numbers)[1]
        return spreads

    def as_json(self) -> dict[str, dict[str, Any]]:
        """Return :meth:`summary` with None for what is not finite."""
        return {
            key: {
                "mean": _or_none(entry["mean"]),
                "std": _or_none(entry["std"]),
                "per_seed": [_or_none(n) for n in entry["per_seed"]],
            }
            for key, entry in self.summary().items()
        }


def _mean_and_std(numbers: Sequence[float]) -> tuple[float, float]:
    if not all(math.isfinite(n) for n in numbers):
        return math.nan, math.nan
    mean = math.fsum(numbers) / len(numbers)
    # A constant column has no spread at all, not one of rounding size.
    if len(set(numbers)) == 1:
        return numbers[0], 0.0
    return mean, statistics.stdev(numbers)


def _apply(key: str, row: Sequence[float | None]) -> float:
    numbers = [math.nan if n is None else n for n in row]
    if len(numbers) == 1:
        return numbers[0]
    left, right = numbers
    if " / " in key:
        return left / right if right else math.nan
    return left - right


def _or_none(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
