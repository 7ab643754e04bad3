"""Gaussian paths: conversions, posterior, prior, on random schedules, times and dtypes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from noisewright.paths import (
    CosineSchedule,
    EDMSchedule,
    GaussianPath,
    Levels,
    LinearBetaSchedule,
    RectifiedSchedule,
    ShiftedCosineSchedule,
    SigmoidSchedule,
    expand_to,
)
from noisewright.types import KINDS, InputError

SCHEDULES = st.one_of(
    st.just(RectifiedSchedule()),
    st.just(CosineSchedule()),
    st.builds(ShiftedCosineSchedule, st.floats(0.2, 5.0)),
    st.builds(LinearBetaSchedule, st.floats(0.05, 1.0), st.floats(5.0, 20.0)),
    st.builds(SigmoidSchedule, st.floats(-4, -1), st.floats(1, 4), st.floats(0.5, 2.0)),
    st.builds(EDMSchedule, st.floats(2.0, 100.0)),
)
PATHS = st.builds(GaussianPath, SCHEDULES, st.floats(0.3, 3.0))
interior = st.floats(0.05, 0.95)
seeds = st.integers(0, 2**32)
dtypes = st.sampled_from([torch.float32, torch.float64])


def pair(seed, shape=(3, 2, 2), dtype=torch.float64):
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(2, *shape, generator=stream, dtype=torch.float64).to(dtype).unbind(0)


@given(PATHS, interior, seeds, dtypes, st.sampled_from(KINDS), st.sampled_from(KINDS))
def test_any_kind_and_the_state_give_any_other_kind(path, t, seed, dtype, source, target):
    data, noise = pair(seed, dtype=dtype)
    times = torch.tensor([t, t / 2, (1 + t) / 2]).clamp(0.05, 0.95)
    state = path.state(data, noise, times)
    given_value = path.target(data, noise, times, source)
    expected = path.target(data, noise, times, target)
    got = path.convert(given_value, state, times, source=source, target=target)
    assert got.dtype == dtype
    # float32: dividing by a small signal level magnifies the rounding of the state
    weak = float((path.sigma(times) / path.alpha(times)).max() + 1)
    tolerance = 1e-6 if dtype == torch.float64 else 1e-5 * weak * float(expected.abs().max() + 10)
    assert torch.allclose(got, expected, rtol=1e-4, atol=tolerance)


@given(PATHS, interior, seeds)
def test_converting_there_and_back_changes_nothing(path, t, seed):
    value, state = pair(seed)
    for kind in KINDS:
        there = path.convert(value, state, t, source="data", target=kind)
        back = path.convert(there, state, t, source=kind, target="data")
        assert torch.allclose(back, value, rtol=1e-6, atol=1e-6)


@given(PATHS, st.tuples(interior, interior, interior), seeds)
def test_posterior_steps_compose(path, times, seed):
    """q(r | s) after q(s | t) is q(r | t) for eta = 1, given the data."""
    r, s, t = sorted(times)
    if min(s - r, t - s) < 1e-3:
        return
    data, state = pair(seed, shape=(1, 4))
    at = {name: path.levels(time) for name, time in {"r": r, "s": s, "t": t}.items()}
    mean_s, std_s = path.posterior(state, data, levels=at["t"], next_levels=at["s"])
    mean_r, std_r = path.posterior(mean_s, data, levels=at["s"], next_levels=at["r"])
    shifted, _ = path.posterior(mean_s + 1, data, levels=at["s"], next_levels=at["r"])
    gain = (shifted - mean_r)[0, 0]
    whole_mean, whole_std = path.posterior(state, data, levels=at["t"], next_levels=at["r"])
    assert torch.allclose(mean_r, whole_mean, rtol=1e-7, atol=1e-7)
    assert torch.allclose(std_r**2 + (gain * std_s) ** 2, whole_std**2, rtol=1e-6, atol=1e-12)


@given(PATHS, interior, interior, st.floats(0, 1), seeds)
def test_posterior_keeps_the_law_of_the_path(path, one, other, eta, seed):
    """A state of the path, moved with the true data, is a state of the path."""
    s, t = sorted((one, other))
    data, noise = pair(seed, shape=(1, 3))
    state = path.state(data, noise, t)
    here, there = path.levels(t), path.levels(s)
    mean, std = path.posterior(state, data, levels=here, next_levels=there, eta=eta)
    still = (mean - there.alpha * data) / noise  # the share of the old noise that is left
    assert torch.allclose(still**2 + std**2, (there.sigma**2).expand(1, 3), rtol=1e-5)
    if eta == 0:
        assert torch.allclose(mean, path.state(data, noise, s), rtol=1e-6, atol=1e-8)


@given(PATHS, seeds)
def test_posterior_ends_at_the_data(path, seed):
    data, noise = pair(seed)
    clean = Levels(torch.tensor(1.0, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64))
    mean, std = path.posterior(
        path.state(data, noise, 0.7), data, levels=path.levels(0.7), next_levels=clean
    )
    assert torch.equal(mean, data)
    assert std == 0


@given(PATHS, st.sampled_from([torch.bfloat16, torch.float16, torch.float32, torch.float64]))
def test_states_and_priors_keep_the_dtype(path, dtype):
    data, noise = pair(0, dtype=dtype)
    assert path.state(data, noise, 0.4).dtype == dtype
    assert path.prior(data, seed=0).dtype == dtype


@given(SCHEDULES, st.lists(st.floats(0.3, 3.0), min_size=2, max_size=4), interior)
def test_prior_scale_per_sample_is_the_scale_of_each_sample(schedule, scales, t):
    path = GaussianPath(schedule, torch.tensor(scales, dtype=torch.float64))
    data, noise = pair(1, shape=(len(scales), 2))
    together = path.state(data, noise, t)
    assert path.batch == len(scales)
    for i, scale in enumerate(scales):
        alone = GaussianPath(schedule, scale)
        assert torch.equal(together[i], alone.state(data[i], noise[i], t))
        assert float(path.logsnr(t)[i]) == pytest.approx(float(alone.logsnr(t)))


@given(PATHS, interior)
def test_fraction_of_noise_finds_its_time(path, t):
    assert float(path.time_of_fraction(path.levels(t).fraction)) == pytest.approx(t, abs=1e-6)


def test_velocity_of_the_rectified_path_is_noise_minus_data():
    data, noise = pair(2)
    path = GaussianPath(RectifiedSchedule())
    assert torch.equal(path.target(data, noise, 0.3, "velocity"), noise - data)


def test_velocity_is_the_derivative_of_the_state():
    data, noise = pair(3)
    path, step = GaussianPath(CosineSchedule(), 2.0), 1e-6
    moved = path.state(data, noise, 0.4 + step) - path.state(data, noise, 0.4 - step)
    assert torch.allclose(path.target(data, noise, 0.4, "velocity"), moved / (2 * step), atol=1e-6)


def test_prior_has_the_spread_of_the_noisy_end():
    path = GaussianPath(EDMSchedule(20.0), torch.tensor([1.0, 3.0]))
    draw = path.prior(torch.empty(2, 20_000), seed=0)
    assert torch.allclose(draw.std(dim=1), torch.tensor([20.0, 60.0]), rtol=0.03)


def test_unknown_kind_offers_the_nearest_name(refuses):
    data, _ = pair(0)
    path = GaussianPath(RectifiedSchedule())
    with refuses("did you mean 'velocity'"):
        path.convert(data, data, 0.5, source="data", target="velocty")  # pyright: ignore


def test_data_and_noise_of_different_shapes_are_refused(refuses):
    with refuses("must match"):
        GaussianPath(RectifiedSchedule()).state(torch.ones(2, 3), torch.ones(2, 1), 0.5)


def test_schedule_and_scale_of_different_batches_are_refused():
    path = GaussianPath(EDMSchedule(torch.ones(2) * 80), torch.ones(3))
    with pytest.raises(InputError, match="different batches"):
        _ = path.batch


def test_numbers_per_row_meet_states_of_any_shape():
    value = torch.arange(3.0)
    assert expand_to(value, torch.ones(3, 2, 4)).shape == (3, 1, 1)
    assert expand_to(value, torch.ones(3)).shape == (3,)
    assert expand_to(torch.tensor(1.0), torch.ones(3, 2).bfloat16()).dtype == torch.float32
