r"""Maximum mean discrepancy: how far apart two samples are for a kernel.

.. math:: \mathrm{MMD}^2 = E\,k(a, a') + E\,k(b, b') - 2 E\,k(a, b)

The estimate leaves out the pairs of a row with itself (Gretton et al. 2012, eq. 3), so it is
**unbiased at every sample size** and negative about as often as positive when both
samples share a law.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.metrics.frechet import checked_features
from noisewright.types import InputError

__all__ = ["median_distance", "mmd"]

PART = 1024
"""Rows of a kernel matrix held at a time."""

MEDIAN_ROWS = 2000
"""Rows the median distance is taken over, evenly spaced, when there are more."""


def median_distance(
    features_a: Float[Tensor, "count_a features"], features_b: Float[Tensor, "count_b features"]
) -> float:
    """Return the median distance between different rows of the two samples put together.

    Args:
        features_a: One sample.
        features_b: The other.
    """
    rows = torch.cat([features_a, features_b]).to(torch.float64)
    if len(rows) > MEDIAN_ROWS:
        rows = rows[torch.linspace(0, len(rows) - 1, MEDIAN_ROWS).long()]
    return float(torch.nn.functional.pdist(rows).median())


def _kernel_sum(a: Tensor, b: Tensor, kernel: str, bandwidth: float) -> float:
    """Return the sum of the kernel over all pairs of rows."""
    total = 0.0
    for part in a.split(PART):
        if kernel == "rbf":
            values = torch.cdist(part, b).square_().div_(-2 * bandwidth**2).exp_()
        else:
            values = (part @ b.T).div_(a.shape[1]).add_(1).pow_(3)
        total += float(values.sum())
    return total


def _self_sum(a: Tensor, kernel: str) -> float:
    """Return the sum of the kernel over each row with itself."""
    if kernel == "rbf":
        return float(len(a))
    return float((a.square().sum(1) / a.shape[1] + 1).pow(3).sum())


def mmd(
    features_a: Float[Tensor, "count_a features"],
    features_b: Float[Tensor, "count_b features"],
    *,
    kernel: Literal["rbf", "polynomial"] = "rbf",
    bandwidth: float | None = None,
) -> float:
    r"""Return the unbiased estimate of the squared maximum mean discrepancy.

    ``"rbf"`` is :math:`\exp(-|a - b|^2 / 2 h^2)`; ``"polynomial"`` is
    :math:`(a \cdot b / d + 1)^3`, which on Inception features is the kernel Inception distance
    (Binkowski et al. 2018).

    Args:
        features_a: One sample, a row per example; any float type, computed in float64.
        features_b: The other, same number of columns.
        kernel: ``"rbf"`` or ``"polynomial"``.
        bandwidth: :math:`h` of the rbf kernel, in units of the features; the median distance of
            the pooled samples by default. Fix it when numbers are to be compared with each other.

    Returns:
        Squared discrepancy: around 0 for one law, in (-2, 2) for rbf. No bias at any sample size.

    Raises:
        InputError: If a sample has fewer than two rows or is not finite, or widths differ, or all
            rows are equal and no bandwidth is given.

    Example:
        >>> a = torch.zeros(4, 1)
        >>> round(mmd(a, a + 2, bandwidth=1.0), 6)            # 2 - 2 exp(-2)
        1.729329
    """
    a, b = checked_features(features_a, features_b)
    if kernel not in ("rbf", "polynomial"):
        raise InputError(f"kernel must be 'rbf' or 'polynomial', got {kernel!r}")
    if kernel == "rbf" and bandwidth is None:
        bandwidth = median_distance(a, b)
    if kernel == "rbf" and not (bandwidth or 0) > 0:
        raise InputError(f"bandwidth must be positive, got {bandwidth}; give one")
    h = bandwidth or 1.0
    inside = sum(
        (_kernel_sum(x, x, kernel, h) - _self_sum(x, kernel)) / (len(x) * (len(x) - 1))
        for x in (a, b)
    )
    return inside - 2 * _kernel_sum(a, b, kernel, h) / (len(a) * len(b))
