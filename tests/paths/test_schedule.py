"""Schedules: closed forms, inverses, per-sample parameters, plain records."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from noisewright.paths import (
    CosineSchedule,
    EDMSchedule,
    LinearBetaSchedule,
    RectifiedSchedule,
    ShiftedCosineSchedule,
    SigmoidSchedule,
    TableSchedule,
    VariancePreserving,
    precise,
    schedule_from_dict,
)
from noisewright.types import InputError

positive = st.floats(0.2, 5.0)
SCHEDULES = st.one_of(
    st.just(RectifiedSchedule()),
    st.just(CosineSchedule()),
    st.builds(ShiftedCosineSchedule, positive),
    st.builds(LinearBetaSchedule, st.floats(0.01, 1.0), st.floats(5.0, 30.0)),
    st.builds(SigmoidSchedule, st.floats(-5, -1), st.floats(1, 5), positive),
    st.builds(EDMSchedule, st.floats(2.0, 200.0)),
    st.builds(VariancePreserving, st.builds(EDMSchedule, st.floats(2.0, 200.0))),
)
interior = st.floats(0.01, 0.99)


def table(levels=50):
    return TableSchedule(torch.linspace(0.999, 0.002, levels, dtype=torch.float64))


@given(SCHEDULES, interior, interior)
def test_signal_to_noise_falls(schedule, one, other):
    low, high = sorted((one, other))
    if high - low > 1e-6:
        assert schedule.logsnr(low) > schedule.logsnr(high)


@given(SCHEDULES, interior)
def test_time_of_logsnr_inverts_logsnr(schedule, t):
    assert float(schedule.time_of_logsnr(schedule.logsnr(t))) == pytest.approx(t, abs=1e-7)


@given(SCHEDULES, interior)
def test_logsnr_is_the_ratio_of_the_levels(schedule, t):
    alpha, sigma = schedule.levels(precise(t))
    assert float(schedule.logsnr(t)) == pytest.approx(2 * math.log(alpha / sigma), abs=1e-8)


@given(SCHEDULES, interior)
def test_rate_of_logsnr_is_its_derivative(schedule, t):
    step = 1e-5
    slope = (schedule.logsnr(t + step) - schedule.logsnr(t - step)) / (2 * step)
    assert float(schedule.logsnr_rate(precise(t))) == pytest.approx(float(slope), rel=1e-3)


@given(SCHEDULES)
def test_plain_record_restores_the_schedule(schedule):
    again = schedule_from_dict(schedule.to_dict())
    t = torch.linspace(0, 1, 7, dtype=torch.float64)
    assert type(again) is type(schedule)
    for ours, theirs in zip(again.levels(t), schedule.levels(t), strict=True):
        assert torch.equal(ours, theirs)


@given(SCHEDULES)
def test_times_beyond_the_range_are_the_ends(schedule):
    assert float(schedule.time_of_logsnr(1e4)) == pytest.approx(0, abs=1e-9)
    assert float(schedule.time_of_logsnr(-1e4)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    "schedule",
    [
        CosineSchedule(),
        ShiftedCosineSchedule(3.0),
        LinearBetaSchedule(),
        SigmoidSchedule(),
        VariancePreserving(EDMSchedule()),
        table(),
    ],
    ids=lambda s: type(s).__name__,
)
def test_variance_is_preserved(schedule):
    alpha, sigma = schedule.levels(torch.linspace(0, 1, 101, dtype=torch.float64))
    assert torch.allclose(alpha**2 + sigma**2, torch.ones(101, dtype=torch.float64))


def test_shift_adds_to_the_log_snr():
    t = torch.linspace(0.1, 0.9, 9)
    moved = ShiftedCosineSchedule(4.0).logsnr(t) - CosineSchedule().logsnr(t)
    assert torch.allclose(moved, torch.full_like(moved, -2 * math.log(4)))


def test_linear_beta_is_the_integral_of_its_rate():
    schedule = LinearBetaSchedule(0.1, 20.0)
    grid = torch.linspace(0, 1, 100_001, dtype=torch.float64)
    beta = 0.1 + grid * 19.9
    assert float(schedule.alpha(1.0).log()) == pytest.approx(
        -0.5 * float(torch.trapezoid(beta, grid))
    )


@given(st.lists(st.floats(2.0, 100.0), min_size=1, max_size=5))
def test_schedule_per_sample_is_the_schedule_of_each_sample(tops):
    many = EDMSchedule(torch.tensor(tops, dtype=torch.float64))
    t = torch.linspace(0.1, 0.9, len(tops))
    assert many.batch == len(tops)
    for i, top in enumerate(tops):
        assert torch.equal(many.sigma(t)[i], EDMSchedule(top).sigma(t[i]))
        assert torch.equal(many.select(slice(i, i + 1)).sigma(t[i]), many.sigma(t)[i : i + 1])
    assert many.columns().sigma(t[None]).shape == (len(tops), len(tops))


def test_parameters_of_different_batches_are_refused():
    with pytest.raises(InputError, match="different batches"):
        _ = LinearBetaSchedule(torch.ones(2), torch.ones(3) * 20).batch


@pytest.mark.parametrize(
    "bad",
    [[0.5, 0.6], [0.5, 0.5], [1.0, 0.5], [0.5, -0.1], [], [0.9, math.nan], [0.5, 0.0, 0.0]],
)
def test_table_that_does_not_fall_is_refused(bad):
    with pytest.raises(InputError, match="falls strictly"):
        TableSchedule(torch.tensor(bad))


def test_table_keeps_its_levels_and_has_a_floor():
    schedule = table(10)
    t = (torch.arange(10).double() + 1) / 10
    assert torch.allclose(schedule.alpha(t) ** 2, schedule.alphas_cumprod)
    assert schedule.has_floor
    assert torch.equal(schedule.alpha(0.0), schedule.alpha(0.1))


def test_rescaled_table_loses_its_signal_exactly_at_the_end_only():
    levels = torch.tensor([0.99, 0.6, 0.2, 0.0], dtype=torch.float64)
    schedule = TableSchedule(levels)
    t = torch.tensor([0.25, 0.5, 0.75, 1.0], dtype=torch.float64)
    assert torch.allclose(schedule.alpha(t) ** 2, levels)
    assert schedule.alpha(1.0) == 0
    between = schedule.alpha(torch.linspace(0.75, 1, 50))
    assert bool((between.diff() < 0).all())
    assert all(bool(rate.isfinite().all()) for rate in schedule.rates(t))


def test_unknown_schedule_offers_the_nearest_name():
    with pytest.raises(InputError, match="did you mean 'CosineSchedule'"):
        schedule_from_dict({"name": "CosinSchedule"})
