"""Named features of images, for distances between sets of images.

A feature extractor is anything that turns images (batch, channels, height, width) into rows
(batch, features) and has a ``name`` to print beside the number. Three are here: fixed random
convolutions (need no data and no download), principal components of a reference set, and any
function of the user's own, such as an Inception network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

from noisewright.metrics.pixels import signed
from noisewright.types import InputError

__all__ = ["CallableFeatures", "Features", "PCAFeatures", "RandomConvFeatures"]


class Features(Protocol):
    """What :class:`RandomConvFeatures` and its like have in common."""

    @property
    def name(self) -> str:
        """Say what the features are, to print beside a distance."""
        ...

    def __call__(
        self, images: Shaped[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch features"]:
        """Return one row of features per image."""
        ...


class RandomConvFeatures(nn.Module):
    """Means and spreads of the responses of a fixed random convolutional network.

    Stage s filters with ``width`` random 3 x 3 kernels (He scaling; every second kernel sums to
    zero, so that contrast is seen as well as brightness), applies a leaky ReLU, gives the spatial
    mean and standard deviation of each response, and halves the size for stage s + 1. The weights
    are a function of the arguments alone: float32, the same on every machine.

    Args:
        channels: Channels of the images.
        seed: Seed of the kernels.
        width: Kernels per stage.
        stages: Number of stages; images need at least ``2 ** (stages - 1)`` pixels a side.

    Example:
        >>> features = RandomConvFeatures(3)
        >>> features(torch.zeros(5, 3, 32, 32)).shape, features.name
        (torch.Size([5, 128]), 'random-conv-128 (seed 0)')
    """

    def __init__(
        self, channels: int = 3, seed: int = 0, *, width: int = 16, stages: int = 4
    ) -> None:
        super().__init__()
        stream = torch.Generator().manual_seed(seed)
        self.channels, self.seed, self.stages = channels, seed, stages
        for stage in range(stages):
            inputs = channels if stage == 0 else width
            kernel = torch.randn(width, inputs, 3, 3, generator=stream) * (2 / (9 * inputs)) ** 0.5
            kernel[1::2] -= kernel[1::2].mean((2, 3), keepdim=True)
            self.register_buffer(f"kernel{stage}", kernel)
        self.width = 2 * width * stages

    @property
    def name(self) -> str:
        """Say what the features are."""
        return f"random-conv-{self.width} (seed {self.seed})"

    @torch.no_grad()
    def forward(
        self, images: Shaped[Tensor, "batch channels height width"], chunk: int = 256
    ) -> Float[Tensor, "batch features"]:
        """Return the features of each image, in float32.

        Args:
            images: uint8, or floats in [-1, 1].
            chunk: Images per pass; it does not change the result beyond float32 rounding.

        Raises:
            InputError: If the channels differ or the images are too small.
        """
        smallest = 2 ** (self.stages - 1)
        if images.ndim != 4 or images.shape[1] != self.channels or min(images.shape[2:]) < smallest:
            raise InputError(
                f"images must have shape (batch, {self.channels}, >= {smallest}, >= {smallest}), "
                f"got {tuple(images.shape)}"
            )
        rows = [self._rows(signed(part, torch.float32)) for part in images.split(chunk)]
        return torch.cat(rows)

    def _rows(self, state: Tensor) -> Tensor:
        found = []
        for stage in range(self.stages):
            kernel = self.get_buffer(f"kernel{stage}")
            state = functional.pad(state, (1, 1, 1, 1), mode="replicate")
            state = functional.leaky_relu(functional.conv2d(state, kernel), 0.2)
            found += [state.mean((2, 3)), state.std((2, 3), correction=0)]
            if stage + 1 < self.stages:
                state = functional.avg_pool2d(state, 2)
        return torch.cat(found, 1)


class PCAFeatures:
    """Coordinates along the leading principal components of a reference set of images.

    Args:
        n: Number of components.

    Example:
        >>> images = torch.randn(50, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        >>> features = PCAFeatures(4).fit(images)
        >>> features(images).shape, features.name
        (torch.Size([50, 4]), 'pca-4')
    """

    exact_up_to = 1024

    def __init__(self, n: int = 64) -> None:
        if n < 1:
            raise InputError(f"n must be at least 1, got {n}")
        self.n = n
        self.mean: Tensor | None = None
        self.components: Tensor | None = None

    @property
    def name(self) -> str:
        """Say what the features are."""
        return f"pca-{self.n}"

    def fit(self, images: Shaped[Tensor, "batch channels height width"]) -> PCAFeatures:
        """Find the components of ``images``: the reference, the same for all sets compared.

        Exact up to 1,024 images or pixels; above that by subspace iteration from a fixed start (8
        rounds), which is exact to rounding for well separated components.

        Args:
            images: uint8, or floats in [-1, 1]; more than ``n`` of them.

        Raises:
            InputError: If there are not more images than components, or fewer pixels than them.
        """
        rows = signed(images, torch.float64).flatten(1)
        if not self.n < len(rows) or self.n > rows.shape[1]:
            raise InputError(
                f"n={self.n} components need more than {self.n} images of at least {self.n} "
                f"values, got {len(rows)} of {rows.shape[1]}; lower n"
            )
        self.mean = rows.mean(0)
        rows = rows - self.mean
        if min(rows.shape) <= self.exact_up_to:
            directions = torch.linalg.svd(rows, full_matrices=False).Vh[: self.n]
        else:
            directions = self._leading(rows)
        largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
        self.components = directions * largest.sign()
        return self

    def _leading(self, rows: Tensor) -> Tensor:
        stream = torch.Generator().manual_seed(0)
        start = torch.randn(rows.shape[1], 2 * self.n, generator=stream, dtype=rows.dtype)
        basis = torch.linalg.qr(start.to(rows.device)).Q
        for _ in range(8):
            basis = torch.linalg.qr(rows.T @ (rows @ basis)).Q
        return torch.linalg.svd(rows @ basis, full_matrices=False).Vh[: self.n] @ basis.T

    def __call__(
        self, images: Shaped[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch features"]:
        """Return the coordinates of each image, in float64.

        Args:
            images: uint8, or floats in [-1, 1], of the shape that was fitted.

        Raises:
            InputError: If not fitted, or the shape differs.
        """
        if self.mean is None or self.components is None:
            raise InputError("PCAFeatures is not fitted; call .fit(reference_images) first")
        rows = signed(images, torch.float64).flatten(1)
        if rows.shape[1] != len(self.mean):
            raise InputError(f"fitted on {len(self.mean)} values per image, got {rows.shape[1]}")
        return (rows - self.mean) @ self.components.T


class CallableFeatures:
    """A function of the user's own as features, for instance an Inception or CLIP network.

    Args:
        extract: Takes float32 images in [-1, 1], (batch, channels, height, width), and returns
            (batch, ...); resizing and normalising as the network expects are its job.
        name: What to print beside the number.
        chunk: Images per call.

    Example:
        >>> mean = CallableFeatures(lambda images: images.mean((2, 3)), name="channel means")
        >>> mean(torch.ones(3, 2, 8, 8)).shape
        torch.Size([3, 2])
    """

    def __init__(self, extract: Callable[[Tensor], Tensor], *, name: str, chunk: int = 64) -> None:
        self.extract, self.name, self.chunk = extract, name, chunk

    @torch.no_grad()
    def __call__(
        self, images: Shaped[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch features"]:
        """Return the features of each image, flattened to rows.

        Raises:
            InputError: If the function gives another number of rows than images.
        """
        parts = []
        for part in images.split(self.chunk):
            rows = self.extract(signed(part, torch.float32))
            if len(rows) != len(part):
                raise InputError(f"{self.name}: {len(rows)} rows for {len(part)} images")
            parts.append(rows.flatten(1))
        return torch.cat(parts)
