r"""Randomness: seeds, one stream per sample, and draws that do not depend on how work is split.

The global stream of torch is neither read nor advanced by anything in this library. Two entry
points exist everywhere, and they mean different things:

* ``seed``: an integer, or one integer per sample. The same seed gives the same answer call after
  call. A sequence gives each sample a stream of its own, so that a sample does not change when its
  neighbours in the batch change. Zero is a seed like any other.
* ``generator``: a running stream. It advances with each call, so two calls differ.

Example:
    >>> from noisewright.paths import GaussianPath, RectifiedSchedule
    >>> path, like = GaussianPath(RectifiedSchedule()), torch.empty(1, 2)
    >>> bool((path.prior(like, seed=0) == path.prior(like, seed=0)).all())
    True
    >>> stream = torch.Generator().manual_seed(0)
    >>> bool((path.prior(like, generator=stream) == path.prior(like, generator=stream)).any())
    False
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from noisewright.types import InputError

__all__ = ["NoiseStream", "StepDraws", "derive_seed", "isolated", "noise_stream"]


def derive_seed(seed: int, *names: object) -> int:
    """Return a seed for a named purpose, independent of those for other names.

    Args:
        seed: The seed it comes from.
        names: What the new seed is for; anything with a stable ``str``.

    Returns:
        An integer in [0, 2**63).

    Example:
        >>> derive_seed(0, "train") == derive_seed(0, "train") != derive_seed(0, "sample")
        True
    """
    text = "\x1f".join([str(int(seed)), *map(str, names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def _generator(seed: int, device: torch.device | str) -> torch.Generator:
    return torch.Generator(device).manual_seed(int(seed))


@contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Seed torch's global stream inside the block and give it back as it was.

    For code that can only draw from the global stream: initialisation of layers, dropout.

    Args:
        seed: Seed of the stream inside the block.
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    with torch.random.fork_rng(devices=list(devices)):
        torch.manual_seed(int(seed))
        yield


@dataclass(frozen=True)
class NoiseStream:
    """Standard normal draws for a batch: one stream for all rows, or one per row."""

    generators: tuple[torch.Generator, ...]
    shared: bool

    def normal_like(self, state: Tensor) -> Tensor:
        """Return N(0, I) of the shape, device and dtype of ``state``; drawn in >= float32."""
        dtype = torch.promote_types(state.dtype, torch.float32)
        if self.shared:
            (generator,) = self.generators
            draw = torch.randn(
                state.shape, generator=generator, dtype=dtype, device=generator.device
            )
        else:
            rows = [
                torch.randn(state.shape[1:], generator=g, dtype=dtype, device=g.device)
                for g in self.generators
            ]
            draw = torch.stack(rows) if rows else torch.empty(state.shape, dtype=dtype)
        return draw.to(device=state.device, dtype=state.dtype)


def noise_stream(
    batch: int,
    *,
    seed: int | Sequence[int] | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
) -> NoiseStream:
    """Turn ``seed`` or ``generator`` into a stream for a batch.

    With neither, the stream starts from fresh entropy of the operating system, not from torch's
    global stream.

    Args:
        batch: Number of rows.
        seed: An integer for the whole batch, or one integer per row.
        generator: A running stream; advanced by the draws.
        device: Where the seeded generators live.

    Raises:
        InputError: If both are given, or the number of seeds is not ``batch``.

    Example:
        >>> state = torch.zeros(3, 2)
        >>> together = noise_stream(3, seed=[3, 7, 11]).normal_like(state)
        >>> alone = noise_stream(1, seed=[7]).normal_like(state[:1])
        >>> bool((together[1] == alone[0]).all())
        True
    """
    if seed is not None and generator is not None:
        raise InputError("give either seed= or generator=, not both: a generator is its own stream")
    if generator is not None:
        return NoiseStream((generator,), shared=True)
    if seed is None:
        fresh = torch.Generator(device)
        fresh.seed()
        return NoiseStream((fresh,), shared=True)
    if isinstance(seed, Sequence):
        if len(seed) != batch:
            raise InputError(
                f"seed has {len(seed)} entries for a batch of {batch}; give one per sample or "
                "a single integer"
            )
        return NoiseStream(tuple(_generator(s, device) for s in seed), shared=False)
    return NoiseStream((_generator(seed, device),), shared=True)


@dataclass
class StepDraws:
    """The random numbers of one training step, a pure function of (seed, step).

    Every draw is made for the whole global batch and cut to this process's rows, so one process
    and many see the same numbers, and a resumed run sees those it would have seen.

    Attributes:
        seed: Seed of the run.
        step: Index of the optimizer step.
        total: Rows in the global batch.
        rows: This process's rows of it.
        device: Where draws are wanted.
    """

    seed: int
    step: int
    total: int
    rows: slice
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        self._stream = _generator(derive_seed(self.seed, "step", self.step), "cpu")

    def normal_like(self, batch: Tensor) -> Tensor:
        """Return N(0, I) shaped like this process's ``batch`` of shape (rows, *event)."""
        draw = torch.randn((self.total, *batch.shape[1:]), generator=self._stream)
        return draw[self.rows].to(device=batch.device, dtype=batch.dtype)

    def uniform(self, *, stratified: bool = False) -> Tensor:
        """Return U(0, 1), one per row, float32.

        Args:
            stratified: Put exactly one draw in each of ``total`` equal cells, in random order:
                the mean over a batch then varies much less.
        """
        draw = torch.rand(self.total, generator=self._stream)
        if stratified:
            order = torch.randperm(self.total, generator=self._stream)
            draw = ((order + draw) / self.total).clamp(max=1 - 2**-24)
        return draw[self.rows].to(self.device)
