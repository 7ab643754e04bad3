"""From what people hold (sparse, dense, networkx, igraph, features) to one sparse matrix.

``W[i, j]`` is the weight of the edge i -> j throughout, float64, duplicates summed, stored zeros
removed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

from noisewright.types import InputError

__all__ = ["as_adjacency", "nearest_neighbor_digraph", "vertex_count"]


def vertex_count(graph: sparse.csr_array) -> int:
    """Return the number of vertices n of an adjacency (n, n)."""
    return len(graph.indptr) - 1


def as_adjacency(graph: Any) -> sparse.csr_array:
    """Return the weighted adjacency of a graph, checked.

    Args:
        graph: A scipy sparse matrix or array of any format and real dtype, a dense square array,
            a ``networkx`` graph (edge key ``weight``, 1 where absent) or an ``igraph.Graph``
            (edge attribute ``weight``). An undirected graph counts each edge both ways.

    Returns:
        A new matrix (n, n), float64, entries > 0, duplicates summed, sorted indices. The input
        is not changed.

    Raises:
        InputError: If it is not square, or an entry is NaN, infinite or negative.
        TypeError: If the entries are complex or no numbers.

    Example:
        >>> as_adjacency([[0, 2], [0, 0]]).toarray()
        array([[0., 2.],
               [0., 0.]])
    """
    library = type(graph).__module__.partition(".")[0]
    if library == "networkx":
        matrix = _from_networkx(graph)
    elif library == "igraph":
        matrix = _from_igraph(graph)
    else:
        matrix = _from_matrix(graph)
    matrix.sum_duplicates()
    matrix.sort_indices()
    _check_weights(matrix)
    matrix.eliminate_zeros()
    return matrix


def _from_matrix(graph: Any) -> sparse.csr_array:
    graph = graph if sparse.issparse(graph) else np.asarray(graph)
    _check_square(graph.shape)
    if graph.dtype.kind == "c":
        raise TypeError("Complex data not supported: edge weights must be real numbers")
    if graph.dtype.kind not in "buif":
        raise TypeError(f"edge weights must be numbers, got dtype {graph.dtype}")
    # To float64 first: duplicates of small integers would wrap when they are summed.
    return sparse.csr_array(graph.astype(np.float64), copy=True)


def _from_networkx(graph: Any) -> sparse.csr_array:
    import networkx

    if graph.number_of_nodes() == 0:
        raise InputError("the graph has no vertices")
    array = networkx.to_scipy_sparse_array(graph, weight="weight", dtype=np.float64, format="csr")
    return sparse.csr_array(array)


def _from_igraph(graph: Any) -> sparse.csr_array:
    ends = np.asarray(graph.get_edgelist(), dtype=np.int64).reshape(-1, 2)
    weighted = "weight" in graph.es.attributes()
    weight = np.asarray(graph.es["weight"] if weighted else np.ones(len(ends)), dtype=np.float64)
    if not graph.is_directed():
        two = ends[:, 0] != ends[:, 1]
        ends, weight = np.concatenate([ends, ends[two, ::-1]]), np.append(weight, weight[two])
    n = graph.vcount()
    return sparse.csr_array((weight, (ends[:, 0], ends[:, 1])), shape=(n, n))


def _check_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InputError(
            f"adjacency must be square, got shape {shape}; for a table of features (n, p) use "
            'affinity="nearest_neighbors"'
        )


def _check_weights(matrix: sparse.csr_array) -> None:
    bad = np.flatnonzero(~np.isfinite(matrix.data))
    if bad.size:
        raise InputError(
            f"{bad.size} edge weight(s) NaN or infinite, the first at {_place(matrix, bad[0])}; "
            "remove these edges or give them a finite weight"
        )
    bad = np.flatnonzero(matrix.data < 0)
    if bad.size:
        raise InputError(
            f"negative edge weight {matrix.data[bad[0]]} at {_place(matrix, bad[0])}; "
            "ParPIC needs W >= 0"
        )


def _place(matrix: sparse.csr_array, entry: int) -> tuple[int, int]:
    """Return (row, column) of the entry at a position of the stored data."""
    row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
    return row, int(matrix.indices[entry])


def nearest_neighbor_digraph(features: Any, n_neighbors: int | None = None) -> sparse.csr_array:
    """Return the directed graph with an edge from each row to each of its nearest rows.

    Args:
        features: Table (n, p), dense or sparse; Euclidean distance.
        n_neighbors: Edges out of each vertex; None means the ceiling of log(n).

    Returns:
        Adjacency (n, n) of ones, without self-edges.

    Raises:
        InputError: If ``n_neighbors`` is not in 1 ... n - 1.

    Example:
        >>> nearest_neighbor_digraph([[0.0], [1.0], [1.5]], 1).toarray()
        array([[0., 1., 0.],
               [0., 0., 1.],
               [0., 1., 0.]])
    """
    from sklearn.neighbors import kneighbors_graph

    n = features.shape[0] if sparse.issparse(features) else len(features)
    if n < 2:
        raise InputError(f"a nearest-neighbour graph needs at least 2 rows, got n_samples={n}")
    count = math.ceil(math.log(n)) if n_neighbors is None else n_neighbors
    if not 1 <= count < n:
        raise InputError(f"n_neighbors must be in 1 ... {n - 1} for {n} rows, got {n_neighbors}")
    graph = kneighbors_graph(features, count, mode="connectivity", include_self=False)
    return sparse.csr_array(graph, dtype=np.float64)
