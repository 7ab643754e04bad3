"""The kinetic path: its formulas, what (q, p) says about the data, and the matched grid."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from noisewright.paths import KineticPath, kinetic_path, kinetic_statistic, matched_grid
from noisewright.types import InputError

INSIDE = (0.05, 0.2, 0.5, 0.8, 0.95)


def draws(count: int = 4, width: int = 3, sigma_p: float = 1.0):
    stream = torch.Generator().manual_seed(0)
    q0, p0, data = (
        torch.randn(count, width, generator=stream, dtype=torch.float64) for _ in range(3)
    )
    return q0, sigma_p * p0, data


def test_path_starts_at_the_draw_and_ends_at_the_data():
    q0, p0, data = draws()
    start_q, start_p, _ = kinetic_path(q0, p0, data, 0.0)
    end_q, _, end_a = kinetic_path(q0, p0, data, 1.0)
    torch.testing.assert_close(start_q, q0)
    torch.testing.assert_close(start_p, p0)
    torch.testing.assert_close(end_q, data)
    assert float(end_a.abs().max()) == 0.0


@pytest.mark.parametrize("s", INSIDE)
def test_momentum_and_acceleration_are_the_rates_of_position_and_momentum(s):
    q0, p0, data = draws()
    clock, ones = torch.full((), s, dtype=torch.float64), torch.ones((), dtype=torch.float64)
    (_, p, a), (dq, dp, _) = torch.autograd.functional.jvp(
        lambda moment: kinetic_path(q0, p0, data, moment), clock, ones
    )
    torch.testing.assert_close(dq, p, atol=1e-6, rtol=0)
    torch.testing.assert_close(dp, a, atol=1e-6, rtol=0)


@pytest.mark.parametrize("s", INSIDE)
def test_acceleration_is_a_feedback_on_position_and_momentum(s):
    q0, p0, data = draws()
    q, p, a = kinetic_path(q0, p0, data, s)
    torch.testing.assert_close(
        KineticPath().acceleration(data, q, p, 1 - s), a, atol=1e-9, rtol=1e-9
    )


def test_engine_time_is_one_minus_the_s_of_the_formulas():
    q0, p0, data = draws()
    path = KineticPath(2.0)
    for ours, theirs in zip(
        path.point(q0, p0, data, 0.3), kinetic_path(q0, p0, data, 0.7), strict=True
    ):
        torch.testing.assert_close(ours, theirs)
    for ours, theirs in zip(
        path.statistic(q0, p0, 0.3), kinetic_statistic(q0, p0, 0.7, 2.0), strict=True
    ):
        torch.testing.assert_close(ours, theirs)
    assert path.times(4) == [1 - s for s in matched_grid(4, 2.0)]


def test_rows_may_have_times_of_their_own():
    q0, p0, data = draws(2)
    together = kinetic_path(q0, p0, data, torch.tensor([0.2, 0.9]))
    for row, s in enumerate((0.2, 0.9)):
        alone = kinetic_path(q0[row : row + 1], p0[row : row + 1], data[row : row + 1], s)
        for one, other in zip(together, alone, strict=True):
            torch.testing.assert_close(one[row : row + 1], other, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("sigma_p", [0.3, 1.0, 4.0])
def test_statistic_is_the_data_at_one_end_and_the_momentum_at_the_other(sigma_p):
    q0, p0, data = draws(sigma_p=sigma_p)
    u, angle = kinetic_statistic(q0, p0, 0.0, sigma_p)
    torch.testing.assert_close(u, p0 / sigma_p)
    assert float(angle) == pytest.approx(math.pi / 2)
    q, p, _ = kinetic_path(q0, p0, data, 1.0)
    u, angle = kinetic_statistic(q, p, 1.0, sigma_p)
    torch.testing.assert_close(u, data)
    assert float(angle) == 0.0


@pytest.mark.parametrize("sigma_p", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("s", INSIDE)
def test_statistic_and_the_rest_are_unit_noise_beside_the_data(s, sigma_p):
    # Both are linear in (q0, p0, data): read the coefficients off unit vectors.
    q0, p0, data = torch.eye(3, dtype=torch.float64)
    q, p, _ = (v[None] for v in kinetic_path(q0, sigma_p * p0, data, s))
    path = KineticPath(sigma_p)
    u, angle = path.statistic(q, p, 1 - s)
    across = path.across(q, p, 1 - s)
    assert float(u[0, 2]) == pytest.approx(math.cos(angle), abs=1e-9)
    assert float(u[0, :2].norm()) == pytest.approx(math.sin(angle), abs=1e-9)
    assert float(across[0, 2]) == pytest.approx(0.0, abs=1e-9)
    assert float(across[0, :2].norm()) == pytest.approx(1.0, abs=1e-9)
    assert float(across[0, :2] @ u[0, :2]) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("s", [0.2, 0.5, 0.8])
def test_one_number_says_of_two_modes_what_position_and_momentum_say(s):
    """E[D | q, p] by Bayes in the plane equals the formula through the statistic."""
    weights, modes, spread = (
        torch.tensor([0.3, 0.7], dtype=torch.float64),
        torch.tensor([-1.5, 1.0], dtype=torch.float64),
        0.3,
    )
    sigma_p = 1.3
    q, p = (v.flatten()[:, None] for v in torch.meshgrid(
        torch.linspace(-2, 2, 7, dtype=torch.float64),
        torch.linspace(-3, 3, 7, dtype=torch.float64),
        indexing="ij",
    ))  # fmt: skip
    b, c = (3 * s**2 - s**3) / 2, 3 * s - 1.5 * s**2
    # (q, p) = A (q0, p0, y), each mode a Gaussian in three dimensions.
    A = torch.tensor([[1 - b, s - b, b], [-c, 1 - c, c]], dtype=torch.float64)
    g = torch.tensor([-1.0, -1.0, 1.0], dtype=torch.float64)
    prior = torch.diag(torch.tensor([1.0, sigma_p**2, spread**2], dtype=torch.float64))
    cover = A @ prior @ A.T
    logs, means = [], []
    for weight, mode in zip(weights, modes, strict=True):
        centre = torch.tensor([0.0, 0.0, float(mode)], dtype=torch.float64)
        gap = torch.cat([q, p], dim=1) - A @ centre
        solved = torch.linalg.solve(cover, gap.T).T
        logs.append(torch.log(weight) - 0.5 * (gap * solved).sum(dim=1))
        means.append(g @ centre + solved @ (A @ prior @ g))
    share = torch.softmax(torch.stack(logs), dim=0)
    by_bayes = (share * torch.stack(means)).sum(dim=0)

    u, angle = kinetic_statistic(q, p, s, sigma_p)
    signal, noise = math.cos(angle), math.sin(angle)
    width = signal**2 * spread**2 + noise**2
    logs = torch.log(weights) - 0.5 * (u - signal * modes) ** 2 / width
    share = torch.softmax(logs, dim=1)
    data = (share * (modes + signal * spread**2 / width * (u - signal * modes))).sum(dim=1)
    by_formula = (data - q[:, 0] - (1 - s) * p[:, 0]) / (1 - s) ** 3
    torch.testing.assert_close(by_formula, by_bayes, atol=1e-8, rtol=0)


@pytest.mark.parametrize("sigma_p", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("n", [1, 2, 10, 50])
def test_matched_grid_visits_the_levels_of_even_first_order_steps(n, sigma_p):
    grid = matched_grid(n, sigma_p)
    assert grid[0] == 0.0
    assert grid[-1] == 1.0
    assert all(a < b for a, b in pairwise(grid))
    one = torch.zeros(1, 1, dtype=torch.float64)
    for i, s in enumerate(grid[1:-1], start=1):
        _, angle = kinetic_statistic(one, one, s, sigma_p)
        assert math.tan(angle) == pytest.approx((n - i) / i, rel=1e-6)


def test_matched_grid_is_the_published_one():
    published = [0, 0.034, 0.070, 0.107, 0.148, 0.193, 0.244, 0.305, 0.382, 0.497, 1]
    assert [round(s, 3) for s in matched_grid(10, 1.0)] == published


def test_prior_has_the_spread_of_the_momenta_and_follows_its_seed():
    path, like = KineticPath(3.0), torch.empty(20_000, 1)
    q, p = path.prior(like, seed=0)
    assert float(q.std()) == pytest.approx(1.0, rel=0.03)
    assert float(p.std()) == pytest.approx(3.0, rel=0.03)
    assert abs(float((q * p).mean())) < 0.1
    assert torch.equal(q, path.prior(like, seed=0)[0])


@pytest.mark.parametrize("sigma_p", [0.0, 0.049, -1.0, math.nan, math.inf])
def test_start_without_momentum_is_refused(sigma_p):
    with pytest.raises(InputError, match="sigma_p"):
        KineticPath(sigma_p)
    with pytest.raises(InputError, match="sigma_p"):
        matched_grid(3, sigma_p)


def test_clock_outside_its_range_is_refused():
    one = torch.ones(1, 1)
    with pytest.raises(InputError, match="leaves"):
        kinetic_path(one, one, one, 1.5)
    with pytest.raises(InputError, match="steps"):
        matched_grid(0)
    with pytest.raises(InputError, match="above 0"):
        KineticPath().acceleration(one, one, one, 0.0)
    with pytest.raises(InputError, match="nothing across"):
        KineticPath().across(one, one, 0.0)
