"""What the flow is compared with: simple laws around a linear forecast, and networks for the mean.

All see the windows that the flow sees. Those that give joint futures return samples; those that
know each lead by itself return quantiles; the networks for the mean return one line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from noisewright.methods.kineflow.field import ResidualBlock
from noisewright.methods.kineflow.head import RidgeHead, linear_forecast, residual_factor
from noisewright.methods.kineflow.scaling import Inputs, Layout, scaled
from noisewright.methods.kineflow.training import FlowPlan, begin_training
from noisewright.methods.kineflow.windows import Table, Windows, carried
from noisewright.random import StepDraws, derive_seed, isolated
from noisewright.training import train_to_best

__all__ = [
    "LEVELS",
    "DLinear",
    "DriverMLP",
    "LinearLaw",
    "PatchTransformer",
    "SeasonalNaive",
    "mean_forecast",
    "quantile_forecast",
    "train_mean",
    "train_quantiles",
]

LEVELS = (np.arange(20) + 0.5) / 20
"""Levels of forecasts by quantiles."""

BLOCK = 512


def _from_rows(rows: Tensor, inputs: Inputs, channels: int) -> Tensor:
    """Return (batch, ..., H, C) in standardised units from (batch * C, ..., H) in own units."""
    shape = (-1, *(1,) * (rows.ndim - 1))
    values = rows * inputs.spread.view(shape) + inputs.centre.view(shape)
    return values.unflatten(0, (-1, channels)).movedim(1, -1)


# ---------------------------------------------------------------------------- laws


@dataclass(frozen=True)
class LinearLaw:
    """The linear forecast with errors drawn from its residuals' law.

    Attributes:
        head: The linear forecast.
        layout: Shapes of the windows.
        residuals: Training residuals in own units (rows, H): futures resample them (bootstrap).
            None draws Gaussian errors with their covariance.
    """

    head: RidgeHead
    layout: Layout
    residuals: Tensor | None = None

    def sample(self, windows: Windows, count: int, seed: int) -> Tensor:
        """Return futures (batch, count, H, C), in opposite pairs for the Gaussian law."""
        inputs = scaled(windows, self.layout)
        point = linear_forecast(inputs, self.head.weight, self.head.bias)
        channels = self.layout.channels
        stream = torch.Generator().manual_seed(derive_seed(seed, "linear law"))
        rows, horizon = point.shape
        if self.residuals is not None:
            known = self.residuals.unflatten(0, (-1, channels))
            pick = torch.randint(len(known), (rows, count), generator=stream)
            error = known[pick, inputs.channel[:, None]]
        else:
            factor, _ = residual_factor(self.head.covariance, whiten=True)
            white = torch.randn(rows, count // 2, horizon, generator=stream)
            half = torch.einsum("rsh,rgh->rsg", white, factor[inputs.channel])
            error = torch.cat([half, -half], dim=1)
        return _from_rows(point[:, None] + error, inputs, channels)

    def residuals_of(self, table: Table, starts: Tensor) -> Tensor:
        """Return the residuals on windows of a table, in own units (rows, H)."""
        inputs = scaled(
            table.windows(starts, self.layout.context, self.layout.horizon), self.layout
        )
        assert inputs.target is not None
        return inputs.target - linear_forecast(inputs, self.head.weight, self.head.bias)


@dataclass(frozen=True)
class SeasonalNaive:
    """The value one season ago, with the empirical quantiles of its training errors.

    Attributes:
        period: Steps of a season.
        quantiles: Of the errors per lead and channel (H, C, levels), standardised units.
    """

    period: int
    quantiles: Tensor

    @classmethod
    def fitted(cls, table: Table, starts: Tensor, layout: Layout, period: int) -> SeasonalNaive:
        """Return the forecast with the errors that it made on windows of a table."""
        windows = table.windows(starts, layout.context, layout.horizon)
        assert windows.target is not None
        error = windows.target - cls.point(windows, layout.horizon, period)
        return cls(period, torch.quantile(error, torch.tensor(LEVELS).float(), dim=0).movedim(0, 2))

    @staticmethod
    def point(windows: Windows, horizon: int, period: int) -> Tensor:
        """Return the values one season ago (batch, H, C)."""
        filled, _ = carried(windows.context)
        place = filled.shape[1] - period + torch.arange(horizon) % period
        return filled[:, place]

    def forecast(self, windows: Windows) -> Tensor:
        """Return quantiles (batch, H, C, levels)."""
        horizon = self.quantiles.shape[0]
        return self.point(windows, horizon, self.period)[..., None] + self.quantiles


# ---------------------------------------------------------------------------- networks


class DLinear(nn.Module):
    """Trend and remainder, each by a linear map (Zeng et al. 2023)."""

    def __init__(self, layout: Layout, kernel: int = 25) -> None:
        super().__init__()
        self.kernel = min(kernel, layout.context) // 2 * 2 + 1
        self.trend = nn.Linear(layout.context, layout.horizon)
        self.rest = nn.Linear(layout.context, layout.horizon)

    def forward(self, inputs: Inputs) -> Tensor:
        """Return the forecast in own units (rows, H)."""
        own = inputs.own
        padded = functional.pad(own[:, None], (self.kernel // 2, self.kernel // 2), "replicate")
        trend = functional.avg_pool1d(padded, self.kernel, stride=1)[:, 0]
        return self.trend(trend) + self.rest(own - trend)


class DriverMLP(nn.Module):
    """A residual network of context and drivers, added to the last value."""

    def __init__(self, layout: Layout, hidden: int = 168, dropout: float = 0.1) -> None:
        super().__init__()
        self.channel = nn.Embedding(layout.channels, 16)
        self.stem = nn.Linear(layout.own_size + layout.driver_size + 16, hidden)
        self.blocks = nn.ModuleList(ResidualBlock(hidden, dropout) for _ in range(2))
        self.head = nn.Linear(hidden, layout.horizon)

    def forward(self, inputs: Inputs) -> Tensor:
        """Return the forecast in own units (rows, H)."""
        seen = torch.cat([inputs.own, inputs.drivers, self.channel(inputs.channel)], dim=1)
        hidden = self.stem(seen)
        for block in self.blocks:
            hidden = block(hidden)
        return inputs.last + self.head(functional.silu(hidden))


class PatchTransformer(nn.Module):
    """Attention over patches of one channel's context (PatchTST, Nie et al. 2023)."""

    def __init__(
        self,
        layout: Layout,
        *,
        width: int = 64,
        depth: int = 2,
        patch: int = 16,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.patch = min(patch, layout.context)
        self.stride = self.patch
        count = (layout.context - self.patch) // self.stride + 1
        self.embed = nn.Linear(self.patch, width)
        self.place = nn.Parameter(0.02 * torch.randn(count, width))
        block = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, depth, enable_nested_tensor=False)
        self.head = nn.Linear(count * width, layout.horizon)

    def forward(self, inputs: Inputs) -> Tensor:
        """Return the forecast in own units (rows, H)."""
        patches = inputs.own.unfold(1, self.patch, self.stride)
        hidden = self.blocks(self.embed(patches) + self.place)
        return self.head(hidden.flatten(1))


