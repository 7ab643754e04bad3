r"""Multistep solvers: earlier predictions raise the order at one call a step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from noisewright.solvers.walk import Solver, Walk
from noisewright.types import InputError

__all__ = ["DPMSolverPP"]


@dataclass(frozen=True)
class DPMSolverPP(Solver):
    r"""DPM-Solver++ (2M): second order in log-SNR, one call a step (Lu et al. 2022, alg. 2).

    .. math::
        D = \hat y_i + \frac{h_i}{2 h_{i-1}} (\hat y_i - \hat y_{i-1}), \qquad
        x' = \frac{\sigma'}{\sigma} x + \Bigl(\alpha' - \alpha \frac{\sigma'}{\sigma}\Bigr) D

    with :math:`h` the steps in :math:`\tfrac12 \log` SNR. The first step and the step to the clean
    end are of first order; so is one that follows a start without any signal.

    Attributes:
        order: 1 (equal to DDIM) or 2.

    Raises:
        InputError: If the order is another.
    """

    order: int = 2

    def __post_init__(self) -> None:
        if self.order not in (1, 2):
            raise InputError(f"order={self.order} must be 1 or 2")

    def step(self, walk: Walk, index: int, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the state one interval on and the prediction of the data."""
        data = walk.predict(state, walk.knots.times[index])
        levels, following = walk.knots.levels[index], walk.knots.levels[index + 1]
        used = data
        if self.order == 2 and walk.history:
            ratio = self._ratio(walk, index)
            used = data + ratio * (data - walk.history[-1])
        fade = following.sigma / levels.sigma
        return fade * state + (following.alpha - levels.alpha * fade) * used, data

    @staticmethod
    def _ratio(walk: Walk, index: int) -> Tensor:
        """Return h_i / (2 h_(i-1)), or 0 where one of the steps is infinite."""
        before, here, after = walk.knots.levels[index - 1 : index + 2]
        logs = [torch.log(level.alpha / level.sigma) for level in (before, here, after)]
        ratio = (logs[2] - logs[1]) / (2 * (logs[1] - logs[0]))
        return torch.where(ratio.isfinite(), ratio, 0.0)
