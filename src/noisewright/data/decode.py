"""Picture files decoded without trust, to 8 bits.

========================  =====================================================================
16-bit grey               divided by 257, rounded
16-bit colour (PNG)       the high byte
32-bit integer            taken as 16-bit if it fits in 0 to 65535, otherwise refused
floating point            refused: its range is not stated in the file
palette, CMYK, YCbCr      converted to RGB
alpha                     blended over white
orientation (EXIF)        applied
several frames or pages   the first
========================  =====================================================================
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import torch
from jaxtyping import UInt8
from PIL import Image, ImageOps
from torch import Tensor

from noisewright.types import InputError

__all__ = ["MAX_PIXELS", "decode_picture", "refuse_if_many", "to_tensor"]

MAX_PIXELS = 100_000_000
"""Pictures with more pixels are refused before they are decoded."""


def decode_picture(content: Path | bytes, *, name: str | None = None) -> Image.Image:
    """Return a picture as 8-bit RGB.

    Args:
        content: A file, or its bytes.
        name: How to call it in an error; the file's name by default.

    Raises:
        InputError: If it cannot be read, whatever its bytes are.
    """
    name = name or (str(content) if isinstance(content, Path) else "picture")
    opened = content if isinstance(content, Path) else io.BytesIO(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(opened) as picture:
                if picture.width * picture.height > MAX_PIXELS:
                    raise InputError(f"it has more than {MAX_PIXELS} pixels")
                return _eight_bit(ImageOps.exif_transpose(picture)).convert("RGB")
    # The decoders of a dozen formats raise whatever a damaged file leads them to.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"{name} cannot be read as a picture: {reason}") from error


def _eight_bit(picture: Image.Image) -> Image.Image:
    if picture.mode == "F":
        raise InputError("floating-point pixels have no stated range; save it with 8 or 16 bits")
    if picture.mode.startswith("I"):
        return _from_sixteen(picture.convert("I"))
    if picture.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture


def _from_sixteen(picture: Image.Image) -> Image.Image:
    values = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.int32)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        raise InputError(f"integer pixels from {low} to {high} do not fit 16 bits")
    rounded = ((values + 128) // 257).to(torch.uint8)
    return Image.frombytes("L", picture.size, bytes(rounded.tolist()))


def to_tensor(picture: Image.Image) -> UInt8[Tensor, "channels height width"]:
    """Return the pixels of an 8-bit RGB or grey picture."""
    flat = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
    pixels = flat.view(picture.height, picture.width, len(picture.getbands()))
    return pixels.permute(2, 0, 1).contiguous()


def refuse_if_many(unreadable: list[str], total: int, place: str) -> None:
    """Stop when too much of a set cannot be read: all of it, or more than one file and a tenth.

    Args:
        unreadable: Why each unreadable file is so, with its name.
        total: Files looked at.
        place: What was read.

    Raises:
        InputError: Naming the first few.
    """
    if not unreadable or (len(unreadable) <= max(1, total // 10) and len(unreadable) < total):
        return
    first = "; ".join(unreadable[:3])
    raise InputError(
        f"{len(unreadable)} of {total} pictures in {place} cannot be read: {first}"
        f"{' ...' if len(unreadable) > 3 else ''}; repair or remove them"
    )
