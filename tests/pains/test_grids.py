"""Time grids that lose, add or repeat a step."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from noisewright.paths import Denoiser, GaussianPath, RectifiedSchedule, TableSchedule
from noisewright.solvers import (
    DDIM,
    DDPM,
    RK4,
    AdaptiveODE,
    DPMSolverPP,
    Euler,
    EulerMaruyama,
    Heun,
    Midpoint,
    table_indices,
    table_times,
)
from noisewright.steering import ClassifierFree
from noisewright.types import InputError

ONE_CALL = [Euler(), DDIM(0.5), DDPM(), EulerMaruyama(), DPMSolverPP(1), DPMSolverPP(2)]


def tables():
    """Tables of alphas_cumprod: made up, and those that diffusers builds."""
    yield "short", torch.linspace(0.99, 0.01, 7, dtype=torch.float64)
    yield "single", torch.tensor([0.5])
    diffusers = pytest.importorskip("diffusers")
    for beta in ("linear", "scaled_linear", "squaredcos_cap_v2"):
        yield beta, diffusers.DDPMScheduler(1000, beta_schedule=beta).alphas_cumprod
    rescaled = diffusers.DDIMScheduler(1000, rescale_betas_zero_snr=True).alphas_cumprod
    yield "zero-terminal", rescaled


TABLES = dict(tables())


def steps_of(levels):
    return sorted({1, (levels + 1) // 2, levels - levels // 3, max(levels - 1, 1), levels})


@pytest.mark.parametrize("name", TABLES)
def test_grid_slips_by_one_when_steps_equal_the_table_length(name):
    """huggingface/diffusers#10003: 1000 steps on 1000 levels asked for level 1000."""
    path = GaussianPath(TableSchedule(TABLES[name]))
    levels = len(TABLES[name])
    for steps in steps_of(levels):
        indices, times = table_indices(levels, steps), table_times(path, steps)
        assert indices.shape == (steps,)
        assert times.shape == (steps + 1,)
        assert indices[0] == levels - 1
        assert 0 <= int(indices.min()) <= int(indices.max()) <= levels - 1
        assert (indices.diff() < 0).all()
        assert (times[0], times[-1]) == (1.0, 0.0)
        assert (times.diff() < 0).all()
        exact = TABLES[name].double()[indices]
        assert torch.allclose(path.alpha(times[:-1]) ** 2, exact, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("solver", ONE_CALL, ids=str)
@pytest.mark.parametrize("steps", [1, 5, 7])
def test_table_walk_asks_for_exactly_the_levels_of_its_grid(solver, steps):
    told = []

    def net(state, t):
        told.append(round(float(t[0]) * 7) - 1)
        return torch.zeros_like(state)

    path = GaussianPath(TableSchedule(TABLES["short"]))
    denoiser = Denoiser(net, path, kind="data")
    solution = solver(denoiser, torch.ones(2, 3), times=table_times(path, steps), seed=0)
    assert told == table_indices(7, steps).tolist()
    assert solution.calls == steps


@given(st.integers(1, 1200), st.data())
def test_every_number_of_steps_up_to_the_table_length_is_walked(levels, data):
    steps = data.draw(st.integers(1, levels))
    indices = table_indices(levels, steps)
    assert len(indices) == steps
    assert indices[0] == levels - 1
    assert indices[-1] >= 0
    assert steps == 1 or bool((indices.diff() < 0).all())


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_more_steps_than_levels_are_refused_with_both_numbers(levels, more):
    with pytest.raises(ValueError, match=rf"steps={levels + more} .* {levels} levels"):
        table_indices(levels, levels + more)


def growth():
    """The flow d state / d t = state: from e at t = 1 to 1 at t = 0."""
    return Denoiser(lambda state, t: state, GaussianPath(RectifiedSchedule()), kind="velocity")


@pytest.mark.parametrize("solver", [*ONE_CALL, Heun(), Midpoint(), RK4()], ids=str)
def test_default_time_grid_silently_means_one_step(solver):
    """facebookresearch/flow_matching#67: no step size meant a single step."""
    one = torch.ones(1, 1, dtype=torch.float64)
    with pytest.raises(InputError, match="neither"):
        solver(growth(), one)
    with pytest.raises(InputError, match="both"):
        solver(growth(), one, steps=4, times=[1.0, 0.5, 0.0])


@pytest.mark.parametrize("steps", [1, 4, 100])
def test_euler_takes_the_steps_it_was_given_and_says_so(steps):
    one = torch.ones(1, 1, dtype=torch.float64)
    solution = Euler()(growth(), one, steps=steps)
    assert solution.calls == steps
    assert float(solution.state) == pytest.approx((1 - 1 / steps) ** steps, abs=1e-12)


@pytest.mark.parametrize(
    ("solver", "calls"),
    [(Heun(), 2 * 5 - 1), (Midpoint(), 10), (RK4(), 4 * 5 - 1), (DPMSolverPP(2), 5)],
    ids=str,
)
@pytest.mark.parametrize(("weight", "factor"), [(1.0, 1), (3.0, 2)])
def test_calls_on_the_record_are_the_calls_the_network_saw(solver, calls, weight, factor):
    seen = []

    def net(state, t, label=None):
        seen.append(1)
        return state

    denoiser = Denoiser(net, GaussianPath(RectifiedSchedule()), kind="velocity")
    solution = solver(ClassifierFree(denoiser, weight), torch.ones(1, 1), steps=5)
    assert solution.calls == len(seen) == calls * factor


def test_adaptive_solver_reports_its_calls():
    seen = []

    def net(state, t):
        seen.append(1)
        return state

    denoiser = Denoiser(net, GaussianPath(RectifiedSchedule()), kind="velocity")
    solution = AdaptiveODE()(denoiser, torch.ones(1, 1, dtype=torch.float64))
    assert solution.calls == len(seen) > 6
    assert float(solution.state) == pytest.approx(torch.e**-1, abs=1e-3)
