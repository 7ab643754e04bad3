"""What may be chosen about the cache, and which combinations cannot work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from noisewright.types import InputError, nearest_name

__all__ = ["CacheEditConfig"]

CHOICES = {
    "mode": ("kv", "hidden"),
    "replay": ("step", "group"),
    "source": ("previous", "current"),
}

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn)


@dataclass(frozen=True)
class CacheEditConfig:
    """How much of a later round is recomputed, and what stands in for the rest.

    Attributes:
        threshold: A token is recomputed when its similarity to the round before is below this;
            in (0, 2]. Above 1 everything is; the paper takes 0.97 for Kontext, 0.99 for Qwen.
        cache_interval: Every how many steps all tokens are computed and compared.
        mode: What is kept of each block at those steps: its keys and values (``"kv"``), or the
            activations after it (``"hidden"``, the paper's: half the memory, more work).
        replay: What the sampler gets for a token that is not recomputed: the output of the same
            step of the round before (``"step"``), or the output layer on the kept activation
            (``"group"``, the paper's).
        source: Which round the kept keys, values or activations come from.
        reference_block: Whose output is compared; -1 is the last.
        dilate: How often the set of recomputed latent tokens grows by its four neighbours.
        freeze_nonkey: Keep the round before for unchanged tokens also at the steps that compute
            everything, so that they do not move by a bit.
        cache_device: Where the cache lives: a device, or several to deal blocks to. None: where
            the model is.
        cache_dtype: float32, float16, bfloat16 or float8_e4m3fn (with a scale per token). None: as
            computed.
        cache_steps: The steps that compute everything, instead of an interval; 0 among them.
        per_sample: Run the items of a batch one by one, each with its own recomputed tokens,
            instead of together with the union of them.

    Raises:
        InputError: If a field cannot work; the message names it.

    Example:
        >>> CacheEditConfig(threshold=0.99).mode
        'kv'
    """

    threshold: float = 0.97
    cache_interval: int = 5
    mode: Literal["kv", "hidden"] = "kv"
    replay: Literal["step", "group"] = "step"
    source: Literal["previous", "current"] = "previous"
    reference_block: int = -1
    dilate: int = 0
    freeze_nonkey: bool = False
    cache_device: str | torch.device | Sequence[str | torch.device] | None = None
    cache_dtype: torch.dtype | None = None
    cache_steps: Sequence[int] | None = None
    per_sample: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.threshold) and 0 < self.threshold <= 2):
            raise InputError(f"threshold={self.threshold} must be in (0, 2]")
        if self.cache_interval < 1:
            raise InputError(f"cache_interval={self.cache_interval} must be at least 1")
        for field, allowed in CHOICES.items():
            value = getattr(self, field)
            if value not in allowed:
                raise InputError(f"{field}={value!r} is unknown{nearest_name(str(value), allowed)}")
        if self.dilate < 0:
            raise InputError(f"dilate={self.dilate} must not be negative")
        steps = self.cache_steps
        if steps is not None and (not len(steps) or 0 not in steps or min(steps) < 0):
            raise InputError(f"cache_steps={list(steps)} must hold 0, and no negative step")
        if self.cache_dtype is not None and self.cache_dtype not in DTYPES:
            raise InputError(f"cache_dtype={self.cache_dtype} must be one of {DTYPES}")

    def devices(self) -> tuple[torch.device, ...]:
        """Return the devices of the cache; empty: where the model is."""
        given = self.cache_device
        if given is None:
            return ()
        several = [given] if isinstance(given, (str, torch.device)) else list(given)
        return tuple(map(torch.device, several))
