"""Random directed graphs with known groups, drawn without ever forming an n x n matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from noisewright.types import InputError

__all__ = ["as_generator", "directed_sbm"]


def as_generator(random_state: Any = None) -> np.random.Generator:
    """Return a numpy generator for a seed, a generator, a legacy ``RandomState`` or None.

    None means fresh entropy; numpy's global stream is neither read nor advanced.

    Example:
        >>> as_generator(0).random() == as_generator(0).random()
        True
    """
    if hasattr(random_state, "randint"):
        return np.random.default_rng(random_state.randint(2**31 - 1))
    return np.random.default_rng(random_state)


def directed_sbm(
    sizes: Sequence[int], probs: Any, random_state: Any = None
) -> tuple[sparse.csr_array, np.ndarray]:
    """Draw a directed stochastic block model: edge i -> j with a probability of the two groups.

    Args:
        sizes: Vertices in each of the b groups.
        probs: Matrix (b, b); entry (a, c) is the probability of an edge from a vertex of group a
            to one of group c. No self-loops are drawn.
        random_state: Seed, generator or None.

    Returns:
        Adjacency (n, n) of ones, and the group of each vertex (n,). Time and memory grow with
        the number of edges, not with n squared.

    Raises:
        InputError: If the shapes do not fit or a probability lies outside [0, 1].

    Example:
        >>> graph, groups = directed_sbm([2, 1], [[0, 1], [0, 0]], random_state=0)
        >>> graph.toarray().tolist(), groups.tolist()
        ([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]], [0, 0, 1])
    """
    count = np.asarray(sizes)
    probs = np.asarray(probs, dtype=np.float64)
    if count.ndim != 1 or not count.size or count.dtype.kind not in "iu" or (count < 1).any():
        raise InputError(f"sizes must be a list of positive integers, got {sizes}")
    groups = len(count)
    if probs.shape != (groups, groups):
        raise InputError(
            f"probs must have shape {(groups, groups)} for {groups} sizes, got {probs.shape}"
        )
    if not ((probs >= 0) & (probs <= 1)).all():
        raise InputError(f"probs must lie in [0, 1], got {probs.tolist()}")
    rng = as_generator(random_state)
    starts = np.concatenate([[0], np.cumsum(count)])
    tails, heads = [], []
    for a, c in np.ndindex(probs.shape):
        tail, head = _draw_block(int(count[a]), int(count[c]), probs[a, c], rng, loops=a != c)
        tails.append(tail + starts[a])
        heads.append(head + starts[c])
    n = int(starts[-1])
    ends = (np.concatenate(tails), np.concatenate(heads))
    graph = sparse.csr_array((np.ones(len(ends[0])), ends), shape=(n, n))
    graph.sort_indices()
    return graph, np.repeat(np.arange(groups), count)


def _draw_block(
    rows: int, columns: int, prob: float, rng: np.random.Generator, *, loops: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the cells of one block: their number is binomial, then distinct cells uniformly."""
    width = columns if loops else columns - 1
    cells = rows * width
    if cells == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    chosen = rng.choice(cells, size=rng.binomial(cells, prob), replace=False, shuffle=False)
    row, column = np.divmod(chosen, width)
    if not loops:
        column = column + (column >= row)
    return row, column
