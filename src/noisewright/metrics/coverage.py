"""Precision and recall of a sample: is what it makes real, and does it make all that is real?

Each set is taken as the union of balls around its rows, as wide as the distance to the k-th nearest
other row (Kynkäänniemi et al. 2019). **Bias**: both values rise with the number of rows and with k
and fall with the number of features; compare only equal counts, features and k. An outlier has a
wide ball, which flatters both.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.metrics.frechet import checked_features
from noisewright.types import InputError

__all__ = ["PrecisionRecall", "precision_recall"]

PART = 512


@dataclass(frozen=True)
class PrecisionRecall:
    """Both in [0, 1].

    Attributes:
        precision: Share of generated rows inside the real set.
        recall: Share of real rows inside the generated set.
    """

    precision: float
    recall: float


def _distances(a: Tensor, b: Tensor) -> Tensor:
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def _radii(rows: Tensor, k: int) -> Tensor:
    """Return the distance of each row to its k-th nearest other row."""
    # The nearest of all is the row itself, at exactly 0.
    parts = [_distances(part, rows).kthvalue(k + 1, dim=1).values for part in rows.split(PART)]
    return torch.cat(parts)


def _share_inside(points: Tensor, centres: Tensor, radii: Tensor) -> float:
    inside = [(_distances(part, centres) <= radii).any(1) for part in points.split(PART)]
    return float(torch.cat(inside).double().mean())


def precision_recall(
    real: Float[Tensor, "count_real features"],
    generated: Float[Tensor, "count_generated features"],
    *,
    k: int = 3,
) -> PrecisionRecall:
    """Return improved precision and recall on features, in float64.

    Args:
        real: Features of real examples, a row each.
        generated: Features of generated examples, same columns.
        k: Which neighbour sets the radius.

    Returns:
        Precision and recall, each in [0, 1]; two samples of one law do not reach 1.

    Raises:
        InputError: If a set has no more than k rows or is not finite, or widths differ.

    Example:
        >>> real = torch.tensor([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
        >>> precision_recall(real, real[:3] + 0.1, k=1)
        PrecisionRecall(precision=1.0, recall=0.5)
    """
    real, generated = checked_features(real, generated)
    if not 1 <= k < min(len(real), len(generated)):
        raise InputError(
            f"k={k} must be at least 1 and below the number of rows, {len(real)} and "
            f"{len(generated)}"
        )
    return PrecisionRecall(
        precision=_share_inside(generated, real, _radii(real, k)),
        recall=_share_inside(real, generated, _radii(generated, k)),
    )
