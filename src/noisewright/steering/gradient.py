r"""Gradient guidance: bend the prediction of the data along the gradient of a log reward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from noisewright.paths import DataPredictor, expand_to
from noisewright.steering.wrapper import Steered

__all__ = ["GradientGuidance"]


class GradientGuidance(Steered):
    r"""Add the gradient of a log reward of the predicted data (Chung et al. 2023, eq. 10).

    .. math:: \hat y' = \hat y + w\, \frac{\sigma^2}{\alpha}
        \nabla_{x}\, \log r\bigl(\hat y(x, t)\bigr)

    which is Tweedie's formula for the score of p(x) r(x). Where no signal is left (alpha = 0) the
    gradient says nothing and the prediction is kept.

    Args:
        inner: A denoiser.
        log_reward: From data (batch, *event) to (batch,); natural logarithm, differentiable.
        weight: Strength w; 0 leaves the prediction unchanged.
    """

    def __init__(
        self, inner: DataPredictor, log_reward: Callable[[Tensor], Tensor], *, weight: float = 1.0
    ) -> None:
        super().__init__(inner)
        self.log_reward = log_reward
        self.weight = weight

    def forward(self, state: Tensor, t: Tensor, **condition: Any) -> Tensor:
        """Return the bent prediction of the data."""
        if self.weight == 0:
            return self.inner(state, t, **condition)
        with torch.enable_grad():
            point = state.detach().requires_grad_(True)
            data = self.inner(point, t, **condition)
            (gradient,) = torch.autograd.grad(self.log_reward(data).sum(), point)
        alpha, sigma = (expand_to(level, state) for level in self.path.levels(t))
        seen = alpha > 0
        gain = torch.where(seen, sigma**2 / torch.where(seen, alpha, 1.0), 0.0)
        return (data.detach() + self.weight * gain * gradient).to(state.dtype)
