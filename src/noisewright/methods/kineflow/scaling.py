"""From windows to what the networks and the linear head see: own units, drivers, gaps marked."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from noisewright.methods.kineflow.windows import Windows, carried

__all__ = ["Inputs", "Layout", "scaled"]

LEAST_SPREAD = 1e-2
"""Added to a context's standard deviation, in units of the channel's own: a flat context works."""


@dataclass(frozen=True)
class Layout:
    """Shapes of the windows that a model is made for.

    Attributes:
        context: L.
        horizon: H.
        channels: C.
        future: E.
        past: P.
        calendar: K.
        instance: Whether each context is measured in units of its own mean and spread.
        masked: Whether contexts may have gaps, which the networks are then told.
    """

    context: int
    horizon: int
    channels: int
    future: int = 0
    past: int = 0
    calendar: int = 0
    instance: bool = True
    masked: bool = False

    @property
    def tail(self) -> int:
        """Steps of all channels that count as drivers of each."""
        return min(self.context, self.horizon) if self.channels > 1 else 0

    @property
    def exogenous(self) -> int:
        """Numbers in the rows of the drivers of a window, in one unit."""
        return self.future * (self.context + self.horizon) + self.past * self.context

    @property
    def own_size(self) -> int:
        """Length of what is told of a channel's own past."""
        return self.context * (2 if self.masked else 1)

    @property
    def driver_size(self) -> int:
        """Length of what is told of the drivers."""
        units = 2 if self.instance else 1
        return self.calendar + self.channels * self.tail + units * self.exogenous

    @property
    def linear_size(self) -> int:
        """Length of what the linear head sees."""
        units = 2 if self.instance else 1
        return self.context + self.calendar + units * self.exogenous


@dataclass(frozen=True)
class Inputs:
    """Windows taken apart into rows, one a channel: (batch * C, ...).

    Attributes:
        own: The channel's context in its own units, with the mask of gaps if there may be any.
        channel: Number of the channel.
        drivers: Calendar, the last steps of all channels, exogenous drivers.
        linear: Features of the linear head.
        last: The last value of the context in its own units, (rows, 1).
        centre: Mean of the context, standardised units, (rows, 1).
        spread: Unit of the row, standardised units, (rows, 1).
        target: The horizon in the row's units (rows, H), or None.
    """

    own: Tensor
    channel: Tensor
    drivers: Tensor
    linear: Tensor
    last: Tensor
    centre: Tensor
    spread: Tensor
    target: Tensor | None


def scaled(windows: Windows, layout: Layout) -> Inputs:
    """Measure each channel of each window in units of its own context.

    Args:
        windows: Standardised windows.
        layout: Their shapes.
    """
    filled, seen = carried(windows.context)
    batch, _, channels = filled.shape
    centre, spread = _units(filled, seen, instance=layout.instance)
    own = ((filled - centre) / spread).transpose(1, 2)
    rows = own.flatten(0, 1)
    unit = spread.transpose(1, 2).flatten(0, 1)
    exogenous = torch.cat([windows.future.flatten(1), windows.past.flatten(1)], dim=1)
    shared = [windows.calendar]
    if layout.tail:
        shared.append(own[:, :, -layout.tail :].flatten(1))
    spread_out = torch.cat(shared, dim=1).repeat_interleave(channels, dim=0)
    exogenous = exogenous.repeat_interleave(channels, dim=0)
    # A push of fixed size looks larger in a quiet window: linear in the data's units.
    pushes = [exogenous, exogenous / unit] if layout.instance else [exogenous]
    last = rows[:, -1:]
    calendar = windows.calendar.repeat_interleave(channels, dim=0)
    marks = [seen.transpose(1, 2).flatten(0, 1).to(rows.dtype)] if layout.masked else []
    target = None
    if windows.target is not None:
        target = ((windows.target - centre) / spread).transpose(1, 2).flatten(0, 1)
    return Inputs(
        own=torch.cat([rows, *marks], dim=1),
        channel=torch.arange(channels, device=rows.device).repeat(batch),
        drivers=torch.cat([spread_out, *pushes], dim=1),
        linear=torch.cat([rows - last, calendar, *pushes], dim=1),
        last=last,
        centre=centre.transpose(1, 2).flatten(0, 1),
        spread=unit,
        target=target,
    )


def _units(filled: Tensor, seen: Tensor, *, instance: bool) -> tuple[Tensor, Tensor]:
    """Return mean and unit of each context, (batch, 1, C), over the values that were seen."""
    if not instance:
        centre = torch.zeros_like(filled[:, :1])
        return centre, torch.ones_like(centre)
    share = seen.to(filled.dtype)
    share = share / share.sum(dim=1, keepdim=True)
    centre = (share * filled).sum(dim=1, keepdim=True)
    variance = (share * (filled - centre).square()).sum(dim=1, keepdim=True)
    return centre, variance.sqrt() + LEAST_SPREAD
