"""Grids handed to diffusers' schedulers: what is asked for is what is walked, or an error."""

from __future__ import annotations

import subprocess
import sys
import warnings
from itertools import pairwise

import pytest
import torch
from diffusers import (
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EDMEulerScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
)
from hypothesis import given
from hypothesis import strategies as st

from noisewright.adapters import SUPPORTED, PerSampleEulerScheduler, set_levels
from noisewright.adapters.levels import nearest_indices, within_range
from noisewright.types import InputError

# What numpy 2 says about np.array(tensor) inside diffusers itself.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

GRID = [20.0, 5.0, 1.0, 0.2, 0.03, 0.0]


@pytest.mark.parametrize("kind", [EulerDiscreteScheduler, PerSampleEulerScheduler])
def test_euler_walks_the_levels_asked_for(kind):
    scheduler = kind()
    levels = set_levels(scheduler, GRID)
    assert torch.allclose(levels, torch.tensor(GRID))
    assert len(scheduler.timesteps) == 5
    assert bool((scheduler.timesteps.diff() < 0).all())


@pytest.mark.parametrize("rho", [7.0, 3.0])
def test_edm_ramp_gives_the_levels_back(rho):
    scheduler = EDMEulerScheduler(rho=rho)
    assert torch.allclose(set_levels(scheduler, GRID), torch.tensor(GRID), rtol=1e-5)
    assert torch.allclose(scheduler.timesteps, 0.25 * torch.tensor(GRID[:-1]).log(), atol=1e-5)


def test_edm_left_to_itself_would_misread_explicit_levels():
    scheduler = EDMEulerScheduler()
    scheduler.set_timesteps(5, sigmas=torch.tensor(GRID[:-1]))
    assert not torch.allclose(scheduler.sigmas, torch.tensor(GRID), rtol=0.5)


def test_flow_levels_are_fractions():
    scheduler = FlowMatchEulerDiscreteScheduler()
    levels = set_levels(scheduler, GRID)
    wanted = torch.tensor([s / (1 + s) for s in GRID])
    assert torch.allclose(levels, wanted)
    assert torch.allclose(scheduler.timesteps, 1000 * wanted[:-1])


def test_multistep_rounds_to_different_timesteps_and_says_by_how_much():
    scheduler = DPMSolverMultistepScheduler()
    with pytest.warns(UserWarning, match=r"rounded to its table, by up to \d"):
        levels = set_levels(scheduler, GRID)
    assert len(set(scheduler.timesteps.tolist())) == 5
    assert bool((scheduler.timesteps.diff() < 0).all())
    assert torch.allclose(levels, torch.tensor(GRID), rtol=0.05)


def test_multistep_levels_of_the_table_are_exact_and_silent():
    scheduler = DPMSolverMultistepScheduler()
    kept = scheduler.alphas_cumprod[[900, 500, 20]].double()
    grid = [*((1 - kept) / kept).sqrt().tolist(), 0.0]
    set_levels(scheduler, grid)
    assert scheduler.timesteps.tolist() == [900, 500, 20]


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [
        (FlowMatchEulerDiscreteScheduler(shift=3.0), "shift=3.0"),
        (FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True), "mu"),
        (FlowMatchEulerDiscreteScheduler(use_karras_sigmas=True), "use_karras_sigmas=True"),
        (FlowMatchEulerDiscreteScheduler(invert_sigmas=True), "invert_sigmas=True"),
        (FlowMatchEulerDiscreteScheduler(shift_terminal=0.1), "shift_terminal=0.1"),
        (EDMEulerScheduler(sigma_schedule="exponential"), "sigma_schedule='exponential'"),
        (EDMEulerScheduler(final_sigmas_type="sigma_min"), "final_sigmas_type='sigma_min'"),
        (DPMSolverMultistepScheduler(use_karras_sigmas=True), "use_karras_sigmas"),
        (DPMSolverMultistepScheduler(use_flow_sigmas=True), "use_flow_sigmas"),
        (
            DPMSolverMultistepScheduler(
                final_sigmas_type="sigma_min", algorithm_type="sde-dpmsolver++"
            ),
            "final_sigmas_type='sigma_min'",
        ),
    ],
)
def test_settings_that_change_levels_are_named_and_nothing_is_left_changed(scheduler, words):
    before = {k: v for k, v in vars(scheduler).items() if k != "model_outputs"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(InputError, match=words):
            set_levels(scheduler, GRID)
    assert {k: v for k, v in vars(scheduler).items() if k != "model_outputs"} == before


def test_shift_set_later_is_found_too():
    scheduler = FlowMatchEulerDiscreteScheduler()
    scheduler.set_shift(2.0)
    with pytest.raises(InputError, match="changed the levels"):
        set_levels(scheduler, GRID)


@pytest.mark.parametrize("other", [DDIMScheduler, EulerAncestralDiscreteScheduler, object])
def test_other_classes_are_refused_naming_those_that_work(other):
    with pytest.raises(InputError, match=r"EDMEulerScheduler.*DPMSolverMultistepScheduler"):
        set_levels(other(), GRID)
    assert len(SUPPORTED) == 5


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ([1.0, 0.5], "end with 0"),
        ([0.5, 1.0, 0.0], "fall strictly"),
        ([1.0, 1.0, 0.0], "fall strictly"),
        ([float("inf"), 1.0, 0.0], "infinity"),
        ([0.0], "shape"),
        ([[1.0, 0.0], [2.0, 0.0]], "one grid for all"),
    ],
)
def test_grids_that_cannot_be_walked_are_refused(grid, words):
    with pytest.raises(InputError, match=words):
        set_levels(EulerDiscreteScheduler(), grid)


