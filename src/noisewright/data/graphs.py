"""Graphs from files: edge lists, Matrix Market, GML, GraphML, scipy's npz.

``adjacency[i, j]`` is the weight of the edge i -> j. Vertices keep the names of their file, so
that results can be written back against them.

====================================  =========================================================
suffix                                what is read
====================================  =========================================================
``.csv`` ``.tsv`` ``.txt``            one edge a row: source, target, weight (1 where absent); a
``.edges`` ``.edgelist``              header is recognised; lines that begin with # or % are
                                      comments; ``.gz`` may follow
``.mtx``                              Matrix Market, vertices named 1 ... n as in the file
``.npz``                              a sparse matrix saved by ``scipy.sparse.save_npz``
``.gml`` ``.graphml``                 through networkx; edge key ``weight``, else ``value``
====================================  =========================================================
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy import sparse

from noisewright.data.edge_rows import decoded, read_edge_rows, read_rows
from noisewright.types import InputError

__all__ = ["GRAPH_SUFFIXES", "Graph", "read_graph", "read_vertex_labels"]

_EDGE_ROWS = (".csv", ".tsv", ".txt", ".edges", ".edgelist")
GRAPH_SUFFIXES = (*_EDGE_ROWS, ".mtx", ".npz", ".gml", ".graphml")
"""Suffixes that :func:`read_graph` takes."""


@dataclass(frozen=True)
class Graph:
    """A graph and what its vertices are called.

    Attributes:
        adjacency: Weights (n, n), float64; duplicate edges summed, zeros removed.
        names: Name of each vertex (n,), text.
        attributes: Further columns of the vertices, (n,) each, objects; None where absent.
        place: What was read.
        notes: What was decided or dropped while reading.
    """

    adjacency: sparse.csr_array
    names: np.ndarray
    attributes: Mapping[str, np.ndarray] = field(default_factory=dict)
    place: str = "memory"
    notes: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return one paragraph for a report: counts, weights, what was decided.

        Example:
            >>> one = Graph(sparse.csr_array([[0, 2.0], [0, 1.0]]), np.array(["a", "b"]))
            >>> one.describe()
            'memory: 2 vertices, 2 directed edges (1 self-loop), weights 1 to 2.'
        """
        weight = self.adjacency.data
        loops = int((self.adjacency.diagonal() != 0).sum())
        span = f", weights {weight.min():g} to {weight.max():g}" if len(weight) else ""
        counts = (
            f"{self.place}: {len(self.names)} vertices, {len(weight)} directed edges "
            f"({loops} self-loop{'' if loops == 1 else 's'}){span}."
        )
        return " ".join([counts, *self.notes])


def read_graph(path: str | Path) -> Graph:
    """Read a graph from a file; the suffix says how.

    Args:
        path: See the table at the top of this module.

    Raises:
        InputError: If the file is absent, empty, of an unknown kind or damaged; the message names
            the file, the line where there is one, and the remedy.
        ImportError: If GML or GraphML is asked for without networkx.
    """
    path = Path(path)
    suffixes = [s.lower() for s in path.suffixes]
    kind = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else ("", *suffixes)[-1]
    if kind not in GRAPH_SUFFIXES:
        raise InputError(
            f"{path.name}: unknown kind of graph file {kind!r}; known: {' '.join(GRAPH_SUFFIXES)}"
        )
    content = _content(path)
    separator = {".csv": ",", ".tsv": "\t"}.get(kind)
    readers: dict[str, Callable[[bytes, str], Graph]] = {
        ".mtx": _from_matrix_market,
        ".npz": _from_npz,
        ".gml": _from_gml,
        ".graphml": _from_graphml,
    }
    graph = (
        readers[kind](content, path.name)
        if kind in readers
        else _from_edge_rows(content, path.name, separator)
    )
    if not np.isfinite(graph.adjacency.data).all():
        raise InputError(f"{path.name}: some edge weight is NaN or infinite; remove those edges")
    return graph


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        if path.suffix.lower() == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not content.strip():
        raise InputError(f"{path} is empty; it must hold at least one edge")
    return content


def _from_edge_rows(content: bytes, name: str, separator: str | None) -> Graph:
    ends, weight, names, notes = read_edge_rows(content, name, separator)
    adjacency = sparse.csr_array((weight, tuple(ends)), shape=(len(names), len(names)))
    adjacency.sum_duplicates()
    twice = len(weight) - adjacency.nnz
    if twice:
        notes = (*notes, f"{twice} repeated edges were added to their first.")
    adjacency.eliminate_zeros()
    return Graph(adjacency, names, place=name, notes=notes)


def _as_csr(matrix: Any, name: str) -> sparse.csr_array:
    if np.ndim(matrix) != 2 and not sparse.issparse(matrix):
        raise InputError(f"{name} holds no matrix")
    if matrix.dtype.kind not in "buif":
        raise InputError(f"{name} holds {matrix.dtype} entries; edge weights must be real numbers")
    if matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"{name}: adjacency must be square, got shape {matrix.shape}")
    result = sparse.csr_array(matrix.astype(np.float64))
    result.sum_duplicates()
    result.eliminate_zeros()
    return result


# ---------------------------------------------------------------------------- matrices


