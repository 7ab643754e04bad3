"""Sums along a trajectory against integrals in closed form."""

from __future__ import annotations

import math

import pytest
import torch

from noisewright.solvers import walk_with_sums
from noisewright.types import InputError, NonFiniteError

ORDERS = {"euler": 1, "midpoint": 2, "heun": 2, "rk4": 4}


def growth(t: float, state: torch.Tensor, wanted: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """x' = cos(t) x with sums of x' / x and of x'."""
    slope = math.cos(t) * state
    return slope, torch.cat([slope / state, slope], 1) if wanted else None


def _error(method: str, steps: int) -> float:
    times = [2.0 * i / steps for i in range(steps + 1)]
    start = torch.ones(2, 1, dtype=torch.float64)
    done = walk_with_sums(growth, start, times, method=method)
    exact = math.exp(math.sin(2.0))
    errors = [done.state - exact, done.sums[:, :1] - math.sin(2.0), done.sums[:, 1:] - exact + 1]
    return max(float(e.abs().max()) for e in errors)


@pytest.mark.parametrize("method", ORDERS)
def test_error_of_state_and_sums_falls_with_the_order_of_the_method(method):
    slope = math.log2(_error(method, 20) / _error(method, 40))
    assert abs(slope - ORDERS[method]) < 0.35


def test_adaptive_method_meets_its_tolerance():
    start = torch.ones(2, 1, dtype=torch.float64)
    done = walk_with_sums(growth, start, [0.0, 2.0], method="dopri5", rtol=1e-8, atol=1e-8)
    assert abs(float(done.sums[0, 0]) - math.sin(2.0)) < 1e-6


def test_walking_back_undoes_the_walk():
    start = torch.ones(1, 1, dtype=torch.float64)
    times = [i / 50 for i in range(51)]
    there = walk_with_sums(growth, start, times, method="rk4")
    back = walk_with_sums(growth, there.state, times[::-1], method="rk4")
    torch.testing.assert_close(back.state, start, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(back.sums, -there.sums, rtol=1e-6, atol=1e-6)


def test_midpoint_asks_for_rates_once_a_step():
    asked = []

    def rates(t, state, wanted):
        asked.append(wanted)
        return growth(t, state, wanted)

    done = walk_with_sums(rates, torch.ones(1, 1), [0.0, 0.5, 1.0], method="midpoint")
    assert asked == [False, True, False, True]
    assert done.calls == 4


def test_sums_are_float64_and_the_state_keeps_its_dtype():
    for method in ("midpoint", "dopri5"):
        done = walk_with_sums(growth, torch.ones(1, 1), [0.0, 0.5], method=method)
        assert (done.state.dtype, done.sums.dtype) == (torch.float32, torch.float64)


def test_value_that_is_not_finite_stops_with_time_and_count():
    def blows_up(t, state, wanted):
        rate = state.clone()
        rate[1:] = math.inf if t > 0.5 else 1.0
        return torch.zeros_like(state), rate

    with pytest.raises(NonFiniteError, match=r"t = 0\.75 2 of 3 rows"):
        walk_with_sums(blows_up, torch.ones(3, 1), [0.0, 0.25, 0.5, 0.75], method="midpoint")


def test_unknown_method_and_missing_times_are_refused():
    with pytest.raises(InputError, match="did you mean 'midpoint'"):
        walk_with_sums(growth, torch.ones(1, 1), [0.0, 1.0], method="midpiont")
    with pytest.raises(InputError, match="two times"):
        walk_with_sums(growth, torch.ones(1, 1), [0.0])
