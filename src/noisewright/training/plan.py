"""The settings that decide what a training run computes, and its learning rate."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from noisewright.types import InputError

__all__ = ["Decay", "Plan"]

Decay = Literal["cosine", "constant"]
"""What the learning rate does after the warm-up."""


@dataclass(frozen=True)
class Plan:
    """The settings that decide what a run computes; a checkpoint of another plan is refused.

    Attributes:
        steps: Optimizer steps in all.
        batch: Examples per step, over all processes.
        seed: Seed of order, draws and dropout.
        rate: Peak learning rate.
        warmup: Steps over which the rate rises from 0.
        decay: ``"cosine"`` falls to 0 at the last step; ``"constant"`` stays.
        clip: Largest norm of the gradient; None leaves it as it is.
        mixed_precision: ``"no"`` or ``"bf16"``.
    """

    steps: int
    batch: int
    seed: int = 0
    rate: float = 1e-3
    warmup: int = 0
    decay: Decay = "cosine"
    clip: float | None = 1.0
    mixed_precision: str = "no"

    def __post_init__(self) -> None:
        for name in ("steps", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)} must be at least 1")
        if not 0 <= self.warmup <= self.steps:
            raise InputError(f"warmup={self.warmup} must lie in [0, steps={self.steps}]")
        if self.decay not in ("cosine", "constant"):
            raise InputError(f"decay={self.decay!r}; choose 'cosine' or 'constant'")
        if self.clip is not None and self.clip <= 0:
            raise InputError(f"clip={self.clip} must be positive; None switches clipping off")
        if not (math.isfinite(self.rate) and self.rate >= 0):
            raise InputError(f"rate={self.rate} must be finite and not negative")
        if self.mixed_precision not in ("no", "bf16"):
            raise InputError(
                f"mixed_precision={self.mixed_precision!r}; choose 'no' or 'bf16' (for fp16, which "
                "scales the loss, pass accelerator=Accelerator(mixed_precision='fp16'))"
            )

    def level(self, step: int) -> float:
        """Return the learning rate of a step (counted from 0) as a share of the peak.

        Example:
            >>> plan = Plan(steps=10, batch=1, warmup=2)
            >>> [round(plan.level(step), 3) for step in (0, 1, 2, 6)]
            [0.5, 1.0, 1.0, 0.5]
        """
        if step < self.warmup:
            return (step + 1) / self.warmup
        if self.decay == "constant":
            return 1.0
        share = (step - self.warmup) / max(self.steps - self.warmup, 1)
        return 0.5 * (1 + math.cos(math.pi * share))

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree on; a constant rate may be continued for longer."""
        settings = asdict(self)
        if self.decay == "constant":
            del settings["steps"]
        return settings
