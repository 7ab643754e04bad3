"""Images in memory, with their labels, the photograph each came from, and their provenance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int, Shaped, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from noisewright.data.provenance import Provenance
from noisewright.random import derive_seed
from noisewright.types import InputError

__all__ = ["ImageSet", "ImageSetView"]


@dataclass(frozen=True)
class ImageSet:
    """Images of one size, held as bytes.

    Attributes:
        images: uint8, shape (count, channels, height, width), 0 to 255.
        labels: Class of each image, int64, or None when the set has no classes.
        label_names: Name of each class, in order of the label.
        groups: What each image was cut from (an index), int64: images of one group look alike, so
            a split must not cut through a group. Independent images have a group each.
        provenance: Where it came from and what was left out.
        group_names: Name of each group, in order, or empty.
    """

    images: UInt8[Tensor, "count channels height width"]
    labels: Int[Tensor, " count"] | None
    label_names: tuple[str, ...]
    groups: Int[Tensor, " count"]
    provenance: Provenance
    group_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise InputError(
                f"images must be uint8 of shape (count, channels, height, width), got "
                f"{self.images.dtype} of shape {tuple(self.images.shape)}"
            )
        for name, rows in (("labels", self.labels), ("groups", self.groups)):
            if rows is not None and rows.shape != self.images.shape[:1]:
                raise InputError(
                    f"{name} has shape {tuple(rows.shape)} for {len(self.images)} images; "
                    "give one per image"
                )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return int(self.images.shape[2]), int(self.images.shape[3])

    @property
    def channels(self) -> int:
        """Number of channels."""
        return int(self.images.shape[1])

    def floats(self) -> Float[Tensor, "count channels height width"]:
        """Return the images as float32 in [-1, 1]: 0 becomes -1 and 255 becomes 1."""
        return self.images.float().div_(127.5).sub_(1)

    def select(self, index: Shaped[Tensor, " rows"] | Sequence[int] | slice) -> ImageSet:
        """Return the chosen images; labels and groups travel with their rows.

        Args:
            index: Positions, or a boolean mask as a tensor, or a slice.
        """
        if not isinstance(index, (slice, Tensor)):
            index = torch.as_tensor(list(index), dtype=torch.int64)
        images = self.images[index]
        return replace(
            self,
            images=images,
            labels=None if self.labels is None else self.labels[index],
            groups=self.groups[index],
            provenance=replace(self.provenance, count=len(images)),
        )

    def split(
        self,
        share: float,
        *,
        by: Literal["image", "group"] = "group",
        seed: int = 0,
    ) -> tuple[ImageSet, ImageSet]:
        """Return two parts, the second with about ``share`` of the images.

        Args:
            share: Part of the second set, in (0, 1).
            by: ``"group"`` keeps images of one photograph together; ``"image"`` deals them singly.
            seed: Decides which go where.

        Raises:
            InputError: If a part would be empty.
        """
        if by not in ("image", "group"):
            raise InputError(f"by must be 'image' or 'group', got {by!r}")
        keys = self.groups if by == "group" else torch.arange(len(self))
        kinds = keys.unique()
        second = round(share * len(kinds))
        if not 0 < second < len(kinds):
            raise InputError(
                f"share={share} of {len(kinds)} {by}s leaves a part empty; "
                f"choose a share in [{1 / max(len(kinds), 1):.3g}, 1) or split by='image'"
            )
        stream = torch.Generator().manual_seed(derive_seed(seed, "split"))
        chosen = kinds[torch.randperm(len(kinds), generator=stream)[:second]]
        mask = torch.isin(keys, chosen)
        return self.select(~mask), self.select(mask)

    def as_dataset(self) -> ImageSetView:
        """Return a view for torch's ``DataLoader``: float images in [-1, 1], with labels if any."""
        return ImageSetView(self)


class ImageSetView(Dataset):
    """A map-style dataset over an :class:`ImageSet`.

    An item is ``image`` when the set has no labels and ``(image, label)`` when it has; images are
    float32 in [-1, 1].
    """

    def __init__(self, images: ImageSet) -> None:
        self.source = images

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Tensor | tuple[Tensor, Tensor]:
        image = self.source.images[index].float().div_(127.5).sub_(1)
        labels = self.source.labels
        return image if labels is None else (image, labels[index])
