"""ParPIC as a scikit-learn estimator."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable
from typing import Any, Literal, Self, cast

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.utils.validation import validate_data

from noisewright.methods.parpic.adjacency import (
    as_adjacency,
    nearest_neighbor_digraph,
    vertex_count,
)
from noisewright.methods.parpic.block_model import as_generator
from noisewright.methods.parpic.embedding import (
    count_groups,
    full_embedding,
    random_embedding,
    separated,
    unit_rows,
)
from noisewright.methods.parpic.entropy import find_knee, probe_count, probe_entropies
from noisewright.methods.parpic.walk import ReversibleWalk, vertex_measure
from noisewright.types import InputError, nearest_name

__all__ = ["ParPIC"]

TOLERANCE = 1e-3


class ParPIC(ClusterMixin, BaseEstimator):
    r"""Groups of a directed graph, from a few steps of a walk that keeps the directions.

    .. math:: Z = P_{(\nu)}^{t^*} Z_0, \qquad \text{labels} = \text{k-means}(Z)

    :math:`P_{(\nu)}` is the reversible walk (:func:`reversible_walk`), :math:`t^*` the knee of its
    entropy curve (:func:`walk_entropy`), :math:`Z_0` a few random columns. Cost
    O((probes + columns) t edges); no n x n matrix and no eigenvectors (Debaussart-Joniec, Sevi,
    Jonckheere, Kalogeratos 2026).

    Args:
        n_clusters: Number of groups, or ``"auto"`` for the largest drop of the singular values.
        gamma: Weight of incoming against outgoing edges in the vertex measure, in [0, 1].
        vertex_measure: ``"degree"``, ``"uniform"``, ``"harmonic"``, ``"walk"``, an array (n,) or a
            function of the adjacency.
        affinity: ``"precomputed"``: X is a graph. ``"nearest_neighbors"``: X is a table of
            features, of which the directed nearest-neighbour graph is made.
        n_neighbors: Edges out of each vertex of that graph; None means the ceiling of log(n).
        diffusion_time: Number of steps, or ``"auto"`` for the knee. The knee depends on
            ``t_max``, which scales its time axis.
        t_max: Length of the entropy curve.
        n_probes: Vertices the curve is averaged over; None means max(100, sqrt(n)).
        n_components: Number of random columns; None means max(100, sqrt(n)).
        projection: ``"random"``, or ``"full"`` for all of P^t (n <= 10 000), rows of norm 1.
        row_normalize: Scale the rows of the embedding to norm 1: helps where degrees are very
            uneven, can hurt on chains of groups.
        lazy: Stay in place every other step; ``"auto"`` where a component is bipartite.
        on_isolated: ``"label"`` gives vertices without any edge the label -1 and warns,
            ``"error"`` refuses them.
        n_init: Starts of k-means.
        max_block_mb: Memory for a block of columns, MB; changes nothing in the result.
        random_state: Seed, generator or None (fresh entropy).

    Attributes:
        labels_: Group of each vertex (n,), 0 is the largest; -1 for isolated vertices.
        embedding_: Coordinates (n, m); weak components are set far apart, isolated rows are 0.
        diffusion_time_: Steps taken.
        entropy_curve_: Mean entropy after 1 ... t_max steps, nats; empty if the time was given.
        entropy_limit_: What the curve tends to, nats.
        stationary_: Stationary law of the walk (n,).
        vertex_measure_: Measure (n,).
        n_clusters_: Number of groups asked for or chosen.
        n_weak_components_: Number of weak components among vertices with edges.
        n_isolated_: Number of vertices without any edge.
        lazy_: Whether the walk is lazy.
        n_features_in_: Columns of X.

    Example:
        >>> from noisewright.methods.parpic import directed_sbm
        >>> chain = [[0.05, 0.6, 0.0], [0.01, 0.05, 0.6], [0.0, 0.01, 0.05]]
        >>> graph, groups = directed_sbm([60, 60, 60], chain, random_state=0)
        >>> model = ParPIC(n_clusters=3, random_state=0).fit(graph)
        >>> from sklearn.metrics import adjusted_rand_score
        >>> adjusted_rand_score(groups, model.labels_) > 0.8
        True
    """

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 8,
        *,
        gamma: float = 0.5,
        vertex_measure: str | np.ndarray | Callable[..., Any] = "degree",
        affinity: Literal["precomputed", "nearest_neighbors"] = "precomputed",
        n_neighbors: int | None = None,
        diffusion_time: int | Literal["auto"] = "auto",
        t_max: int = 250,
        n_probes: int | None = None,
        n_components: int | None = None,
        projection: Literal["random", "full"] = "random",
        row_normalize: bool = False,
        lazy: bool | Literal["auto"] = "auto",
        on_isolated: Literal["label", "error"] = "label",
        n_init: int = 10,
        max_block_mb: float = 256,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.gamma = gamma
        self.vertex_measure = vertex_measure
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.diffusion_time = diffusion_time
        self.t_max = t_max
        self.n_probes = n_probes
        self.n_components = n_components
        self.projection = projection
        self.row_normalize = row_normalize
        self.lazy = lazy
        self.on_isolated = on_isolated
        self.n_init = n_init
        self.max_block_mb = max_block_mb
        self.random_state = random_state

    def fit(self, X: Any, y: object = None) -> Self:
        """Cluster the vertices.

        Args:
            X: A graph (see :func:`as_adjacency`), or features (n, p) with
                ``affinity="nearest_neighbors"``.
            y: Ignored.

        Returns:
            The estimator.

        Raises:
            InputError: If the graph or a parameter cannot work; the message says which and why.
            TypeError: If edge weights are complex or no numbers.
        """
        self._check_parameters()
        rng = as_generator(self.random_state)
        W = self._adjacency(X)
        linked = self._linked(W)
        walk = self._walk(W, linked)
        self._check_counts(len(linked))
        steps = self._time(walk, rng)
        embedding = self._embedding(walk, steps, rng)
        self._assign(embedding, walk, linked, vertex_count(W), rng)
        return self

    def _check_parameters(self) -> None:
        choices = {
            "affinity": ("precomputed", "nearest_neighbors"),
            "projection": ("random", "full"),
            "on_isolated": ("label", "error"),
        }
        for name, allowed in choices.items():
            value = getattr(self, name)
            if value not in allowed:
                raise InputError(f"unknown {name} {value!r}{nearest_name(str(value), allowed)}")
        for name in ("n_clusters", "diffusion_time"):
            value = getattr(self, name)
            if value != "auto":
                _check_count(name, value, 'a positive integer or "auto"')
        for name in ("t_max", "n_init"):
            _check_count(name, getattr(self, name), "a positive integer")
        for name in ("n_probes", "n_components", "n_neighbors"):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name), "a positive integer or None")

    def _adjacency(self, X: Any) -> sparse.csr_array:
        if self.affinity == "nearest_neighbors":
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, ensure_min_samples=2)
            return nearest_neighbor_digraph(X, self.n_neighbors)
        W = as_adjacency(X)
        self.n_features_in_ = vertex_count(W)
        if W.nnz == 0:
            raise InputError("the graph has no edges")
        # A power of two keeps every digit and lets sums of huge weights stay finite.
        W.data = np.ldexp(W.data, -np.frexp(W.data.max())[1])
        return W

    def _linked(self, W: sparse.csr_array) -> np.ndarray:
        """Return the vertices that have an edge; report the others."""
        linked = np.flatnonzero((W.sum(axis=1) > 0) | (W.sum(axis=0) > 0))
        self.n_isolated_ = vertex_count(W) - len(linked)
        if self.n_isolated_:
            message = f"{self.n_isolated_} of {vertex_count(W)} vertices have no edge"
            if self.on_isolated == "error":
                raise InputError(f'{message}; remove them or use on_isolated="label"')
            warnings.warn(f"{message}; their label is -1", UserWarning, stacklevel=3)
        return linked

    def _check_counts(self, n: int) -> None:
        if self.n_clusters != "auto" and int(self.n_clusters) > n:
            raise InputError(
                f"n_clusters={self.n_clusters} exceeds the number of vertices with edges, "
                f"n_samples={n}"
            )
        if self.n_probes is not None and self.n_probes > n:
            raise InputError(f"n_probes={self.n_probes} exceeds the {n} vertices with edges")

    def _walk(self, W: sparse.csr_array, linked: np.ndarray) -> ReversibleWalk:
        nu = vertex_measure(W, self.vertex_measure, self.gamma)
        walk = ReversibleWalk.of(W[linked][:, linked], nu[linked], lazy=self.lazy)
        self.vertex_measure_ = nu
        self.stationary_ = np.zeros(vertex_count(W))
        self.stationary_[linked] = walk.stationary
        self.lazy_ = walk.lazy
        self.n_weak_components_ = walk.n_components
        if walk.n_components > 1:
            warnings.warn(
                f"the graph has {walk.n_components} weak components; each is clustered apart from "
                "the others",
                UserWarning,
                stacklevel=3,
            )
        return walk

    def _time(self, walk: ReversibleWalk, rng: np.random.Generator) -> int:
        n = len(walk.stationary)
        self.entropy_curve_ = np.empty(0)
        self.entropy_limit_ = float(walk.limits.mean())
        self.diffusion_time_ = self.diffusion_time
        if self.diffusion_time == "auto":
            count = probe_count(n) if self.n_probes is None else self.n_probes
            probes = rng.choice(n, count, replace=False)
            curves = probe_entropies(
                walk, probes, self.t_max, tolerance=TOLERANCE, max_block_mb=self.max_block_mb
            )
            self.entropy_curve_ = curves.mean(axis=0)
            # The limit of these probes: with several components it is not that of all vertices.
            self.entropy_limit_ = float(walk.limits[probes].mean())
            knee = find_knee(self.entropy_curve_)
            self.diffusion_time_ = max(1, round(np.log(n))) if knee is None else knee
        return int(self.diffusion_time_)

    def _embedding(self, walk: ReversibleWalk, steps: int, rng: np.random.Generator) -> np.ndarray:
        if self.projection == "full":
            return full_embedding(walk, steps, deflate=self.row_normalize)
        n = len(walk.stationary)
        columns = probe_count(n) if self.n_components is None else self.n_components
        embedding = random_embedding(walk, columns, steps, rng, max_block_mb=self.max_block_mb)
        return unit_rows(embedding) if self.row_normalize else embedding

    def _assign(
        self,
        embedding: np.ndarray,
        walk: ReversibleWalk,
        linked: np.ndarray,
        n: int,
        rng: np.random.Generator,
    ) -> None:
        """Run k-means and write labels and coordinates of all n vertices."""
        self.n_clusters_ = (
            min(count_groups(embedding, walk.n_components), len(linked))
            if self.n_clusters == "auto"
            else int(self.n_clusters)
        )
        inside = embedding.var(axis=0).mean()
        embedding = separated(embedding, walk.component, rng)
        total = embedding.var(axis=0).mean()
        means = KMeans(
            self.n_clusters_,
            n_init=cast(Any, self.n_init),
            # k-means stops by the total variance; what it must resolve is that inside components.
            tol=1e-4 * inside / total if total > 0 else 1e-4,
            random_state=int(rng.integers(2**31 - 1)),
        ).fit(embedding)
        self.labels_ = np.full(n, -1)
        self.labels_[linked] = by_size(np.asarray(means.labels_))
        if len(linked) < n:
            self.embedding_ = np.zeros((n, embedding.shape[1]))
            self.embedding_[linked] = embedding
        else:
            self.embedding_ = embedding

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: a precomputed graph is pairwise input."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.affinity == "precomputed"
        tags.input_tags.positive_only = self.affinity == "precomputed"
        tags.input_tags.sparse = True
        return tags


def _check_count(name: str, value: Any, allowed: str) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise InputError(f"{name} must be {allowed}, got {value!r}")


def by_size(labels: np.ndarray) -> np.ndarray:
    """Return labels renumbered by decreasing size; ties by first appearance.

    Example:
        >>> by_size(np.array([2, 0, 0, 1]))
        array([1, 0, 0, 2])
    """
    _, first, inverse, sizes = np.unique(
        labels, return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.empty(len(sizes), dtype=int)
    rank[np.lexsort((first, -sizes))] = np.arange(len(sizes))
    return rank[inverse]
