"""The cache on a transformer: full steps that keep and compare, and steps that reuse.

A reuse step calls the stock transformer with the key tokens alone. Wherever a block attends, keys
and values of the other image tokens are added: those kept (mode ``kv``), or those that the block
would make of the kept activations at the present time (mode ``hidden``). No block is rewritten, so
LoRA layers, backends of attention and offloading stay in place.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from noisewright.adapters.dit import TokenGrid
from noisewright.adapters.dit_attachment import Attachment, Inner
from noisewright.adapters.dit_calls import CallPlace, CallTracker
from noisewright.methods.cacheedit.config import CacheEditConfig
from noisewright.methods.cacheedit.cost import block_cost
from noisewright.methods.cacheedit.key_tokens import dilated, key_tokens, permutation
from noisewright.methods.cacheedit.round_report import RoundReport
from noisewright.methods.cacheedit.schedule import is_cache_step, map_group
from noisewright.methods.cacheedit.steps import (
    FullStep,
    HiddenReuse,
    KeySet,
    KeyValueReuse,
    ReuseStep,
    Step,
    assembled,
)
from noisewright.methods.cacheedit.store import RoundStore
from noisewright.types import InputError

__all__ = ["CacheEditHandle", "ChooseKeys", "apply_cacheedit", "remove_cacheedit"]

_HANDLE = "_noisewright_cacheedit"

ChooseKeys = Callable[[int, Tensor, Tensor], Bool[Tensor, "batch tokens"]]
"""Which tokens are key, from the step and the activations now and before; for experiments."""

PER_ROW = (
    "hidden_states",
    "encoder_hidden_states",
    "encoder_hidden_states_mask",
    "pooled_projections",
    "timestep",
    "guidance",
    "img_shapes",
    "additional_t_cond",
)
"""Arguments with an entry for each item of a batch."""


class CacheEditHandle:
    """The cache of one transformer; made by :func:`apply_cacheedit`.

    Outside of a round, calls are those of the stock transformer.

    Attributes:
        config: As given.
        previous: What the last finished round left, or None.
        report: Of the round under way, or of the last one.
    """

    def __init__(
        self,
        transformer: Any,
        config: CacheEditConfig,
        *,
        clock: Callable[[], float | None] | None = None,
        choose: ChooseKeys | None = None,
    ) -> None:
        """Take hold of a transformer; see :func:`apply_cacheedit`."""
        self.config = config
        self.transformer = transformer
        self.previous: RoundStore | None = None
        self.report = RoundReport(first=True)
        self._current: RoundStore | None = None
        self._tag: Any = None
        self._clock, self._choose = clock, choose
        self._tracker = CallTracker()
        self._keys: dict[int, KeySet] = {}
        self._buffers: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}
        self._step: Step | None = None
        self._attachment = Attachment(transformer, self)
        self._family = self._attachment.family
        self._layers = len(self._family.blocks(transformer))
        if not -self._layers <= config.reference_block < self._layers:
            self._attachment.detach()
            raise InputError(
                f"reference_block={config.reference_block}: there are {self._layers} blocks"
            )
        self._width = transformer.inner_dim

    # ------------------------------------------------------------------ rounds

    def begin_round(self, seed_tag: Any = None) -> None:
        """Begin a round; it reuses the one before if that had the same tag.

        Args:
            seed_tag: What rounds must share: seed, steps, size. Anything that compares.

        Raises:
            InputError: If a round is under way, or the handle was removed.
        """
        if self._current is not None:
            raise InputError("a round is under way; call end_round() first")
        if not self._attachment.attached:
            raise InputError("this handle was removed; apply the cache anew")
        self.report = RoundReport(first=self.previous is None)
        if self.previous is not None and seed_tag != self._tag:
            self._forget(f"seed, steps or size changed from {self._tag} to {seed_tag}")
        self._tag = seed_tag
        self._attachment.ensure()
        self._tracker.begin()
        self._keys, self._buffers = {}, {}
        self._current = RoundStore(self._layers, self.config.devices(), self.config.cache_dtype)

    def end_round(self, *, commit: bool = True) -> None:
        """End a round: what it kept takes the place of the round before.

        Args:
            commit: False throws it away, and the round before stays. A round that was cut short
                is thrown away in any case.
        """
        current, self._current, self._step = self._current, None, None
        self._keys, self._buffers = {}, {}
        if current is None:
            return
        current.times = self._tracker.times
        short = self.previous is not None and len(current.times) < len(self.previous.times)
        if commit and current.times and not short:
            self.previous = current

    def reset(self) -> None:
        """Forget the round before: the next one computes everything."""
        self.previous = None

    def remove(self) -> None:
        """Give the transformer back as it was."""
        self.end_round(commit=False)
        self.previous = None
        self._attachment.detach()
        if vars(self.transformer).get(_HANDLE) is self:
            delattr(self.transformer, _HANDLE)

    @property
    def cache_bytes(self) -> int:
        """Bytes kept now."""
        stores = [store for store in (self.previous, self._current) if store is not None]
        working = sum(part.nbytes for pair in self._buffers.values() for part in pair)
        return sum(store.nbytes for store in stores) + working

    def _forget(self, why: str) -> None:
        warnings.warn(f"{why}; this round computes everything", stacklevel=4)
        self.previous = None
        self.report.first = True

    # ------------------------------------------------------------------ one call

    def on_keys(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Hand keys and values to the step under way."""
        return (key, value) if self._step is None else self._step.on_keys(layer, key, value)

    def on_block(self, layer: int, states: Tensor) -> None:
        """Hand activations to the step under way."""
        if self._step is not None:
            self._step.on_block(layer, states)

    def on_call(self, inner: Inner, call: dict[str, Any]) -> Tensor:
        """Run one call of the transformer: in full, or for key tokens only."""
        if self._current is None:
            return inner(**call)
        if torch.is_grad_enabled():
            raise InputError("gradients are on; edit inside torch.no_grad()")
        if call.get("controlnet_block_samples") is not None:
            raise InputError("controlnet_block_samples cannot be cut to key tokens; leave them out")
        now = None if self._clock is None else self._clock()
        time = float(call["timestep"].flatten()[0]) if now is None else now
        place = self._tracker.see(time, self._attachment.context)
        rows = len(call["hidden_states"])
        if not (self.config.per_sample and rows > 1):
            return self._one(self._current, inner, call, place, item=-1)
        parts = []
        for item in range(rows):
            one = {
                k: v[item : item + 1] if k in PER_ROW and v is not None else v
                for k, v in call.items()
            }
            branch = CallPlace(place.step, f"{place.branch} of item {item}", place.time)
            parts.append(self._one(self._current, inner, one, branch, item=item))
        return torch.cat(parts)

    def _one(
        self,
        current: RoundStore,
        inner: Inner,
        call: dict[str, Any],
        place: CallPlace,
        *,
        item: int,
    ) -> Tensor:
        grid = self._family.grid(call)
        self.report.grid = grid
        current.layout = (len(call["hidden_states"]), grid)
        self._check_chain(place, current.layout)
        keys = self._keys.setdefault(item, KeySet())
        config = self.config
        if is_cache_step(place.step, config.cache_interval, config.cache_steps):
            output = self._full(inner, call, place, current)
            output = self._compared(output, place, current, keys, item)
        elif self.previous is None or keys.mask is None or bool(keys.mask.all()):
            output = self._full(inner, call, place, None)
        else:
            output = self._reused(inner, call, place, current, keys.mask)
        current.velocity[place.branch, place.step] = output[:, : grid.latents].detach().clone()
        return output

    def _check_chain(self, place: CallPlace, layout: tuple[int, TokenGrid]) -> None:
        """Forget the round before if it does not fit this call."""
        before = self.previous
        if before is None:
            return
        if layout != before.layout:
            self._forget(f"the size changed from {before.layout} to {layout} (batch, tokens)")
        elif place.step >= len(before.times) or place.time != before.times[place.step]:
            self._forget("the number of steps or their noise levels changed")
        elif (place.branch, place.step) not in before.velocity:
            self._forget("the number of calls per step changed")

    def _full(
        self, inner: Inner, call: dict[str, Any], place: CallPlace, keep: RoundStore | None
    ) -> Tensor:
        text = self._family.text_tokens(call)
        self._count(call, place, None)
        hidden, last = self.config.mode == "hidden", self._layers - 1
        group = self.config.replay == "group"
        if keep is not None:
            self._buffers = {k: v for k, v in self._buffers.items() if k[0] != place.branch}
        step = FullStep(
            keep,
            branch=place.branch,
            step=place.step,
            text=text,
            reference=self.config.reference_block % self._layers,
            keys=not hidden,
            states=range(0 if hidden else last if group else self._layers, self._layers),
        )
        return self._run(step, inner, call)

    def _run(self, step: Step, inner: Inner, call: dict[str, Any]) -> Tensor:
        self._step = step
        try:
            return inner(**call)
        finally:
            self._step = None

    def _compared(
        self, output: Tensor, place: CallPlace, current: RoundStore, keys: KeySet, item: int
    ) -> Tensor:
        """Renew the key tokens after a full step; give unchanged ones their old output if asked."""
        now = current.reference[place.branch, place.step]
        if self.previous is None:
            mask = now.new_ones(now.shape[1], dtype=torch.bool)
        else:
            before = self.previous.reference[place.branch, place.step]
            if self._choose is not None:
                mask = self._choose(place.step, now, before).any(dim=0)
            else:
                mask = key_tokens(now, before, self.config.threshold).any(dim=0)
        grid, times = current.layout[1], self.config.dilate
        mask = keys.unite(place.step, mask, lambda m: dilated(m, grid.height, grid.width, times))
        self.report.keys[place.step, item] = mask
        if self.previous is None or not self.config.freeze_nonkey:
            return output
        rest = permutation(mask[: grid.latents])[1]
        output = output.clone()
        output[:, rest] = self.previous.velocity[place.branch, place.step][:, rest]
        return output

    def _reused(
        self,
        inner: Inner,
        call: dict[str, Any],
        place: CallPlace,
        current: RoundStore,
        mask: Bool[Tensor, " tokens"],
    ) -> Tensor:
        assert self.previous is not None
        config, grid = self.config, current.layout[1]
        group = map_group(place.step, config.cache_interval, config.cache_steps)
        source = self.previous if config.source == "previous" else current
        kept, rest = permutation(mask)
        latent = rest[rest < grid.latents]
        if config.replay == "step":
            replayed = self.previous.velocity[place.branch, place.step][:, latent]
        else:
            states = source.get("state", place.branch, group, self._layers - 1, latent)
            time = self._family.time_embedding(self.transformer, call)
            replayed = self._family.velocity(self.transformer, states, time)
        self._count(call, place, len(kept))
        fresh = None
        if len(kept):
            options = {"store": source, "branch": place.branch, "group": group, "rest": rest}
            step: ReuseStep
            if config.mode == "kv":
                step = KeyValueReuse(self._buffers, **options)
            else:
                step = HiddenReuse(self._family, self.transformer, call, **options)
            with self._family.fewer_tokens(self.transformer, call, kept) as fewer:
                fresh = self._run(step, inner, fewer)
        return assembled(fresh, kept, replayed, latent, grid.tokens)

    def _count(self, call: dict[str, Any], place: CallPlace, keys: int | None) -> None:
        """Add the multiply-adds of a call to the report."""
        text, tokens = self._family.text_tokens(call), call["hidden_states"].shape[1]
        rows = len(call["hidden_states"]) * self._layers
        full = rows * block_cost(text, tokens, tokens, self._width)
        self.report.full_cost += full
        if keys is None:
            self.report.cost += full
        else:
            self.report.cost += rows * block_cost(text, tokens, keys, self._width, self.config.mode)


def apply_cacheedit(
    transformer: Any,
    config: CacheEditConfig | None = None,
    *,
    clock: Callable[[], float | None] | None = None,
    choose: ChooseKeys | None = None,
) -> CacheEditHandle:
    """Put the cache on a transformer; :class:`CacheEditSession` does it for a whole pipeline.

    Args:
        transformer: ``FluxTransformer2DModel`` or ``QwenImageTransformer2DModel``.
        config: None takes the defaults.
        clock: Returns the pipeline's own time of the step under way. None, or an answer of None,
            reads it off the call, where half precision can make two steps look alike.
        choose: Another rule for key tokens, ``choose(step, now, before)``.

    Returns:
        A handle with ``begin_round``, ``end_round`` and ``remove``.

    Raises:
        TypeError: If the class is not supported.
        InputError: If the transformer is compiled, cached, fused, or held by something else.
    """
    handle = CacheEditHandle(transformer, config or CacheEditConfig(), clock=clock, choose=choose)
    setattr(transformer, _HANDLE, handle)
    return handle


def remove_cacheedit(transformer: Any) -> None:
    """Take the cache off a transformer; harmless where there is none."""
    handle = vars(transformer).get(_HANDLE)
    if handle is not None:
        handle.remove()
