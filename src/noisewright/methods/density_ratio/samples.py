"""Samples as they come in: checked before anything long begins."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from noisewright.types import InputError

__all__ = ["checked_samples", "common_scale", "mean_one_weights"]


def checked_samples(X: Any) -> np.ndarray:
    """Return finite float64 samples (n, d)."""
    array = X if hasattr(X, "shape") else np.asarray(X)
    if len(array.shape) != 2:
        raise InputError(f"X has shape {tuple(array.shape)}; give a table (samples, features)")
    table = check_array(
        X,
        dtype="float64",
        ensure_all_finite=False,
        ensure_min_samples=0,
        ensure_min_features=0,
    )
    bad = ~np.isfinite(table).all(axis=1)
    if bad.any():
        raise InputError(
            f"X holds NaN or infinite values in {int(bad.sum())} of {len(table)} rows, first in "
            f"row {int(np.flatnonzero(bad)[0])}; drop or fill them"
        )
    return table


def mean_one_weights(sample_weight: Any, samples: int) -> np.ndarray:
    """Return weights with mean 1."""
    if sample_weight is None:
        return np.ones(samples)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (samples,):
        raise InputError(f"X has {samples} samples but sample_weight has shape {weight.shape}")
    if not (np.isfinite(weight).all() and (weight >= 0).all() and weight.sum() > 0):
        raise InputError("sample_weight must be finite, not negative, and not all zero")
    return weight / weight.mean()


def common_scale(centred: np.ndarray) -> float:
    """Return the root mean square of all entries, one number for all features.

    Raises:
        InputError: If it is zero.
    """
    scale = float(np.sqrt(np.square(centred).mean())) if centred.size else 0.0
    if not scale > 0:
        raise InputError(f"all {centred.shape[1]} features are constant; nothing can be told apart")
    return scale
