"""The second-order integrator: its order, exactness on the kinetic path, a known law."""

from __future__ import annotations

import math

import pytest
import torch

from noisewright.paths import KineticPath
from noisewright.solvers import integrate_second_order
from noisewright.types import InputError, NonFiniteError


def swing(q, p, t):
    return -q


def end_error(method: str, n: int) -> float:
    """Error of q at s = 0.9 for q'' = -q from (1, 0), on uneven times that end before the data."""
    share = torch.linspace(0, 1, n + 1, dtype=torch.float64)
    times = 1 - 0.9 * (share + 0.3 * share * (1 - share))
    one = torch.ones(1, 1, dtype=torch.float64)
    end = integrate_second_order(swing, one, torch.zeros_like(one), times=times, method=method)
    return abs(float(end.state) - math.cos(0.9))


@pytest.mark.parametrize(("method", "order"), [("midpoint", 2), ("verlet", 2), ("rk4", 4)])
def test_error_falls_with_the_order_of_the_method(method, order):
    ratio = end_error(method, 20) / end_error(method, 40)
    assert math.log2(ratio) == pytest.approx(order, abs=0.25)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_bridge_steps_arrive_exactly_at_one_prediction(n):
    path = KineticPath()
    data = torch.linspace(-3, 3, 5, dtype=torch.float64)[:, None]
    q0, p0 = path.prior(data, seed=0)
    found = integrate_second_order(
        lambda q, p, t: path.acceleration(data, q, p, t), q0, p0, n=n, record=True
    )
    torch.testing.assert_close(found.state, data)
    for t, (q, p) in zip(found.times, found.trajectory, strict=True):
        point = path.point(q0, p0, data, t)
        torch.testing.assert_close(q, point.position)
        torch.testing.assert_close(p, point.momentum)


def test_midpoint_reaches_the_data_with_an_error_of_second_order():
    data = torch.full((1, 1), 2.0, dtype=torch.float64)
    q0, p0 = torch.zeros_like(data), torch.ones_like(data)
    gap = data - q0 - p0

    def error(n):
        end = integrate_second_order(lambda q, p, t: 3 * t * gap, q0, p0, n=n, method="midpoint")
        return abs(float(end.state - data))

    assert math.log2(error(20) / error(40)) == pytest.approx(2, abs=0.1)


def gaussian_end(method, mean, variance, **grid):
    """Mean and variance at the end of a walk in the exact field of N(mean, variance)."""
    path = KineticPath()
    # A grid of normal scores with exactly mean 0 and variance 1, so that no sampling error is left.
    score = torch.special.ndtri((torch.arange(40, dtype=torch.float64) + 0.5) / 40)
    score = score / score.square().mean().sqrt()
    q0, p0 = (v.reshape(-1, 1) for v in torch.meshgrid(score, score, indexing="ij"))

    def field(q, p, t):
        u, angle = path.statistic(q, p, t)
        signal, noise = angle.cos(), angle.sin()
        gain = signal * variance / (signal**2 * variance + noise**2)
        return path.acceleration(mean + gain * (u - signal * mean), q, p, t)

    found = integrate_second_order(field, q0, p0, method=method, **grid).state
    return float(found.mean()), float(found.var(correction=0))


@pytest.mark.parametrize("method", ["midpoint", "verlet", "rk4"])
@pytest.mark.parametrize(("mean", "variance"), [(2.0, 0.25), (-1.0, 4.0)])
def test_exact_field_carries_the_start_to_the_data_law(method, mean, variance):
    found = gaussian_end(method, mean, variance, n=50)
    assert found[0] == pytest.approx(mean, abs=0.02)
    assert found[1] == pytest.approx(variance, rel=0.03)


def test_bridge_steps_have_the_mean_at_once_and_the_variance_to_first_order():
    path = KineticPath()
    short = []
    for n in (25, 50, 100):
        mean, variance = gaussian_end("bridge", 2.0, 0.25, times=path.times(n))
        assert mean == pytest.approx(2.0, abs=1e-9)
        short.append(0.25 - variance)
    assert all(lack > 0 for lack in short)  # too narrow, the less so the more steps
    assert short[0] / short[1] == pytest.approx(2, abs=0.2)
    assert short[1] / short[2] == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize(
    ("method", "calls"), [("bridge", 5), ("midpoint", 10), ("verlet", 9), ("rk4", 17)]
)
def test_calls_are_counted(method, calls):
    one = torch.ones(1, 1)
    assert integrate_second_order(swing, one, one, n=5, method=method).calls == calls


def test_state_keeps_its_dtype_and_inputs_are_left_alone():
    q0, p0 = torch.ones(2, 3, dtype=torch.bfloat16), torch.zeros(2, 3, dtype=torch.bfloat16)
    found = integrate_second_order(swing, q0, p0, n=4)
    assert found.state.dtype == found.momentum.dtype == torch.bfloat16
    assert torch.equal(q0, torch.ones_like(q0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "either n= or times="),
        ({"n": 3, "times": [1.0, 0.0]}, "either n= or times="),
        ({"n": 0}, "at least 1"),
        ({"times": [0.0, 1.0]}, "must fall"),
        ({"times": [1.0]}, "must fall"),
        ({"times": [1.2, 0.0]}, "must fall"),
        ({"n": 3, "method": "midpiont"}, "did you mean 'midpoint'"),
    ],
)
def test_walk_that_cannot_work_is_refused(options, words):
    one = torch.ones(1, 1)
    with pytest.raises(InputError, match=words):
        integrate_second_order(swing, one, one, **options)


def test_walk_to_infinity_is_reported():
    one = torch.ones(1, 1)
    with pytest.raises(NonFiniteError, match="bridge"):
        integrate_second_order(lambda q, p, t: q / 0, one, one, n=2)
