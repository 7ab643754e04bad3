"""Attention of text and image tokens with a say in the keys and values it looks at.

The processors compute what the stock ones of diffusers compute, to the bit. Between rotation and
attention they hand keys and values, text first, to a hook, and attend to what it gives back: more
image tokens than there are queries, for instance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.adapters.requirement import diffusers

__all__ = ["FluxJointAttention", "JointAttention", "KeyValueHook", "QwenJointAttention"]

KeyValueHook = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]
"""``hook(layer, key, value)`` returns keys and values, (batch, tokens, heads, width of a head)."""

# Annotated as Any: theirs say that a tensor may come back as a pair.
_attend: Any = diffusers.models.attention_dispatch.dispatch_attention_fn
_turn_flux: Any = diffusers.models.embeddings.apply_rotary_emb
_turn_qwen: Any = diffusers.models.transformers.transformer_qwenimage.apply_rotary_emb_qwen

Streams = tuple[Float[Tensor, "batch image width"], Float[Tensor, "batch text width"]]


class JointAttention:
    """What both families share.

    Args:
        layer: Number of the block, handed to the hook.
        hook: Sees keys and values before each attention.
        stock: The processor that this one stands for; its choice of backend is kept.
    """

    def __init__(self, layer: int, hook: KeyValueHook, stock: Any) -> None:
        self.layer, self.hook = layer, hook
        self._attention_backend = stock._attention_backend
        self._parallel_config = stock._parallel_config

    def _attended(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Return what queries find among the keys that the hook gives, heads side by side."""
        mixed = _attend(
            query,
            key,
            value,
            attn_mask=mask,
            backend=self._attention_backend,
            parallel_config=self._parallel_config,
        )
        return mixed.flatten(2, 3).to(query.dtype)


def _projected(states: Tensor, layers: tuple[Any, Any, Any], width: int) -> list[Tensor]:
    """Return queries, keys and values, (batch, tokens, heads, width) each."""
    return [layer(states).unflatten(-1, (-1, width)) for layer in layers]


class FluxJointAttention(JointAttention):
    """Stands for ``FluxAttnProcessor``; in single-stream blocks both streams arrive as one."""

    def __call__(
        self,
        attn: Any,
        hidden_states: Float[Tensor, "batch tokens width"],
        encoder_hidden_states: Float[Tensor, "batch text width"] | None = None,
        attention_mask: Tensor | None = None,
        image_rotary_emb: Any = None,
    ) -> Tensor | Streams:
        """Return the attention's output, for both streams if there are two."""
        layers = (attn.to_q, attn.to_k, attn.to_v)
        query, key, value = _projected(hidden_states, layers, attn.head_dim)
        query, key = attn.norm_q(query), attn.norm_k(key)
        if encoder_hidden_states is not None:
            layers = (attn.add_q_proj, attn.add_k_proj, attn.add_v_proj)
            asked, known, told = _projected(encoder_hidden_states, layers, attn.head_dim)
            query = torch.cat([attn.norm_added_q(asked), query], dim=1)
            key = torch.cat([attn.norm_added_k(known), key], dim=1)
            value = torch.cat([told, value], dim=1)
        if image_rotary_emb is not None:
            query, key = (
                _turn_flux(part, image_rotary_emb, sequence_dim=1) for part in (query, key)
            )
        key, value = self.hook(self.layer, key, value)
        mixed = self._attended(query, key, value, attention_mask)
        if encoder_hidden_states is None:
            return mixed
        text = encoder_hidden_states.shape[1]
        image = attn.to_out[1](attn.to_out[0](mixed[:, text:].contiguous()))
        return image, attn.to_add_out(mixed[:, :text].contiguous())


class QwenJointAttention(JointAttention):
    """Stands for ``QwenDoubleStreamAttnProcessor2_0``."""

    def __call__(
        self,
        attn: Any,
        hidden_states: Float[Tensor, "batch tokens width"],
        encoder_hidden_states: Float[Tensor, "batch text width"],
        encoder_hidden_states_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        image_rotary_emb: Any = None,
    ) -> Streams:
        """Return the attention's output for both streams."""
        if attention_mask is not None:
            raise ValueError("give encoder_hidden_states_mask; the joint mask is made from it")
        width, text = attn.inner_dim // attn.heads, encoder_hidden_states.shape[1]
        layers = (attn.to_q, attn.to_k, attn.to_v)
        query, key, value = _projected(hidden_states, layers, width)
        layers = (attn.add_q_proj, attn.add_k_proj, attn.add_v_proj)
        asked, known, told = _projected(encoder_hidden_states, layers, width)
        query, key = _normalised(attn.norm_q, query), _normalised(attn.norm_k, key)
        asked, known = _normalised(attn.norm_added_q, asked), _normalised(attn.norm_added_k, known)
        if image_rotary_emb is not None:
            image, words = image_rotary_emb
            query, key = (_turn_qwen(part, image, use_real=False) for part in (query, key))
            asked, known = (_turn_qwen(part, words, use_real=False) for part in (asked, known))
        query, key, value = (
            torch.cat(pair, dim=1) for pair in ((asked, query), (known, key), (told, value))
        )
        key, value = self.hook(self.layer, key, value)
        mask = _joint_mask(encoder_hidden_states_mask, key.shape[1])
        mixed = self._attended(query, key, value, mask)
        image = attn.to_out[0](mixed[:, text:].contiguous())
        for layer in attn.to_out[1:]:
            image = layer(image)
        return image, attn.to_add_out(mixed[:, :text].contiguous())


def _normalised(norm: Any, states: Tensor) -> Tensor:
    return states if norm is None else norm(states)


def _joint_mask(text: Tensor | None, keys: int) -> Tensor | None:
    """Return which keys may be looked at: real text tokens, and all image tokens."""
    if text is None:
        return None
    image = text.new_ones(len(text), keys - text.shape[1], dtype=torch.bool)
    return torch.cat([text.bool(), image], dim=1)[:, None, None, :]
