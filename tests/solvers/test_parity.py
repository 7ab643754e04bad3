"""The same network on the same grid, walked by diffusers' schedulers and by ours."""

from __future__ import annotations

import pytest
import torch

from noisewright.nets import MLP
from noisewright.paths import Denoiser, GaussianPath, RectifiedSchedule, TableSchedule
from noisewright.random import isolated
from noisewright.solvers import DDIM, DPMSolverPP, Euler

diffusers = pytest.importorskip("diffusers", reason="diffusers is the oracle of these tests")

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

LEVELS = 1000
BETAS = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}


def network(dtype):
    """A network that knows nothing but is smooth, called with an index of the table."""
    with isolated(0):
        net = MLP(4, width=16, depth=1)
        torch.nn.init.normal_(net.head.weight, std=0.2)
    net = net.to(dtype).eval()
    return lambda state, index: net(state, index.float().expand(len(state)) / LEVELS)


def start(dtype):
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(1), dtype=dtype)


def ours(net, table, kind):
    """Our denoiser for a network that is told the index of a level."""
    path = GaussianPath(TableSchedule(table))
    return Denoiser(lambda state, t: net(state, (t * LEVELS).round() - 1), path, kind=kind)


def times_of(indices):
    return torch.cat([(indices.double() + 1) / LEVELS, torch.zeros(1, dtype=torch.float64)])


def assert_close(ours, theirs):
    assert ours.dtype == theirs.dtype
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    assert float(theirs.std()) > 0.1


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["noise", "data", "v"])
def test_ddim_of_diffusers_takes_the_same_steps(eta, kind, dtype):
    wording = {"noise": "epsilon", "data": "sample", "v": "v_prediction"}[kind]
    scheduler = diffusers.DDIMScheduler(
        LEVELS, clip_sample=False, prediction_type=wording, timestep_spacing="leading", **BETAS
    )
    scheduler.alphas_cumprod = scheduler.alphas_cumprod.to(dtype)
    scheduler.set_timesteps(10)
    net, theirs = network(dtype), start(dtype)
    stream = torch.Generator().manual_seed(7)
    for index in scheduler.timesteps:
        value = net(theirs, index)
        theirs = scheduler.step(value, index, theirs, eta=eta, generator=stream).prev_sample
    end = DDIM(eta)(
        ours(net, scheduler.alphas_cumprod, kind),
        start(dtype),
        times=times_of(scheduler.timesteps),
        generator=torch.Generator().manual_seed(7),
    )
    assert_close(end.state, theirs)


@torch.no_grad()
@pytest.mark.parametrize("steps", [5, 20])
@pytest.mark.parametrize("order", [1, 2])
def test_dpm_solver_of_diffusers_takes_the_same_steps(order, steps):
    scheduler = diffusers.DPMSolverMultistepScheduler(
        LEVELS, solver_order=order, timestep_spacing="trailing", final_sigmas_type="zero", **BETAS
    )
    scheduler.set_timesteps(steps)
    net, theirs = network(torch.float32), start(torch.float32)
    for index in scheduler.timesteps:
        theirs = scheduler.step(net(theirs, index), index, theirs).prev_sample
    end = DPMSolverPP(order)(
        ours(net, scheduler.alphas_cumprod, "noise"),
        start(torch.float32),
        times=times_of(scheduler.timesteps),
    )
    assert_close(end.state, theirs)


@torch.no_grad()
def test_euler_of_diffusers_takes_the_same_steps():
    """Its states are ours divided by the signal level."""
    scheduler = diffusers.EulerDiscreteScheduler(LEVELS, timestep_spacing="trailing", **BETAS)
    scheduler.set_timesteps(12)
    net, noise = network(torch.float32), start(torch.float32)
    first = scheduler.sigmas[0]
    theirs = noise * (first**2 + 1).sqrt()
    for index in scheduler.timesteps:
        value = net(scheduler.scale_model_input(theirs, index), index)
        theirs = scheduler.step(value, index, theirs).prev_sample
    end = Euler()(
        ours(net, scheduler.alphas_cumprod, "noise"), noise, times=times_of(scheduler.timesteps)
    )
    assert_close(end.state, theirs)


@torch.no_grad()
@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_flow_matching_euler_of_diffusers_takes_the_same_steps(shift):
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(LEVELS, shift=shift)
    scheduler.set_timesteps(9)
    net, theirs = network(torch.float32), start(torch.float32)
    for index in scheduler.timesteps:
        theirs = scheduler.step(net(theirs, index), index, theirs).prev_sample
    denoiser = Denoiser(
        lambda state, t: net(state, t * LEVELS), GaussianPath(RectifiedSchedule()), kind="velocity"
    )
    end = Euler()(denoiser, start(torch.float32), times=scheduler.sigmas)
    assert_close(end.state, theirs)
