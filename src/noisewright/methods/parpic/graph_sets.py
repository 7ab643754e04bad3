"""The graphs of the experiment: block models, nearest-neighbour digraphs, real digraphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from noisewright.methods.parpic.adjacency import nearest_neighbor_digraph
from noisewright.methods.parpic.block_model import directed_sbm

__all__ = [
    "EXTRA",
    "KINDS",
    "KNN",
    "MODELS",
    "REAL",
    "WHY",
    "Case",
    "block_model",
    "packaged",
    "real",
    "scale_graph",
]

MODELS = {
    "chain": ([150] * 3, [[0.05, 0.6, 0], [0.01, 0.05, 0.6], [0, 0.01, 0.05]]),
    "core_periphery": ([300] * 3, [[0.05, 0.6, 0.6], [0.02, 0.05, 0.02], [0.02, 0.02, 0.05]]),
    "assortative": ([400] * 3, [[0.05, 0.01, 0.01], [0.01, 0.05, 0.01], [0.01, 0.01, 0.05]]),
    "chain_sparse": ([600] * 3, [[0.0026, 0.031, 0], [0.0005, 0.0026, 0.031], [0, 0.0005, 0.0026]]),
    "assortative_hard": ([200] * 3, [[0.05, 0.02, 0.02], [0.02, 0.05, 0.02], [0.02, 0.02, 0.05]]),
}
"""Sizes of the groups and probability of an edge from a group (row) to a group (column)."""

KNN = ("iris", "wine", "breast_cancer", "digits")
REAL = ("drosophila_left", "email")

KINDS = {
    "chain": "groups in a row, edges run from each to the next",
    "chain_sparse": "the chain with 14 edges out of each vertex in place of 68",
    "core_periphery": "a core that points to two peripheries",
    "assortative": "dense groups, no direction between them",
    "assortative_hard": "groups barely denser than the rest, no direction between them",
    **dict.fromkeys(KNN, "nearest neighbours of a table: nearly mutual edges"),
    "drosophila_left": "connectome, very uneven degrees",
    "email": "mail between departments, very uneven degrees",
}

EXTRA = ("chain_sparse", "assortative_hard")
"""Models where we know that ParPIC loses; no mean counts them."""

_CHAIN = "members of a group share sources and targets, which those eigenvectors read off at once"

WHY = {
    "chain": _CHAIN,
    "chain_sparse": f"{_CHAIN}; a walk over few edges is noisy",
    "assortative_hard": "direction carries nothing; k eigenvectors average over the whole graph, "
    "while few steps of a walk keep the noise of single edges",
    **dict.fromkeys(
        KNN,
        "direction carries little; eigenvectors keep just k directions, random columns after few "
        "steps a mixture of many",
    ),
    "drosophila_left": "vertices of high degree dominate plain rows; rows of norm 1 mend it",
    "email": "vertices of high degree dominate plain rows; rows of norm 1 mend most of it",
    "assortative": "direction carries nothing",
}


@dataclass(frozen=True)
class Case:
    """One graph with the groups that should be found.

    Attributes:
        name: Name in the keys.
        graph: Adjacency (n, n).
        groups: True group of each vertex (n,), counted from 0.
        note: What was read, for the report.
    """

    name: str
    graph: sparse.csr_array
    groups: np.ndarray
    note: str

    @property
    def n_groups(self) -> int:
        """Number of true groups."""
        return len(np.unique(self.groups))


def block_model(name: str, seed: int) -> Case:
    """Draw a block model of ``MODELS``."""
    sizes, probs = MODELS[name]
    graph, groups = directed_sbm(sizes, probs, random_state=seed)
    rows = " / ".join(" ".join(f"{p:g}" for p in row) for row in probs)
    text = (
        f"{name}: {KINDS[name]}; block model of {len(groups)} vertices in {len(sizes)} groups, "
        f"edge probabilities {rows}."
    )
    return Case(name, graph, groups, text)


def packaged(name: str) -> Case:
    """Return the nearest-neighbour digraph of a table that scikit-learn carries."""
    from sklearn import datasets
    from sklearn.preprocessing import StandardScaler

    table = getattr(datasets, f"load_{name}")()
    features, scaled = table.data, name in ("wine", "breast_cancer")
    if scaled:
        features = StandardScaler().fit_transform(features)
    graph = nearest_neighbor_digraph(features)
    text = (
        f"{name}: {len(features)} rows of {features.shape[1]} features{' (standardised)' * scaled} "
        f"in scikit-learn (BSD), each joined to its {graph.nnz // len(features)} nearest rows."
    )
    return Case(name, graph, np.asarray(table.target), text)


def real(name: str) -> Case:
    """Return a real digraph if it is at hand: of email, the largest weak component.

    Raises:
        NotAtHandError: If it is not; the message says how to get it.
    """
    from noisewright.data.graph_sets import drosophila_mb, email_eu_core

    if name == "drosophila_left":
        found, groups = drosophila_mb("left")
        note = (
            f"{name}: mushroom body of a fly larva (Eichler et al., Nature 548, 2017; MIT), "
            f"{found.describe()}"
        )
        return Case(name, found.adjacency, groups, note)
    found, groups = email_eu_core()
    part = connected_components(found.adjacency, connection="weak")[1]
    kept = np.flatnonzero(part == np.bincount(part).argmax())
    note = (
        f"{name}: mail in a European institution (SNAP, Yin et al., KDD 2017; licence not stated, "
        f"used for evaluation), {found.describe()} Kept: the largest weak component, {len(kept)} "
        f"people; dropped: {len(part) - len(kept)} who wrote to nobody but themselves."
    )
    return Case(name, found.adjacency[kept][:, kept], groups[kept], note)


def scale_graph(n: int, seed: int) -> sparse.csr_array:
    """Draw three assortative groups with n vertices and 15 edges out of each on average."""
    sizes = [n // 3] * 3
    across = 15 / (7 * (n // 3))
    return directed_sbm(sizes, across * (1 + 4 * np.eye(3)), random_state=seed)[0]
