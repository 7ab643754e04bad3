"""Bootstrap intervals: how much a number would move if the data had been drawn again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Shaped
from torch import Tensor

from noisewright.random import derive_seed
from noisewright.types import InputError

__all__ = ["Interval", "bootstrap_interval"]


@dataclass(frozen=True)
class Interval:
    """A number with the range it could have had.

    Attributes:
        value: The statistic on the data themselves.
        low: Lower end.
        high: Upper end.
        level: Nominal coverage, in (0, 1).
    """

    value: float
    low: float
    high: float
    level: float


def _mean(rows: Tensor) -> float:
    return float(rows.to(torch.float64).mean())


def bootstrap_interval(
    *samples: Shaped[Tensor, "count ..."],
    statistic: Callable[..., float] = _mean,
    level: float = 0.95,
    draws: int = 1000,
    paired: bool = False,
    seed: int = 0,
) -> Interval:
    """Return a statistic of the samples and its percentile bootstrap interval.

    Rows are drawn again with replacement, ``draws`` times, and the quantiles of the statistic are
    the ends. **Bias**: with few rows the interval is too narrow (a mean of 10 values: about 90 %
    coverage at a nominal 95 %). A statistic that compares rows with each other, such as a Fréchet
    distance or a nearest neighbour, is itself shifted by repeated rows; bootstrap those over seeds
    instead.

    Args:
        samples: One or more arrays; rows are the units that were drawn independently.
        statistic: Function of the samples, each with its rows drawn again; the mean by default.
        level: Nominal coverage.
        draws: Number of repetitions.
        paired: Draw the same rows from every sample: row i of one belongs to row i of the other.
        seed: The same seed gives the same interval.

    Raises:
        InputError: If a sample is empty, or paired samples differ in length, or ``level`` or
            ``draws`` cannot work.

    Example:
        >>> interval = bootstrap_interval(torch.arange(100.0))
        >>> interval.value, interval.low < 49.5 < interval.high
        (49.5, True)
    """
    if not samples or any(len(rows) == 0 for rows in samples):
        raise InputError("give at least one sample, none of them empty")
    if not 0 < level < 1 or draws < 1:
        raise InputError(f"level must be in (0, 1) and draws positive, got {level} and {draws}")
    if paired and len({len(rows) for rows in samples}) > 1:
        raise InputError(f"paired samples have {[len(rows) for rows in samples]} rows; give equal")
    stream = torch.Generator().manual_seed(derive_seed(seed, "bootstrap"))
    values = torch.tensor(
        [float(statistic(*_again(samples, paired, stream))) for _ in range(draws)],
        dtype=torch.float64,
    )
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = values.quantile(ends).tolist()
    return Interval(float(statistic(*samples)), low, high, level)


def _again(samples: tuple[Tensor, ...], paired: bool, stream: torch.Generator) -> list[Tensor]:
    """Return the samples with their rows drawn with replacement."""
    if paired:
        rows = torch.randint(len(samples[0]), (len(samples[0]),), generator=stream)
        return [sample[rows.to(sample.device)] for sample in samples]
    return [
        sample[torch.randint(len(sample), (len(sample),), generator=stream).to(sample.device)]
        for sample in samples
    ]