def test_levels_beyond_the_trained_range_are_moved_in_with_a_warning():
    scheduler = EulerDiscreteScheduler()
    kept = scheduler.alphas_cumprod.double()
    low, high = (float(((1 - kept[i]) / kept[i]).sqrt()) for i in (0, -1))
    with pytest.warns(UserWarning, match=r"3 of 5 levels .* outside the range"):
        levels = set_levels(scheduler, [1000.0, 500.0, 10.0, 1.0, 0.001, 0.0])
    assert torch.allclose(levels[[0, 4]], torch.tensor([high, low]), rtol=1e-5)
    assert levels[2:4].tolist() == [10.0, 1.0]
    assert float(levels[1]) == pytest.approx((high * 10) ** 0.5, rel=1e-4)
    assert len(set(scheduler.timesteps.tolist())) == 5


def test_models_told_log_sigma_know_no_table():
    scheduler = EulerDiscreteScheduler(prediction_type="v_prediction", timestep_type="continuous")
    levels = set_levels(scheduler, [1000.0, 1.0, 0.0])
    assert levels.tolist() == [1000.0, 1.0, 0.0]


def test_grid_wholly_beyond_the_trained_range_is_refused():
    with (
        pytest.warns(UserWarning, match="outside"),
        pytest.raises(InputError, match="cannot walk"),
    ):
        set_levels(EulerDiscreteScheduler(), [1000.0, 500.0, 0.0])


@pytest.mark.filterwarnings("ignore:.*outside the range:UserWarning")
@given(
    st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=12, unique_by=lambda v: round(v, 5)).filter(
        lambda v: len(v) == 1 or (min(v) < 100 and max(v) > 0.01)
    )
)
def test_moved_grids_still_fall_strictly_within_the_range(values):
    grid = torch.tensor([*sorted(values, reverse=True), 0.0], dtype=torch.float64)
    fitted = within_range(grid, 0.01, 100.0, name="x")
    assert bool((fitted.diff() < 0).all())
    assert float(fitted[0]) <= 100 * (1 + 1e-6)
    assert float(fitted[-2]) >= 0.01 * (1 - 1e-6)
    inside = (grid > 0.01) & (grid < 100)
    assert torch.allclose(fitted[inside], grid[inside], rtol=1e-12)


@given(st.lists(st.floats(0.05, 2.0), min_size=1, max_size=20), st.integers(20, 30))
def test_nearest_indices_differ_fall_and_stay_inside(values, size):
    table = torch.logspace(-1, 0, size, dtype=torch.float64)
    indices = nearest_indices(torch.tensor(sorted(values, reverse=True)), table)
    assert all(a > b for a, b in pairwise(indices))
    assert indices[-1] >= 0
    assert indices[0] < size


def test_more_steps_than_levels_name_both_numbers():
    scheduler = DPMSolverMultistepScheduler(num_train_timesteps=10, beta_end=0.5)
    grid = torch.cat([torch.linspace(1.0, 0.05, 11), torch.zeros(1)])
    with pytest.raises(InputError, match="11 steps are more than the 10 levels"):
        set_levels(scheduler, grid)


def test_missing_diffusers_names_the_extra():
    code = (
        "import sys; sys.modules['diffusers'] = None\n"
        "import noisewright.adapters as a\n"
        "try: a.set_levels\n"
        "except ImportError as e: print(e)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install noisewright[images]" in told.stdout


def test_adapters_load_nothing_heavy():
    code = "import sys, noisewright.adapters; print([m for m in ('torch', 'numpy', 'diffusers') "
    code += "if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
