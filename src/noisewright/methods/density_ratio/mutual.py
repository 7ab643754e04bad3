"""Mutual information as a log density ratio: pairs against shuffled pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length

from noisewright.methods.density_ratio.estimator import DensityRatioFlow
from noisewright.methods.density_ratio.samples import checked_samples
from noisewright.random import derive_seed
from noisewright.types import InputError

__all__ = ["mutual_information"]

HELD_OUT = 0.1


def mutual_information(
    X: Any, Y: Any, *, n_steps: int = 20, held_out: float = HELD_OUT, seed: int = 0, **flow: Any
) -> tuple[float, float]:
    r"""Return the mutual information of X and Y in nats, and its standard error.

    .. math:: I(X; Y) = E_{p(x, y)} \log \frac{p(x, y)}{p(x) p(y)}

    The flow learns pairs and shuffled pairs; the mean is over pairs that it has not seen. The
    standard error is that of this mean: it does not hold the error of the model.

    Args:
        X: Samples (n, d) or (n,).
        Y: Samples (n, e) or (n,), row by row with X.
        n_steps: Steps of the walk.
        held_out: Share of the pairs that the mean is over.
        seed: Of the shuffling and of the flow.
        flow: Parameters of :class:`DensityRatioFlow`.

    Raises:
        InputError: If X or Y cannot be used, or too few pairs are left.
    """
    X, Y = (checked_samples(v if np.ndim(v) == 2 else np.reshape(v, (-1, 1))) for v in (X, Y))
    check_consistent_length(X, Y)
    count = round(held_out * len(X))
    if not 0 < held_out < 1 or count < 2 or len(X) - count < 4:
        raise InputError(f"held_out={held_out} of {len(X)} pairs leaves too few on either side")
    rng = np.random.default_rng(derive_seed(seed, "pairs"))
    order = rng.permutation(len(X))
    test, train = order[:count], order[count:]
    joint = np.hstack([X[train], Y[train]])
    product = np.hstack([X[train], Y[rng.permutation(train)]])
    labels = np.repeat(["joint", "product"], len(train))
    flow.setdefault("random_state", seed)
    model = DensityRatioFlow(**flow)
    model.fit(np.concatenate([joint, product]), labels)
    pairs = np.hstack([X[test], Y[test]])
    r = model.log_ratio(pairs, "joint", "product", n_steps=n_steps)
    return float(r.mean()), float(r.std(ddof=1) / np.sqrt(count))
