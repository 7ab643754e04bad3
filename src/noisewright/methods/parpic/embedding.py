r"""Where the walk leads: a few random functions, averaged over t steps.

:math:`Z = P^t Z_0` with m random columns in place of the n x n matrix :math:`P^t`. The constant
on each weak component carries nothing for k-means and everything else decays, so it is taken out
at each step and the scale is kept in a power of two per column. Nothing n x n is formed.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import pdist

from noisewright.methods.parpic.walk import ReversibleWalk, block_width
from noisewright.types import InputError

__all__ = ["count_groups", "full_embedding", "random_embedding", "separated", "unit_rows"]

FULL_LIMIT = 10_000


def diffused(
    walk: ReversibleWalk, columns: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``P^steps columns`` without the constant of each component, as mantissa, exponent.

    Args:
        walk: The walk over n vertices.
        columns: Start (n, m).
        steps: Number of products.

    Returns:
        Mantissas (n, m), each column within [-1, 1], and exponents of two (m,).
    """
    exponent = np.zeros(columns.shape[1], dtype=int)
    columns = columns - (walk.averages @ columns)[walk.component]
    for _ in range(steps):
        columns = walk.transition @ columns
        columns -= (walk.averages @ columns)[walk.component]
        shift = np.frexp(np.abs(columns).max(axis=0))[1]
        columns = np.ldexp(columns, -shift)
        exponent += shift
    return columns, exponent


def random_embedding(
    walk: ReversibleWalk,
    n_components: int,
    steps: int,
    rng: np.random.Generator,
    *,
    max_block_mb: float = 256,
) -> np.ndarray:
    """Return m random functions of the vertices after ``steps`` steps, largest entry about 1.

    Args:
        walk: The walk over n vertices.
        n_components: Number of columns m.
        steps: Diffusion time t.
        rng: Source of the start, uniform in (0, 1), columns scaled to norm 1; drawn column after
            column, so that blocks do not change it.
        max_block_mb: Memory for one block of columns, MB.

    Returns:
        Embedding (n, m).
    """
    n = len(walk.stationary)
    size = block_width(n, max_block_mb)
    embedding = np.empty((n, n_components))
    exponents = np.empty(n_components, dtype=int)
    for start in range(0, n_components, size):
        block = slice(start, min(start + size, n_components))
        rows = rng.random((block.stop - start, n))
        rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        columns = np.ascontiguousarray(rows.T)
        embedding[:, block], exponents[block] = diffused(walk, columns, steps)
    return np.ldexp(embedding, exponents - exponents.max(), out=embedding)


def full_embedding(walk: ReversibleWalk, steps: int, *, deflate: bool) -> np.ndarray:
    """Return the rows of ``P^steps`` (n, n), of norm 1; for small graphs.

    Args:
        walk: The walk over n vertices.
        steps: Diffusion time t.
        deflate: Take out the constant of each component first.

    Raises:
        InputError: If n exceeds 10 000.
    """
    n = len(walk.stationary)
    if n > FULL_LIMIT:
        raise InputError(
            f'projection="full" needs an n x n matrix and is limited to {FULL_LIMIT} vertices, '
            f'got {n}; use projection="random"'
        )
    if deflate:
        columns, exponent = diffused(walk, np.eye(n), steps)
        return unit_rows(np.ldexp(columns, exponent - exponent.max()))
    power = walk.transition.toarray()
    for _ in range(steps - 1):
        power = walk.transition @ power
    return unit_rows(power)


def unit_rows(embedding: np.ndarray) -> np.ndarray:
    """Return the rows scaled to norm 1; a row of zeros stays."""
    norm = np.linalg.norm(embedding, axis=1, keepdims=True)
    return np.divide(embedding, norm, out=np.zeros_like(embedding), where=norm > 0)


def separated(embedding: np.ndarray, component: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Move weak components so far apart that k-means never gains by mixing two of them.

    Splitting inside components gains at most the sum of squares I; two vertices of different
    components in one cluster cost more than I once their components are 4 sqrt(I) apart.

    Args:
        embedding: Functions of the vertices with mean 0 inside each component (n, m).
        component: Component of each vertex (n,).
        rng: Source of the directions.
    """
    count = int(component.max()) + 1
    if count == 1:
        return embedding
    place = rng.standard_normal((count, embedding.shape[1]))
    place /= np.sqrt(2 * embedding.shape[1])
    # Random directions are about 1 apart; the closest pair is measured where that is cheap.
    closest = pdist(place).min() if count <= 1000 else 0.5
    spread = np.sqrt(np.square(embedding).sum()) or 1.0
    return embedding + (4 * spread / closest) * place[component]


def count_groups(embedding: np.ndarray, n_components: int = 1, most: int = 20) -> int:
    """Return the number of groups by the largest relative drop of the singular values.

    k groups leave k - 1 slow functions beside the constant of each component.

    Args:
        embedding: Functions of the vertices without their constants (n, m).
        n_components: Number of weak components; each counts as one group at least.
        most: Largest number of groups in one component that is looked for.

    Example:
        >>> count_groups(np.diag([5.0, 4.0, 0.1, 0.09]))
        3
    """
    values = np.sqrt(np.maximum(np.linalg.eigvalsh(embedding.T @ embedding)[::-1], 0))
    values = values[: min(most, len(values) - 1)]
    if len(values) < 2 or values[0] == 0:
        return n_components
    values = np.maximum(values, 1e-8 * values[0])
    return n_components + 1 + int((values[:-1] / values[1:]).argmax())
