"""Seconds of full and of reuse steps on a transformer large enough for arithmetic to count.

Weights are random and key tokens forced: time depends on neither. Steps are timed in turns with
the stock transformer on one core, in processor time, and a round is put together from its steps.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from noisewright.methods.cacheedit.config import CacheEditConfig
from noisewright.methods.cacheedit.cost import reuse_share
from noisewright.methods.cacheedit.editor import POOLED_WIDTH, TEXT_WIDTH, small_transformer
from noisewright.methods.cacheedit.handle import CacheEditHandle, apply_cacheedit
from noisewright.methods.cacheedit.schedule import cache_steps
from noisewright.parallel import limited_threads

__all__ = ["random_call", "round_ratio", "time_steps"]

GROUP = 3
"""Steps timed in a row: one that computes everything, the first that reuses, and one more."""


def random_call(side: int, text: int, seed: int = 0) -> dict[str, Any]:
    """Return arguments of a Kontext call: side x side latent tokens and as many of a picture."""
    stream = torch.Generator().manual_seed(seed)
    place = torch.cartesian_prod(torch.arange(side), torch.arange(side)).float()
    ids = [torch.cat([torch.full((side**2, 1), float(n)), place], dim=1) for n in (0, 1)]
    return {
        "hidden_states": torch.randn(1, 2 * side**2, 48, generator=stream),
        "encoder_hidden_states": torch.randn(1, text, TEXT_WIDTH, generator=stream),
        "pooled_projections": torch.randn(1, POOLED_WIDTH, generator=stream),
        "img_ids": torch.cat(ids),
        "txt_ids": torch.zeros(text, 3),
        "return_dict": False,
    }


@torch.no_grad()
def time_steps(
    *,
    heads: int,
    double: int,
    single: int,
    side: int,
    text: int,
    shares: Sequence[float],
    modes: Sequence[str],
    repeats: int,
) -> dict[str, Any]:
    """Return processor seconds of each kind of step.

    Args:
        heads: Of the transformer, 32 channels each.
        double: Double-stream blocks.
        single: Single-stream blocks.
        side: Latent tokens along a side.
        text: Text tokens.
        shares: Of key tokens, forced.
        modes: ``kv``, ``hidden``.
        repeats: Groups of steps of each kind.

    Returns:
        By mode and share: ``full``, ``first`` and ``next``, each a list of ratios to a stock step
        timed just before; ``stock`` in seconds; and ``model``, what the cost model expects of a
        step that reuses.
    """
    model, twin = (small_transformer(heads=heads, double=double, single=single) for _ in range(2))
    call, tokens = random_call(side, text), 2 * side**2
    measured: dict[str, Any] = {}
    with limited_threads(1):
        for mode in modes:
            forced = _Forced()
            config = CacheEditConfig(mode=mode, cache_interval=GROUP)  # pyright: ignore[reportArgumentType]
            handle = apply_cacheedit(model, config, choose=forced)
            _walk(handle, twin, call)
            for share in shares:
                forced.keys = max(1, round(share * tokens))
                spent: dict[str, Any] = {n: [] for n in ("stock", "full", "first", "next")}
                for _ in range(repeats):
                    for name, (ours, stock) in zip(
                        ("full", "first", "next"), _walk(handle, twin, call), strict=True
                    ):
                        spent[name].append(ours / stock)
                        spent["stock"].append(stock)
                expected = reuse_share(text, tokens, forced.keys, model.inner_dim, mode)
                measured[f"{mode} {share:g}"] = spent | {"model": expected}
            handle.remove()
    return measured


class _Forced:
    """As many key tokens as said, spread evenly."""

    keys = 0

    def __call__(self, step: int, now: Tensor, before: Tensor) -> Tensor:
        mask = torch.zeros(now.shape[:2], dtype=torch.bool)
        mask[:, torch.linspace(0, now.shape[1] - 1, self.keys).long()] = True
        return mask


def _walk(handle: CacheEditHandle, twin: Any, call: dict[str, Any]) -> list[tuple[float, float]]:
    """Return processor seconds of each step of a group, and of a stock one before each.

    The first walk stays what all later ones reuse.
    """
    seconds = []
    handle.begin_round()
    for step in range(GROUP):
        at, pair = torch.tensor([1 - step / 10]), []
        for one in (twin, handle.transformer):
            began = time.process_time()
            one(**call, timestep=at)
            pair.append(time.process_time() - began)
        seconds.append((pair[1], pair[0]))
    handle.end_round(commit=handle.previous is None)
    return seconds


def round_ratio(spent: dict[str, Any], steps: int, interval: int) -> float:
    """Return the time of a stock round over that of a later round with the cache.

    Args:
        spent: Ratios ``full``, ``first`` and ``next`` of steps to stock ones.
        steps: Of a round.
        interval: Of full steps.

    Example:
        >>> round(round_ratio({"full": [1], "first": [0], "next": [0]}, 28, 5), 2)
        4.67
    """
    full, first, later = (statistics.median(spent[name]) for name in ("full", "first", "next"))
    groups = len(cache_steps(steps, interval))
    starts = groups if interval > 1 else 0
    return steps / (groups * full + starts * first + (steps - groups - starts) * later)