def _from_matrix_market(content: bytes, name: str) -> Graph:
    from scipy.io import mmread

    try:
        matrix = mmread(io.BytesIO(content), spmatrix=False)
    except (ValueError, OverflowError, MemoryError, StopIteration, TypeError) as error:
        raise InputError(f"{name} is no Matrix Market file: {error}") from error
    adjacency = _as_csr(matrix, name)
    return Graph(adjacency, np.arange(1, len(adjacency.indptr)).astype(str), place=name)


def _from_npz(content: bytes, name: str) -> Graph:
    try:
        matrix = sparse.load_npz(io.BytesIO(content))
    except Exception as error:  # zipfile, zlib, numpy and scipy each raise their own
        raise InputError(
            f"{name} holds no sparse matrix of scipy.sparse.save_npz: {error}"
        ) from error
    adjacency = _as_csr(matrix, name)
    return Graph(adjacency, np.arange(len(adjacency.indptr) - 1).astype(str), place=name)


# ---------------------------------------------------------------------------- networkx


def _from_gml(content: bytes, name: str) -> Graph:
    networkx = _networkx(name)
    text = decoded(content, name)
    notes: list[str] = []
    reason: Exception | None = None
    for label in ("label", "id"):
        for again in (False, True):
            # Files of the wild repeat edges without declaring a multigraph.
            shown = (
                re.sub(r"\bgraph\s*\[", "graph [ multigraph 1", text, count=1) if again else text
            )
            try:
                found = networkx.parse_gml(shown.splitlines(), label=label)
            except Exception as error:  # the parser raises whatever its input makes it raise
                reason = error
                continue
            if again:
                notes.append("Repeated edges were added up.")
            return _from_networkx(found, name, notes)
    raise InputError(f"{name} is no GML file that networkx reads: {reason}") from reason


def _from_graphml(content: bytes, name: str) -> Graph:
    networkx = _networkx(name)
    try:
        found = networkx.read_graphml(io.BytesIO(content))
    except Exception as error:  # xml, networkx and number parsing each raise their own
        raise InputError(f"{name} is no GraphML file that networkx reads: {error}") from error
    return _from_networkx(found, name, [])


def _networkx(name: str) -> Any:
    try:
        import networkx
    except ImportError as error:
        raise ImportError(
            f"reading {name} needs networkx: pip install 'noisewright[graphs]'"
        ) from error
    return networkx


def _from_networkx(found: Any, name: str, notes: list[str]) -> Graph:
    if found.number_of_nodes() == 0:
        raise InputError(f"{name} holds no vertices")
    keys = {key for *_, data in found.edges(data=True) for key in data}
    weight = next((key for key in ("weight", "value") if key in keys), None)
    if weight == "value":
        notes.append("Edge key value was taken as the weight.")
    if not found.is_directed():
        notes.append("The file is undirected: each edge counts both ways.")
    import networkx

    try:
        matrix = networkx.to_scipy_sparse_array(found, weight=cast(Any, weight), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: an edge weight is no number: {error}") from error
    vertices = dict(found.nodes(data=True))
    columns = dict.fromkeys(key for data in vertices.values() for key in data)
    attributes = {
        key: np.array([data.get(key) for data in vertices.values()], dtype=object)
        for key in columns
    }
    names = np.array([str(vertex) for vertex in vertices])
    return Graph(_as_csr(matrix, name), names, attributes, place=name, notes=tuple(notes))


# ---------------------------------------------------------------------------- labels


def read_vertex_labels(source: str | Path, graph: Graph) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the known group of each vertex: a vertex attribute, or a file of its own.

    Args:
        source: Name of a vertex attribute of the graph (GML, GraphML), or a file with rows
            ``vertex, label``, or with one label a row in the order of the vertices.
        graph: The graph.

    Returns:
        Group of each vertex (n,), -1 where it is not given, and the names of the groups.

    Raises:
        InputError: If there is no such attribute or file, or its vertices are not the graph's.
    """
    if str(source) in graph.attributes:
        given = graph.attributes[str(source)]
        known = np.array([value is not None for value in given])
        cells = np.array([str(value) for value in given], dtype=object)
        return _groups(cells, known)
    path = Path(source)
    if not path.is_file():
        known_names = ", ".join(graph.attributes) or "none"
        raise InputError(
            f"labels {source!s}: no such file, and no vertex attribute of that name "
            f"(attributes: {known_names})"
        )
    separator = {".csv": ",", ".tsv": "\t"}.get(path.suffix.lower())
    cells, _ = read_rows(_content(path), path.name, separator)
    n = len(graph.names)
    if cells.shape[1] == 1:
        if len(cells) not in (n, n + 1):
            raise InputError(f"{path.name}: {len(cells)} labels for {n} vertices; give one each")
        return _groups(cells[-n:, 0], np.ones(n, dtype=bool))
    index = {text: i for i, text in enumerate(graph.names)}
    labels, known = np.full(n, "", dtype=object), np.zeros(n, dtype=bool)
    for vertex, label in cells[:, :2]:
        place = index.get(vertex)
        if place is not None:
            labels[place], known[place] = label, True
    if not known.any():
        raise InputError(
            f"{path.name}: no vertex of the graph is named in it; rows are vertex, label, and the "
            f"graph's vertices are called {graph.names[0]!r}, ..."
        )
    return _groups(labels, known)


def _groups(cells: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    names, codes = np.unique(cells[known].astype(str), return_inverse=True)
    groups = np.full(len(cells), -1)
    groups[known] = codes
    return groups, tuple(names.tolist())
