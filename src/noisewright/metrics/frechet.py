r"""Fréchet distance between two clouds of features, each taken as a Gaussian.

.. math:: d = |\mu_a - \mu_b|^2
              + \mathrm{tr}\big(C_a + C_b - 2 (C_a C_b)^{1/2}\big)

This is the squared 2-Wasserstein distance of the Gaussians (Dowson & Landau 1982; Heusel et al.
2017 with Inception features). The number means nothing without the name of its features: state it.

**Bias.** The estimate is too high by a term that falls like 1 / count and grows with the number of
features, for two samples of one law too. Compare only numbers from equal counts of the same
features, and prefer many more images than features.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.types import InputError

__all__ = ["checked_features", "frechet_distance", "gaussian_frechet_distance"]


def _checked(name: str, features: Tensor) -> Tensor:
    if features.ndim != 2 or len(features) < 2:
        raise InputError(
            f"{name} must have shape (count >= 2, features), got {tuple(features.shape)}"
        )
    if not features.isfinite().all():
        row = int((~features.isfinite()).any(1).nonzero()[0])
        raise InputError(f"{name} holds NaN or infinite values, first in row {row}")
    return features.detach().to(torch.float64)


def checked_features(features_a: Tensor, features_b: Tensor) -> tuple[Tensor, Tensor]:
    """Return two samples of features in float64, if they can be compared.

    Raises:
        InputError: If a sample has fewer than two rows, is not finite, or the widths differ.
    """
    a, b = _checked("the first sample", features_a), _checked("the second sample", features_b)
    if a.shape[1] != b.shape[1]:
        raise InputError(
            f"the samples have {a.shape[1]} and {b.shape[1]} columns; use one extractor"
        )
    return a, b


def frechet_distance(
    features_a: Float[Tensor, "count_a features"],
    features_b: Float[Tensor, "count_b features"],
) -> float:
    r"""Return the Fréchet distance of two samples of features.

    With centred samples :math:`C = R^\top R` (R from a QR decomposition of the sample divided by
    :math:`\sqrt{n - 1}`), :math:`\mathrm{tr}(C_a C_b)^{1/2}` is the sum of the singular values of
    :math:`R_a R_b^\top`: no matrix is squared, and fewer images than features is no special case.

    Args:
        features_a: One sample, a row per image; any float type, computed in float64.
        features_b: The other sample, same number of columns.

    Returns:
        Distance in [0, inf), in squared units of the features; biased upwards by about 1 / count.

    Raises:
        InputError: If a sample has fewer than two rows, is not finite, or the widths differ.

    Example:
        >>> a = torch.tensor([[-1.0], [0.0], [1.0]])          # mean 0, variance 1
        >>> frechet_distance(a, 2 * a + 3)                    # 3 ** 2 + (2 - 1) ** 2
        10.0
    """
    a, b = checked_features(features_a, features_b)
    roots, mean_gap = [], a.mean(0) - b.mean(0)
    for sample in (a, b):
        centred = (sample - sample.mean(0)) / (len(sample) - 1) ** 0.5
        roots.append(torch.linalg.qr(centred, mode="r").R)
    shared = torch.linalg.svdvals(roots[0] @ roots[1].T).sum()
    spread = roots[0].square().sum() + roots[1].square().sum()
    return max(0.0, float(mean_gap.square().sum() + spread - 2 * shared))


def _root(covariance: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * values.clamp(min=0).sqrt()


def gaussian_frechet_distance(
    mean_a: Float[Tensor, " features"],
    covariance_a: Float[Tensor, "features features"],
    mean_b: Float[Tensor, " features"],
    covariance_b: Float[Tensor, "features features"],
) -> float:
    """Return the Fréchet distance of two Gaussians given by their moments, in float64.

    Args:
        mean_a: Mean of the first.
        covariance_a: Covariance of the first, symmetric; negative eigenvalues count as zero.
        mean_b: Mean of the second.
        covariance_b: Covariance of the second.

    Returns:
        Distance in [0, inf), exact up to rounding: moments carry no sampling bias of their own.

    Example:
        >>> eye, zero = torch.eye(2), torch.zeros(2)
        >>> round(gaussian_frechet_distance(zero, eye, zero + 1, 4 * eye), 12)
        4.0
    """
    gap = (mean_a.to(torch.float64) - mean_b.to(torch.float64)).square().sum()
    root_a, root_b = (_root(c.to(torch.float64)) for c in (covariance_a, covariance_b))
    shared = torch.linalg.svdvals(root_a.T @ root_b).sum()
    spread = root_a.square().sum() + root_b.square().sum()
    return max(0.0, float(gap + spread - 2 * shared))
