"""What must hold exactly, measured: the path, its law, its one statistic, a saved model."""

from __future__ import annotations

import math
import tempfile
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from noisewright.methods.kineflow.baselines import LinearLaw
from noisewright.methods.kineflow.field import Surroundings
from noisewright.methods.kineflow.flow import KineFlow
from noisewright.methods.kineflow.footprint import footprint
from noisewright.methods.kineflow.head import RidgeHead
from noisewright.methods.kineflow.scaling import Layout
from noisewright.methods.kineflow.windows import Windows
from noisewright.metrics import crps_ensemble
from noisewright.paths import KineticPath, kinetic_path, kinetic_statistic
from noisewright.random import isolated
from noisewright.solvers import integrate_second_order

__all__ = ["check_trial", "portrait_trial", "scale_trial"]

MOMENTS = (0.2, 0.5, 0.8)


def check_trial(stage: Any, *, seed: int) -> dict[str, Any]:
    """Return the largest deviation of each fact."""
    mean, variance = _law_error(2.0, 0.25)
    found = {
        "feedback": _feedback_error(seed),
        "sufficiency": max(_sufficiency_error(s) for s in MOMENTS),
        "law_mean": mean,
        "law_variance": variance,
    }
    found |= _model_checks(seed)
    stage.progress(1, 1)
    return found


def _feedback_error(seed: int) -> float:
    stream = torch.Generator().manual_seed(seed)
    q0, p0, data = (torch.randn(64, 2, generator=stream, dtype=torch.float64) for _ in range(3))
    errors = []
    for s in MOMENTS:
        q, p, a = kinetic_path(q0, p0, data, s)
        errors.append(float((KineticPath().acceleration(data, q, p, 1 - s) - a).abs().max()))
    return max(errors)


def _law_error(mean: float, variance: float) -> tuple[float, float]:
    """Return the errors of mean (absolute) and variance (relative) after 50 midpoint steps."""
    path = KineticPath()
    score = torch.special.ndtri((torch.arange(60, dtype=torch.float64) + 0.5) / 60)
    score = score / score.square().mean().sqrt()
    q0, p0 = (v.reshape(-1, 1) for v in torch.meshgrid(score, score, indexing="ij"))

    def field(q: Tensor, p: Tensor, t: Tensor) -> Tensor:
        u, angle = path.statistic(q, p, t)
        signal = angle.cos()
        gain = signal * variance / (signal**2 * variance + angle.sin() ** 2)
        return path.acceleration(mean + gain * (u - signal * mean), q, p, t)

    end = integrate_second_order(field, q0, p0, n=50, method="midpoint").state
    return abs(float(end.mean()) - mean), abs(float(end.var(correction=0)) / variance - 1)


def _sufficiency_error(s: float) -> float:
    """Return the gap between E[D | q, p] by Bayes in the plane and through the statistic."""
    shares = torch.tensor([0.3, 0.7], dtype=torch.float64)
    modes, spread = torch.tensor([-1.5, 1.0], dtype=torch.float64), 0.3
    axis = torch.linspace(-2, 2, 9, dtype=torch.float64)
    q, p = (v.reshape(-1, 1) for v in torch.meshgrid(axis, 1.5 * axis, indexing="ij"))
    b, c = (3 * s**2 - s**3) / 2, 3 * s - 1.5 * s**2
    mix = torch.tensor([[1 - b, s - b, b], [-c, 1 - c, c]], dtype=torch.float64)
    gap = torch.tensor([-1.0, -1.0, 1.0], dtype=torch.float64)
    prior = torch.diag(torch.tensor([1.0, 1.0, spread**2], dtype=torch.float64))
    logs, means = [], []
    for share, mode in zip(shares, modes, strict=True):
        centre = torch.tensor([0.0, 0.0, float(mode)], dtype=torch.float64)
        off = torch.cat([q, p], dim=1) - mix @ centre
        solved = torch.linalg.solve(mix @ prior @ mix.T, off.T).T
        logs.append(share.log() - 0.5 * (off * solved).sum(dim=1))
        means.append(gap @ centre + solved @ (mix @ prior @ gap))
    weight = torch.softmax(torch.stack(logs), dim=0)
    by_bayes = (weight * torch.stack(means)).sum(dim=0)

    u, angle = kinetic_statistic(q, p, s, 1.0)
    signal, noise = math.cos(angle), math.sin(angle)
    width = signal**2 * spread**2 + noise**2
    weight = torch.softmax(shares.log() - 0.5 * (u - signal * modes) ** 2 / width, dim=1)
    data = (weight * (modes + signal * spread**2 / width * (u - signal * modes))).sum(dim=1)
    return float(((data - q[:, 0] - (1 - s) * p[:, 0]) / (1 - s) ** 3 - by_bayes).abs().max())


