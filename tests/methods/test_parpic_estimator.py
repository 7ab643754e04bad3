"""ParPIC finds what it should, repeats itself, and behaves as a scikit-learn estimator."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from noisewright.methods.parpic import ParPIC, directed_sbm
from noisewright.methods.parpic.embedding import count_groups

CHAIN = [[0.05, 0.6, 0], [0.01, 0.05, 0.6], [0, 0.01, 0.05]]
APART = [[0.2, 0.01, 0.01], [0.01, 0.2, 0.01], [0.01, 0.01, 0.2]]


@pytest.fixture(scope="module")
def chain():
    return directed_sbm([80, 80, 80], CHAIN, random_state=0)


def fit(graph, n_clusters=3, **settings):
    return ParPIC(n_clusters, **{"random_state": 0, **settings}).fit(graph)


# A nearest-neighbour graph of a few random points may fall into parts, which ParPIC warns of; and
# scikit-learn's k-means warns when a check gives it many equal rows.
@pytest.mark.filterwarnings("ignore:the graph has:UserWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.global_stream  # scikit-learn shuffles its own test data
@parametrize_with_checks([ParPIC(affinity="nearest_neighbors")])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("sizes", "probs"),
    [
        ([150] * 3, CHAIN),
        ([300] * 3, [[0.05, 0.6, 0.6], [0.02, 0.05, 0.02], [0.02, 0.02, 0.05]]),
        ([400] * 3, [[0.05, 0.01, 0.01], [0.01, 0.05, 0.01], [0.01, 0.01, 0.05]]),
    ],
    ids=["chain", "core_periphery", "assortative"],
)
def test_groups_of_block_models_are_found(sizes, probs):
    graph, groups = directed_sbm(sizes, probs, random_state=1)
    model = fit(graph)
    assert adjusted_rand_score(groups, model.labels_) >= 0.9
    assert model.entropy_curve_[-1] == pytest.approx(model.entropy_limit_, rel=0.01)


def test_few_columns_find_what_the_whole_matrix_finds(chain):
    graph, groups = chain
    few = adjusted_rand_score(groups, fit(graph, n_components=100).labels_)
    whole = adjusted_rand_score(groups, fit(graph, projection="full").labels_)
    assert abs(few - whole) <= 0.05


def test_same_seed_gives_the_same_bits_whatever_the_blocks(chain):
    graph, _ = chain
    whole, tiny = fit(graph), fit(graph, max_block_mb=1e-3)
    assert (whole.embedding_ == tiny.embedding_).all()
    assert (whole.labels_ == tiny.labels_).all()
    assert (whole.entropy_curve_ == tiny.entropy_curve_).all()


def test_seed_zero_is_a_seed_and_no_seed_is_fresh_entropy(chain):
    graph, _ = chain
    first, second = fit(graph, random_state=None), fit(graph, random_state=None)
    assert not np.array_equal(first.embedding_, second.embedding_)
    assert (fit(graph, random_state=0).embedding_ == fit(graph, random_state=0).embedding_).all()


@pytest.mark.parametrize("scale", [2.0**-40, 8.0])
def test_scale_of_the_weights_changes_no_bit(chain, scale):
    graph, _ = chain
    assert (fit(graph).embedding_ == fit(scale * graph).embedding_).all()


@pytest.mark.parametrize("scale", [3.7, 1e-12, 1e305])
def test_scale_of_the_weights_changes_no_label(chain, scale):
    graph, _ = chain
    again = fit(scale * graph)
    assert (fit(graph).labels_ == again.labels_).all()
    assert np.isfinite(again.embedding_).all()


def test_long_diffusion_keeps_its_digits(chain):
    """The second eigenvalue to the power 5000 is far below the smallest double."""
    graph, _ = chain
    model = fit(graph, diffusion_time=5000)
    assert np.isfinite(model.embedding_).all()
    assert 0.5 <= np.abs(model.embedding_).max() <= 1
    assert model.entropy_curve_.size == 0


def test_embedding_is_the_power_of_the_walk_without_its_constant(chain):
    """Undo the scale by regression on the plain product of the same start."""
    graph, _ = chain
    model = fit(graph, diffusion_time=3, n_components=4, t_max=3)
    from noisewright.methods.parpic import reversible_walk, vertex_measure

    P, pi = reversible_walk(graph, vertex_measure(graph))
    start = np.random.default_rng(0).random((4, len(pi)))
    start /= np.linalg.norm(start, axis=1, keepdims=True)
    plain = P @ (P @ (P @ start.T))
    plain -= pi @ plain
    scale = np.vdot(model.embedding_, plain) / np.vdot(plain, plain)
    np.testing.assert_allclose(model.embedding_, scale * plain, atol=1e-12)


def test_every_form_of_a_graph_gives_the_same_labels(chain):
    graph, _ = chain
    networkx, igraph = pytest.importorskip("networkx"), pytest.importorskip("igraph")
    forms = [
        graph.toarray(),
        graph.tocoo(),
        sparse.csc_matrix(graph),
        graph.astype(np.uint8),
        graph.astype(bool),
        networkx.from_scipy_sparse_array(graph, create_using=networkx.DiGraph),
        igraph.Graph(n=240, edges=np.transpose(graph.nonzero()).tolist(), directed=True),
    ]
    labels = fit(graph).labels_
    for form in forms:
        assert (fit(form).labels_ == labels).all(), type(form)


def test_undirected_network_counts_each_edge_both_ways():
    networkx, igraph = pytest.importorskip("networkx"), pytest.importorskip("igraph")
    from noisewright.methods.parpic import as_adjacency

    edges = [(0, 1, 2.0), (1, 2, 3.0), (2, 2, 5.0)]
    expected = np.array([[0, 2, 0], [2, 0, 3], [0, 3, 5.0]])
    one = networkx.Graph()
    one.add_weighted_edges_from(edges)
    other = igraph.Graph(edges=[edge[:2] for edge in edges])
    other.es["weight"] = [edge[2] for edge in edges]
    np.testing.assert_array_equal(as_adjacency(one).toarray(), expected)
    np.testing.assert_array_equal(as_adjacency(other).toarray(), expected)


def test_small_integers_do_not_wrap_when_duplicates_are_summed():
    from noisewright.methods.parpic import as_adjacency

    twice = sparse.coo_array((np.array([255, 255], dtype=np.uint8), ([0, 0], [1, 1])), shape=(2, 2))
    assert as_adjacency(twice)[0, 1] == 510


def test_weak_components_are_kept_apart():
    parts = [directed_sbm([40] * 2, [[0.3, 0.02], [0.02, 0.3]], seed)[0] for seed in range(3)]
    graph = sparse.block_diag([*parts, np.eye(2)]).tocsr()
    with pytest.warns(UserWarning, match="5 weak components"):
        model = ParPIC(8, random_state=0).fit(graph)
    assert model.n_weak_components_ == 5
    part = np.repeat(np.arange(5), [80, 80, 80, 1, 1])
    assert all(len(set(part[model.labels_ == label])) == 1 for label in range(8))
    truth = np.append(np.arange(240) // 40, [6, 7])
    assert adjusted_rand_score(truth, model.labels_) > 0.95


def test_isolated_vertices_get_a_label_of_their_own(chain):
    graph, _ = chain
    padded = sparse.block_diag([graph, sparse.csr_array((3, 3))]).tocsr()
    with pytest.warns(UserWarning, match="3 of 243 vertices have no edge"):
        model = ParPIC(3, random_state=0).fit(padded)
    assert (model.labels_[-3:] == -1).all()
    assert (model.labels_[:-3] == fit(graph).labels_).all()
    assert model.n_isolated_ == 3
    assert model.embedding_.shape[0] == len(model.stationary_) == 243
    assert not model.stationary_[-3:].any()


def test_bipartite_graph_is_walked_lazily():
    ring = np.roll(np.eye(20), 1, axis=1)
    model = fit(ring, 2)
    assert model.lazy_ is True
    assert sorted(np.bincount(model.labels_)) == pytest.approx([10, 10], abs=4)
    assert (np.diff(model.entropy_curve_) >= -1e-12).all()


def test_labels_are_numbered_by_size():
    graph, _ = directed_sbm([30, 90, 60], APART, random_state=0)
    sizes = np.bincount(fit(graph).labels_)
    assert (np.diff(sizes) <= 0).all()


def test_number_of_groups_is_found():
    for groups in (2, 3, 5):
        probs = 0.02 + 0.3 * np.eye(groups)
        graph, truth = directed_sbm([70] * groups, probs, random_state=groups)
        model = fit(graph, "auto")
        assert model.n_clusters_ == groups
        assert adjusted_rand_score(truth, model.labels_) > 0.95


def test_number_of_groups_from_one_function_is_the_number_of_parts():
    assert count_groups(np.ones((5, 1))) == 1
    assert count_groups(np.zeros((5, 3)), 4) == 4


def test_complete_graph_has_no_knee_and_takes_log_n():
    model = fit(np.ones((50, 50)), 1)
    assert model.diffusion_time_ == round(np.log(50))
    assert not model.labels_.any()


def test_single_vertex_with_a_loop_is_one_group():
    assert ParPIC(1, random_state=0).fit([[1.0]]).labels_.tolist() == [0]


def test_sklearn_tools_take_it():
    X, y = load_wine(return_X_y=True)
    model = ParPIC(3, affinity="nearest_neighbors", random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the graph has", UserWarning)
        labels = make_pipeline(StandardScaler(), clone(model)).fit_predict(X)
        search = GridSearchCV(
            model,
            {"n_neighbors": [6, 10]},
            scoring=lambda fitted, rows, truth: adjusted_rand_score(
                truth, clone(fitted).fit_predict(rows)
            ),
            cv=3,
        ).fit(X, y)
    assert adjusted_rand_score(y, labels) > 0.7
    assert search.best_params_["n_neighbors"] in (6, 10)


def test_input_is_not_changed(chain):
    graph, _ = chain
    copy = graph.copy()
    graph.data.flags.writeable = False
    fit(graph)
    graph.data.flags.writeable = True
    assert (graph != copy).nnz == 0
