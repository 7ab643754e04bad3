r"""The path of the paper, as a schedule of the engine.

The paper counts from noise (0) to data (1): :math:`x_\tau = \tau x_1 + \lambda_\tau x_0` with

.. math:: \lambda_\tau = \sqrt{(1 - (1 - \sigma_{\min})\,\tau)^2 + \sigma\,\tau (1 - \tau)}.

The engine counts noise time :math:`t = 1 - \tau`, so that
:math:`\alpha = 1 - t` and :math:`\sigma(t) = \lambda_{1 - t}`. :func:`noise_time` is the border.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.paths import Schedule

__all__ = ["FloorSchedule", "noise_time", "paper_time"]


def noise_time(tau: float) -> float:
    """Return the noise time (0 data, 1 noise) of the paper's time (0 noise, 1 data).

    Example:
        >>> noise_time(1.0), noise_time(0.25)
        (0.0, 0.75)
    """
    return 1.0 - tau


def paper_time(t: float) -> float:
    """Return the paper's time of a noise time, the other way round."""
    return 1.0 - t


@dataclass(frozen=True, eq=False)
class FloorSchedule(Schedule):
    r"""A straight line with a floor of noise and, if wanted, a bulge (Antipov et al. 2026).

    .. math:: \alpha = 1 - t, \qquad
        \sigma(t) = \sqrt{(t + \sigma_{\min} (1 - t))^2 + \sigma\, t (1 - t)}

    Attributes:
        floor: Noise left on the data at t = 0, in units of the data (the paper's sigma_min).
        bulge: Its height; 0 is the deterministic path (the paper's sigma).

    Example:
        >>> FloorSchedule(0.1).levels(torch.tensor([0.0, 0.5, 1.0]))
        (tensor([1.0000, 0.5000, 0.0000]), tensor([0.1000, 0.5500, 1.0000]))
    """

    floor: Tensor | float = 0.01
    bulge: Tensor | float = 0.0

    def levels(self, t: Float[Tensor, "*times"]) -> tuple[Tensor, Tensor]:
        """Return (1 - t, the level above)."""
        line = t + self.floor * (1 - t)
        return 1 - t, torch.sqrt(line * line + self.bulge * t * (1 - t))

    def rates(self, t: Float[Tensor, "*times"]) -> tuple[Tensor, Tensor]:
        """Return the rates; where the level is 0 the one of the straight line."""
        _, level = self.levels(t)
        slope = 1 - torch.as_tensor(self.floor, dtype=t.dtype, device=t.device)
        line = t + self.floor * (1 - t)
        change = line * slope + 0.5 * self.bulge * (1 - 2 * t)
        rate = torch.where(level > 0, change / level.clamp(min=1e-300), slope)
        return torch.full_like(rate, -1.0), rate
