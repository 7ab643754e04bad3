"""Windows of series: a context that is known, a horizon that is not, and drivers beside both.

========  ==========================================================================
symbol    meaning
========  ==========================================================================
L, H      lengths of context and horizon, in steps
C         channels that are forecast
E         drivers that are known over context and horizon (weather forecast, price, force)
P         drivers that are known over the context only
K         calendar columns, read at the first step of the horizon
========  ==========================================================================

All values here are standardised: per channel and per driver, over the training part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noisewright.types import InputError

__all__ = ["Table", "Windows", "carried"]


@dataclass(frozen=True)
class Windows:
    """A batch of windows.

    Attributes:
        context: (batch, L, C); NaN where a value is missing.
        future: (batch, L + H, E).
        past: (batch, L, P).
        calendar: (batch, K).
        target: (batch, H, C), or None where it is not known.
    """

    context: Tensor
    future: Tensor
    past: Tensor
    calendar: Tensor
    target: Tensor | None = None

    def __len__(self) -> int:
        return len(self.context)

    def rows(self, part: slice) -> Windows:
        """Return some of the windows."""
        target = None if self.target is None else self.target[part]
        return Windows(
            self.context[part], self.future[part], self.past[part], self.calendar[part], target
        )

    def to(self, device: torch.device | str) -> Windows:
        """Return the windows on a device."""
        target = None if self.target is None else self.target.to(device)
        return Windows(
            self.context.to(device),
            self.future.to(device),
            self.past.to(device),
            self.calendar.to(device),
            target,
        )


@dataclass(frozen=True)
class Table:
    """One or more series with their drivers, below each other.

    Attributes:
        values: (rows, C).
        future: (rows, E).
        past: (rows, P).
        calendar: (rows, K).
        lengths: Rows of each series.
    """

    values: Tensor
    future: Tensor
    past: Tensor
    calendar: Tensor
    lengths: tuple[int, ...]

    @classmethod
    def of(
        cls,
        values: np.ndarray,
        *,
        future: np.ndarray | None = None,
        past: np.ndarray | None = None,
        calendar: np.ndarray | None = None,
        lengths: Sequence[int] | None = None,
    ) -> Table:
        """Make a table from arrays (rows, columns); absent ones have no columns."""
        blocks = [
            torch.empty(len(values), 0) if block is None else torch.as_tensor(block).float()
            for block in (future, past, calendar)
        ]
        return cls(
            torch.as_tensor(values).float(),
            blocks[0],
            blocks[1],
            blocks[2],
            (len(values),) if lengths is None else tuple(lengths),
        )

    def starts(self, context: int, horizon: int, *, stride: int = 1) -> Tensor:
        """Return the first rows of all windows that fit into one series.

        Windows with a missing value in the horizon are left out, and those whose whole context is
        missing in some channel.

        Args:
            context: L.
            horizon: H.
            stride: Rows from one start to the next.
        """
        found, first = [], 0
        for length in self.lengths:
            found.append(torch.arange(first, first + length - context - horizon + 1, stride))
            first += length
        starts = torch.cat(found) if found else torch.empty(0, dtype=torch.long)
        lost = ~torch.isfinite(self.values)
        if len(starts) and bool(lost.any()):
            total = torch.cat([torch.zeros(1, lost.shape[1]), lost.float().cumsum(0)])
            gaps = total[starts + context + horizon] - total[starts + context]
            empty = total[starts + context] - total[starts] >= context
            starts = starts[~((gaps > 0) | empty).any(dim=1)]
        return starts

    def windows(self, starts: Tensor, context: int, horizon: int) -> Windows:
        """Return the windows that begin at these rows."""
        place = starts[:, None] + torch.arange(context + horizon)
        values = self.values[place]
        return Windows(
            values[:, :context],
            self.future[place],
            self.past[place[:, :context]],
            self.calendar[starts + context],
            values[:, context:],
        )

    def part(self, begin: int, end: int) -> Table:
        """Return rows ``begin`` to ``end`` of a table of one series."""
        if len(self.lengths) != 1:
            raise InputError("a table of several series has no common rows to cut at")
        blocks = (self.values, self.future, self.past, self.calendar)
        cut = [block[begin:end] for block in blocks]
        return Table(cut[0], cut[1], cut[2], cut[3], (len(cut[0]),))


def carried(context: Tensor) -> tuple[Tensor, Tensor]:
    """Return contexts without gaps, and where values were seen.

    A missing value becomes the last one seen before it, or the first one seen after it.

    Args:
        context: (batch, L, C), each column with at least one value.
    """
    seen = torch.isfinite(context)
    if bool(seen.all()):
        return context, seen
    steps = torch.arange(context.shape[1], device=context.device)[None, :, None]
    last = torch.where(seen, steps, -1).cummax(dim=1).values
    first = torch.where(seen, steps, context.shape[1]).amin(dim=1, keepdim=True)
    place = torch.where(last >= 0, last, first.expand_as(last))
    return context.gather(1, place), seen
