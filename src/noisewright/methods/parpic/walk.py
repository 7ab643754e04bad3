r"""The reversible walk of a directed graph.

A walk along directed edges, :math:`P = D_{out}^{-1} W`, is stuck in sinks and has complex
eigenvalues. Weighted by a positive measure :math:`\nu` on the vertices and added to its own
reverse it becomes reversible without losing which way an edge points:

.. math::
    S = N P + P^\top N, \qquad \delta = S 1, \qquad P_{(\nu)} = \mathrm{diag}(\delta)^{-1} S

with :math:`N = \mathrm{diag}(\nu)` (Debaussart-Joniec et al. 2026, section 3).

================  ==============================================================
symbol            meaning
================  ==============================================================
``W`` (n, n)      weight of the edge i -> j, >= 0
``nu`` (n,)       vertex measure, >= 0
``P`` (n, n)      the reversible walk; rows sum to 1, same sparsity as W + W.T
``pi`` (n,)       its stationary law, ``delta`` scaled to sum 1
================  ==============================================================
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.special import entr

from noisewright.methods.parpic.adjacency import as_adjacency, vertex_count
from noisewright.types import InputError, nearest_name

__all__ = ["ReversibleWalk", "reversible_walk", "vertex_measure"]

FLOOR = 1e-12
MEASURES = ("degree", "uniform", "harmonic", "walk")


def vertex_measure(
    W: Any,
    kind: str | np.ndarray | Callable[[sparse.csr_array], Any] = "degree",
    gamma: float = 0.5,
    *,
    t0: int = 1,
    alpha: float = 1.0,
) -> np.ndarray:
    r"""Return the weight :math:`\nu` of each vertex.

    ============  ===============================================================================
    kind          :math:`\nu` (bars: degrees scaled to sum 1)
    ============  ===============================================================================
    ``degree``    :math:`\gamma \bar d_{in} + (1 - \gamma) \bar d_{out}`
    ``uniform``   :math:`1 / n`
    ``harmonic``  :math:`1 / (\gamma / \bar d_{in} + (1 - \gamma) / \bar d_{out})`, scaled to sum
                  1; 0 where either degree is 0
    ``walk``      :math:`(1^\top P_\gamma^{t_0} / n)^\alpha` with
                  :math:`P_\gamma = \gamma D_{out}^{-1} W + (1 - \gamma) D_{in}^{-1} W^\top`
    ============  ===============================================================================

    Args:
        W: Adjacency (n, n) or anything :func:`as_adjacency` takes.
        kind: One of the names above, an array (n,), or a function of the adjacency.
        gamma: Weight of incoming against outgoing edges, in [0, 1].
        t0: Steps of the ``walk`` measure.
        alpha: Power of the ``walk`` measure.

    Returns:
        Measure (n,), float64, >= 0.

    Raises:
        InputError: If ``gamma`` or ``kind`` is not allowed, or the values are not a measure.

    Example:
        >>> vertex_measure([[0, 1], [0, 0]], gamma=0.25)
        array([0.75, 0.25])
    """
    if not 0 <= gamma <= 1:
        raise InputError(f"gamma must be in [0, 1], got {gamma}")
    W = as_adjacency(W)
    if isinstance(kind, str):
        return _named_measure(W, kind, gamma, t0, alpha)
    return _checked_measure(kind(W) if callable(kind) else kind, vertex_count(W))


def _named_measure(
    W: sparse.csr_array, kind: str, gamma: float, t0: int, alpha: float
) -> np.ndarray:
    n = vertex_count(W)
    out, into = W.sum(axis=1), W.sum(axis=0)
    if kind == "uniform":
        return np.full(n, 1 / n)
    if kind == "degree":
        total = out.sum() or 1.0
        return gamma * into / total + (1 - gamma) * out / total
    if kind == "harmonic":
        total = out.sum() or 1.0
        inverse = gamma / (into / total + 1e-10) + (1 - gamma) / (out / total + 1e-10)
        measure = np.where((out > 0) & (into > 0), 1 / inverse, 0.0)
        return measure / (measure.sum() or 1.0)
    if kind == "walk":
        forth, back = _inverse(out), _inverse(into)
        law = np.full(n, 1 / n)
        for _ in range(t0):
            law = gamma * (W.T @ (law * forth)) + (1 - gamma) * (W @ (law * back))
        return law**alpha
    raise InputError(f"unknown vertex_measure {kind!r}{nearest_name(kind, MEASURES)}")


def _inverse(degree: np.ndarray) -> np.ndarray:
    """Return 1 / degree, and 0 where the degree is 0."""
    return np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)


def _checked_measure(values: Any, n: int) -> np.ndarray:
    nu = np.array(values, dtype=np.float64)
    if nu.shape != (n,):
        raise InputError(f"vertex measure must have shape ({n},), got {nu.shape}")
    if not np.isfinite(nu).all():
        raise InputError(f"vertex measure has {np.count_nonzero(~np.isfinite(nu))} NaN or infinity")
    if (nu < 0).any():
        raise InputError(f"vertex measure must be >= 0, got {nu.min()} at {int(nu.argmin())}")
    if not nu.any():
        raise InputError("vertex measure is zero everywhere; give some vertex a positive value")
    return nu


def reversible_walk(W: Any, nu: Any) -> tuple[sparse.csr_array, np.ndarray]:
    """Return the reversible walk and its stationary law.

    A vertex with outgoing edges and measure 0 would lose those edges; its measure is raised to
    ``1e-12`` of the mean, with a warning.

    Args:
        W: Adjacency (n, n) or anything :func:`as_adjacency` takes.
        nu: Vertex measure (n,), >= 0; its scale does not matter.

    Returns:
        ``P`` (n, n) csr with rows that sum to 1 (rows of vertices without any edge are empty), and
        ``pi`` (n,) with ``pi[i] P[i, j] = pi[j] P[j, i]``.

    Raises:
        InputError: If the graph has no edges or ``nu`` is not a measure on its vertices.

    Example:
        >>> P, pi = reversible_walk([[0, 1, 1], [0, 0, 1], [0, 0, 0]], [1, 1, 1])
        >>> P.toarray()
        array([[0.        , 0.5       , 0.5       ],
               [0.33333333, 0.        , 0.66666667],
               [0.33333333, 0.66666667, 0.        ]])
    """
    W = as_adjacency(W)
    if W.nnz == 0:
        raise InputError("the graph has no edges")
    nu = _checked_measure(nu, vertex_count(W))
    out = W.sum(axis=1)
    nu = _floored(nu / nu.mean(), out > 0)
    flow = sparse.csr_array(sparse.diags_array(nu * _inverse(out)) @ W)
    symmetric = sparse.csr_array(flow + flow.T)
    delta = symmetric.sum(axis=1)
    return sparse.csr_array(sparse.diags_array(_inverse(delta)) @ symmetric), delta / delta.sum()


def _floored(nu: np.ndarray, has_out: np.ndarray) -> np.ndarray:
    """Raise a vanishing measure (mean 1) where edges would be lost."""
    low = has_out & (nu < FLOOR)
    if low.any():
        warnings.warn(
            f"the vertex measure is zero at {np.count_nonzero(low)} vertices with outgoing edges; "
            f"raised to {FLOOR:g} of its mean so that their edges are not lost (gamma < 1 avoids "
            "this)",
            UserWarning,
            stacklevel=3,
        )
    return np.where(low, FLOOR, nu)


def has_bipartite_component(W: sparse.csr_array, n_components: int) -> bool:
    """Tell whether some component of the undirected view is bipartite.

    The double cover of a component (each vertex twice, edges cross over) falls in two exactly
    when the component is bipartite.
    """
    view = W + W.T
    cover = sparse.block_array([[None, view], [view, None]], format="csr")
    return connected_components(cover, directed=False)[0] > n_components


def block_width(n: int, max_block_mb: float) -> int:
    """Return how many columns of length n are worked on at once.

    Three arrays of a block live at a time and fit the given memory. Within it, a block that stays
    in the processor's cache (2 MB) is several times faster on graphs of 1e5 edges and more.

    Example:
        >>> block_width(1000, 256), block_width(1_000_000, 256), block_width(1_000_000, 1)
        (250, 8, 1)
    """
    return max(1, min(int(max_block_mb * 1e6 / (3 * 8 * n)), max(8, 250_000 // n)))


@dataclass(frozen=True)
class ReversibleWalk:
    """A discrete diffusion on the vertices of a graph without isolated vertices.

    Attributes:
        transition: ``P`` (n, n), rows sum to 1.
        stationary: ``pi`` (n,), sums to 1.
        component: Weak component of each vertex (n,), 0 ... n_components - 1.
        lazy: Whether half of each step stays where it is.
    """

    transition: sparse.csr_array
    stationary: np.ndarray
    component: np.ndarray
    lazy: bool

    @classmethod
    def of(cls, W: Any, nu: Any, *, lazy: bool | str = "auto") -> ReversibleWalk:
        """Build the walk of a graph.

        Args:
            W: Adjacency (n, n).
            nu: Vertex measure (n,).
            lazy: Take ``(I + P) / 2`` in place of P. ``"auto"`` does so when a component is
                bipartite: P would alternate between its two sides for ever.

        Raises:
            InputError: If the graph has no edges or an isolated vertex.
        """
        W = as_adjacency(W)
        transition, stationary = reversible_walk(W, nu)
        if not stationary.all():
            raise InputError(f"vertex {int(stationary.argmin())} is isolated; take it out first")
        n_components, component = connected_components(W, directed=True, connection="weak")
        if isinstance(lazy, str) and lazy == "auto":
            lazy = has_bipartite_component(W, n_components)
        elif not isinstance(lazy, (bool, np.bool_)):
            raise InputError(f'lazy must be True, False or "auto", got {lazy!r}')
        if lazy:
            eye = sparse.eye_array(vertex_count(W), format="csr")
            transition = sparse.csr_array(0.5 * (transition + eye))
        return cls(transition, stationary, component, bool(lazy))

    @property
    def n_components(self) -> int:
        """Number of weak components."""
        return int(self.component.max()) + 1

    @cached_property
    def averages(self) -> sparse.csr_array:
        """Stationary law inside each component: (n_components, n), rows sum to 1."""
        share = self.stationary / np.bincount(self.component, self.stationary)[self.component]
        n = len(share)
        return sparse.csr_array((share, (self.component, np.arange(n))), (self.n_components, n))

    @property
    def limits(self) -> np.ndarray:
        """Entropy in nats that the law of each vertex tends to (n,), that of its component."""
        share = np.asarray(self.averages.sum(axis=0))
        return np.bincount(self.component, entr(share))[self.component]

    def step(self, law: np.ndarray) -> np.ndarray:
        """Return distributions over vertices, rows of (batch, n), one step later."""
        return law @ self.transition
