"""The entropy curve against its dense definition, its limit, its knee."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import entr

from noisewright.methods.parpic import (
    ReversibleWalk,
    directed_sbm,
    entropy_limit,
    find_knee,
    vertex_measure,
    walk_entropy,
)
from noisewright.methods.parpic.entropy import probe_entropies
from noisewright.types import InputError


@pytest.fixture(scope="module")
def walk():
    chain = [[0.05, 0.6, 0], [0.01, 0.05, 0.6], [0, 0.01, 0.05]]
    W, _ = directed_sbm([60, 60, 60], chain, random_state=0)
    return ReversibleWalk.of(W, vertex_measure(W), lazy=True)


def dense_curve(P, times):
    power, curve = np.eye(len(P)), []
    for _ in range(times):
        power = power @ P
        curve.append(entr(power).sum(axis=1).mean())
    return np.array(curve)


def test_all_probes_give_the_dense_curve(walk):
    n = len(walk.stationary)
    curve = walk_entropy(walk.transition, walk.stationary, t_max=40, n_probes=n)
    np.testing.assert_allclose(curve, dense_curve(walk.transition.toarray(), 40), atol=1e-10)


def test_first_entry_is_one_step(walk):
    curve = walk_entropy(walk.transition, walk.stationary, 1, len(walk.stationary))
    assert curve[0] == pytest.approx(entr(walk.transition.toarray()).sum(axis=1).mean())


def test_hundred_probes_are_within_five_percent(walk):
    exact = dense_curve(walk.transition.toarray(), 60)
    for seed in range(5):
        curve = walk_entropy(walk.transition, walk.stationary, 60, 100, seed)
        assert (np.abs(curve - exact) / exact).max() <= 0.05


@pytest.mark.parametrize("lazy", [False, True])
def test_curve_never_falls_where_the_stationary_law_is_uniform(lazy):
    circle = np.zeros((30, 30))
    for hop in (1, 2, 7):
        circle += np.roll(np.eye(30), hop, axis=1)
    walk = ReversibleWalk.of(circle, np.ones(30), lazy=lazy)
    curve = walk_entropy(walk.transition, walk.stationary, 100, 30)
    assert (np.diff(curve) >= -1e-12).all()
    assert curve[-1] == pytest.approx(np.log(30))


def test_curve_tends_to_its_limit_and_passes_it_by_little(walk):
    """Elsewhere the curve, lazy or not, may pass its limit and come back."""
    curve = walk_entropy(walk.transition, walk.stationary, 250, len(walk.stationary))
    assert (np.diff(curve) >= -1e-3 * np.ptp(curve)).all()
    limit = entropy_limit(walk.transition, walk.stationary)
    assert limit == pytest.approx(entr(walk.stationary).sum())
    assert curve[-1] == pytest.approx(limit, rel=0.01)


def test_curve_may_fall_where_one_vertex_holds_most_of_the_weight():
    """A walk that spreads over many vertices and ends in one: entropy has no general monotony."""
    W = np.ones((50, 50))
    W[0, 0] = 1e6
    walk = ReversibleWalk.of(W, vertex_measure(W), lazy=True)
    curve = walk_entropy(walk.transition, walk.stationary, 250, 50)
    assert curve.max() > 2 * curve[-1]


def test_stopping_early_changes_the_curve_little_and_the_knee_not(walk):
    probes = np.arange(len(walk.stationary))
    exact = probe_entropies(walk, probes, 250).mean(axis=0)
    early = probe_entropies(walk, probes, 250, tolerance=1e-3).mean(axis=0)
    assert np.abs(exact - early).max() <= 2e-3 * np.ptp(exact)
    assert find_knee(early) == find_knee(exact)


def test_blocks_change_no_bit(walk):
    probes = np.arange(0, len(walk.stationary), 3)
    whole = probe_entropies(walk, probes, 30, tolerance=1e-3)
    tiny = probe_entropies(walk, probes, 30, tolerance=1e-3, max_block_mb=1e-3)
    assert (whole == tiny).all()


def test_curve_does_not_depend_on_the_order_of_vertices(walk):
    n = len(walk.stationary)
    order = np.random.default_rng(1).permutation(n)
    turned = sparse.csr_array(walk.transition[order][:, order])
    curve = walk_entropy(turned, walk.stationary[order], 20, n)
    np.testing.assert_allclose(
        curve, walk_entropy(walk.transition, walk.stationary, 20, n), rtol=1e-13
    )


def test_limit_is_that_of_each_component():
    P = sparse.block_diag([np.full((2, 2), 1 / 2), np.full((4, 4), 1 / 4)]).tocsr()
    pi = np.full(6, 1 / 6)
    expected = (2 * np.log(2) + 4 * np.log(4)) / 6
    assert entropy_limit(P, pi) == pytest.approx(expected)
    assert walk_entropy(P, pi, 3, 6) == pytest.approx(np.full(3, expected))


def test_knee_of_an_exponential_is_where_its_slope_is_one():
    t = np.arange(1, 251)
    for rate in (0.05, 0.2, 1.0):
        curve = 1 - np.exp(-rate * (t - 1))
        scale = np.ptp(curve) / (len(t) - 1)
        slope_one = 1 + np.log(rate / scale) / rate
        assert find_knee(curve) == pytest.approx(slope_one, abs=1)


@pytest.mark.parametrize("curve", [[], [1.0], [0.0, 1.0], [2.0] * 9, np.linspace(0, 1, 9)])
def test_no_knee_is_none(curve):
    assert find_knee(curve) is None


def test_knee_refuses_nan():
    with pytest.raises(InputError, match="not finite"):
        find_knee([0.0, np.nan, 1.0])


@pytest.mark.parametrize("count", [0, 181])
def test_number_of_probes_out_of_range_is_refused(walk, count):
    with pytest.raises(InputError, match=r"1 \.\.\. 180"):
        walk_entropy(walk.transition, walk.stationary, n_probes=count)
