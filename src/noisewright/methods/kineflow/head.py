r"""The point forecast under the flow: a linear map by ridge regression, and what it leaves over.

Contexts are measured from their last value (as in NLinear, Zeng et al. 2023) and in units of their
own spread d; drivers enter linearly. Two forms:

* **common**: one map and one residual covariance for all channels, rows weighted by d as in the
  flow's loss;
* **by channel**: each channel deviates from the common map as far as held-out windows approve and
  has its own covariance, rows weighted by d^2, the weight of errors in the data's units. Without
  such weights a few nearly flat contexts, whose errors are huge in their own unit, decide all.

The residuals' covariance over leads, :math:`\Sigma = U \Lambda U^\top`, gives the factor
:math:`L_\Sigma = U \Lambda^{1/2}` in whose coordinates the flow works: white noise there is already
"linear forecast with correlated Gaussian errors", and training can only refine it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.methods.kineflow.scaling import Inputs

__all__ = ["RidgeHead", "fit_head", "linear_forecast", "residual_factor"]

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Ridge penalties that are tried, in units of the mean variance of the features."""

FLOOR = 1e-4
"""Least eigenvalue of the residual covariance, as a share of their mean."""


@dataclass(frozen=True)
class RidgeHead:
    """A fitted linear forecast.

    Attributes:
        weight: (C, H, features).
        bias: (C, H).
        covariance: Of the training residuals over leads, (C, H, H).
        penalty: The penalty that was chosen for the common map.
        own: Which channels deviate from it.
    """

    weight: Tensor
    bias: Tensor
    covariance: Tensor
    penalty: float
    own: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Rows:
    """Rows of a regression, float64."""

    features: Tensor
    targets: Tensor
    weights: Tensor
    channel: Tensor

    @classmethod
    def of(cls, inputs: Inputs, power: int) -> _Rows:
        assert inputs.target is not None
        return cls(
            inputs.linear.double(),
            (inputs.target - inputs.last).double(),
            inputs.spread[:, 0].double() ** power,
            inputs.channel,
        )

    def only(self, channel: int) -> _Rows:
        kept = self.channel == channel
        return _Rows(
            self.features[kept], self.targets[kept], self.weights[kept], self.channel[kept]
        )

    def without(self, weight: Tensor, bias: Tensor) -> _Rows:
        """Return the rows with what a map explains taken out."""
        rest = self.targets - self.features @ weight.T - bias
        return _Rows(self.features, rest, self.weights, self.channel)

    def covariance(self) -> Tensor:
        share = self.weights / self.weights.sum()
        return self.targets.T @ (share[:, None] * self.targets)

    def error(self, weight: Tensor, bias: Tensor) -> float:
        rest = self.without(weight, bias).targets
        return float((self.weights * rest.square().mean(dim=1)).mean())


def _solve(rows: _Rows, penalty: float) -> tuple[Tensor, Tensor]:
    share = rows.weights / rows.weights.sum()
    centre, middle = share @ rows.features, share @ rows.targets
    features, targets = rows.features - centre, rows.targets - middle
    gram = features.T @ (share[:, None] * features)
    load = penalty * gram.diagonal().mean().clamp(min=1e-12)
    gram.diagonal().add_(load)
    weight = torch.linalg.solve(gram, features.T @ (share[:, None] * targets)).T
    return weight, middle - weight @ centre


def _best(rows: _Rows, held: _Rows | None) -> tuple[Tensor, Tensor, float]:
    """Return the map whose penalty is best on held-out rows; a middle one without any."""
    if held is None or not len(held.features):
        return *_solve(rows, 1e-3), 1e-3
    found = [(*_solve(rows, penalty), penalty) for penalty in PENALTIES]
    return min(found, key=lambda one: held.error(one[0], one[1]))


def fit_head(
    train: Inputs, held: Inputs | None, channels: int, *, by_channel: bool = False
) -> RidgeHead:
    """Fit the linear forecast in closed form.

    Args:
        train: Rows with targets.
        held: Held-out rows, for the choice of penalties; without any, channels do not deviate.
        channels: C.
        by_channel: Which of the two forms.
    """
    power = 2 if by_channel else 1
    rows = _Rows.of(train, power)
    probe = None if held is None else _Rows.of(held, power)
    weight, bias, penalty = _best(rows, probe)
    if not by_channel:
        covariance = rows.without(weight, bias).covariance()
        return RidgeHead(
            weight.float().repeat(channels, 1, 1),
            bias.float().repeat(channels, 1),
            covariance.repeat(channels, 1, 1),
            penalty,
        )
    parts, own = [], []
    for channel in range(channels):
        mine, more, shift = rows.only(channel).without(weight, bias), 0 * weight, 0 * bias
        if probe is not None and channels > 1:
            judge = probe.only(channel).without(weight, bias)
            found = _best(mine, judge)[:2]
            if judge.error(*found) < judge.error(more, shift):
                more, shift = found
                own.append(channel)
        parts.append((weight + more, bias + shift, mine.without(more, shift).covariance()))
    weights, biases, covariances = (torch.stack(column) for column in zip(*parts, strict=True))
    return RidgeHead(weights.float(), biases.float(), covariances, penalty, tuple(own))


def linear_forecast(
    inputs: Inputs,
    weight: Float[Tensor, "channels horizon n"],
    bias: Float[Tensor, "channels horizon"],
) -> Float[Tensor, "rows horizon"]:
    """Return the linear forecast in the rows' own units.

    Args:
        inputs: Rows, the channels of a window below each other.
        weight: As in :class:`RidgeHead`.
        bias: As there.
    """
    channels = len(weight)
    features = inputs.linear.unflatten(0, (-1, channels))
    rise = torch.einsum("bcn,chn->bch", features, weight) + bias
    return inputs.last + rise.flatten(0, 1)


def residual_factor(
    covariance: Float[Tensor, "channels horizon horizon"], *, whiten: bool
) -> tuple[Float[Tensor, "channels horizon horizon"], bool]:
    """Return factors L with L L^T = covariance, and whether a floor had to help.

    Args:
        covariance: One per channel.
        whiten: False gives the multiples of the identity with the same traces.
    """
    covariance = covariance.double()
    horizon = covariance.shape[-1]
    mean = (covariance.diagonal(dim1=1, dim2=2).mean(dim=1) + 1e-12)[:, None]
    if not whiten:
        eye = torch.eye(horizon, dtype=torch.float64)
        return (mean.sqrt()[..., None] * eye).float(), False
    values, vectors = torch.linalg.eigh(covariance)
    floored = bool((values < FLOOR * mean).any())
    roots = values.clamp(min=FLOOR * mean).sqrt()
    return (vectors * roots[:, None]).float(), floored
