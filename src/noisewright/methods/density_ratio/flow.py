r"""A flow for every condition: one network, two heads, trained by flow matching.

.. math:: L = E\,\lVert \hat u(x_t, t, c) - \dot x_t \rVert^2
            + E\,\lVert \hat\varepsilon(x_t, t, c) - \varepsilon \rVert^2

The second head gives the score, :math:`s = -\hat\varepsilon / \sigma(t)`; this is the paper's
loss with its weight :math:`c_t`, rescaled to be of order one at all times. Times in this
module are noise times, but for :class:`LearnedFields`, which speaks the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from noisewright.methods.density_ratio.plan import FlowPlan
from noisewright.methods.density_ratio.ratio import Terms
from noisewright.methods.density_ratio.schedule import noise_time
from noisewright.nets import BranchedMLP
from noisewright.paths import GaussianPath
from noisewright.random import StepDraws, derive_seed, isolated
from noisewright.training import Average, fit, train_to_best
from noisewright.types import InputError

__all__ = ["LearnedFields", "TrainedFlow", "VelocityHead", "build_net", "train_flow"]

CHECKS = 40
"""How often the held-out loss is looked at during a training."""

HELD_OUT_ROWS = 1024
LEAST_HELD_OUT = 10


@dataclass(frozen=True)
class TrainedFlow:
    """A network with averaged weights and how its training went.

    Attributes:
        net: Two heads: velocity in noise time, then noise.
        steps: Steps until the weights that were kept.
        held_out_loss: Their loss on held-out samples, per coordinate and head; None without any.
    """

    net: BranchedMLP
    steps: int
    held_out_loss: float | None


class VelocityHead(nn.Module):
    """The velocity alone, in noise time, as the engine's solvers want it."""

    def __init__(self, net: BranchedMLP) -> None:
        super().__init__()
        self.net = net

    def forward(self, state: Tensor, t: Tensor, *, label: Tensor) -> Tensor:
        """Return d state / d t for states (batch, size) and labels (batch, columns)."""
        return self.net(state, t, label=label).chunk(2, dim=1)[0]


def flow_matching_loss(
    net: nn.Module, batch: dict[str, Tensor], draws: StepDraws, *, plan: FlowPlan
) -> Tensor:
    """Return the loss per row: squared errors of both heads per coordinate, times the weight.

    Labels are dropped one by one, each sample for itself.
    """
    data, label = batch["data"], batch["label"]
    noise = draws.normal_like(data)
    t = draws.uniform(stratified=True)
    if plan.label_dropout > 0:
        kept = [draws.uniform() >= plan.label_dropout for _ in range(label.shape[1])]
        label = torch.where(torch.stack(kept, dim=1), label, -1)
    path = plan.path
    velocity, guess = net(path.state(data, noise, t), t, label=label).chunk(2, dim=1)
    error = (velocity - path.target(data, noise, t, "velocity")).square() + (guess - noise).square()
    return batch["weight"] * error.mean(dim=1)


def train_flow(
    points: Float[Tensor, "samples size"],
    codes: Int[Tensor, "samples columns"],
    weights: Float[Tensor, " samples"],
    classes: Sequence[int],
    plan: FlowPlan,
    seed: int,
) -> TrainedFlow:
    """Train a flow, keeping the averaged weights that were best on held-out samples.

    Args:
        points: Data of order one, float32.
        codes: One code per label column.
        weights: Weight of each sample, of order one.
        classes: Number of values of each column.
        plan: Sizes and rates.
        seed: Decides everything random.
    """
    net = build_net(points.shape[1], classes, plan, derive_seed(seed, "weights"))
    rows = {"data": points, "label": codes, "weight": weights}
    held, kept = _split(codes, plan.held_out, seed)
    probe = _HeldOut(rows, held, plan, seed) if len(held) >= LEAST_HELD_OUT else None
    if probe is None:
        kept = torch.arange(len(points))
    training = fit(
        net,
        {name: value[kept] for name, value in rows.items()},
        partial(flow_matching_loss, plan=plan),
        steps=plan.steps,
        batch=min(plan.batch, max(len(kept), 1)),
        seed=derive_seed(seed, "train"),
        rate=plan.rate,
        optimizer=partial(torch.optim.AdamW, weight_decay=plan.weight_decay, fused=True),
        average=Average(net, plan.ema),
        device=plan.device,
    )
    score = None if probe is None else probe.loss
    best = train_to_best(training, score, looks=CHECKS, patience=plan.patience)
    return TrainedFlow(net, best.step, best.score)


