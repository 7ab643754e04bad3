"""The range that measures on images expect: bytes become [-1, 1], floats are taken as they are."""

from __future__ import annotations

import torch
from jaxtyping import Shaped
from torch import Tensor

from noisewright.types import InputError

__all__ = ["checked", "signed"]


def checked(images: Shaped[Tensor, "batch channels height width"]) -> Tensor:
    """Return the images as they are, if they are a batch of finite pictures.

    Raises:
        InputError: If the batch is not four-dimensional, is of an integer type other than uint8, or
            holds a NaN or an infinity (the index of the first such image is named).
    """
    if images.ndim != 4:
        raise InputError(
            f"images must have shape (batch, channels, height, width), got {tuple(images.shape)}"
        )
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise InputError(f"images must be uint8 or floating point, got {images.dtype}")
    if not images.sum().isfinite():  # a cheap look first; a finite batch may overflow the sum
        bad = (~images.isfinite().flatten(1).all(1)).nonzero()
        if len(bad):
            raise InputError(f"image {int(bad[0])} holds NaN or infinite values; remove it")
    return images


def signed(
    images: Shaped[Tensor, "batch channels height width"], dtype: torch.dtype | None = None
) -> Tensor:
    """Return images as floats: uint8 is mapped to [-1, 1], floats keep their values.

    Args:
        images: Batch of images, uint8 or floating.
        dtype: Type of the result; None keeps a float's own and gives float32 for bytes.

    Raises:
        InputError: As :func:`checked`.

    Example:
        >>> signed(torch.tensor([0, 255], dtype=torch.uint8).view(1, 1, 1, 2)).flatten().tolist()
        [-1.0, 1.0]
    """
    checked(images)
    if images.dtype == torch.uint8:
        return images.to(dtype or torch.float32).div_(127.5).sub_(1)
    return images.to(dtype or images.dtype)
