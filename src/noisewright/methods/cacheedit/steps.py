"""The two kinds of steps: full ones, which keep; and reuse steps, which add what was kept.

Both look on while the stock transformer runs: at the keys and values of each attention, text
first, and at the image tokens that leave each block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from noisewright.adapters.dit import DiTFamily
from noisewright.methods.cacheedit.store import RoundStore

__all__ = ["FullStep", "HiddenReuse", "KeySet", "KeyValueReuse", "ReuseStep", "Step"]


class Step(Protocol):
    """What a step does while the transformer runs."""

    def on_keys(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values to look at."""
        ...

    def on_block(self, layer: int, states: Tensor) -> None:
        """See the image tokens that leave a block."""
        ...


class FullStep:
    """A step that computes everything and may keep it.

    Args:
        store: Of the round under way; None keeps nothing.
        branch: Of guidance.
        step: Number of the step.
        text: Text tokens.
        reference: Block whose output rounds are compared by.
        keys: Whether keys and values are kept.
        states: Blocks whose outputs are kept.
    """

    def __init__(
        self,
        store: RoundStore | None,
        *,
        branch: str,
        step: int,
        text: int,
        reference: int,
        keys: bool,
        states: range,
    ) -> None:
        self.store, self.branch, self.step, self.text = store, branch, step, text
        self.reference, self.keys, self.states = reference, keys, states

    def on_keys(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep keys and values of image tokens."""
        if self.store is not None and self.keys:
            for kind, part in (("key", key), ("value", value)):
                self.store.put(kind, self.branch, self.step, layer, part[:, self.text :])
        return key, value

    def on_block(self, layer: int, states: Tensor) -> None:
        """Keep activations."""
        if self.store is None:
            return
        if layer in self.states:
            self.store.put("state", self.branch, self.step, layer, states)
        if layer == self.reference:
            self.store.reference[self.branch, self.step] = states.detach().clone()


class ReuseStep:
    """A step that computes key tokens and looks at all of them.

    Args:
        store: The round that keys, values or activations come from.
        branch: Of guidance.
        group: The step at which they were kept.
        rest: Image tokens that are not computed.
    """

    def __init__(
        self, store: RoundStore, *, branch: str, group: int, rest: Int[Tensor, " rest"]
    ) -> None:
        self.store, self.branch, self.group, self.rest = store, branch, group, rest

    def on_block(self, layer: int, states: Tensor) -> None:
        """Nothing is kept."""


Buffers = dict[tuple[str, int], tuple[Tensor, Tensor]]


class KeyValueReuse(ReuseStep):
    """Adds kept keys and values.

    Args:
        buffers: Text and key tokens, then the others, of each block: filled at the first step of a
            group, later steps write over the part that they compute.
        options: As in :class:`ReuseStep`.
    """

    def __init__(self, buffers: Buffers, **options: Any) -> None:
        super().__init__(**options)
        self.buffers = buffers

    def on_keys(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return fresh keys and values, followed by kept ones."""
        place = (self.branch, layer)
        if place not in self.buffers:
            self.buffers[place] = (
                self._joined("key", layer, key),
                self._joined("value", layer, value),
            )
            return self.buffers[place]
        for buffer, fresh in zip(self.buffers[place], (key, value), strict=True):
            buffer[:, : fresh.shape[1]] = fresh
        return self.buffers[place]

    def _joined(self, kind: str, layer: int, fresh: Tensor) -> Tensor:
        kept = self.store.get(kind, self.branch, self.group, layer, self.rest)
        return torch.cat([fresh, kept], dim=1)


class HiddenReuse(ReuseStep):
    """Adds keys and values that each block makes of kept activations at the present time.

    Args:
        family: Of the transformer.
        transformer: Whose embeddings and blocks are used.
        call: Arguments for all tokens.
        options: As in :class:`ReuseStep`.
    """

    def __init__(
        self, family: DiTFamily, transformer: Any, call: dict[str, Any], **options: Any
    ) -> None:
        super().__init__(**options)
        self.family, self.blocks = family, family.blocks(transformer)
        self.time = family.time_embedding(transformer, call)
        self.rotary = family.rows(family.rotary(transformer, call), self.rest)
        self.inputs = family.embedded(transformer, call["hidden_states"][:, self.rest])
        self.condition = self.rest >= family.grid(call).latents

    def on_keys(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return fresh keys and values, followed by those of kept activations."""
        states = self.inputs
        if layer > 0:
            states = self.store.get("state", self.branch, self.group, layer - 1, self.rest)
        made = self.family.keys_and_values(
            self.blocks[layer], states, self.time, self.rotary, self.condition
        )
        return torch.cat([key, made[0]], dim=1), torch.cat([value, made[1]], dim=1)


class KeySet:
    """Key tokens of the group of steps under way, united over the branches of guidance.

    Attributes:
        mask: Which image tokens are key, or None before the first full step.
    """

    def __init__(self) -> None:
        self.mask: Bool[Tensor, " tokens"] | None = None
        self._step = -1

    def unite(
        self, step: int, mask: Bool[Tensor, " tokens"], grow: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Add the key tokens that one branch found at a full step; a new step begins anew.

        Args:
            step: Number of the step.
            mask: What the branch found.
            grow: What is done to the union, for instance its dilation.
        """
        if step != self._step or self.mask is None:
            self.mask, self._step = grow(mask), step
        else:
            self.mask = self.mask | grow(mask)
        return self.mask


def assembled(
    fresh: Float[Tensor, "batch kept channels"] | None,
    kept: Int[Tensor, " kept"],
    replayed: Float[Tensor, "batch rest channels"],
    rest: Int[Tensor, " rest"],
    tokens: int,
) -> Float[Tensor, "batch tokens channels"]:
    """Return outputs of all tokens: computed, replayed, and 0 where nobody looks.

    Args:
        fresh: Outputs of key tokens; None if there are none.
        kept: Their places.
        replayed: Outputs of the other latent tokens.
        rest: Their places.
        tokens: Number of all image tokens; pipelines cut off those of pictures shown.
    """
    output = replayed.new_zeros(len(replayed), tokens, replayed.shape[-1])
    output[:, rest] = replayed
    if fresh is not None:
        output[:, kept] = fresh.to(output.dtype)
    return output
