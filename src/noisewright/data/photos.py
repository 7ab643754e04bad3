"""The photographs that scikit-image and scikit-learn carry inside their wheels, and crops of them.

Only files on disk inside the installed packages are read; nothing is downloaded. A picture is used
when it is a photograph and its licence is stated by the package. Left out of those packaged:

======================================  =========================================================
chessboard, color, horse, logo,         drawings
phantom, multipage, no_time
text, page                              print on paper, not a scene
cell                                    a phase map computed from a hologram
clock_motion                            blurred on purpose: nothing above a few cycles
microaneurysms                          a 102-pixel detail, one channel of a photograph
lfw_subset                              25-pixel faces
moon, motorcycle (left and right)       photographs whose licence the package does not state
======================================  =========================================================

The split is **by photograph** and fixed: chelsea, rocket and china are held out. Grey photographs
are repeated in three channels.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import UInt8
from torch import Tensor

from noisewright.data.decode import decode_picture, to_tensor
from noisewright.data.images import ImageSet
from noisewright.data.provenance import Provenance
from noisewright.random import derive_seed
from noisewright.types import InputError, nearest_name

__all__ = ["PHOTOGRAPHS", "Photograph", "Split", "photographs", "photos"]

Split = Literal["train", "test", "all"]

SCALES = (1, 2, 4, 8)
"""Down-scalings a crop may come from: at 1 a 32-pixel crop of these pictures is mostly smooth."""

FLAT = 2.0
"""Crops with a standard deviation below this, in steps of 8 bits, are dropped: their spectrum is
quantisation noise."""

_SKIMAGE = ("skimage", "data", "scikit-image")
_SKLEARN = ("sklearn", "datasets/images", "scikit-learn")


@dataclass(frozen=True)
class Photograph:
    """One packaged photograph.

    Attributes:
        name: Short name.
        file: File name inside the package.
        licence: As the package states it.
        author: Photographer or owner.
        split: The part it belongs to, for good.
        package: Module, folder inside it, and distribution that carries the file.
        image: uint8, shape (3, height, width); filled by :func:`photographs`.
    """

    name: str
    file: str
    licence: str
    author: str
    split: Literal["train", "test"] = "train"
    package: tuple[str, str, str] = _SKIMAGE
    image: UInt8[Tensor, "3 height width"] | None = None

    @property
    def path(self) -> Path | None:
        """The file on disk, or None where the installed package does not carry it."""
        module, folder, _ = self.package
        spec = importlib.util.find_spec(module)
        if spec is None or not spec.submodule_search_locations:
            return None
        path = Path(spec.submodule_search_locations[0]) / folder / self.file
        return path if path.is_file() else None


_CC0 = "CC0"
_PUBLIC = "public domain"
_BY = "CC BY 2.0"

PHOTOGRAPHS: tuple[Photograph, ...] = (
    Photograph("astronaut", "astronaut.png", _PUBLIC, "NASA"),
    Photograph("coffee", "coffee.png", _CC0, "Rachel Michetti"),
    Photograph("flower", "flower.jpg", _BY, "vultilion (Flickr)", package=_SKLEARN),
    Photograph("camera", "camera.png", _CC0, "Lav Varshney"),
    Photograph("brick", "brick.png", _CC0, "CC0Textures"),
    Photograph("grass", "grass.png", _CC0, "linolafett (DeviantArt)"),
    Photograph("gravel", "gravel.png", _CC0, "CC0Textures"),
    Photograph("coins", "coins.png", "no known copyright restrictions", "Brooklyn Museum"),
    Photograph("retina", "retina.jpg", _CC0, "Mikael Häggström"),
    Photograph("ihc", "ihc.png", "no known copyright restrictions", "CMMI"),
    Photograph("hubble", "hubble_deep_field.jpg", _PUBLIC, "NASA"),
    Photograph("chelsea", "chelsea.png", _CC0, "Stefan van der Walt", "test"),
    Photograph("rocket", "rocket.jpg", _PUBLIC, "SpaceX", "test"),
    Photograph("china", "china.jpg", _BY, "danielbuechele (Flickr)", "test", _SKLEARN),
)


def _chosen(split: Split, names: Sequence[str] | None) -> list[Photograph]:
    if split not in ("train", "test", "all"):
        raise InputError(f"split must be 'train', 'test' or 'all', got {split!r}")
    known = {photo.name for photo in PHOTOGRAPHS}
    for name in names or ():
        if name not in known:
            raise InputError(f"no packaged photograph {name!r}{nearest_name(name, known)}")
    return [
        photo
        for photo in PHOTOGRAPHS
        if split in ("all", photo.split) and (names is None or photo.name in names)
    ]


def photographs(split: Split = "all", *, names: Sequence[str] | None = None) -> list[Photograph]:
    """Return the whole pictures, with their pixels.

    Args:
        split: ``"train"``, ``"test"`` (chelsea, rocket, china) or ``"all"``.
        names: Only these.

    Returns:
        Photographs in a fixed order; those the installed packages do not carry are left out.

    Raises:
        InputError: If a name is unknown or nothing is left.

    Example:
        >>> [(p.name, tuple(p.image.shape), p.licence) for p in photographs("test")][:2]
        [('chelsea', (3, 300, 451), 'CC0'), ('rocket', (3, 427, 640), 'public domain')]
    """
    found = [
        Photograph(
            p.name,
            p.file,
            p.licence,
            p.author,
            p.split,
            p.package,
            to_tensor(decode_picture(p.path)),
        )
        for p in _chosen(split, names)
        if p.path is not None
    ]
    if not found:
        raise InputError(
            f"none of the photographs of split {split!r} is on disk; "
            "reinstall scikit-image and scikit-learn from their wheels"
        )
    return found


def _reduced(image: Tensor, scale: int) -> Tensor:
    """Shrink by averaging scale x scale blocks; an incomplete border is cut off."""
    if scale == 1:
        return image
    height, width = (side // scale * scale for side in image.shape[1:])
    blocks = image[:, :height, :width].float()
    return torch.nn.functional.avg_pool2d(blocks, scale).round_().to(torch.uint8)


def _fitting(image: Tensor, size: int, scales: Sequence[int]) -> list[int]:
    """Return the scales that leave at least twice the crop's side, or scale 1 if it fits at all."""
    short = min(image.shape[1:])
    fitting = [scale for scale in scales if short // scale >= 2 * size]
    return fitting or [scale for scale in scales if short // scale >= size][:1]


def _corners(image: Tensor, size: int, stream: torch.Generator) -> Iterator[Tensor]:
    """Yield windows at uniform positions, for ever."""
    windows = image.unfold(1, size, 1).unfold(2, size, 1)
    rows, columns = windows.shape[1:3]
    while True:
        draws = torch.rand(256, 2, generator=stream)
        place = (draws * torch.tensor([rows, columns])).long()
        yield from windows[:, place[:, 0], place[:, 1]].transpose(0, 1)


def _crops(image: Tensor, size: int, count: int, stream: torch.Generator) -> tuple[Tensor, int]:
    """Return ``count`` crops that are not flat (fewer if nearly all are), and how many were."""
    kept: list[Tensor] = []
    flat = 0
    for window in _corners(image, size, stream):
        if len(kept) == count or flat > 20 * count:
            break
        if window.float().std(correction=0) < FLAT:
            flat += 1
        else:
            kept.append(window)
    return torch.stack(kept) if kept else image.new_empty((0, 3, size, size)), flat


def _photo_crops(
    photo: Photograph, size: int, per_photo: int, scales: Sequence[int], seed: int
) -> tuple[Tensor, int]:
    """Return crops of one photograph, dealt evenly to its scales, and the number of flat ones."""
    assert photo.image is not None
    fitting = _fitting(photo.image, size, scales)
    parts, flat = [photo.image.new_empty((0, 3, size, size))], 0
    for place, scale in enumerate(fitting):
        count = per_photo // len(fitting) + (place < per_photo % len(fitting))
        # A stream per picture and scale: other pictures do not change these crops.
        stream = torch.Generator().manual_seed(derive_seed(seed, "photos", photo.name, scale, size))
        crops, lost = _crops(_reduced(photo.image, scale), size, count, stream)
        parts.append(crops)
        flat += lost
    return torch.cat(parts), flat


def _checked(size: int, per_photo: int, scales: Sequence[int]) -> None:
    if size < 4:
        raise InputError(f"size must be at least 4 pixels, got {size}")
    if per_photo < 1:
        raise InputError(f"per_photo must be at least 1, got {per_photo}")
    if not scales or any(scale < 1 or scale != int(scale) for scale in scales):
        raise InputError(f"scales must be whole numbers of at least 1, got {tuple(scales)}")


def photos(
    size: int = 32,
    split: Split = "train",
    *,
    per_photo: int = 400,
    scales: Sequence[int] = SCALES,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> ImageSet:
    """Return square crops of the packaged photographs, the default data of the image methods.

    Each photograph gives the same number of crops, dealt evenly to the down-scalings (block
    averages) that leave it at least twice the crop's side. No flips, no colour changes. Crops with
    a standard deviation below 2 of 255 are dropped, redrawn and counted.

    Args:
        size: Side of a crop in pixels.
        split: ``"train"`` (11 photographs), ``"test"`` (chelsea, rocket, china) or ``"all"``.
        per_photo: Crops per photograph.
        scales: Whole-number down-scalings to draw from.
        names: Only these photographs.
        seed: Decides where the crops lie.

    Returns:
        Crops, uint8, 3 channels; ``groups`` is the index of the photograph in ``group_names``.

    Raises:
        InputError: If no photograph is large enough, or an argument cannot work.

    Example:
        >>> crops = photos(32, "test", per_photo=10)
        >>> crops.images.shape, crops.group_names
        (torch.Size([30, 3, 32, 32]), ('chelsea', 'rocket', 'china'))
    """
    _checked(size, per_photo, scales)
    wanted = _chosen(split, names)
    pictures = photographs(split, names=names)
    made = [_photo_crops(photo, size, per_photo, scales, seed) for photo in pictures]
    images = torch.cat([crops for crops, _ in made])
    if not len(images):
        raise InputError(f"size={size} with scales={tuple(scales)} fits none of the photographs")
    numbers = torch.tensor([len(crops) for crops, _ in made])
    dropped = {
        "nearly constant crops (redrawn)": sum(flat for _, flat in made),
        "photographs not in the installed packages": len(wanted) - len(pictures),
        f"photographs too small for {size} pixels": int((numbers == 0).sum()),
    }
    return ImageSet(
        images=images,
        labels=None,
        label_names=(),
        groups=torch.repeat_interleave(torch.arange(len(pictures)), numbers),
        provenance=_provenance(pictures, images, split, dropped),
        group_names=tuple(photo.name for photo in pictures),
    )


def _provenance(
    pictures: Sequence[Photograph], images: Tensor, split: str, dropped: dict[str, int]
) -> Provenance:
    packages = sorted({photo.package[2] for photo in pictures})
    credits = "; ".join(f"{p.name}: {p.author}, {p.licence}" for p in pictures)
    return Provenance(
        name="photos",
        title=f"crops of {len(pictures)} packaged photographs ({split})",
        licence=f"per photograph ({credits})",
        origin="the sample pictures of scikit-image and scikit-learn",
        place=" and ".join(f"{name} {importlib.metadata.version(name)}" for name in packages),
        count=len(images),
        shape=tuple(images.shape[1:]),
        dropped=dropped,
        notes=("Split by photograph; grey photographs are repeated in three channels.",),
    )
