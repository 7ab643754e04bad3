"""One door for ``--data``: a name of the registry or a folder of pictures."""

from __future__ import annotations

from pathlib import Path

from noisewright.data.cifar10 import cifar10
from noisewright.data.digits import digits
from noisewright.data.folder import image_folder
from noisewright.data.images import ImageSet
from noisewright.data.photos import Split, photos
from noisewright.types import InputError, nearest_name

__all__ = ["IMAGE_SETS", "open_images"]

IMAGE_SETS = ("photos", "cifar10", "digits")
"""Names that :func:`open_images` knows."""

TEST_SHARE = 0.1
"""Part of a folder held out when it has no ``train`` and ``test`` of its own."""


def open_images(
    source: str | Path, *, size: int = 32, split: Split = "train", seed: int = 0
) -> ImageSet:
    """Return the images that ``--data`` names.

    Args:
        source: ``"photos"``, ``"cifar10"``, ``"digits"``, or a folder of pictures.
        size: Side in pixels.
        split: ``"train"``, ``"test"`` or ``"all"``. A folder is split by its sub-folders ``train``
            and ``test`` if it has both, and otherwise one picture in ten is held out, always the
            same ones.
        seed: Decides where the crops of ``photos`` lie; the others have nothing to draw.

    Raises:
        InputError: If the name is unknown (the nearest one is offered), or from the loader.

    Example:
        >>> open_images("digits", size=16, split="test").images.shape
        torch.Size([297, 1, 16, 16])
    """
    if split not in ("train", "test", "all"):
        raise InputError(f"split must be 'train', 'test' or 'all', got {split!r}")
    if source == "photos":
        return photos(size, split, seed=seed)
    if source == "cifar10":
        return cifar10(split, size=size)
    if source == "digits":
        return digits(split, size=size)
    folder = Path(source)
    if not folder.exists() and folder.name == str(source):
        raise InputError(
            f"data {str(source)!r} is neither a known set nor a folder"
            f"{nearest_name(str(source), IMAGE_SETS)}"
        )
    return _folder(folder, size, split)


def _folder(folder: Path, size: int, split: Split) -> ImageSet:
    if split != "all" and (folder / "train").is_dir() and (folder / "test").is_dir():
        return image_folder(folder / split, size=size)
    whole = image_folder(folder, size=size)
    if split == "all":
        return whole
    train, test = whole.split(TEST_SHARE, by="image")
    return train if split == "train" else test
