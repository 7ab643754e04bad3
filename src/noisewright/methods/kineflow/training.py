"""Training of a flow: the head in closed form, then the field, best weights by held-out score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from noisewright.methods.kineflow.flow import KineFlow
from noisewright.methods.kineflow.head import RidgeHead, fit_head
from noisewright.methods.kineflow.scaling import Layout, scaled
from noisewright.methods.kineflow.windows import Table, Windows
from noisewright.metrics import crps_ensemble
from noisewright.random import StepDraws, derive_seed
from noisewright.training import Average, Loss, Training, TrainStep, fit, train_to_best

__all__ = ["FlowPlan", "TrainedFlow", "begin_training", "hold_out", "linear_head", "train_flow"]

HEAD_WINDOWS = 4000
"""Windows that the linear head is fitted on, at most; evenly spread."""

HELD_WINDOWS = 64
"""Held-out windows that decide which weights are kept, at most; evenly spread."""


@dataclass(frozen=True)
class FlowPlan:
    """How a flow is trained."""

    steps: int
    batch: int = 40
    rate: float = 1e-3
    weight_decay: float = 1e-2
    warmup: int = 50
    ema: float = 0.995
    looks: int = 6
    look_samples: int = 20
    look_steps: int = 6
    device: str = "cpu"


@dataclass(frozen=True)
class TrainedFlow:
    """A trained model and how it went.

    Attributes:
        model: With averaged weights, in evaluation mode.
        losses: Per step.
        held_out: (step, score) of each look at the held-out windows.
        floored: Whether the residual covariance was singular and got a floor.
    """

    model: KineFlow
    losses: list[float]
    held_out: list[tuple[int, float]]
    floored: bool


def _spread_out(starts: Tensor, count: int) -> Tensor:
    """Return at most ``count`` of the starts, evenly spread."""
    if len(starts) <= count:
        return starts
    return starts[torch.linspace(0, len(starts) - 1, count).round().long()]


HELD_SHARE = 0.1
LEAST_HELD = 8


def hold_out(table: Table, starts: Tensor, horizon: int) -> tuple[Tensor, Tensor]:
    """Return windows that choose among weights, and windows to learn from.

    The last tenth of each series' windows is held out, thinned; a gap of one horizon keeps the
    values that they forecast out of what is learned. Too few windows are all learned from.

    Args:
        table: The series.
        starts: First rows of their windows, rising.
        horizon: H.
    """
    ends = torch.tensor(table.lengths).cumsum(0)
    owner = torch.searchsorted(ends, starts, right=True)
    held, kept = [], []
    for series in range(len(ends)):
        mine = starts[owner == series]
        count = int(HELD_SHARE * len(mine))
        if count and len(mine) > count + horizon:
            held.append(mine[-count:])
            mine = mine[: len(mine) - count - horizon]
        kept.append(mine)
    chosen = torch.cat(held) if held else starts[:0]
    if len(chosen) < LEAST_HELD:
        return starts[:0], starts
    return _spread_out(chosen, HELD_WINDOWS), torch.cat(kept)


def linear_head(
    train: Table,
    starts: Tensor,
    held: Table | None,
    held_starts: Tensor | None,
    layout: Layout,
    *,
    by_channel: bool = False,
) -> RidgeHead:
    """Fit the linear head on windows of a table; the penalty is chosen on held-out windows."""
    length = layout.context, layout.horizon
    chosen = _spread_out(starts, HEAD_WINDOWS)
    rows, probe = scaled(train.windows(chosen, *length), layout), None
    if held is not None and held_starts is not None and len(held_starts):
        probe = scaled(held.windows(_spread_out(held_starts, 500), *length), layout)
    return fit_head(rows, probe, layout.channels, by_channel=by_channel)


def train_flow(
    model: KineFlow,
    train: Table,
    starts: Tensor,
    plan: FlowPlan,
    seed: int,
    *,
    held: Windows | None = None,
    watch: Callable[[TrainStep], object] | None = None,
) -> TrainedFlow:
    """Train a model whose head is set, in place.

    Args:
        model: Gets the best averaged weights.
        train: What it learns from.
        starts: First rows of the training windows.
        plan: Steps and rates.
        seed: Of the order of windows, noise and dropout.
        held: Windows that choose among the looks; None keeps the last weights.
        watch: Called with each finished step, if given.
    """
    length = model.layout.context, model.layout.horizon

    def loss(module: KineFlow, batch: Tensor, draws: StepDraws) -> Tensor:
        windows = train.windows(batch.cpu(), *length).to(plan.device)
        return module.loss(windows, draws)

    score = None if held is None else partial(held_out_score, held=held, plan=plan, seed=seed)
    # The start stands for choice too: it is the linear forecast with Gaussian errors.
    training = begin_training(model, starts, loss, plan, seed)
    best = train_to_best(training, score, looks=plan.looks, start=True, watch=watch)
    return TrainedFlow(model, training.losses, list(best.seen), floored=False)


def begin_training(
    net: nn.Module, starts: Tensor, loss: Loss, plan: FlowPlan, seed: int
) -> Training:
    """Return a training by a plan; flows and baselines alike."""
    return fit(
        net,
        starts,
        loss,
        steps=plan.steps,
        batch=min(plan.batch, len(starts)),
        seed=derive_seed(seed, "train"),
        rate=plan.rate,
        warmup=min(plan.warmup, plan.steps // 4),
        optimizer=partial(torch.optim.AdamW, weight_decay=plan.weight_decay, fused=True),
        average=Average(net, plan.ema),
        device=plan.device,
    )


def held_out_score(module: KineFlow, *, held: Windows, plan: FlowPlan, seed: int) -> float:
    """Return the mean score of few samples on held-out windows, always with the same draws."""
    samples = module.sample(
        held.to(plan.device),
        plan.look_samples,
        order=2 if module.needs_momentum else 1,
        steps=plan.look_steps,
        seed=derive_seed(seed, "held out"),
        antithetic=True,
    )
    truth = np.asarray(held.target)
    return float(crps_ensemble(samples.cpu().numpy(), truth, axis=1, antithetic=True).mean())
