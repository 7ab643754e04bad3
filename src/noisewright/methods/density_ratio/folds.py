"""Folds for cross-fitting: who is scored by which model."""

from __future__ import annotations

import hashlib

import numpy as np

from noisewright.random import derive_seed
from noisewright.types import InputError

__all__ = ["fold_rows", "row_keys"]


def row_keys(X: np.ndarray) -> list[str]:
    """Return a fingerprint of each row, equal for equal rows.

    Example:
        >>> one, two, three = row_keys(np.array([[0.0, 1.0], [2.0, 1.0], [-0.0, 1.0]]))
        >>> one == three != two
        True
    """
    rows = np.ascontiguousarray(X + 0.0)  # -0.0 becomes 0.0
    return [hashlib.blake2b(row.tobytes(), digest_size=12).hexdigest() for row in rows]


def fold_rows(keys: list[str], codes: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Return the fold of each row: conditions evenly spread, equal rows in the same fold.

    Args:
        keys: From :func:`row_keys`.
        codes: Condition of each row, (n, columns).
        folds: Number of folds.
        seed: Decides the order.

    Raises:
        InputError: If there are more folds than distinct rows.
    """
    first = {key: row for row, key in reversed(list(enumerate(keys)))}
    if folds > len(first):
        raise InputError(f"cv={folds} exceeds the {len(first)} distinct samples")
    distinct = np.array(list(first.values()))
    order = np.random.default_rng(derive_seed(seed, "folds")).permutation(distinct)
    _, group = np.unique(codes[order], axis=0, return_inverse=True)
    ranked = order[np.argsort(group.ravel(), kind="stable")]
    place = {keys[row]: i % folds for i, row in enumerate(ranked)}
    return np.array([place[key] for key in keys])
