"""Schedules made from something that exists: the table of a discrete model, another schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.paths.schedule import Schedule, precise
from noisewright.types import InputError

__all__ = ["TableSchedule", "VariancePreserving"]


@dataclass(frozen=True, eq=False)
class TableSchedule(Schedule):
    r"""A table of :math:`\bar\alpha` as pre-trained discrete models carry it.

    Level i of T (0 the cleanest) sits at time (i + 1) / T; between levels the log-SNR is linear.
    Below the first level the schedule is constant: it has a floor. The last level may hold no
    signal at all (a table rescaled to zero terminal SNR); in the interval before it the angle
    :math:`\arctan(\alpha / \sigma)` is linear instead.

    Attributes:
        alphas_cumprod: :math:`\bar\alpha_i = \alpha^2`, shape (T,), falling.

    Raises:
        InputError: If the table is empty or does not fall strictly from below 1 to 0 or above.
    """

    alphas_cumprod: Tensor

    def __post_init__(self) -> None:
        table = self.alphas_cumprod
        inside = bool((table >= 0).all() and (table < 1).all())
        if not (table.ndim == 1 and len(table) and inside and bool((table.diff() < 0).all())):
            raise InputError(
                "alphas_cumprod must be a table of shape (T,) that falls strictly, from below 1 to "
                "0 or above"
            )

    def levels(self, t: Float[Tensor, "*times"]) -> tuple[Tensor, Tensor]:
        """Return variance-preserving levels at the interpolated log-SNR."""
        table = precise(self.alphas_cumprod, t.device)
        place = (t * len(table) - 1).clamp(0, len(table) - 1)
        lower = place.detach().floor().long().clamp(max=max(len(table) - 2, 0))
        upper = (lower + 1).clamp(max=len(table) - 1)
        logsnr = torch.logit(table.clamp(min=torch.finfo(table.dtype).tiny))
        here = torch.lerp(logsnr[lower], logsnr[upper], place - lower)
        alpha, sigma = torch.sigmoid(here).sqrt(), torch.sigmoid(-here).sqrt()
        if table[-1] > 0:
            return alpha, sigma
        angle = torch.asin(table.sqrt())
        turned = torch.lerp(angle[lower], angle[upper], place - lower)
        fading = upper == len(table) - 1
        return torch.where(fading, turned.sin(), alpha), torch.where(fading, turned.cos(), sigma)

    @property
    def batch(self) -> None:
        """One table serves all samples."""
        return

    def columns(self) -> Self:
        """Return itself: one table serves all samples."""
        return self

    def select(self, rows: Tensor | slice) -> Self:
        """Return itself: one table serves all samples."""
        del rows
        return self


@dataclass(frozen=True, eq=False)
class VariancePreserving(Schedule):
    r"""Another schedule's log-SNR with :math:`\alpha^2 + \sigma^2 = 1`.

    Attributes:
        base: The schedule that says when the noise comes.

    Example:
        >>> from noisewright.paths import EDMSchedule
        >>> alpha, sigma = VariancePreserving(EDMSchedule(4.0)).levels(torch.tensor([0.25]))
        >>> alpha, sigma
        (tensor([0.7071]), tensor([0.7071]))
    """

    base: Schedule

    def levels(self, t: Float[Tensor, "*times"]) -> tuple[Tensor, Tensor]:
        """Return the base's levels divided by their root sum of squares."""
        alpha, sigma = self.base.levels(t)
        norm = torch.sqrt(alpha**2 + sigma**2)
        return alpha / norm, sigma / norm

    def logsnr(self, t: Tensor | float) -> Tensor:
        """Return the base's log-SNR."""
        return self.base.logsnr(t)

    def logsnr_rate(self, t: Float[Tensor, "*times"]) -> Tensor:
        """Return the base's rate of log-SNR."""
        return self.base.logsnr_rate(t)

    def time_of_logsnr(self, logsnr: Tensor | float) -> Tensor:
        """Return the base's time."""
        return self.base.time_of_logsnr(logsnr)

    @property
    def batch(self) -> int | None:
        """Number of samples with a schedule of their own."""
        return self.base.batch

    def columns(self) -> Self:
        """Return the schedule with parameters (batch, 1)."""
        return replace(self, base=self.base.columns())

    def select(self, rows: Tensor | slice) -> Self:
        """Return the schedule of some samples."""
        return replace(self, base=self.base.select(rows))

    def to_dict(self) -> dict[str, Any]:
        """Return names and parameters as plain values."""
        return {"name": type(self).__name__, "base": self.base.to_dict()}
