"""Facts about the reversible walk and the vertex measures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from noisewright.methods.parpic import (
    ReversibleWalk,
    directed_sbm,
    reversible_walk,
    vertex_measure,
)
from noisewright.types import InputError


def random_digraph(seed, n=40, density=0.15):
    """Weighted, without isolated vertices: a cycle under random edges, some self-loops."""
    rng = np.random.default_rng(seed)
    W = rng.random((n, n)) * (rng.random((n, n)) < density)
    W[np.arange(n), (np.arange(n) + 1) % n] += 0.5
    return W


def dense_walk(W, nu):
    """The definition, with every matrix written out."""
    out = W.sum(1)
    P = np.divide(W, out[:, None], out=np.zeros_like(W), where=out[:, None] > 0)
    N = np.diag(nu)
    return np.linalg.inv(N * (out > 0) + np.diag(P.T @ nu)) @ (N @ P + P.T @ N)


@given(seed=st.integers(0, 10_000), gamma=st.sampled_from([0.0, 0.15, 0.5, 0.85, 1.0]))
@settings(max_examples=25, deadline=None)
def test_walk_is_reversible_and_stochastic(seed, gamma):
    W = random_digraph(seed)
    P, pi = reversible_walk(W, vertex_measure(W, gamma=gamma))
    flow = pi[:, None] * P.toarray()
    assert np.abs(flow - flow.T).max() <= 1e-15 * len(pi)
    assert np.abs(P.sum(axis=1) - 1).max() <= 1e-12
    assert P.min() >= 0
    assert abs(pi.sum() - 1) <= 1e-12
    spectrum = np.linalg.eigvals(P.toarray())
    assert np.abs(spectrum.imag).max() <= 1e-7
    assert np.abs(spectrum).max() <= 1 + 1e-9


@pytest.mark.parametrize("kind", ["degree", "uniform", "harmonic", "walk"])
def test_walk_equals_dense_definition(kind):
    W = random_digraph(1)
    nu = vertex_measure(W, kind, 0.3)
    np.testing.assert_allclose(reversible_walk(W, nu)[0].toarray(), dense_walk(W, nu), atol=1e-13)


def test_sinks_and_sources_keep_their_edges():
    W = np.array([[0.0, 1, 0], [0, 0, 2], [0, 0, 0]])
    nu = vertex_measure(W)
    P, pi = reversible_walk(W, nu)
    np.testing.assert_allclose(P.toarray(), dense_walk(W, nu), atol=1e-15)
    assert ((P.toarray() > 0) == (W + W.T > 0)).all()
    assert (pi > 0).all()


@pytest.mark.parametrize("gamma", [0.0, 0.4, 1.0])
def test_undirected_graph_gives_its_ordinary_walk(gamma):
    W = random_digraph(2)
    W = W + W.T
    P, pi = reversible_walk(W, vertex_measure(W, gamma=gamma))
    np.testing.assert_allclose(P.toarray(), W / W.sum(1, keepdims=True), atol=1e-14)
    np.testing.assert_allclose(pi, W.sum(1) / W.sum(), atol=1e-14)


def test_gamma_zero_is_the_walk_of_the_symmetrised_graph():
    W = random_digraph(3)
    P, _ = reversible_walk(W, vertex_measure(W, gamma=0.0))
    both = W + W.T
    np.testing.assert_allclose(P.toarray(), both / both.sum(1, keepdims=True), atol=1e-14)


def test_gamma_one_weighs_edges_by_in_over_out_degree():
    W = random_digraph(4)
    P, _ = reversible_walk(W, vertex_measure(W, gamma=1.0))
    M = W * (W.sum(0) / W.sum(1))[:, None]
    np.testing.assert_allclose(P.toarray(), (M + M.T) / (M + M.T).sum(1, keepdims=True), atol=1e-14)


def test_gamma_one_warns_about_a_source_and_keeps_its_edge():
    W = np.array([[0.0, 1, 0], [0, 0, 1], [0, 1, 0]])
    with pytest.warns(UserWarning, match="measure is zero at 1 vertices"):
        P, pi = reversible_walk(W, vertex_measure(W, gamma=1.0))
    assert P[0, 1] == 1
    assert 0 < pi[0] < 1e-11


def test_measures_follow_their_formulas():
    W = random_digraph(5)
    out, into = W.sum(1), W.sum(0)
    back, forth = W.T / into[:, None], W / out[:, None]
    ones = np.full(len(W), 1 / len(W))
    assert np.allclose(vertex_measure(W, "uniform"), ones)
    assert np.allclose(vertex_measure(W, gamma=0.2), 0.2 * into / W.sum() + 0.8 * out / W.sum())
    walk = (ones @ np.linalg.matrix_power(0.3 * forth + 0.7 * back, 3)) ** 0.5
    assert np.allclose(vertex_measure(W, "walk", 0.3, t0=3, alpha=0.5), walk)
    harmonic = 1 / (0.5 / (into / W.sum() + 1e-10) + 0.5 / (out / W.sum() + 1e-10))
    assert np.allclose(vertex_measure(W, "harmonic"), harmonic / harmonic.sum())
    assert np.allclose(vertex_measure(W, lambda A: A.sum(axis=1)), out)


def test_harmonic_measure_is_zero_at_sinks_and_sources():
    nu = vertex_measure([[0, 1, 0], [0, 0, 1], [0, 0, 0]], "harmonic")
    assert nu[0] == nu[2] == 0
    assert nu[1] == 1


def test_permuting_vertices_permutes_measure_and_law():
    W = random_digraph(6)
    order = np.random.default_rng(0).permutation(len(W))
    turned = W[np.ix_(order, order)]
    nu, nu_turned = vertex_measure(W), vertex_measure(turned)
    np.testing.assert_allclose(nu_turned, nu[order], rtol=1e-13)
    pi, pi_turned = reversible_walk(W, nu)[1], reversible_walk(turned, nu_turned)[1]
    np.testing.assert_allclose(pi_turned, pi[order], rtol=1e-13)


def test_scale_of_weights_and_measure_does_not_matter():
    W = random_digraph(7)
    P = reversible_walk(W, vertex_measure(W))[0].toarray()
    for scale in (3.7, 1e-200, 1e200):
        again = reversible_walk(scale * W, scale * vertex_measure(W))[0].toarray()
        np.testing.assert_allclose(again, P, rtol=1e-12)


@pytest.mark.parametrize(
    ("edges", "n", "lazy"),
    [
        ([(0, 1), (1, 2), (2, 3)], 4, True),  # a path has two sides
        ([(0, 1), (1, 2), (2, 0)], 3, False),  # an odd cycle has not
        ([(0, 1), (1, 2), (2, 3), (3, 0)], 4, True),
        ([(0, 1), (1, 0), (0, 0)], 2, False),  # a self-loop breaks it
        ([(0, 1), (1, 2), (2, 0), (3, 4)], 5, True),  # one bipartite component is enough
    ],
)
def test_walk_is_lazy_exactly_on_bipartite_graphs(edges, n, lazy):
    W = np.zeros((n, n))
    for tail, head in edges:
        W[tail, head] = 1
    walk = ReversibleWalk.of(W, np.ones(n))
    assert walk.lazy is lazy
    if lazy:
        np.testing.assert_allclose(walk.transition.diagonal(), 0.5)


def test_step_keeps_the_stationary_law_and_total_mass():
    W = random_digraph(8)
    walk = ReversibleWalk.of(W, vertex_measure(W))
    law = np.random.default_rng(0).dirichlet(np.ones(len(W)), size=3)
    assert np.allclose(walk.step(law).sum(axis=1), 1)
    np.testing.assert_allclose(walk.step(walk.stationary[None])[0], walk.stationary, atol=1e-15)


def test_limits_belong_to_components():
    W = sparse.block_diag([np.ones((2, 2)), np.ones((3, 3))])
    walk = ReversibleWalk.of(W, np.ones(5))
    np.testing.assert_allclose(walk.limits, np.log([2, 2, 3, 3, 3]))


@pytest.mark.parametrize(
    ("nu", "message"),
    [
        ([1.0, 1.0], r"shape \(3,\)"),
        ([1.0, -1.0, 1.0], "-1.0 at 1"),
        ([0.0, 0.0, 0.0], "zero everywhere"),
        ([1.0, np.nan, 1.0], "1 NaN"),
    ],
)
def test_measure_that_is_none_is_refused(nu, message):
    with pytest.raises(InputError, match=message):
        reversible_walk(np.ones((3, 3)), nu)


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan")])
def test_gamma_outside_its_range_is_refused(gamma):
    with pytest.raises(InputError, match="gamma must be in"):
        vertex_measure(np.ones((3, 3)), gamma=gamma)


def test_misspelt_measure_gets_the_nearest_name():
    with pytest.raises(InputError, match="did you mean 'harmonic'"):
        vertex_measure(np.ones((3, 3)), "harmonik")


def test_block_model_has_the_edge_counts_it_should():
    sizes, probs = [200, 300], [[0.1, 0.02], [0.0, 1.0]]
    W, groups = directed_sbm(sizes, probs, random_state=0)
    assert W.shape == (500, 500)
    assert set(W.data) == {1.0}
    assert W.diagonal().sum() == 0
    counts = [[W[groups == a][:, groups == c].sum() for c in (0, 1)] for a in (0, 1)]
    assert abs(counts[0][0] - 0.1 * 200 * 199) < 5 * np.sqrt(0.09 * 200 * 199)
    assert abs(counts[0][1] - 0.02 * 200 * 300) < 5 * np.sqrt(0.0196 * 200 * 300)
    assert counts[1][0] == 0
    assert counts[1][1] == 300 * 299


def test_block_model_repeats_with_its_seed():
    first = directed_sbm([50, 50], [[0.2, 0.1], [0.1, 0.2]], random_state=0)[0]
    again = directed_sbm([50, 50], [[0.2, 0.1], [0.1, 0.2]], random_state=0)[0]
    assert (first != again).nnz == 0


def test_block_model_refuses_wrong_shapes_and_probabilities():
    with pytest.raises(InputError, match=r"shape \(2, 2\)"):
        directed_sbm([3, 3], [[0.5]])
    with pytest.raises(InputError, match=r"\[0, 1\]"):
        directed_sbm([3], [[1.5]])
    with pytest.raises(InputError, match="positive integers"):
        directed_sbm([0], [[0.5]])
