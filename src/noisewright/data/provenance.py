"""Where a loaded set came from, what was read and what was left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Provenance"]


@dataclass(frozen=True)
class Provenance:
    """What a run says about the data it used.

    Attributes:
        name: Name of the set, as in ``noisewright data list``, or the folder that was read.
        title: What it is, in a few words.
        licence: Licence of the data, one line; "not stated" where its owner states none.
        origin: Citation or address of the official source.
        place: What was actually read: an archive, a folder, a package with its version.
        count: Examples kept.
        shape: Shape of one example, (channels, height, width) for images.
        unit: Meaning of the stored values.
        dropped: Reason to number of examples left out.
        notes: Whatever else a reader must know: how it was split, cut, converted.
    """

    name: str
    title: str
    licence: str
    origin: str
    place: str
    count: int
    shape: tuple[int, ...]
    unit: str = "8-bit intensity, 0 to 255"
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return one paragraph for a report.

        Example:
            >>> toy = Provenance("toy", "two squares", "CC0", "drawn", "memory", 2, (1, 8, 8))
            >>> toy.describe()
            'two squares (toy): 2 examples of shape 1 x 8 x 8, 8-bit intensity, 0 to 255; read from
            memory. Origin: drawn. Licence: CC0. Nothing was dropped.'
        """
        shape = " x ".join(map(str, self.shape))
        examples = "1 example" if self.count == 1 else f"{self.count} examples"
        parts = [
            f"{self.title} ({self.name}): {examples} of shape {shape}, {self.unit}; "
            f"read from {self.place}.",
            f"Origin: {self.origin}.",
            f"Licence: {self.licence}.",
        ]
        lost = {reason: number for reason, number in self.dropped.items() if number}
        if lost:
            parts.append(
                "Dropped: "
                + "; ".join(f"{number} {reason}" for reason, number in lost.items())
                + "."
            )
        else:
            parts.append("Nothing was dropped.")
        return " ".join([*parts, *self.notes])
