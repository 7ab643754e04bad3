"""What a round did: how many tokens it recomputed, where they lie, what it cost."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Bool
from torch import Tensor

from noisewright.adapters.dit import TokenGrid

__all__ = ["RoundReport"]


@dataclass
class RoundReport:
    """What a round did.

    Attributes:
        first: Whether there was no round before to reuse.
        grid: How image tokens lie; None before the first call.
        keys: Key tokens by (full step, item of the batch); item -1 stands for all.
        cost: Multiply-adds of blocks.
        full_cost: The same without reuse.
    """

    first: bool
    grid: TokenGrid | None = None
    keys: dict[tuple[int, int], Bool[Tensor, " tokens"]] = field(default_factory=dict)
    cost: float = 0.0
    full_cost: float = 0.0

    @property
    def key_ratio(self) -> list[float]:
        """Share of key tokens at each full step, averaged over items."""
        shares: dict[int, list[float]] = {}
        for (step, _), mask in self.keys.items():
            shares.setdefault(step, []).append(float(mask.double().mean()))
        return [sum(some) / len(some) for _, some in sorted(shares.items())]

    @property
    def masks(self) -> list[Bool[Tensor, "rows columns"]]:
        """Which latent tokens were key at each full step, for any item."""
        if self.grid is None:
            return []
        together: dict[int, Tensor] = {}
        for (step, _), mask in self.keys.items():
            latent = mask[: self.grid.latents].reshape(self.grid.height, self.grid.width).cpu()
            together[step] = together[step] | latent if step in together else latent
        return [mask for _, mask in sorted(together.items())]
