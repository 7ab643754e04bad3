r"""How close a picture is to a reference: PSNR and SSIM, one value per image.

Both need the range of the values: 2 for floats in [-1, 1] (the default), 255 for bytes.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional

from noisewright.types import InputError

__all__ = ["psnr", "ssim"]

SIGMA, RADIUS = 1.5, 5
"""Gaussian window of SSIM: standard deviation in pixels and half-width (11 x 11)."""


def _pair(
    image: Tensor, reference: Tensor, data_range: float | None
) -> tuple[Tensor, Tensor, float]:
    """Return both in float64, and the range: 255 for bytes and 2 for floats unless given."""
    if image.shape != reference.shape or image.ndim != 4:
        raise InputError(
            "images and reference must have one shape (batch, channels, height, width), got "
            f"{tuple(image.shape)} and {tuple(reference.shape)}"
        )
    if image.dtype != reference.dtype and torch.uint8 in (image.dtype, reference.dtype):
        raise InputError(
            f"images are {image.dtype} and reference is {reference.dtype}; give both in one range"
        )
    if data_range is None:
        data_range = 255.0 if image.dtype == torch.uint8 else 2.0
    if not data_range > 0:
        raise InputError(f"data_range must be positive, got {data_range}")
    return image.to(torch.float64), reference.to(torch.float64), data_range


def psnr(
    images: Shaped[Tensor, "batch channels height width"],
    reference: Shaped[Tensor, "batch channels height width"],
    *,
    data_range: float | None = None,
) -> Float[Tensor, " batch"]:
    r"""Return the peak signal-to-noise ratio of each image, in decibels.

    .. math:: 10 \log_{10} \frac{L^2}{\mathrm{mean}\,(x - y)^2}

    Exact, no sampling bias; a mean of decibels over images differs from the decibels of a mean.

    Args:
        images: What is judged.
        reference: What it should be, same shape.
        data_range: :math:`L`, largest minus smallest possible value; 2 for floats and 255 for bytes
            by default.

    Returns:
        float64, shape (batch,); infinite for equal images.

    Raises:
        InputError: If shapes differ or the range is not positive.

    Example:
        >>> psnr(torch.zeros(1, 1, 8, 8), torch.full((1, 1, 8, 8), 0.2)).round(decimals=3)
        tensor([20.], dtype=torch.float64)
    """
    x, y, data_range = _pair(images, reference, data_range)
    return 10 * torch.log10(data_range**2 / (x - y).square().mean((1, 2, 3)))


def _blurred(images: Tensor) -> Tensor:
    """Average with the Gaussian window where it lies inside the image."""
    place = torch.arange(-RADIUS, RADIUS + 1, dtype=images.dtype, device=images.device)
    window = torch.exp(-place.square() / (2 * SIGMA**2))
    window = window / window.sum()
    flat = images.flatten(0, 1).unsqueeze(1)
    flat = functional.conv2d(
        functional.conv2d(flat, window.view(1, 1, -1, 1)), window.view(1, 1, 1, -1)
    )
    return flat.view(*images.shape[:2], *flat.shape[2:])


def ssim(
    images: Shaped[Tensor, "batch channels height width"],
    reference: Shaped[Tensor, "batch channels height width"],
    *,
    data_range: float | None = None,
) -> Float[Tensor, " batch"]:
    r"""Return the structural similarity of each image (Wang et al. 2004).

    .. math:: \frac{(2 \mu_x \mu_y + c_1)(2 \sigma_{xy} + c_2)}
                   {(\mu_x^2 + \mu_y^2 + c_1)(\sigma_x^2 + \sigma_y^2 + c_2)},
              \quad c_1 = (0.01 L)^2, \; c_2 = (0.03 L)^2

    with moments under a Gaussian window of standard deviation 1.5 (11 x 11), averaged over the
    positions where the window lies inside the image and over channels. The same as scikit-image's
    ``structural_similarity(gaussian_weights=True, sigma=1.5, use_sample_covariance=False)``.

    Args:
        images: What is judged; at least 11 pixels a side.
        reference: What it should be, same shape.
        data_range: :math:`L`; 2 for floats and 255 for bytes by default.

    Returns:
        float64 in [-1, 1], shape (batch,); 1 for equal images. No sampling bias.

    Raises:
        InputError: If shapes differ, or the images are smaller than the window.

    Example:
        >>> picture = torch.linspace(-1, 1, 256).view(1, 1, 16, 16)
        >>> float(ssim(picture, picture))
        1.0
    """
    x, y, data_range = _pair(images, reference, data_range)
    if min(x.shape[2:]) < 2 * RADIUS + 1:
        raise InputError(
            f"ssim needs images of at least {2 * RADIUS + 1} pixels a side, "
            f"got {tuple(x.shape[2:])}"
        )
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    mean_x, mean_y = _blurred(x), _blurred(y)
    var_x = _blurred(x * x) - mean_x**2
    var_y = _blurred(y * y) - mean_y**2
    covariance = _blurred(x * y) - mean_x * mean_y
    above = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    below = (mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2)
    return (above / below).mean((1, 2, 3))
