r"""Diffusion transformers of diffusers seen as tokens: blocks, grids, rotations, fewer tokens.

Both families see text tokens and image tokens in one attention, text first. The image tokens of an
editor are those of the noisy latents, row by row, then those of the pictures it is shown.

==================================  ============================  ================================
                                    ``FluxTransformer2DModel``    ``QwenImageTransformer2DModel``
==================================  ============================  ================================
blocks                              double, then single stream    double stream
where a token lies                  ``img_ids`` (one row each)    ``img_shapes`` (frames, h, w)
rotary rows                         (cos, sin)                    complex
two calls a step (true guidance)    one after the other           ``cache_context`` names them
==================================  ============================  ================================
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from noisewright.adapters.requirement import diffusers
from noisewright.types import InputError

__all__ = ["DiTFamily", "FluxDiT", "QwenDiT", "TokenGrid", "dit_family"]

Arguments = dict[str, Any]
"""What a transformer is called with, by name."""


@dataclass(frozen=True)
class TokenGrid:
    """How the image tokens of a call lie.

    Attributes:
        height: Rows of latent tokens.
        width: Latent tokens in a row.
        condition: Tokens of the pictures that the model is shown; they follow the latent ones.
    """

    height: int
    width: int
    condition: int = 0

    @property
    def latents(self) -> int:
        """Number of latent tokens."""
        return self.height * self.width

    @property
    def tokens(self) -> int:
        """Number of all image tokens."""
        return self.latents + self.condition


class DiTFamily(ABC):
    """What is known of one class of transformers; it holds no state.

    Attributes:
        model: The class.
        processor: Its stock attention processor.
        embedder: Name of the layer that turns packed latents into tokens.
    """

    model: type
    processor: type
    embedder: str

    def blocks(self, transformer: Any) -> list[Any]:
        """Return the blocks in the order in which they run."""
        return list(transformer.transformer_blocks)

    def text_tokens(self, call: Arguments) -> int:
        """Return the number of text tokens of a call."""
        return int(call["encoder_hidden_states"].shape[1])

    def embedded(self, transformer: Any, states: Tensor) -> Tensor:
        """Return image tokens as the first block sees them."""
        return getattr(transformer, self.embedder)(states)

    def velocity(
        self, transformer: Any, states: Tensor, time: Tensor
    ) -> Float[Tensor, "batch tokens channels"]:
        """Return the model's output for activations of its last block."""
        return transformer.proj_out(transformer.norm_out(states, time))

    @abstractmethod
    def grid(self, call: Arguments) -> TokenGrid:
        """Return how the image tokens of a call lie."""

    @abstractmethod
    def rotary(self, transformer: Any, call: Arguments) -> Any:
        """Return the rotary rows of all image tokens of a call."""

    @abstractmethod
    def time_embedding(self, transformer: Any, call: Arguments) -> Tensor:
        """Return what the blocks are told of time (and guidance and pooled text)."""

    @abstractmethod
    def keys_and_values(
        self, block: Any, states: Tensor, time: Tensor, rotary: Any, condition: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return keys and values that a block would make of image tokens.

        Args:
            block: One of :meth:`blocks`.
            states: Its input for these tokens, (batch, tokens, width).
            time: From :meth:`time_embedding`.
            rotary: Their rows of :meth:`rotary`.
            condition: Which of them belong to pictures shown, bool, (tokens,).

        Returns:
            Both (batch, tokens, heads, width of a head), normalised and rotated.
        """

    @abstractmethod
    def rows(self, rotary: Any, index: Int[Tensor, " tokens"]) -> Any:
        """Return some rows of :meth:`rotary`."""

    @abstractmethod
    def fewer_tokens(self, transformer: Any, call: Arguments, kept: Int[Tensor, " tokens"]) -> Any:
        """Return a context in which the transformer may be called with some image tokens only.

        Args:
            transformer: The model.
            call: Its arguments for all tokens.
            kept: Which image tokens, rising.

        Returns:
            A context manager that yields the arguments of the smaller call.
        """


class FluxDiT(DiTFamily):
    """``FluxTransformer2DModel``, as FLUX.1 Kontext uses it."""

    model = diffusers.FluxTransformer2DModel
    processor = diffusers.models.transformers.transformer_flux.FluxAttnProcessor
    embedder = "x_embedder"

    def blocks(self, transformer: Any) -> list[Any]:
        """Return double-stream blocks, then single-stream ones."""
        return [*transformer.transformer_blocks, *transformer.single_transformer_blocks]

    def grid(self, call: Arguments) -> TokenGrid:
        """Return the grid of the rows of ``img_ids`` whose first entry is 0."""
        ids = _flat_ids(call)
        latent = ids[ids[:, 0] == 0]
        if not len(latent):
            raise InputError("img_ids marks no token as latent (first column 0)")
        height, width = (int(latent[:, axis].max()) + 1 for axis in (1, 2))
        return TokenGrid(height, width, len(ids) - len(latent))

    def rotary(self, transformer: Any, call: Arguments) -> tuple[Tensor, Tensor]:
        """Return cosines and sines, (tokens, width of a head) each."""
        return transformer.pos_embed(_flat_ids(call))

    def rows(self, rotary: tuple[Tensor, Tensor], index: Tensor) -> tuple[Tensor, Tensor]:
        """Return some rows of both."""
        return rotary[0][index], rotary[1][index]

    def time_embedding(self, transformer: Any, call: Arguments) -> Float[Tensor, "batch width"]:
        """Return the embedding of time, guidance if there is one, and pooled text."""
        dtype = call["hidden_states"].dtype  # weights may be stored in another one
        numbers = [call["timestep"], call.get("guidance")]
        numbers = [1000 * number.to(dtype) for number in numbers if number is not None]
        return transformer.time_text_embed(*numbers, call["pooled_projections"])

    def keys_and_values(
        self,
        block: Any,
        states: Tensor,
        time: Tensor,
        rotary: tuple[Tensor, Tensor],
        condition: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """See the base class; a picture shown is told the same time as the latents."""
        norm = block.norm1 if hasattr(block, "norm1") else block.norm
        inside = norm(states, emb=time)[0]
        attention = block.attn
        shape = (-1, attention.head_dim)
        key = attention.norm_k(attention.to_k(inside).unflatten(-1, shape))
        value = attention.to_v(inside).unflatten(-1, shape)
        turn: Any = diffusers.models.embeddings.apply_rotary_emb
        return turn(key, rotary, sequence_dim=1), value

    @contextmanager
    def fewer_tokens(
        self, transformer: Any, call: Arguments, kept: Int[Tensor, " tokens"]
    ) -> Iterator[Arguments]:
        """Yield the call with some rows of latents and ``img_ids``."""
        states = call["hidden_states"][:, kept]
        yield call | {"hidden_states": states, "img_ids": _flat_ids(call)[kept]}


class QwenDiT(DiTFamily):
    """``QwenImageTransformer2DModel``, as the Qwen-Image-Edit pipelines use it."""

    model = diffusers.QwenImageTransformer2DModel
    processor = diffusers.models.transformers.transformer_qwenimage.QwenDoubleStreamAttnProcessor2_0
    embedder = "img_in"

    def grid(self, call: Arguments) -> TokenGrid:
        """Return the grid of the first entry of ``img_shapes``; the others are pictures shown."""
        (frames, height, width), *shown = _shapes(call)
        return TokenGrid(frames * height, width, sum(math.prod(shape) for shape in shown))

    def rotary(self, transformer: Any, call: Arguments) -> Tensor:
        """Return complex rotations, (tokens, half the width of a head)."""
        where = call["hidden_states"].device
        text = self.text_tokens(call)
        return transformer.pos_embed(call["img_shapes"], max_txt_seq_len=text, device=where)[0]

    def rows(self, rotary: Tensor, index: Tensor) -> Tensor:
        """Return some rows."""
        return rotary[index]

    def time_embedding(self, transformer: Any, call: Arguments) -> Float[Tensor, "rows width"]:
        """Return the embedding of time; with ``zero_cond_t`` a second half of rows for time 0."""
        states = call["hidden_states"]
        time = call["timestep"].to(states.dtype)
        if transformer.zero_cond_t:
            time = torch.cat([time, time * 0])
        return transformer.time_text_embed(time, states, call.get("additional_t_cond"))

    def velocity(
        self, transformer: Any, states: Tensor, time: Tensor
    ) -> Float[Tensor, "batch tokens channels"]:
        """Return the model's output; it is told the time of the latents."""
        rows = time.chunk(2)[0] if transformer.zero_cond_t else time
        return super().velocity(transformer, states, rows)

    def keys_and_values(
        self, block: Any, states: Tensor, time: Tensor, rotary: Tensor, condition: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See the base class; with ``zero_cond_t`` a picture shown is told time 0."""
        shift, scale = block.img_mod(time).chunk(6, dim=-1)[:2]
        if block.zero_cond_t:
            shift, scale = (_by_kind(part, condition) for part in (shift, scale))
        else:
            shift, scale = shift[:, None], scale[:, None]
        inside = block.img_norm1(states) * (1 + scale) + shift
        attention = block.attn
        shape = (-1, attention.inner_dim // attention.heads)
        key = attention.to_k(inside).unflatten(-1, shape)
        if attention.norm_k is not None:
            key = attention.norm_k(key)
        value = attention.to_v(inside).unflatten(-1, shape)
        module: Any = diffusers.models.transformers.transformer_qwenimage
        return module.apply_rotary_emb_qwen(key, rotary, use_real=False), value

    @contextmanager
    def fewer_tokens(
        self, transformer: Any, call: Arguments, kept: Int[Tensor, " tokens"]
    ) -> Iterator[Arguments]:
        """Yield the call with some latents; positions come from the shapes of the whole call."""
        latents = int((kept < self.grid(call).latents).sum())
        rows = len(call["img_shapes"])
        # The model only counts these shapes, to tell latents from pictures shown.
        counted = [[(1, 1, latents), (1, 1, len(kept) - latents)]] * rows

        def whole(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
            return (call["img_shapes"], *args[1:]), kwargs

        def part(module: nn.Module, args: Any, rotary: tuple[Tensor, Tensor]) -> Any:
            return rotary[0][kept], rotary[1]

        hooks = [
            transformer.pos_embed.register_forward_pre_hook(whole, with_kwargs=True),
            transformer.pos_embed.register_forward_hook(part),
        ]
        try:
            states = call["hidden_states"][:, kept]
            yield call | {"hidden_states": states, "img_shapes": counted}
        finally:
            for hook in hooks:
                hook.remove()


FAMILIES: tuple[DiTFamily, ...] = (FluxDiT(), QwenDiT())


def dit_family(transformer: Any) -> DiTFamily:
    """Return what is known of a transformer's class.

    Raises:
        TypeError: If the class is not supported; the message lists those that are.

    Example:
        >>> dit_family(torch.nn.Linear(1, 1))
        Traceback (most recent call last):
        TypeError: Linear is not supported; supported are FluxTransformer2DModel, ...
    """
    for family in FAMILIES:
        if isinstance(transformer, family.model):
            return family
    names = ", ".join(family.model.__name__ for family in FAMILIES)
    raise TypeError(f"{type(transformer).__name__} is not supported; supported are {names}")


def _flat_ids(call: Arguments) -> Tensor:
    ids = call["img_ids"]
    return ids[0] if ids.ndim == 3 else ids


def _shapes(call: Arguments) -> list[tuple[int, int, int]]:
    """Return (frames, height, width) of the latents and of each picture shown."""
    first = call["img_shapes"][0]
    return list(first) if isinstance(first, list) else [first]


def _by_kind(part: Tensor, condition: Tensor) -> Tensor:
    """Return (batch, tokens, width) from rows for latents followed by rows for pictures shown."""
    latents, shown = part.chunk(2)
    return torch.where(condition[None, :, None], shown[:, None], latents[:, None])
