r"""Classifier-free guidance (Ho & Salimans 2022) with an interval and rescaling."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.paths import DataPredictor
from noisewright.steering.wrapper import Steered
from noisewright.types import InputError

__all__ = ["ClassifierFree", "rescale_spread"]


def rescale_spread(
    guided: Float[Tensor, "batch *event"],
    conditional: Float[Tensor, "batch *event"],
    share: float,
) -> Float[Tensor, "batch *event"]:
    r"""Bring the spread of a guided prediction back towards the conditional one's.

    Per sample, over all axes of the event (Lin et al. 2024, eq. 15 and 16; here on whatever kind
    of prediction is given):

    .. math:: \phi\, g\, \frac{\mathrm{std}(c)}{\mathrm{std}(g)} + (1 - \phi)\, g

    A constant guided prediction has no spread to scale and passes through unchanged.

    Args:
        guided: Guided prediction g.
        conditional: Conditional prediction c.
        share: The share phi in [0, 1]; 0 changes nothing.
    """
    spread, wanted = (_spread(v) for v in (guided, conditional))
    largest = guided[:, None].flatten(1).abs().amax(dim=1).to(spread.dtype)
    flat = spread <= 8 * torch.finfo(spread.dtype).eps * largest  # rounding of a constant row
    factor = torch.where(flat, 1.0, wanted / torch.where(flat, 1.0, spread))
    factor = factor.reshape(-1, *(1,) * (guided.ndim - 1))
    return (guided * (1 + share * (factor - 1))).to(guided.dtype)


def _spread(values: Tensor) -> Tensor:
    """Return the standard deviation of each row, (batch,), in at least float32."""
    rows = values[:, None].flatten(1)
    return rows.to(torch.promote_types(rows.dtype, torch.float32)).std(dim=1, correction=0)


class ClassifierFree(Steered):
    r"""Extrapolate from the unconditional to the conditional prediction of the data.

    .. math:: \hat y = \hat y_\varnothing + w\, (\hat y_c - \hat y_\varnothing)

    Weight 0 is unconditional, 1 conditional (one network call each), beyond 1 exaggerates. Since
    every kind of prediction is affine in the data for a given state, the formula means the same for
    noise, velocity and score.

    Args:
        inner: A denoiser that knows conditions.
        weight: Guidance strength w; 0 is a value like any other.
        unconditional: The condition that means "none", merged over the call's condition.
        interval: Noise times (low, high) between which guidance acts; outside, the conditional
            prediction is used (Kynkaanniemi et al. 2024).
        rescale: Share of :func:`rescale_spread`.

    Raises:
        InputError: If the interval or the share is out of range.
    """

    def __init__(
        self,
        inner: DataPredictor,
        weight: float,
        *,
        unconditional: dict[str, Any] | None = None,
        interval: tuple[float, float] = (0.0, 1.0),
        rescale: float = 0.0,
    ) -> None:
        super().__init__(inner)
        low, high = interval
        if not 0 <= low <= high <= 1:
            raise InputError(f"interval={interval} must be two noise times, 0 <= low <= high <= 1")
        if not 0 <= rescale <= 1:
            raise InputError(f"rescale={rescale} must lie in [0, 1]")
        self.weight = weight
        self.unconditional = {"label": None} if unconditional is None else unconditional
        self.interval = interval
        self.rescale = rescale

    def forward(self, state: Tensor, t: Tensor, **condition: Any) -> Tensor:
        """Return the guided prediction of the data."""
        none = condition | self.unconditional
        if self.weight == 0 and self.interval == (0.0, 1.0):
            return self.inner(state, t, **none)
        conditional = self.inner(state, t, **condition)
        low, high = self.interval
        active = (t >= low) & (t <= high)
        if self.weight == 1 or not bool(active.any()):
            return conditional
        base = self.inner(state, t, **none)
        guided = base + self.weight * (conditional - base)
        if self.rescale:
            guided = rescale_spread(guided, conditional, self.rescale)
        rows = active.expand(len(state)).reshape(-1, *(1,) * (state.ndim - 1))
        return torch.where(rows, guided, conditional)