def _model_checks(seed: int) -> dict[str, float]:
    """Return facts about a small untrained model: saving, calls of the context network."""
    layout = Layout(12, 4, 2, calendar=2)
    with isolated(seed):
        model = KineFlow(asdict(layout), hidden=16, depth=1).eval()
        torch.nn.init.normal_(model.field.head.weight, std=0.3)
        windows = Windows(
            torch.randn(3, 12, 2), torch.empty(3, 16, 0), torch.empty(3, 12, 0), torch.randn(3, 2)
        )
    calls = []
    handle = model.field.context.register_forward_hook(lambda *_: calls.append(1))
    first = model.sample(windows, 8, seed=1)
    handle.remove()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = KineFlow.from_pretrained(folder).sample(windows, 8, seed=1)
    return {
        "reload": float((first - again).abs().max()),
        "context_calls": float(len(calls)),
        "gaussian": _gaussian_error(model),
        "untrained": _untrained_ratio(seed),
    }


def _gaussian_error(model: KineFlow) -> float:
    """Return how far the end point is from the exact one for force and spring of N(m, v)."""
    mean, variance = 0.7, 0.4
    torch.nn.init.zeros_(model.field.head.weight)
    rows = torch.linspace(-2, 2, 5)[:, None, None].expand(5, 1, model.layout.horizon)
    around = Surroundings(
        torch.zeros(5, 1, 16),
        torch.full_like(rows, mean),
        torch.full_like(rows, variance),
        0 * rows,
    )
    errors = []
    for angle in (0.2, 0.8, 1.4):
        signal, noise = math.cos(angle), math.sin(angle)
        gain = signal * variance / (signal**2 * variance + noise**2)
        exact = mean + gain * (rows - signal * mean)
        found = model.field.predict(rows, torch.full((1, 1, 1), angle), around)
        errors.append(float((found - exact).detach().abs().max()))
    return max(errors)


def _untrained_ratio(seed: int) -> float:
    """Return the score of an untrained flow over that of the Gaussian law that it starts from."""
    layout, horizon = Layout(8, 6, 1), 6
    stream = torch.Generator().manual_seed(seed)
    lags = (torch.arange(horizon)[:, None] - torch.arange(horizon)).abs()
    head = RidgeHead(
        torch.zeros(1, horizon, layout.linear_size),
        torch.zeros(1, horizon),
        0.8 ** lags.double()[None],
        0.0,
    )
    windows = Windows(
        torch.randn(150, 8, 1, generator=stream),
        torch.empty(150, 14, 0),
        torch.empty(150, 8, 0),
        torch.empty(150, 0),
    )
    truth = LinearLaw(head, layout).sample(windows, 2, seed + 1)[:, 0].numpy()
    with isolated(seed):
        model = KineFlow(asdict(layout), hidden=16, depth=1).eval()
    model.set_head(head)
    scores = [
        crps_ensemble(samples.numpy(), truth, axis=1, antithetic=True).mean()
        for samples in (
            model.sample(windows, 400, seed=seed, antithetic=True),
            LinearLaw(head, layout).sample(windows, 400, seed + 2),
        )
    ]
    return float(scores[0] / scores[1])


def scale_trial(stage: Any) -> dict[str, Any]:
    """Measure seconds and memory of sampling in a process of its own."""
    found = footprint()
    stage.progress(1, 1)
    return found


def portrait_trial(stage: Any) -> dict[str, Any]:
    """Return walks to a law of two modes, in both orders, with its exact field."""
    path, steps = KineticPath(), 40
    modes, spread = torch.tensor([-1.5, 1.0]), 0.3

    def end(look: Tensor, angle: Tensor) -> Tensor:
        signal, noise = angle.cos(), angle.sin()
        width = signal**2 * spread**2 + noise**2
        gap = look - signal * modes
        share = torch.softmax(-0.5 * gap.square() / width, dim=1)
        means = modes + signal * spread**2 / width * gap
        return (share * means).sum(dim=1, keepdim=True)

    def field(q: Tensor, p: Tensor, t: Tensor) -> Tensor:
        return path.acceleration(end(*path.statistic(q, p, t)), q, p, t)

    q0, p0 = path.prior(torch.empty(24, 1), seed=0)
    times = path.times(steps)
    second = integrate_second_order(field, q0, p0, times=times, record=True).trajectory
    assert second is not None
    state, first = p0.clone(), [p0]
    for i in range(steps):
        t, following = 1 - i / steps, 1 - (i + 1) / steps
        reach = math.hypot(1 - t, t)
        data = end(state / reach, torch.tensor(math.atan2(t, 1 - t)))
        state = data + (state - data) * following / t
        first.append(state)
    stage.progress(1, 1)
    return {
        "second": second[:, :, :, 0].numpy(),
        "first": torch.stack(first)[:, :, 0].numpy(),
        "times": [1 - i / steps for i in range(steps + 1)],
    }
