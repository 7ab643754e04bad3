"""Handwritten digits, packaged in scikit-learn."""

from __future__ import annotations

import importlib.metadata

import torch
from torch.nn import functional

from noisewright.data.images import ImageSet
from noisewright.data.photos import Split
from noisewright.data.provenance import Provenance
from noisewright.data.sources import SOURCES
from noisewright.types import InputError

__all__ = ["digits"]

TRAIN = 1500
"""The first 1,500 of 1,797 are for training; the last ones come from other writers."""


def digits(split: Split = "train", *, size: int = 8, channels: int = 1) -> ImageSet:
    """Return grey images of handwritten digits, with their ten classes.

    Args:
        split: ``"train"`` (the first 1,500), ``"test"`` (the last 297) or ``"all"``.
        size: Side in pixels; the originals have 8. Larger ones are interpolated (bicubic): nothing
            is added above 4 cycles per image.
        channels: 1, or 3 for the same values in each channel.

    Returns:
        uint8 images, black ground; the 17 levels of the originals are spread over 0 to 255.

    Raises:
        InputError: If an argument cannot work.

    Example:
        >>> train, test = digits(), digits("test", size=16)
        >>> len(train), len(test), tuple(test.images.shape[1:])
        (1500, 297, (1, 16, 16))
    """
    if split not in ("train", "test", "all"):
        raise InputError(f"split must be 'train', 'test' or 'all', got {split!r}")
    if size < 8:
        raise InputError(f"size must be at least 8 for digits, got {size}")
    if channels not in (1, 3):
        raise InputError(f"channels must be 1 or 3, got {channels}")
    from sklearn.datasets import load_digits

    values, classes = load_digits(return_X_y=True)
    rows = {"train": slice(0, TRAIN), "test": slice(TRAIN, None), "all": slice(None)}[split]
    images = torch.from_numpy(values[rows]).float().view(-1, 1, 8, 8) * (255 / 16)
    if size != 8:
        images = functional.interpolate(images, size=(size, size), mode="bicubic")
    images = images.round_().clamp_(0, 255).to(torch.uint8).repeat(1, channels, 1, 1)
    entry = SOURCES["digits"]
    return ImageSet(
        images=images,
        labels=torch.from_numpy(classes[rows]).long(),
        label_names=tuple(map(str, range(10))),
        groups=torch.arange(len(images)),
        provenance=Provenance(
            name=entry.name,
            title=f"handwritten digits ({split})",
            licence=entry.licence,
            origin=entry.origin,
            place=f"scikit-learn {importlib.metadata.version('scikit-learn')}",
            count=len(images),
            shape=tuple(images.shape[1:]),
        ),
    )
