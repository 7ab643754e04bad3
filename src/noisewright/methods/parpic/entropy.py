r"""When to stop diffusing: the knee of the entropy curve.

.. math:: H(t) = -\frac1n \sum_i \sum_j P^t_{ij} \log P^t_{ij}

grows from about the logarithm of the degree to :math:`H_\infty = -\sum_j \pi_j \log \pi_j`, which
is known in closed form. The groups are seen best where it bends: a walk has spread over its group
and not yet beyond.

The rows of :math:`P^t` are followed, since they are the distributions. An average over the
*columns*, as in some public code, tends to another number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.special import entr

from noisewright.methods.parpic.adjacency import vertex_count
from noisewright.methods.parpic.block_model import as_generator
from noisewright.methods.parpic.walk import ReversibleWalk, block_width
from noisewright.types import InputError

__all__ = ["entropy_limit", "find_knee", "probe_count", "probe_entropies", "walk_entropy"]


def probe_count(n: int) -> int:
    """Return how many vertices stand for all: min(n, max(100, ceil(sqrt(n)))).

    Example:
        >>> probe_count(50), probe_count(3000), probe_count(1_000_000)
        (50, 100, 1000)
    """
    return min(n, max(100, int(np.ceil(np.sqrt(n)))))


def entropy_limit(P: Any, pi: Any) -> float:
    r"""Return :math:`H_\infty`, nats; with several components, the mean over vertices.

    Example:
        >>> round(entropy_limit(np.full((4, 4), 0.25), np.full(4, 0.25)), 6)
        1.386294
    """
    return float(_as_walk(P, pi).limits.mean())


def walk_entropy(
    P: Any,
    pi: Any,
    t_max: int = 250,
    n_probes: int | None = None,
    random_state: Any = None,
    *,
    tolerance: float = 0.0,
    max_block_mb: float = 256,
) -> np.ndarray:
    """Return the mean row entropy of the first powers of a walk.

    Args:
        P: Transition matrix (n, n) with rows that sum to 1.
        pi: Its stationary law (n,).
        t_max: Number of times.
        n_probes: Vertices drawn without replacement; None means :func:`probe_count`, n means the
            exact curve.
        random_state: Seed, generator or None.
        tolerance: A probe within this fraction of its way to the limit, twice in a row, is taken
            to stay there: far fewer products on graphs that mix fast. 0 never stops early.
        max_block_mb: Memory for one block of probes, MB; changes nothing in the result.

    Returns:
        Entropies (t_max,) in nats; entry 0 belongs to one step.

    Raises:
        InputError: If ``t_max`` or ``n_probes`` is out of range.

    Example:
        >>> walk_entropy(np.full((4, 4), 0.25), np.full(4, 0.25), t_max=2).round(6)
        array([1.386294, 1.386294])
    """
    walk = _as_walk(P, pi)
    n = len(walk.stationary)
    n_probes = probe_count(n) if n_probes is None else n_probes
    if not 1 <= n_probes <= n:
        raise InputError(f"n_probes must be in 1 ... {n} for {n} vertices, got {n_probes}")
    probes = as_generator(random_state).choice(n, n_probes, replace=False)
    return probe_entropies(
        walk, probes, t_max, tolerance=tolerance, max_block_mb=max_block_mb
    ).mean(axis=0)


def _as_walk(P: Any, pi: Any) -> ReversibleWalk:
    transition = sparse.csr_array(P)
    component = connected_components(transition, directed=True, connection="weak")[1]
    return ReversibleWalk(transition, np.asarray(pi, dtype=np.float64), component, lazy=False)


def probe_entropies(
    walk: ReversibleWalk,
    probes: np.ndarray,
    t_max: int,
    *,
    tolerance: float = 0.0,
    max_block_mb: float = 256,
) -> np.ndarray:
    """Return the entropy of the walk from each probe after 1 ... t_max steps.

    Args:
        walk: The walk over n vertices.
        probes: Indices of the vertices it starts from (p,).
        t_max: Number of times, >= 1.
        tolerance: See :func:`walk_entropy`; judged for each probe on its own, so that the result
            does not depend on blocks.
        max_block_mb: Memory for one block, MB.

    Returns:
        Entropies (p, t_max) in nats.
    """
    if t_max < 1:
        raise InputError(f"t_max must be at least 1, got {t_max}")
    n = len(walk.stationary)
    size = block_width(n, max_block_mb)
    backward = sparse.csr_array(walk.transition.T)
    limits = walk.limits[probes]
    curves = np.tile(limits[:, None], (1, t_max))
    for start in range(0, len(probes), size):
        block = slice(start, start + size)
        _follow(backward, probes[block], limits[block], curves[block], tolerance)
    return curves


def _follow(
    backward: sparse.csr_array,
    probes: np.ndarray,
    limits: np.ndarray,
    curves: np.ndarray,
    tolerance: float,
) -> None:
    """Fill rows of ``curves`` up to the time at which each probe has arrived."""
    n, count = vertex_count(backward), len(probes)
    law = np.zeros((n, count))
    law[probes, np.arange(count)] = 1.0
    # A sparse product adds up each column in the same order whatever the width of the block.
    total = sparse.csr_array(np.ones((1, n)))
    alive = np.arange(count)
    near = np.zeros(count, dtype=int)
    for t in range(curves.shape[1]):
        law = backward @ law
        entropy = (total @ entr(law))[0]
        curves[alive, t] = entropy
        if tolerance <= 0:
            continue
        way = np.abs(limits[alive] - curves[alive, 0])
        close = np.abs(limits[alive] - entropy) <= tolerance * way
        near = np.where(close, near + 1, 0)
        keep = near < 2
        if not keep.any():
            return
        # Later times of an arrived probe keep the limit they were filled with.
        if not keep.all():
            law, alive, near = np.ascontiguousarray(law[:, keep]), alive[keep], near[keep]


def find_knee(curve: Any) -> int | None:
    """Return the time at which an increasing, concave curve bends most.

    Both axes are scaled to [0, 1]; the knee is where the curve is farthest above the diagonal
    (Satopaa et al. 2011, "Kneedle").

    Args:
        curve: Values at times 1, 2, ...

    Returns:
        The time, counted from 1; None if the curve has fewer than three points, is flat, or is
        nowhere above its diagonal.

    Raises:
        InputError: If a value is not finite.

    Example:
        >>> find_knee([0.0, 5.0, 8.0, 9.0, 9.5, 9.7])
        3
        >>> find_knee([1.0, 1.0, 1.0]) is None
        True
    """
    curve = np.asarray(curve, dtype=np.float64)
    if not np.isfinite(curve).all():
        raise InputError("the entropy curve has values that are not finite")
    span = np.ptp(curve) if curve.size else 0.0
    if curve.size < 3 or span <= 1e-12 * max(1.0, np.abs(curve).max()):
        return None
    above = (curve - curve.min()) / span - np.linspace(0, 1, curve.size)
    knee = int(above.argmax())
    return knee + 1 if above[knee] > 1e-9 else None
