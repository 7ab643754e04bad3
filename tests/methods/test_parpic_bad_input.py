"""Whatever cannot be clustered is refused in words, before any long work."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from noisewright.methods.parpic import ParPIC, nearest_neighbor_digraph
from noisewright.types import InputError

RING = np.roll(np.eye(9), 1, axis=1)


def with_entry(value, place=(0, 2)):
    graph = RING.copy()
    graph[place] = value
    return graph


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (np.ones((3, 4)), r"adjacency must be square, got shape \(3, 4\).*nearest_neighbors"),
        (sparse.csr_array((3, 4)), r"got shape \(3, 4\)"),
        (np.ones(4), r"got shape \(4,\)"),
        (with_entry(np.nan), r"1 edge weight.*at \(0, 2\)"),
        (with_entry(np.inf, (4, 7)), r"1 edge weight.*at \(4, 7\)"),
        (with_entry(-1.0), r"negative edge weight -1.0 at \(0, 2\); ParPIC needs W >= 0"),
        (np.zeros((4, 4)), "the graph has no edges"),
        (sparse.csr_array(([0.0], ([0], [1])), shape=(2, 2)), "the graph has no edges"),
        ([[0.0]], "the graph has no edges"),
    ],
)
def test_graph_is_refused(graph, message):
    with pytest.raises(InputError, match=message):
        ParPIC(2).fit(graph)


def test_infinity_from_summed_duplicates_is_refused():
    big = np.finfo(float).max
    graph = sparse.coo_array(([big, big], ([0, 0], [1, 1])), shape=(2, 2))
    with (
        np.errstate(over="ignore"),
        pytest.raises(InputError, match=r"infinite, the first at \(0, 1\)"),
    ):
        ParPIC(2).fit(graph)


@pytest.mark.parametrize("graph", [RING * 1j, np.array([["a", "b"], ["c", "d"]])])
def test_weights_that_are_no_real_numbers_are_a_type_error(graph):
    with pytest.raises(TypeError):
        ParPIC(2).fit(graph)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_clusters": 10}, "n_clusters=10 exceeds.*9"),
        ({"n_clusters": 0}, "n_clusters must be a positive integer.*got 0"),
        ({"n_clusters": 2.0}, "n_clusters"),
        ({"n_clusters": True}, "n_clusters"),
        ({"gamma": 1.5}, r"gamma must be in \[0, 1\], got 1.5"),
        ({"diffusion_time": 0}, "diffusion_time"),
        ({"diffusion_time": "knee"}, "diffusion_time"),
        ({"t_max": 0}, "t_max"),
        ({"n_probes": 10}, "n_probes=10 exceeds the 9"),
        ({"n_components": 0}, "n_components"),
        ({"affinity": "rbf"}, "affinity"),
        ({"projection": "ful"}, "did you mean 'full'"),
        ({"on_isolated": "drop"}, "on_isolated"),
        ({"lazy": "never"}, "lazy"),
        ({"vertex_measure": np.ones(4)}, r"shape \(9,\)"),
        ({"vertex_measure": "pagerank"}, "unknown vertex_measure"),
        ({"affinity": "nearest_neighbors", "n_neighbors": 9}, r"1 \.\.\. 8"),
    ],
)
def test_setting_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        ParPIC(**{"n_clusters": 2, "random_state": 0, **settings}).fit(RING)


def test_isolated_vertices_can_be_refused():
    graph = sparse.block_diag([RING, sparse.csr_array((2, 2))])
    with pytest.raises(InputError, match="2 of 11 vertices have no edge"):
        ParPIC(2, on_isolated="error").fit(graph)


@pytest.mark.filterwarnings("ignore:3 of 12 vertices")
def test_isolated_vertices_do_not_count_towards_the_clusters():
    graph = sparse.block_diag([RING, sparse.csr_array((3, 3))])
    with pytest.raises(InputError, match=r"n_clusters=10 exceeds.*9"):
        ParPIC(10).fit(graph)


def test_full_projection_of_a_large_graph_is_refused():
    n = 10_001
    ring = sparse.csr_array((np.ones(n), (np.arange(n), (np.arange(n) + 1) % n)), shape=(n, n))
    with pytest.raises(InputError, match="limited to 10000 vertices, got 10001"):
        ParPIC(2, projection="full", diffusion_time=2).fit(ring)


def test_equal_points_may_form_a_component_of_their_own():
    points = np.concatenate([np.zeros((12, 2)), np.random.default_rng(0).normal(9, 1, (30, 2))])
    model = ParPIC(2, affinity="nearest_neighbors", random_state=0)
    with pytest.warns(UserWarning, match="weak components"):
        model.fit(points)
    assert len(set(model.labels_[:12])) == 1


@pytest.mark.parametrize("rows", [0, 1])
def test_neighbour_graph_needs_two_rows(rows):
    with pytest.raises(InputError, match="at least 2 rows"):
        nearest_neighbor_digraph(np.zeros((rows, 2)))
