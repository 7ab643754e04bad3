"""Instruction-based editors of diffusers: which sizes they really work at, and how to set one.

``FluxKontextPipeline`` makes a square of a megapixel unless told otherwise and moves the picture
that it is shown to one of 17 preferred sizes; ``QwenImageEditPipeline`` keeps the aspect and shows
itself a megapixel whatever it makes. Rounds about one picture need one size, so it is chosen here.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from PIL import Image

from noisewright.adapters.requirement import diffusers
from noisewright.types import InputError

__all__ = [
    "EDITORS",
    "at_size",
    "picture_size",
    "refuse_other_pipelines",
    "size_arguments",
    "token_counts",
]


def _editors() -> tuple[type, ...]:
    """Return the classes; loading them, transformers tells of torchvision, which nobody needs."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        return (
            diffusers.FluxKontextPipeline,
            diffusers.QwenImageEditPipeline,
            diffusers.QwenImageEditPlusPipeline,
        )
    finally:
        logging.disable(before)


EDITORS: tuple[type, ...] = _editors()
"""Pipelines that edit a picture by instruction and are supported."""


def refuse_other_pipelines(pipe: Any) -> None:
    """Refuse a pipeline that is no supported editor.

    Raises:
        TypeError: With the list of supported ones.
    """
    if not isinstance(pipe, EDITORS):
        names = ", ".join(kind.__name__ for kind in EDITORS)
        raise TypeError(f"{type(pipe).__name__} is not supported; supported are {names}")


def picture_size(image: Any) -> tuple[int, int]:
    """Return height and width of a picture as pipelines take it, or of the first of a list.

    Raises:
        InputError: If it is no picture.
    """
    first: Any = image[0] if isinstance(image, (list, tuple)) and len(image) else image
    if isinstance(first, Image.Image):
        return first.height, first.width
    shape = list(getattr(first, "shape", ()))
    if isinstance(first, torch.Tensor) and len(shape) in (3, 4):
        return shape[-2], shape[-1]
    if len(shape) in (3, 4) and shape[-1] in (1, 3, 4):  # numpy, channels last
        return shape[-3], shape[-2]
    raise InputError(f"image is a {type(image).__name__}; give a PIL image, array, tensor or list")


def size_arguments(
    pipe: Any, image: Any, height: int | None = None, width: int | None = None
) -> dict[str, Any]:
    """Return arguments that make an editor show itself, and make, one size in every round.

    Args:
        pipe: One of :data:`EDITORS`.
        image: The first picture.
        height: Wanted height in pixels; None follows the picture.
        width: Likewise.

    Returns:
        ``height`` and ``width`` as they will be, and what the pipeline needs beside them.

    Raises:
        InputError: If one of the two is missing, or they are no multiples of a token.
    """
    if (height is None) != (width is None):
        raise InputError(f"height={height} and width={width}: give both or none")
    token = 2 * pipe.vae_scale_factor
    tall, wide = picture_size(image)
    if not isinstance(pipe, diffusers.FluxKontextPipeline):
        if height is None or width is None:
            height, width = _megapixel(tall, wide)
        return {"height": height // token * token, "width": width // token * token}
    if height is None or width is None:
        from diffusers.pipelines.flux.pipeline_flux_kontext import PREFERRED_KONTEXT_RESOLUTIONS

        _, width, height = min(
            (abs(wide / tall - w / h), w, h) for w, h in PREFERRED_KONTEXT_RESOLUTIONS
        )
    if height % token or width % token or height < 1 or width < 1:
        raise InputError(f"height={height} and width={width} must be multiples of {token}")
    return {
        "height": height,
        "width": width,
        "max_area": height * width,
        "_auto_resize": False,
    }


def at_size(pipe: Any, image: Any, sizes: dict[str, Any]) -> Any:
    """Return a picture at the size of the rounds, where the pipeline would leave it as it is.

    Args:
        pipe: One of :data:`EDITORS`.
        image: As the pipeline takes it.
        sizes: From :func:`size_arguments`.
    """
    size = (sizes["height"], sizes["width"])
    if "max_area" not in sizes or picture_size(image) == size:
        return image
    return pipe.image_processor.resize(image, *size)


def _megapixel(tall: int, wide: int) -> tuple[int, int]:
    """Return the size with about 1024 x 1024 pixels that the Qwen editors choose for a picture."""
    width = (1024 * 1024 * wide / tall) ** 0.5
    height = width / (wide / tall)
    return round(height / 32) * 32, round(width / 32) * 32


def token_counts(pipe: Any, height: int, width: int) -> tuple[int, int]:
    """Return how many latent tokens there are, and how many of the picture shown.

    Args:
        pipe: One of :data:`EDITORS`.
        height: Of what is made, in pixels.
        width: Likewise.
    """
    token = 2 * pipe.vae_scale_factor
    made = (height // token) * (width // token)
    if isinstance(pipe, diffusers.FluxKontextPipeline):
        return made, made
    tall, wide = _megapixel(height, width)
    return made, (tall // token) * (wide // token)