class _Quantiles(nn.Module):
    """Linear quantiles: the linear head's features, one map for each level."""

    def __init__(self, head: RidgeHead, layout: Layout) -> None:
        super().__init__()
        scores = torch.special.ndtri(torch.tensor(LEVELS)).float()
        spread = head.covariance.diagonal(dim1=1, dim2=2).sqrt().float()
        self.weight = nn.Parameter(head.weight[:, :, None].repeat(1, 1, len(LEVELS), 1))
        self.bias = nn.Parameter(head.bias[..., None] + spread[..., None] * scores)

    def forward(self, inputs: Inputs) -> Tensor:
        """Return quantiles in own units (rows, H, levels)."""
        features = inputs.linear.unflatten(0, (-1, len(self.weight)))
        rise = torch.einsum("bcn,chln->bchl", features, self.weight) + self.bias
        return inputs.last[..., None] + rise.flatten(0, 1)


Penalty = Callable[[Tensor, Inputs], Tensor]


def _squared(forecast: Tensor, inputs: Inputs) -> Tensor:
    assert inputs.target is not None
    return (inputs.spread * (forecast - inputs.target)).square().mean(dim=1)


def _pinball(forecast: Tensor, inputs: Inputs) -> Tensor:
    assert inputs.target is not None
    gap = inputs.spread[..., None] * (inputs.target[..., None] - forecast)
    levels = torch.tensor(LEVELS, dtype=gap.dtype, device=gap.device)
    return torch.maximum(levels * gap, (levels - 1) * gap).mean(dim=(1, 2))


def _train(
    net: nn.Module,
    penalty: Penalty,
    table: Table,
    starts: Tensor,
    layout: Layout,
    plan: FlowPlan,
    seed: int,
    held: Windows | None,
) -> nn.Module:
    """Train with the flow's plan; keep the averaged weights that were best on held-out windows."""

    def loss(module: Any, batch: Tensor, draws: StepDraws) -> Tensor:
        del draws
        inputs = scaled(table.windows(batch, layout.context, layout.horizon), layout)
        return penalty(module(inputs), inputs)

    def score(module: Any, probe: Inputs) -> float:
        return float(penalty(module(probe), probe).mean())

    training = begin_training(net, starts, loss, replace(plan, device="cpu"), seed)
    held_score = None if held is None else partial(score, probe=scaled(held, layout))
    train_to_best(training, held_score, looks=plan.looks)
    return net


def train_mean(
    kind: type[nn.Module],
    table: Table,
    starts: Tensor,
    layout: Layout,
    plan: FlowPlan,
    seed: int,
    held: Windows | None = None,
) -> nn.Module:
    """Return a network of a kind (DLinear, ...) trained for the squared error of the mean."""
    with isolated(derive_seed(seed, "weights")):
        net = kind(layout)
    return _train(net, _squared, table, starts, layout, plan, seed, held)


def train_quantiles(
    head: RidgeHead,
    table: Table,
    starts: Tensor,
    layout: Layout,
    plan: FlowPlan,
    seed: int,
    held: Windows | None = None,
) -> nn.Module:
    """Return linear quantiles, trained from the linear head with Gaussian errors on."""
    return _train(_Quantiles(head, layout), _pinball, table, starts, layout, plan, seed, held)


@torch.no_grad()
def mean_forecast(net: nn.Module, windows: Windows, layout: Layout) -> Tensor:
    """Return the forecast of a network for the mean, (batch, H, C) in standardised units."""
    parts = []
    for begin in range(0, len(windows), BLOCK):
        inputs = scaled(windows.rows(slice(begin, begin + BLOCK)), layout)
        parts.append(_from_rows(net(inputs), inputs, layout.channels))
    return torch.cat(parts)


@torch.no_grad()
def quantile_forecast(net: nn.Module, windows: Windows, layout: Layout) -> Tensor:
    """Return quantiles that do not cross (batch, H, C, levels), in standardised units."""
    inputs = scaled(windows, layout)
    rows = net(inputs).sort(dim=2).values.movedim(2, 1)
    return _from_rows(rows, inputs, layout.channels).movedim(1, 3)
