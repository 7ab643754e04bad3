"""What ParPIC is compared with, all behind one signature: adjacency, number of groups, seed.

==================  ========================================================================
name                method
==================  ========================================================================
``parpic``          ParPIC, defaults
``parpic_rows``     ParPIC with rows of norm 1
``sc_sym``          normalised spectral clustering of W + W.T (Ng, Jordan, Weiss
                    2001): the direction is lost
``bibliometric``    the same of W.T W + W W.T (Satuluri & Parthasarathy 2011)
``hermitian``       eigenvectors of i (W - W.T), normalised (Cucuringu et al. 2020)
``dsc``             directed Laplacian of a teleporting walk (Zhou et al. 2005), teleport 0.1
``pic``             power-iteration clustering of the plain walk (Lin & Cohen 2010), its own
                    stopping rule, as many random columns as ParPIC
``pagerank_pic``    the same of the PageRank walk, damping 0.85
``louvain``         directed modularity, scikit-network; chooses the number of groups itself
``leiden``          the same with refinement, scikit-network
``infomap``         map equation of the directed flow, infomap; chooses the number itself
==================  ========================================================================

Every method sees the same vertices: those with an edge. Where it needs k-means it gets ten starts,
as ParPIC does. The spectral methods run k-means on rows of norm 1 (Ng, Jordan, Weiss 2001), which
on our sets is better for each of them than plain rows.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, eigsh

from noisewright.methods.parpic.adjacency import vertex_count
from noisewright.methods.parpic.embedding import unit_rows
from noisewright.methods.parpic.entropy import probe_count
from noisewright.methods.parpic.estimator import ParPIC, by_size
from noisewright.types import InputError, nearest_name

__all__ = ["METHODS", "OWN_COUNT", "available_methods", "cluster"]

Product = Callable[[np.ndarray], np.ndarray]
Method = Callable[[sparse.csr_array, int, int], np.ndarray]

DENSE_BELOW = 200
OWN_COUNT = ("louvain", "leiden", "infomap")
"""Methods that choose the number of groups themselves."""


def cluster(method: str, graph: sparse.csr_array, n_clusters: int, seed: int) -> np.ndarray:
    """Return the groups that a method finds.

    Args:
        method: A name of the table above.
        graph: Adjacency (n, n) as :func:`as_adjacency` returns it.
        n_clusters: Number of groups (ignored by those that choose it themselves).
        seed: Seed of all that is random in it.

    Returns:
        Group of each vertex (n,); -1 for vertices without any edge.

    Raises:
        InputError: If the name is not known.
        ImportError: If the package of an optional method is not installed.
    """
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}{nearest_name(method, METHODS)}")
    linked = np.flatnonzero((graph.sum(axis=1) > 0) | (graph.sum(axis=0) > 0))
    labels = np.full(vertex_count(graph), -1)
    labels[linked] = by_size(METHODS[method](graph[linked][:, linked], n_clusters, seed))
    return labels


def available_methods() -> tuple[str, ...]:
    """Return the names of the methods whose packages are installed."""
    packages = {"louvain": "sknetwork", "leiden": "sknetwork", "infomap": "infomap"}
    return tuple(
        name
        for name in METHODS
        if name not in packages or importlib.util.find_spec(packages[name]) is not None
    )


def parpic(graph: sparse.csr_array, n_clusters: int, seed: int, **settings: Any) -> np.ndarray:
    """ParPIC as it stands, or with other settings."""
    return ParPIC(n_clusters, random_state=seed, **settings).fit_predict(graph)


def parpic_rows(graph: sparse.csr_array, n_clusters: int, seed: int) -> np.ndarray:
    """ParPIC on rows of norm 1."""
    return parpic(graph, n_clusters, seed, row_normalize=True)


def symmetrised(graph: sparse.csr_array, n_clusters: int, seed: int) -> np.ndarray:
    """Normalised spectral clustering of W + W.T."""
    return spectral(graph + graph.T, n_clusters, seed)


def bibliometric(graph: sparse.csr_array, n_clusters: int, seed: int) -> np.ndarray:
    """Spectral clustering of the shared sources and targets, W.T W + W W.T."""
    return spectral(graph.T @ graph + graph @ graph.T, n_clusters, seed)


def spectral(affinity: sparse.csr_array, n_clusters: int, seed: int) -> np.ndarray:
    """Normalised spectral clustering of a symmetric affinity: eigenvectors of its walk."""
    scale = _root_inverse(affinity.sum(axis=1))
    normal = sparse.diags_array(scale) @ affinity @ sparse.diags_array(scale)
    vectors = _leading(sparse.csr_array(normal), n_clusters, "LA", seed)
    return means(unit_rows(vectors), n_clusters, seed)


def hermitian(graph: sparse.csr_array, n_clusters: int, seed: int) -> np.ndarray:
    """Spectral clustering of i (W - W.T): eigenvalues come in pairs, so an even number is used."""
    scale = _root_inverse(np.asarray((graph + graph.T).sum(axis=1)))
    skew = sparse.csr_array(1j * (graph - graph.T))
    normal = sparse.csr_array(sparse.diags_array(scale) @ skew @ sparse.diags_array(scale))
    vectors = _leading(normal, 2 * ((n_clusters + 1) // 2), "LM", seed)
    points = np.hstack([np.real(vectors), np.imag(vectors)])
    return means(unit_rows(points), n_clusters, seed)


def directed_laplacian(graph: sparse.csr_array, n_clusters: int, seed: int) -> np.ndarray:
    """Spectral clustering of the teleporting walk, made reversible by its stationary law."""
    forth, back = _teleporting_walk(graph, damping=0.9)
    root = np.sqrt(_stationary(back, vertex_count(graph)))

    def symmetric(x: np.ndarray) -> np.ndarray:
        x = x.ravel()
        return 0.5 * (root * forth(x / root) + back(x * root) / root)

    # scipy's annotations hide the constructor of the base class.
    operator = cast(Any, LinearOperator)((len(root),) * 2, matvec=symmetric, dtype=np.float64)
    return means(unit_rows(_leading(operator, n_clusters, "LA", seed)), n_clusters, seed)


def power_iteration(graph: sparse.csr_array, n_clusters: int, seed: int) -> np.ndarray:
    """Power-iteration clustering of the walk along the edges; it stays where it is in a sink."""
    walk, sinks = _out_walk(graph)
    walk = sparse.csr_array(walk + sparse.diags_array(sinks))
    return _power_clusters(lambda x: walk @ x, vertex_count(graph), n_clusters, seed)


def pagerank_power_iteration(graph: sparse.csr_array, n_clusters: int, seed: int) -> np.ndarray:
    """Power-iteration clustering of the PageRank walk, damping 0.85."""
    forth, _ = _teleporting_walk(graph, damping=0.85)
    return _power_clusters(forth, vertex_count(graph), n_clusters, seed)


def louvain(graph: sparse.csr_array, n_clusters: int, seed: int) -> np.ndarray:
    """Louvain on directed modularity (Dugue & Perez 2015)."""
    from sknetwork.clustering import Louvain

    model = Louvain(modularity="dugue", random_state=seed)
    return model.fit_predict(sparse.csr_matrix(graph))


def leiden(graph: sparse.csr_array, n_clusters: int, seed: int) -> np.ndarray:
    """Leiden on directed modularity."""
    from sknetwork.clustering import Leiden

    model = Leiden(modularity="dugue", random_state=seed)
    return model.fit_predict(sparse.csr_matrix(graph))


def infomap(graph: sparse.csr_array, n_clusters: int, seed: int) -> np.ndarray:
    """Two-level map equation of the directed flow."""
    from infomap import Infomap

    model = Infomap(directed=True, silent=True, two_level=True, seed=seed + 1)
    edges = graph.tocoo()
    model.add_nodes(range(vertex_count(graph)))
    model.add_links(zip(*(ends.tolist() for ends in (*edges.coords, edges.data)), strict=True))
    result = model.run()
    # Before 2.16 the groups were on the model and run() returned nothing.
    modules = result.modules() if hasattr(result, "modules") else model.get_modules()
    labels = np.zeros(vertex_count(graph), dtype=int)
    for vertex, group in dict(modules).items():
        labels[vertex] = group
    return labels


METHODS: dict[str, Method] = {
    "parpic": parpic,
    "parpic_rows": parpic_rows,
    "sc_sym": symmetrised,
    "bibliometric": bibliometric,
    "hermitian": hermitian,
    "dsc": directed_laplacian,
    "pic": power_iteration,
    "pagerank_pic": pagerank_power_iteration,
    "louvain": louvain,
    "leiden": leiden,
    "infomap": infomap,
}


def means(points: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    from sklearn.cluster import KMeans

    return np.asarray(
        KMeans(n_clusters, n_init=cast(Any, 10), random_state=seed).fit(points).labels_
    )


def _root_inverse(degree: Any) -> np.ndarray:
    degree = np.asarray(degree, dtype=np.float64)
    return np.divide(1, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)


def _leading(operator: Any, count: int, which: str, seed: int) -> np.ndarray:
    """Return eigenvectors (n, count) of a Hermitian matrix or operator, largest first."""
    n = operator.shape[0]
    if n <= max(DENSE_BELOW, count + 1):
        dense = operator @ np.eye(n)
        values, vectors = np.linalg.eigh(dense)
        order = np.argsort(-np.abs(values) if which == "LM" else -values)
        return vectors[:, order[:count]]
    start = np.random.default_rng(seed).standard_normal(n)
    _, vectors = eigsh(operator, k=count, which=which, v0=start.astype(operator.dtype))
    return vectors[:, ::-1]


def _out_walk(graph: sparse.csr_array) -> tuple[sparse.csr_array, np.ndarray]:
    """Return D_out^-1 W, with empty rows in sinks, and the indicator of sinks (n,)."""
    out = np.asarray(graph.sum(axis=1))
    inverse = np.divide(1, out, out=np.zeros_like(out), where=out > 0)
    walk = sparse.csr_array(sparse.diags_array(inverse) @ graph)
    return walk, (out == 0).astype(np.float64)


def _teleporting_walk(graph: sparse.csr_array, damping: float) -> tuple[Product, Product]:
    """Return x -> G x and x -> G.T x of the walk that jumps anywhere from sinks and at times.

    G = damping (P + sinks u.T) + (1 - damping) 1 u.T with u = 1 / n, never formed.
    """
    walk, sinks = _out_walk(graph)
    reverse = sparse.csr_array(walk.T)
    jump = damping * sinks + 1 - damping

    def forth(x: np.ndarray) -> np.ndarray:
        return damping * (walk @ x) + np.multiply.outer(jump, x.mean(axis=0))

    def back(x: np.ndarray) -> np.ndarray:
        return damping * (reverse @ x) + (jump @ x) / len(jump)

    return forth, back


def _stationary(back: Product, n: int) -> np.ndarray:
    """Return the stationary law (n,) by repeated steps; teleporting makes them contract."""
    law = np.full(n, 1 / n)
    for _ in range(500):
        following = back(law)
        if np.abs(following - law).sum() < 1e-12:
            break
        law = following
    return law / law.sum()


def _power_clusters(step: Product, n: int, n_clusters: int, seed: int) -> np.ndarray:
    """k-means after Lin & Cohen's rule: stop when the speed of every entry stops changing."""
    columns = np.random.default_rng(seed).random((probe_count(n), n)).T
    columns /= columns.sum(axis=0)
    speed = np.full_like(columns, np.inf)
    for _ in range(1000):
        following = step(columns)
        now = np.abs(following - columns)
        columns, change, speed = following, np.abs(now - speed).max(), now
        if change <= 1e-5 / n:
            break
    return means(columns * n, n_clusters, seed)
