r"""What a round costs: multiply-adds by a model, and memory by counting.

Per block of width D, with T text tokens, L image tokens and K key tokens:

.. math::
   \text{full} &= 12 (T + L) D^2 + 2 (T + L)^2 D \\
   \text{reuse, kv} &= 12 (T + K) D^2 + 2 (T + K)(T + L) D \\
   \text{reuse, hidden} &= 10 (T + K) D^2 + 2 (T + L) D^2 + 2 (T + K)(T + L) D

A walk of S steps with C full ones takes :math:`C + (S - C) \rho` of S full steps, where
:math:`\rho` is reuse over full.
"""

from __future__ import annotations

from dataclasses import dataclass

from noisewright.methods.cacheedit.schedule import cache_steps

__all__ = ["MemoryEstimate", "block_cost", "memory_needed", "reuse_share", "speedup"]


def block_cost(text: int, tokens: int, keys: int, width: int, mode: str = "kv") -> float:
    """Return multiply-adds of one block.

    Args:
        text: Text tokens T.
        tokens: Image tokens L.
        keys: Recomputed image tokens K; all of them is the full block, none costs nothing.
        width: D.
        mode: ``"kv"`` or ``"hidden"``.

    Example:
        >>> block_cost(0, 10, 10, 4) == 12 * 10 * 16 + 2 * 100 * 4
        True
    """
    if keys == 0:
        return 0.0
    queries, everything = text + keys, text + tokens
    projected = 12 * queries * width**2
    if mode == "hidden":
        projected = (10 * queries + 2 * everything) * width**2
    return float(projected + 2 * queries * everything * width)


def reuse_share(text: int, tokens: int, keys: int, width: int, mode: str = "kv") -> float:
    """Return the cost of a step that reuses over that of a full one."""
    full = block_cost(text, tokens, tokens, width)
    return block_cost(text, tokens, keys, width, mode) / full


def speedup(steps: int, interval: int, share: float) -> float:
    """Return how much faster a round is when steps that reuse cost ``share`` of a full one.

    Example:
        >>> round(speedup(28, 5, 0.0), 2)
        4.67
    """
    full = len(cache_steps(steps, interval))
    return steps / (full + (steps - full) * share)


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a cache takes beyond the model, by part.

    Attributes:
        store: Keys and values, or activations, of one round.
        reference: Activations that rounds are compared by, as computed.
        velocities: Outputs of every step of one round.
        second_round: The same three again, while a later round runs: the round before stays whole
            until this one has ended.
        working: Keys and values of the group of steps under way, on the model's device.
    """

    store: int
    reference: int
    velocities: int
    second_round: int
    working: int

    @property
    def first_round(self) -> int:
        """Bytes after the first round."""
        return self.store + self.reference + self.velocities

    @property
    def total(self) -> int:
        """Bytes at the peak, in a later round."""
        return self.first_round + self.second_round + self.working

    def describe(self) -> str:
        """Return one line for people.

        Example:
            >>> MemoryEstimate(2 * 10**9, 10**8, 0, 21 * 10**8, 3 * 10**8).describe()
            'cache: 2.10 GB for a round, 4.50 GB at the peak of a later one'
        """
        return (
            f"cache: {self.first_round / 1e9:.2f} GB for a round, "
            f"{self.total / 1e9:.2f} GB at the peak of a later one"
        )


def memory_needed(
    *,
    tokens: int,
    latents: int,
    width: int,
    channels: int,
    layers: int,
    steps: int,
    full_steps: int,
    mode: str,
    replay: str,
    item: float,
    computed_item: int,
    rows: int = 1,
    branches: int = 1,
) -> MemoryEstimate:
    """Return the bytes of a cache.

    Args:
        tokens: Image tokens L.
        latents: Latent tokens among them.
        width: D.
        channels: Output channels of a token.
        layers: Blocks.
        steps: Steps of the walk.
        full_steps: Steps that compute everything.
        mode: ``"kv"`` or ``"hidden"``.
        replay: ``"step"`` or ``"group"``.
        item: Bytes of a number in the cache, its share of a scale included.
        computed_item: Bytes of a number in the model.
        rows: Batch.
        branches: Calls per step.
    """
    state = rows * branches * tokens * width * full_steps
    reference = state * computed_item
    kept = state * layers * item * (2 if mode == "kv" else 1)
    if mode == "kv" and replay == "group":
        kept += state * item
    velocities = rows * branches * latents * channels * steps * computed_item
    once = [round(part) for part in (kept, reference, velocities)]
    working = 2 * rows * branches * tokens * width * layers * computed_item
    return MemoryEstimate(*once, second_round=sum(once), working=working if mode == "kv" else 0)
