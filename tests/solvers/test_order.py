"""Orders of convergence on Gaussian data, where the exact flow is known in closed form."""

from __future__ import annotations

import math

import pytest
import torch

from noisewright.paths import (
    CosineSchedule,
    EDMSchedule,
    GaussianPath,
    LinearBetaSchedule,
    RectifiedSchedule,
    ShiftedCosineSchedule,
    VariancePreserving,
)
from noisewright.solvers import (
    DDIM,
    RK4,
    AdaptiveODE,
    DPMSolverPP,
    Euler,
    EulerMaruyama,
    Heun,
    Midpoint,
    karras_times,
    logsnr_times,
    uniform_times,
)
from noisewright.testing import gaussian_denoiser

VARIANCE = torch.tensor(0.4, dtype=torch.float64)
PATHS = {
    "rectified": GaussianPath(RectifiedSchedule()),
    "cosine": GaussianPath(CosineSchedule()),
    "linear-beta": GaussianPath(LinearBetaSchedule()),
    "edm": GaussianPath(EDMSchedule(8.0)),
}
ORDERS = {
    "euler": (Euler(), 1),
    "heun": (Heun(), 2),
    "midpoint": (Midpoint(), 2),
    "rk4": (RK4(), 4),  # at few steps: at many, rounding shows
}


def end_of_exact_flow(path, start, first_time=1.0):
    """The flow of N(0, v) data keeps each state at the same number of standard deviations."""
    a, s = path.levels(first_time)
    return start * VARIANCE.sqrt() / torch.sqrt(a**2 * VARIANCE + s**2)


def error(solver, path, times):
    start = torch.tensor([[1.0], [-0.7]], dtype=torch.float64) * path.sigma(1.0)
    end = solver(gaussian_denoiser(path, variance=VARIANCE), start, times=times).state
    return float((end - end_of_exact_flow(path, start)).abs().max())


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize(("solver", "order"), ORDERS.values(), ids=ORDERS)
def test_order_of_convergence(solver, order, path):
    steps = 48 // order
    coarse, fine = (error(solver, path, uniform_times(path, n)) for n in (steps, 2 * steps))
    assert math.log2(coarse / fine) > order - 0.45


@pytest.mark.parametrize(("solver", "order"), ORDERS.values(), ids=ORDERS)
def test_order_of_convergence_on_uneven_times(solver, order):
    path = PATHS["rectified"]

    def uneven(steps):
        return uniform_times(path, steps) ** 1.5

    steps = 48 // order
    coarse, fine = (error(solver, path, uneven(n)) for n in (steps, 2 * steps))
    assert math.log2(coarse / fine) > order - 0.5


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_order_of_convergence_of_the_multistep_solver_in_log_snr(path):
    denoiser = gaussian_denoiser(path, variance=VARIANCE)
    errors = []
    for steps in (40, 80):
        times = logsnr_times(path, steps + 1, sigma_min=0.05, sigma_max=5.0)[:-1]
        start = torch.tensor([[1.0], [-0.7]], dtype=torch.float64) * path.sigma(times[0])
        end = DPMSolverPP(2)(denoiser, start, times=times).state
        a, s = path.levels(times[-1])
        unit = end_of_exact_flow(path, start, times[0]) / VARIANCE.sqrt()
        errors.append(float((end - unit * torch.sqrt(a**2 * VARIANCE + s**2)).abs().max()))
    assert math.log2(errors[0] / errors[1]) > 1.8


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_euler_is_ddim_without_noise_on_every_path(path):
    denoiser = gaussian_denoiser(path, mean=0.3, variance=VARIANCE)
    noise = path.prior(torch.empty(5, 4, dtype=torch.float64), seed=0)
    ends = [s(denoiser, noise, steps=7).state for s in (Euler(), DDIM(0.0), DPMSolverPP(1))]
    assert torch.allclose(ends[0], ends[1], atol=1e-10)
    assert torch.allclose(ends[0], ends[2], atol=1e-10)


def test_one_euler_step_is_the_prediction_of_the_data():
    path = GaussianPath(ShiftedCosineSchedule(3.0))
    denoiser = gaussian_denoiser(path, mean=0.7, variance=VARIANCE)
    noise = path.prior(torch.empty(2, 3, dtype=torch.float64), seed=3)
    assert torch.allclose(Euler()(denoiser, noise, steps=1).state, denoiser(noise, 1.0))


def test_adaptive_reaches_the_exact_flow():
    path = PATHS["rectified"]
    start = torch.tensor([[1.0], [-0.7]], dtype=torch.float64)
    solution = AdaptiveODE(rtol=1e-8, atol=1e-8, end=1e-4)(
        gaussian_denoiser(path, variance=VARIANCE), start
    )
    assert torch.allclose(solution.state, end_of_exact_flow(path, start), atol=1e-3)
    assert solution.calls > 6


def test_maruyama_with_zero_diffusion_is_euler():
    path = PATHS["cosine"]
    denoiser = gaussian_denoiser(path, variance=VARIANCE)
    noise = path.prior(torch.empty(4, 2, dtype=torch.float64), seed=0)
    drawn = EulerMaruyama(0.0)(denoiser, noise, steps=9, seed=1).state
    assert torch.allclose(drawn, Euler()(denoiser, noise, steps=9).state, atol=1e-12)


def test_floor_schedule_ends_with_a_prediction():
    base = EDMSchedule(8.0)

    class Floored(EDMSchedule):
        def levels(self, t):
            return base.levels(0.05 + 0.95 * t)

    path = GaussianPath(VariancePreserving(Floored(8.0)))
    times = uniform_times(path, 5)
    assert times[-2:].tolist() == [0.0, 0.0]
    denoiser = gaussian_denoiser(path, mean=0.2, variance=VARIANCE)
    seen = []
    noise = path.prior(torch.empty(2, 3, dtype=torch.float64), seed=0)
    for solver in (Euler(), Heun(), RK4(), DDIM(), DPMSolverPP()):
        end = solver(denoiser, noise, times=times, watch=seen.append).state
        assert torch.allclose(end, seen[-1].data)


@pytest.mark.parametrize("grid", [karras_times, logsnr_times])
def test_spacings_are_what_they_say(grid):
    path = GaussianPath(EDMSchedule(80.0))
    times = grid(path, 10, sigma_min=0.002, sigma_max=80.0)
    sigma = path.sigma(times[:-1])
    assert times.shape == (11,)
    assert times[-1] == 0
    even = sigma ** (1 / 7) if grid is karras_times else sigma.log()
    assert torch.allclose(even.diff(), even.diff()[:1], rtol=1e-6)
    assert torch.allclose(sigma[[0, -1]], torch.tensor([80.0, 0.002], dtype=torch.float64))


def test_spacings_follow_each_sample():
    tops = torch.tensor([5.0, 80.0], dtype=torch.float64)
    path = GaussianPath(EDMSchedule(tops))
    times = karras_times(path, 4, sigma_min=0.01)
    assert times.shape == (2, 5)
    for i, top in enumerate(tops):
        alone = karras_times(GaussianPath(EDMSchedule(float(top))), 4, sigma_min=0.01)
        assert torch.allclose(times[i], alone)
