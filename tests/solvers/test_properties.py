"""Solvers on random schedules, grids and dtypes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from noisewright.paths import (
    CosineSchedule,
    Denoiser,
    EDMSchedule,
    GaussianPath,
    LinearBetaSchedule,
    RectifiedSchedule,
    ShiftedCosineSchedule,
    TableSchedule,
)
from noisewright.solvers import (
    DDIM,
    DDPM,
    RK4,
    DPMSolverPP,
    Euler,
    EulerMaruyama,
    Heun,
    Midpoint,
    check_times,
    karras_times,
    logsnr_times,
    path_log_density,
    table_times,
    uniform_times,
)
from noisewright.testing import gaussian_denoiser
from noisewright.types import InputError

SCHEDULES = st.one_of(
    st.just(RectifiedSchedule()),
    st.just(CosineSchedule()),
    st.builds(ShiftedCosineSchedule, st.floats(0.2, 5.0)),
    st.builds(LinearBetaSchedule, st.floats(0.05, 1.0), st.floats(5.0, 20.0)),
    st.builds(EDMSchedule, st.floats(2.0, 100.0)),
)
PATHS = st.builds(GaussianPath, SCHEDULES, st.floats(0.3, 3.0))
DETERMINISTIC = st.sampled_from([Euler(), Heun(), Midpoint(), RK4(), DDIM(0.0), DPMSolverPP()])
SOLVERS = st.one_of(DETERMINISTIC, st.sampled_from([DDPM(), DDIM(0.3), EulerMaruyama(0.5)]))
DTYPES = st.sampled_from([torch.bfloat16, torch.float32, torch.float64])


@st.composite
def grids(draw):
    """Falling times from 1 to 0, unevenly spaced."""
    widths = draw(st.lists(st.floats(0.05, 1.0), min_size=1, max_size=6))
    share = torch.tensor(widths, dtype=torch.float64).cumsum(0)
    return torch.cat([torch.ones(1, dtype=torch.float64), 1 - share / share[-1]]).clamp(0, 1)


def start(path, dtype=torch.float64):
    return path.prior(torch.empty(2, 3, dtype=dtype), seed=0)


@given(SOLVERS, PATHS, grids(), DTYPES, st.floats(-3, 3))
def test_known_data_is_reached_whatever_the_way(solver, path, times, dtype, value):
    """If the network knows the data, every solver ends exactly there."""
    denoiser = Denoiser(lambda state, t: torch.full_like(state, value), path, kind="data")
    end = solver(denoiser, start(path, dtype), times=times, seed=0)
    expected = torch.full_like(end.state, value)
    assert end.state.dtype == dtype
    assert torch.allclose(end.state, expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(end.times, times)


@given(SOLVERS, PATHS, grids())
def test_walking_in_two_legs_visits_the_same_states(solver, path, times):
    denoiser = gaussian_denoiser(path, mean=0.3, variance=torch.tensor(0.5, dtype=torch.float64))
    if len(times) < 4 or isinstance(solver, DPMSolverPP):  # multistep: a second leg starts anew
        return
    stream = torch.Generator().manual_seed(0)
    whole = solver(denoiser, start(path), times=times, generator=stream).state
    stream = torch.Generator().manual_seed(0)
    middle = solver(denoiser, start(path), times=times[:3], generator=stream).state
    end = solver(denoiser, middle, times=times[2:], generator=stream).state
    assert torch.allclose(end, whole, rtol=1e-8, atol=1e-8)


@given(SOLVERS, PATHS, grids())
def test_record_keeps_first_and_last(solver, path, times):
    denoiser = gaussian_denoiser(path)
    kept = solver(denoiser, start(path), times=times, seed=0, record="all")
    assert kept.trajectory.shape == (len(times), 2, 3)
    assert torch.equal(kept.trajectory[0], start(path))
    assert torch.equal(kept.trajectory[-1], kept.state)
    sparse = solver(denoiser, start(path), times=times, seed=0, record=2).trajectory
    steps = len(times) - 1
    places = [0, *range(2, steps, 2), steps] if steps > 1 else [0, 1]
    assert torch.equal(sparse, kept.trajectory[places])


@given(PATHS, grids(), st.sampled_from([DDPM(), DDIM(0.3), EulerMaruyama(0.5)]))
def test_density_of_a_path_is_that_of_its_draws(path, times, solver):
    """Each step's draw is (state - mean) / std; the density is the sum of their log densities."""
    denoiser = gaussian_denoiser(path, variance=torch.tensor(0.5, dtype=torch.float64))
    solution = solver(denoiser, start(path), times=times, seed=[1, 2], record="all")
    found = path_log_density(solver, denoiser, solution.trajectory, times)
    assert found.dtype == torch.float64
    assert bool(found.isfinite().all())
    moved = solution.trajectory.clone()
    if len(times) > 2:  # the step to the clean end has no density
        moved[1] += 50 * path.sigma(times[1])
        assert bool((path_log_density(solver, denoiser, moved, times) < found).all())


@given(PATHS, st.integers(1, 12))
def test_every_spacing_is_a_grid(path, steps):
    for spacing in (uniform_times, karras_times, logsnr_times):
        times = spacing(path, steps)
        assert times.shape[-1] == steps + 1
        assert times[-1] == 0
        assert torch.equal(check_times(times, path, 1), times)


@given(st.integers(2, 60), st.data())
def test_table_grid_is_a_grid(levels, data):
    path = GaussianPath(TableSchedule(torch.linspace(0.99, 0.0, levels, dtype=torch.float64)))
    times = table_times(path, data.draw(st.integers(1, levels)))
    assert torch.equal(check_times(times, path, 1), times)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([1.0], "shape"),
        ([0.0, 1.0], "fall"),
        ([1.0, 0.5, 0.5, 0.0], "fall"),
        ([1.1, 0.0], r"\[0, 1\]"),
        ([1.0, float("nan"), 0.0], r"\[0, 1\]"),
        (torch.tensor([[1.0, 0.0]] * 3), "3 rows for a batch of 2"),
    ],
)
def test_times_that_cannot_be_walked_are_refused(times, words):
    path = GaussianPath(RectifiedSchedule())
    with pytest.raises(InputError, match=words):
        Euler()(gaussian_denoiser(path), start(path), times=times)


@pytest.mark.parametrize("steps", [0, -1])
def test_no_steps_are_refused(steps):
    path = GaussianPath(RectifiedSchedule())
    with pytest.raises(InputError, match="at least one step"):
        Euler()(gaussian_denoiser(path), start(path), steps=steps)


def test_gradients_flow_through_a_walk_that_is_asked_for_them():
    path = GaussianPath(RectifiedSchedule())
    bias = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    denoiser = Denoiser(lambda state, t: 0.5 * state + bias, path, kind="data")
    end = Heun()(denoiser, start(path), steps=4, differentiable=True).state
    (gradient,) = torch.autograd.grad(end.sum(), bias)
    step = 1e-6
    with torch.no_grad():
        bias += step
    moved = Heun()(denoiser, start(path), steps=4).state.sum()
    assert torch.allclose((moved - end.sum()) / step, gradient.sum(), rtol=1e-5)