def build_net(size: int, classes: Sequence[int], plan: FlowPlan, seed: int) -> BranchedMLP:
    """Return the network with two heads, velocity and noise, untrained."""
    with isolated(seed):
        return BranchedMLP(
            size, out=2 * size, width=plan.width, depth=plan.depth, classes=tuple(classes)
        )


def _split(codes: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return held-out and kept rows, the same share of every combination of labels."""
    rng = np.random.default_rng(derive_seed(seed, "held out"))
    order = rng.permutation(len(codes))
    table = codes.cpu().numpy()[order]
    _, group = np.unique(table, axis=0, return_inverse=True)
    ranked = order[np.argsort(group.ravel(), kind="stable")]
    count = round(share * len(ranked))
    places = (np.arange(count) + 0.5) * len(ranked) / max(count, 1)
    held = np.zeros(len(ranked), dtype=bool)
    held[places.astype(int)] = True
    return torch.from_numpy(ranked[held]), torch.from_numpy(ranked[~held])


class _HeldOut:
    """The loss on held-out samples, always with the same noise and times."""

    def __init__(self, rows: dict[str, Tensor], held: Tensor, plan: FlowPlan, seed: int) -> None:
        repeats = max(1, HELD_OUT_ROWS // len(held))
        rows = {name: value[held].repeat_interleave(repeats, 0) for name, value in rows.items()}
        self.rows = {name: value[:HELD_OUT_ROWS].to(plan.device) for name, value in rows.items()}
        self.plan = replace(plan, label_dropout=0.0)
        self.seed = derive_seed(seed, "held-out noise")

    def loss(self, net: nn.Module) -> float:
        """Return the mean loss."""
        count = len(self.rows["data"])
        draws = StepDraws(self.seed, 0, count, slice(None), self.plan.device)
        return float(flow_matching_loss(net, self.rows, draws, plan=self.plan).mean())


class LearnedFields:
    """Velocity, score and divergence of K conditions from a trained network.

    The trunk and its derivatives are shared by all conditions; every row has its own label, so
    rows with different guides may stand in one batch.

    Args:
        net: The network.
        path: Its path.
        codes: Codes of the K conditions, (K, columns).
        guide: Codes of the condition whose field moves each point, (batch, columns).
        signs: Rademacher probes (probes, batch, size), kept for the whole walk and common to all
            conditions; None for the exact divergence.
    """

    def __init__(
        self,
        net: BranchedMLP,
        path: GaussianPath,
        codes: Int[Tensor, "conditions columns"],
        guide: Int[Tensor, "batch columns"],
        signs: Float[Tensor, "probes batch size"] | None = None,
    ) -> None:
        if codes.shape[1] != len(net.classes):
            raise InputError(f"codes {tuple(codes.shape)} for {len(net.classes)} label columns")
        self.net, self.path, self.codes, self.guide, self.signs = net, path, codes, guide, signs

    def flow(self, state: Tensor, t: float) -> Tensor:
        """Return the guide's velocity in the paper's time, (batch, size)."""
        clock = self._clock(t, state)
        return -self.net(state, clock, label=self.guide).chunk(2, dim=1)[0]

    def terms(self, state: Tensor, t: float) -> Terms:
        """Return all conditions' velocity, score and divergence in the paper's time."""
        clock = self._clock(t, state)
        level = self.path.sigma(noise_time(t)).to(state.dtype)
        directions = self.signs
        if directions is None:
            size = state.shape[1]
            directions = torch.eye(size, dtype=state.dtype, device=state.device)[:, None]
        hidden, pushed = self.net.push_trunk(state, clock, directions)
        velocity, score, divergence = [], [], []
        for code in self.codes:
            output, traces = self.net.push_branch(hidden, pushed, clock, code[None], directions)
            head, noise = output.chunk(2, dim=1)
            velocity.append(-head)
            score.append(-noise / level)
            divergence.append(-(traces.sum(0, keepdim=True) if self.signs is None else traces).T)
        return Terms(torch.stack(velocity), torch.stack(score), torch.stack(divergence))

    def _clock(self, t: float, state: Tensor) -> Tensor:
        return torch.full((1,), noise_time(t), dtype=torch.float32, device=state.device)
