"""CIFAR-10, from the official binary files or from a mirror of JPEG copies. No pickle is loaded.

Looked for in the folder that :func:`noisewright.data.find` gives, in this order: the unpacked
binary files, the official ``cifar-10-binary.tar.gz``, and one zip of JPEG files for each split and
class (``train-cat.zip`` ...). The provenance says which one was read.
"""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.nn import functional

from noisewright.data.archives import read_members
from noisewright.data.decode import decode_picture, refuse_if_many, to_tensor
from noisewright.data.images import ImageSet
from noisewright.data.photos import Split
from noisewright.data.provenance import Provenance
from noisewright.data.sources import MIRROR, SOURCES, NotAtHandError, find
from noisewright.types import InputError

__all__ = ["CLASSES", "cifar10"]

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

ARCHIVE = "cifar-10-binary.tar.gz"

_FILES = {
    "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    "test": ("test_batch.bin",),
}
_ROW = 1 + 3 * 32 * 32

ROWS = 10_000
"""Images in each binary file."""

_Rows = tuple[Tensor, Tensor, list[str]]


def _from_bytes(content: bytes, name: str) -> tuple[Tensor, Tensor]:
    """Return images and labels of one binary file: a label byte, then 3,072 bytes, repeated."""
    if len(content) != ROWS * _ROW:
        raise InputError(f"{name} has {len(content)} bytes, not {ROWS * _ROW}; fetch it again")
    rows = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, _ROW)
    labels = rows[:, 0].long()
    if int(labels.max()) >= len(CLASSES):
        raise InputError(f"{name} holds the label {int(labels.max())}; fetch it again")
    return rows[:, 1:].reshape(-1, 3, 32, 32), labels


def _binary(contents: dict[str, bytes], wanted: tuple[str, ...], place: Path) -> _Rows:
    missing = [name for name in wanted if name not in contents]
    if missing:
        raise InputError(f"{place} lacks {', '.join(missing)}; fetch it again")
    pairs = [_from_bytes(contents[name], f"{place}/{name}") for name in wanted]
    return torch.cat([images for images, _ in pairs]), torch.cat([rows for _, rows in pairs]), []


def _from_zips(folder: Path, split: str) -> _Rows:
    images: list[Tensor] = []
    labels: list[int] = []
    unreadable: list[str] = []
    for label, kind in enumerate(CLASSES):
        path = folder / f"{split}-{kind}.zip"
        if not path.is_file():
            raise InputError(f"{folder} lacks {path.name}; complete the mirror")
        for name, content in read_members(path, suffix=(".jpg", ".jpeg", ".png"), max_bytes=2**30):
            try:
                picture = decode_picture(content, name=f"{path.name}/{name}")
                if picture.size != (32, 32):
                    raise InputError(f"{path.name}/{name} is {picture.size}, not (32, 32)")
            except InputError as error:
                unreadable.append(str(error))
                continue
            images.append(to_tensor(picture))
            labels.append(label)
    refuse_if_many(unreadable, len(images) + len(unreadable), str(folder))
    if not images:
        raise InputError(f"the zips of {folder} hold no pictures; complete the mirror")
    return torch.stack(images), torch.tensor(labels), unreadable


def _read(folder: Path, split: str) -> tuple[_Rows, str]:
    """Return the rows of a split and a word on what they were read from."""
    wanted = _FILES[split]
    for place in (folder, folder / "cifar-10-batches-bin"):
        if any((place / name).is_file() for name in wanted):
            contents = {n: (place / n).read_bytes() for n in wanted if (place / n).is_file()}
            return _binary(contents, wanted, place), f"the official binary files in {place}"
    archive = folder / ARCHIVE
    if archive.is_file():
        members = read_members(archive, suffix=wanted)
        contents = {name.rsplit("/", 1)[-1]: content for name, content in members}
        return _binary(contents, wanted, archive), f"the official archive {archive}"
    if any(folder.glob(f"{split}-*.zip")):
        return _from_zips(folder, split), f"zips of JPEG copies in {folder}, a part of the set"
    raise InputError(
        f"{folder} holds neither {wanted[0]}, nor {ARCHIVE}, nor {split}-{CLASSES[0]}.zip"
    )


def _resized(images: UInt8[Tensor, "n 3 32 32"], size: int) -> Tensor:
    if size == 32:
        return images
    return functional.adaptive_avg_pool2d(images.float(), size).round_().to(torch.uint8)


def cifar10(
    split: Split = "train", *, size: int = 32, folder: str | Path | None = None
) -> ImageSet:
    """Return CIFAR-10 with its ten classes, if it is at hand. Nothing is downloaded.

    Args:
        split: ``"train"``, ``"test"`` (both official) or ``"all"``.
        size: Side in pixels; below 32 the images are shrunk by averaging areas.
        folder: Where it lies; looked up by default.

    Returns:
        uint8 images of 3 channels with labels 0 to 9, in the order of the files.

    Raises:
        NotAtHandError: If it is not at hand; the message says how to fetch it.
        InputError: If its files are damaged or an argument cannot work.
    """
    if split not in ("train", "test", "all"):
        raise InputError(f"split must be 'train', 'test' or 'all', got {split!r}")
    if not 4 <= size <= 32:
        raise InputError(f"size must be from 4 to 32 for cifar10, got {size}")
    place = Path(folder) if folder is not None else find("cifar10")
    if place is None:
        raise NotAtHandError(
            "cifar10 is not at hand; run `noisewright data fetch cifar10`, or set "
            f"{MIRROR} to a folder that holds cifar10/ or cifar10_subset/"
        )
    parts = [_read(place, part) for part in (("train", "test") if split == "all" else (split,))]
    images = _resized(torch.cat([rows[0] for rows, _ in parts]), size)
    return ImageSet(
        images=images,
        labels=torch.cat([rows[1] for rows, _ in parts]),
        label_names=CLASSES,
        groups=torch.arange(len(images)),
        provenance=_provenance(images, split, parts),
    )


def _provenance(images: Tensor, split: str, parts: list[tuple[_Rows, str]]) -> Provenance:
    entry = SOURCES["cifar10"]
    return Provenance(
        name=entry.name,
        title=f"CIFAR-10 ({split})",
        licence=f"{entry.licence} ({entry.licence_url})",
        origin=entry.origin,
        place=" and ".join(dict.fromkeys(word for _, word in parts)),
        count=len(images),
        shape=tuple(images.shape[1:]),
        dropped={"unreadable pictures": sum(len(rows[2]) for rows, _ in parts)},
    )
