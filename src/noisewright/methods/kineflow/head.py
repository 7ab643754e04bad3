r"""The point forecast under the flow: a linear map by ridge regression, and what it leaves over.

Contexts are measured from their last value (as in NLinear, Zeng et al. 2023) and in units of their
own spread; drivers enter linearly. The residuals' covariance over leads,
:math:`\Sigma = U \Lambda U^\top`, gives the factor :math:`L_\Sigma = U \Lambda^{1/2}` in whose
coordinates the flow works: white noise there is already "linear forecast with correlated Gaussian
errors", and training can only refine it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["RidgeHead", "fit_head", "residual_factor"]

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Ridge penalties that are tried, per row and unit of variance of a feature."""

FLOOR = 1e-4
"""Least eigenvalue of the residual covariance, as a share of their mean."""


@dataclass(frozen=True)
class RidgeHead:
    """A fitted linear forecast.

    Attributes:
        weight: (H, features).
        bias: (H,).
        covariance: Of the training residuals over leads, (H, H).
        penalty: The penalty that was chosen.
    """

    weight: Tensor
    bias: Tensor
    covariance: Tensor
    penalty: float


def _solve(
    features: Tensor, targets: Tensor, weights: Tensor, penalty: float
) -> tuple[Tensor, Tensor]:
    share = weights / weights.sum()
    centre, middle = share @ features, share @ targets
    features, targets = features - centre, targets - middle
    gram = features.T @ (share[:, None] * features)
    load = penalty * gram.diagonal().mean().clamp(min=1e-12)
    gram.diagonal().add_(load)
    weight = torch.linalg.solve(gram, features.T @ (share[:, None] * targets)).T
    return weight, middle - weight @ centre


def fit_head(
    train: tuple[Tensor, Tensor, Tensor], held: tuple[Tensor, Tensor, Tensor] | None
) -> RidgeHead:
    """Fit the linear forecast in closed form.

    Args:
        train: Features (rows, n), targets (rows, H), weights (rows,).
        held: The same of held-out rows, for the choice of the penalty; None takes a middle one.
    """
    features, targets, weights = (part.double() for part in train)
    chosen, best = 1e-3, float("inf")
    if held is not None and len(held[0]):
        probe, truth, importance = (part.double() for part in held)
        for penalty in PENALTIES:
            weight, bias = _solve(features, targets, weights, penalty)
            error = (truth - probe @ weight.T - bias).square().mean(dim=1)
            if (score := float((importance * error).mean())) < best:
                chosen, best = penalty, score
    weight, bias = _solve(features, targets, weights, chosen)
    residual = targets - features @ weight.T - bias
    return RidgeHead(weight.float(), bias.float(), (residual.T @ residual) / len(residual), chosen)


def residual_factor(covariance: Tensor, *, whiten: bool) -> tuple[Tensor, bool]:
    """Return the factor L with L L^T = covariance, (H, H), and whether a floor had to help.

    Args:
        covariance: (H, H).
        whiten: False gives the multiple of the identity with the same trace.
    """
    covariance = covariance.double()
    mean = covariance.diagonal().mean().clamp(min=1e-12)
    if not whiten:
        return (mean.sqrt() * torch.eye(len(covariance), dtype=torch.float64)).float(), False
    values, vectors = torch.linalg.eigh(covariance)
    floored = bool((values < FLOOR * mean).any())
    return (vectors * values.clamp(min=FLOOR * mean).sqrt()).float(), floored
