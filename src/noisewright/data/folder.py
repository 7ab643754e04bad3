"""A folder of the user's own pictures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from noisewright.data.decode import decode_picture, refuse_if_many, to_tensor
from noisewright.data.images import ImageSet
from noisewright.data.provenance import Provenance
from noisewright.types import InputError

__all__ = ["SUFFIXES", "image_folder", "picture_files", "shrunk_square"]

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
"""File names that are read, in upper or lower case."""


def picture_files(folder: Path) -> Iterator[Path]:
    """Yield the picture files below a folder in order of name; links are followed, loops are not.

    A folder that is reached twice is read once; hidden files are left out.
    """
    seen: set[tuple[int, int]] = set()
    for place, inner, names in os.walk(folder, followlinks=True):
        here = os.stat(place)
        if (here.st_dev, here.st_ino) in seen:
            inner.clear()
            continue
        seen.add((here.st_dev, here.st_ino))
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(names):
            path = Path(place) / name
            if name.lower().endswith(SUFFIXES) and not name.startswith(".") and path.is_file():
                yield path


def _class_of(path: Path, folder: Path) -> str | None:
    """Return the first folder below the root, or None for a picture that lies in the root."""
    parts = path.relative_to(folder).parts
    return parts[0] if len(parts) > 1 else None


def shrunk_square(picture: Image.Image, size: int) -> Image.Image:
    """Cut the largest square from the middle and shrink it, with antialiasing (Lanczos)."""
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    # Cut first: a resize with a box would look beyond it.
    square = picture.crop((left, top, left + side, top + side))
    return square.resize((size, size), Image.Resampling.LANCZOS)


def _load(
    files: list[Path], size: int, channels: int
) -> tuple[list[int], list[Tensor], list[str], int]:
    """Return the places kept, their pixels, why others are unreadable, and how many are small."""
    kept: list[int] = []
    pixels: list[Tensor] = []
    unreadable: list[str] = []
    small = 0
    for place, path in enumerate(files):
        try:
            picture = decode_picture(path)
        except InputError as error:
            unreadable.append(str(error))
            continue
        if min(picture.size) < size:
            small += 1
            continue
        square = shrunk_square(picture, size)
        pixels.append(to_tensor(square if channels == 3 else square.convert("L")))
        kept.append(place)
    return kept, pixels, unreadable, small


def _labels(
    files: list[Path], folder: Path, classes: bool | None
) -> tuple[Tensor | None, tuple[str, ...]]:
    names = [_class_of(path, folder) for path in files]
    kinds = tuple(sorted({name for name in names if name is not None}))
    if classes and None in names:
        raise InputError(
            f"classes=True, but {files[names.index(None)]} lies in no sub-folder of {folder}"
        )
    if classes is False or None in names or (classes is None and len(kinds) < 2):
        return None, ()
    return torch.tensor([kinds.index(name) for name in names if name is not None]), kinds


def image_folder(
    path: str | Path,
    *,
    size: int = 32,
    channels: int = 3,
    classes: bool | None = None,
) -> ImageSet:
    """Return the pictures of a folder and its sub-folders, as squares of one size.

    The largest square is cut from the middle and shrunk with antialiasing. Pictures smaller than
    ``size`` are left out and counted, since enlarging adds no detail; unreadable ones too. How 16
    bits, palettes and alpha are treated: :mod:`noisewright.data.decode`.

    Args:
        path: The folder. Links are followed; loops of links are harmless.
        size: Side in pixels.
        channels: 3, or 1 for grey.
        classes: Whether the first level of sub-folders names the classes. None: yes if there are at
            least two and every picture lies in one.

    Returns:
        Images in order of their paths, each a group of its own.

    Raises:
        InputError: If the folder is missing or empty, if no picture is large enough, or if all, or
            more than one in ten (a single one is forgiven), cannot be read.
    """
    folder = Path(path)
    if size < 1 or channels not in (1, 3):
        raise InputError(f"size must be positive and channels 1 or 3, got {size} and {channels}")
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give a folder of {', '.join(SUFFIXES)} files")
    files = list(picture_files(folder))
    if not files:
        raise InputError(f"{folder} holds no pictures; accepted are {', '.join(SUFFIXES)} files")
    kept, pixels, unreadable, small = _load(files, size, channels)
    refuse_if_many(unreadable, len(files), str(folder))
    if not pixels:
        raise InputError(f"no picture in {folder} has {size} pixels a side; choose a smaller size")
    labels, label_names = _labels([files[place] for place in kept], folder, classes)
    images = torch.stack(pixels)
    return ImageSet(
        images=images,
        labels=labels,
        label_names=label_names,
        groups=torch.arange(len(images)),
        provenance=_provenance(folder, images, unreadable, small),
    )


def _provenance(folder: Path, images: Tensor, unreadable: list[str], small: int) -> Provenance:
    first = "; ".join(unreadable[:3])
    return Provenance(
        name=folder.name or str(folder),
        title="pictures of a folder",
        licence="the user's own",
        origin="the user",
        place=str(folder),
        count=len(images),
        shape=tuple(images.shape[1:]),
        dropped={
            "unreadable pictures": len(unreadable),
            f"pictures smaller than {images.shape[-1]} pixels": small,
        },
        notes=(
            "Squares cut from the middle, shrunk with antialiasing.",
            *([f"Unreadable: {first}."] if first else []),
        ),
    )
