from __future__ import annotations

import math

import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st

from noisewright.metrics import frechet_distance, gaussian_frechet_distance


def normal(*shape, seed=0):
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=stream, dtype=torch.float64)


def whitened(count, width, seed):
    """Rows with exactly zero mean and unit covariance."""
    rows = normal(count, width, seed=seed)
    rows = rows - rows.mean(0)
    factor = torch.linalg.cholesky(rows.T @ rows / (count - 1))
    return torch.linalg.solve_triangular(factor, rows.T, upper=False).T


@given(st.integers(1, 8), st.integers(0, 50))
def test_samples_with_exact_moments_give_the_closed_form(width, seed):
    root_a, root_b = normal(width, width, seed=seed), normal(width, width, seed=seed + 100)
    mean = normal(width, seed=seed + 200)
    a = whitened(60, width, seed) @ root_a.T
    b = whitened(40, width, seed + 1) @ root_b.T + mean
    cov_a, cov_b = root_a @ root_a.T, root_b @ root_b.T
    cross = scipy.linalg.sqrtm((cov_a @ cov_b).numpy()).real.trace()
    expected = float(mean @ mean + cov_a.trace() + cov_b.trace()) - 2 * cross
    assert math.isclose(frechet_distance(a, b), expected, rel_tol=1e-5, abs_tol=1e-6)
    moments = gaussian_frechet_distance(torch.zeros(width), cov_a, mean, cov_b)
    assert math.isclose(moments, frechet_distance(a, b), rel_tol=1e-6, abs_tol=1e-7)


def test_commuting_covariances_give_the_distance_of_standard_deviations():
    a, b = whitened(50, 3, 0), whitened(50, 3, 1)
    a, b = a * torch.tensor([1.0, 2.0, 3.0]), b * torch.tensor([2.0, 0.5, 3.0]) + 1
    assert frechet_distance(a, b) == pytest.approx(3 + 1 + 1.5**2)


def test_fewer_rows_than_features_is_no_special_case():
    a, b = normal(10, 200), normal(12, 200, seed=1)
    assert frechet_distance(a, a) == pytest.approx(0, abs=1e-9)
    cov_a, cov_b = torch.cov(a.T), torch.cov(b.T)
    expected = gaussian_frechet_distance(a.mean(0), cov_a, b.mean(0), cov_b)
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-6)


def test_symmetric_and_unchanged_by_rotation_and_order():
    a, b = normal(80, 5), 2 * normal(70, 5, seed=1) + 1
    turn = torch.linalg.qr(normal(5, 5, seed=2)).Q
    distance = frechet_distance(a, b)
    assert distance == pytest.approx(frechet_distance(b, a))
    assert distance == pytest.approx(frechet_distance(a @ turn, b @ turn))
    assert distance == pytest.approx(frechet_distance(a.flip(0), b))


def test_bias_is_upwards_and_shrinks_with_the_count():
    def mean_over_seeds(count):
        return sum(
            frechet_distance(normal(count, 8, seed=seed), normal(count, 8, seed=seed + 500))
            for seed in range(20)
        )

    few, many = mean_over_seeds(50), mean_over_seeds(200)
    assert 2.5 < few / many < 6  # falls like 1 / count, so about 4


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (torch.zeros(1, 3), torch.zeros(5, 3), "the first sample must have shape"),
        (torch.zeros(5, 3), torch.zeros(5, 4), "3 and 4 columns"),
        (torch.zeros(5, 3), torch.full((5, 3), math.nan), "the second sample holds NaN"),
    ],
)
def test_samples_that_cannot_be_compared_are_refused(a, b, message, refuses):
    with refuses(message):
        frechet_distance(a, b)


def test_inputs_are_left_alone_and_half_precision_is_computed_in_double():
    a, b = normal(50, 4), normal(50, 4, seed=1)
    copy = a.clone()
    distance = frechet_distance(a, b)
    assert torch.equal(a, copy)
    assert frechet_distance(a.half(), b.half()) == pytest.approx(distance, abs=0.01)
