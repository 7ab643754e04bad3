"""A method's grip on a transformer: its calls, its keys and values, its blocks; let go exactly.

Everything lives on the instance, so other pipelines are not touched, and :meth:`Attachment.detach`
gives back the very processors and the very ``forward`` that were there. Whoever offloads weights
may wrap ``forward`` again between calls; :meth:`Attachment.ensure` takes hold once more.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from noisewright.adapters.dit import FluxDiT, dit_family
from noisewright.adapters.joint_attention import FluxJointAttention, QwenJointAttention
from noisewright.types import InputError

__all__ = ["Attachment", "Watcher", "refuse_conflicts"]

Inner = Callable[..., Tensor]
"""Calls the transformer itself, by keyword, and returns its output for the tokens given."""


class Watcher(Protocol):
    """What a method does at the three places that an attachment offers."""

    def on_call(self, inner: Inner, call: dict[str, Any]) -> Tensor:
        """Return the output of a call, most likely through ``inner(**call)``."""
        ...

    def on_keys(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values that a block's queries look at."""
        ...

    def on_block(self, layer: int, states: Tensor) -> None:
        """See the image tokens that leave a block."""
        ...


class Attachment:
    """Holds on to a transformer until :meth:`detach`.

    Args:
        transformer: Of a class that :func:`dit_family` knows.
        watcher: What is done.

    Raises:
        TypeError: If the class is not supported.
        InputError: If something else holds on to it already, see :func:`refuse_conflicts`.
    """

    def __init__(self, transformer: Any, watcher: Watcher) -> None:
        refuse_conflicts(transformer)
        self.transformer, self.watcher = transformer, watcher
        self.family = dit_family(transformer)
        self.context: str | None = None
        self.attached = True
        self._signature = inspect.signature(transformer.forward)
        self._own: dict[str, Any] = {}
        self._wrapped: dict[str, Any] = {}
        self._stock = [block.attn.processor for block in self.family.blocks(transformer)]
        self._hooks: list[Any] = []
        kind = FluxJointAttention if isinstance(self.family, FluxDiT) else QwenJointAttention
        for layer, block in enumerate(self.family.blocks(transformer)):
            block.attn.set_processor(kind(layer, watcher.on_keys, self._stock[layer]))
            self._hooks.append(block.register_forward_hook(self._seen(layer)))
        self.ensure()

    def ensure(self) -> None:
        """Hold on to ``forward`` and ``cache_context`` if somebody has replaced them."""
        self._hold("forward", self._calling)
        self._hold("cache_context", self._naming)

    def detach(self) -> None:
        """Give everything back; harmless when done twice."""
        if not self.attached:
            return
        self.attached = False
        for hook in self._hooks:
            hook.remove()
        blocks = self.family.blocks(self.transformer)
        for block, stock in zip(blocks, self._stock, strict=True):
            block.attn.set_processor(stock)
        for name, ours in self._wrapped.items():
            if vars(self.transformer).get(name) is not ours:
                continue  # wrapped again by others: ours passes calls on from now on
            if name in self._own:
                setattr(self.transformer, name, self._own[name])
            else:
                delattr(self.transformer, name)

    # ------------------------------------------------------------------ the three places

    def _hold(self, name: str, make: Callable[[Any], Any]) -> None:
        there = vars(self.transformer)
        if _reaches(there.get(name), self._wrapped.get(name)):
            return
        self._own.pop(name, None)
        if name in there:
            self._own[name] = there[name]
        self._wrapped[name] = make(getattr(self.transformer, name))
        setattr(self.transformer, name, self._wrapped[name])

    def _calling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            if not self.attached:
                return original(*args, **kwargs)
            call = dict(self._signature.bind(*args, **kwargs).arguments)
            wants_record = call.pop("return_dict", True)
            output = self.watcher.on_call(
                lambda **inner: original(**inner, return_dict=False)[0], call
            )
            if not wants_record:
                return (output,)
            from diffusers.models.modeling_outputs import Transformer2DModelOutput

            return Transformer2DModelOutput(sample=output)  # pyright: ignore[reportArgumentType]

        return torch.compiler.disable(forward, recursive=False)

    def _naming(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def cache_context(name: str, **kwargs: Any) -> Iterator[None]:
            before, self.context = self.context, name
            try:
                with original(name, **kwargs):
                    yield
            finally:
                self.context = before

        return cache_context

    def _seen(self, layer: int) -> Callable[..., None]:
        def hook(block: nn.Module, args: Any, output: tuple[Tensor, Tensor]) -> None:
            self.watcher.on_block(layer, output[1])

        return hook


def _reaches(function: Any, ours: Any) -> bool:
    """Whether a wrapper of somebody else ends in ours (accelerate and diffusers keep a link)."""
    for _ in range(20):
        if function is None or ours is None:
            return False
        if function is ours:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def refuse_conflicts(transformer: Any) -> None:
    """Refuse a transformer that is compiled, cached, fused, or has processors of its own.

    Raises:
        TypeError: If its class is not supported.
        InputError: With what is in the way and how to clear it.
    """
    if hasattr(transformer, "_orig_mod"):
        raise InputError("the transformer is compiled already; attach before torch.compile")
    family = dit_family(transformer)
    blocks = family.blocks(transformer)
    if any(getattr(m, "_compiled_call_impl", None) is not None for m in (transformer, *blocks)):
        raise InputError("the transformer is compiled already; attach before compile()")
    if transformer.is_cache_enabled:
        kind = type(transformer._cache_config).__name__
        raise InputError(f"a cache is enabled ({kind}); call transformer.disable_cache() first")
    if transformer.gradient_checkpointing:
        raise InputError("gradient checkpointing is on; call disable_gradient_checkpointing()")
    for layer, block in enumerate(blocks):
        if getattr(block.attn, "fused_projections", False):
            raise InputError("projections are fused; call transformer.unfuse_qkv_projections()")
        if type(block.attn.processor) is not family.processor:
            raise InputError(
                f"block {layer} has a {type(block.attn.processor).__name__}, for instance of an "
                f"IP-adapter or of another method; only {family.processor.__name__} can be "
                "replaced: remove the other one first"
            )
