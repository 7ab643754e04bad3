r"""What all fixed-step solvers share: knots, records and the loop from noise to data.

A solver is a small frozen object with a :meth:`Solver.step`; it holds no state between calls. The
loop works in at least float32 and hands the state back in the caller's dtype.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from noisewright.paths import DataPredictor, Denoiser, GaussianPath, Levels, expand_to, precise
from noisewright.random import NoiseStream, noise_stream
from noisewright.solvers.grids import check_times, uniform_times
from noisewright.types import InputError, NonFiniteError

__all__ = [
    "CallCount",
    "Knots",
    "Solution",
    "Solver",
    "Step",
    "Walk",
    "Watch",
    "begin_walk",
    "count_calls",
    "working_dtype",
]


@dataclass(frozen=True)
class Step:
    """What a ``watch=`` function sees after each step; read only.

    Attributes:
        index: 0-based number of the step.
        t: Noise time before the step, scalar or (batch,).
        next_t: Noise time after it.
        state: State after the step, (batch, *event).
        data: The prediction of the data that the step used.
    """

    index: int
    t: Tensor
    next_t: Tensor
    state: Tensor
    data: Tensor


Watch = Callable[[Step], object]
"""Called after each step; returning True ends the walk early, exceptions pass through."""


@dataclass(frozen=True)
class Solution:
    """Where a walk ended and what it cost.

    Attributes:
        state: Final state, (batch, *event), in the dtype that came in.
        times: Times visited, (n + 1,) or (batch, n + 1).
        calls: Network evaluations, those of guidance included.
        trajectory: States kept by ``record=``, (kept, batch, *event); None for ``"last"``.
        streams: States of the random generators before the first draw; empty if none was used.
    """

    state: Tensor
    times: Tensor
    calls: int
    trajectory: Tensor | None = None
    streams: tuple[Tensor, ...] = ()


class CallCount:
    """A running number of network evaluations."""

    def __init__(self) -> None:
        self.calls = 0

    def add(self, *_: object) -> None:
        """Count one call."""
        self.calls += 1


@contextmanager
def count_calls(predictor: DataPredictor) -> Iterator[CallCount]:
    """Count the network evaluations made through a denoiser and its wrappers inside the block.

    A predictor that holds no :class:`~noisewright.paths.Denoiser` is counted once per call.
    """
    count = CallCount()
    modules = predictor.modules() if isinstance(predictor, nn.Module) else ()
    leaves = [m for m in modules if isinstance(m, Denoiser)]
    targets = leaves or ([predictor] if isinstance(predictor, nn.Module) else [])
    handles = [module.register_forward_hook(count.add) for module in targets]
    try:
        yield count
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class Knots:
    """Times of a walk and the levels there, ready to meet states.

    Everything that does not depend on the state is computed here, once for all steps.

    Attributes:
        times: Per knot, scalar or (batch,), float64.
        levels: Per knot, levels that broadcast against the state; the clean end is (1, 0).
        fractions: Per knot, the fraction of noise; see :class:`~noisewright.paths.Levels`.
        reaches: Per knot, the sum of both levels.
        clean: Per knot, whether some row is at t = 0 there.
    """

    times: tuple[Tensor, ...]
    levels: tuple[Levels, ...]
    fractions: tuple[Tensor, ...]
    reaches: tuple[Tensor, ...]
    clean: tuple[bool, ...]

    @classmethod
    def along(cls, path: GaussianPath, times: Tensor, state: Tensor) -> Knots:
        """Look up the levels of a path at the times of a walk."""
        alpha, sigma = (path.columns() if path.batch else path).levels(times)
        clean = times[..., -1] == 0
        alpha, sigma = alpha.clone(), sigma.clone()
        alpha[..., -1] = torch.where(clean, 1.0, alpha[..., -1])
        sigma[..., -1] = torch.where(clean, 0.0, sigma[..., -1])
        exact = Levels(alpha, sigma)

        def knots(values: Tensor) -> tuple[Tensor, ...]:
            return tuple(expand_to(value, state) for value in values.unbind(-1))

        return cls(
            times.unbind(-1),
            tuple(map(Levels, knots(alpha), knots(sigma))),
            knots(exact.fraction),
            knots(exact.reach),
            tuple((times == 0).reshape(-1, times.shape[-1]).any(dim=0).tolist()),
        )


@dataclass
class Walk:
    """One walk in progress; what :meth:`Solver.step` works with.

    Attributes:
        path: The path that is walked.
        knots: Where it stops.
        predict: (state, t) -> prediction of the data, both in working precision.
        stream: Random draws, for solvers that need them.
        history: Earlier predictions of the data, newest last (two are kept).
    """

    path: GaussianPath
    knots: Knots
    predict: Callable[[Tensor, Tensor], Tensor]
    stream: NoiseStream | None = None
    history: list[Tensor] = field(default_factory=list)


class Solver(ABC):
    """Walks states from noise to data along the times of a grid."""

    stochastic: bool = False

    @abstractmethod
    def step(self, walk: Walk, index: int, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return (state at knot ``index + 1``, prediction of the data used)."""

    def __call__(
        self,
        denoiser: DataPredictor,
        state: Float[Tensor, "batch *event"],
        *,
        steps: int | None = None,
        times: Tensor | Sequence[float] | None = None,
        seed: int | Sequence[int] | None = None,
        generator: torch.Generator | None = None,
        watch: Watch | None = None,
        record: Literal["last", "all"] | int = "last",
        differentiable: bool = False,
        **condition: Any,
    ) -> Solution:
        """Walk a batch of states to the end of the grid.

        Args:
            denoiser: Predicts the data; a :class:`~noisewright.paths.Denoiser` or a wrapper.
            state: States at the first time.
            steps: Number of steps, evenly spaced in time. Give this or ``times``.
            times: Falling times, (n + 1,) or (batch, n + 1); see :mod:`noisewright.solvers.grids`.
            seed: For solvers that draw: one integer, or one per sample.
            generator: A running stream instead of ``seed``; it advances.
            watch: Called with a :class:`Step` after each step; returning True stops the walk.
            record: Keep the ``"last"`` state only, ``"all"``, or every k-th (first and last too).
            differentiable: Keep the graph, so that gradients flow through the walk.
            condition: Passed to the denoiser.

        Returns:
            A :class:`Solution`.

        Raises:
            InputError: If neither or both of ``steps`` and ``times`` are given, or they do not fit.
            NonFiniteError: If the final state holds a NaN or an infinity.
        """
        grid = _grid(denoiser.path, steps, times, len(state))
        stream = None
        if self.stochastic:
            stream = noise_stream(len(state), seed=seed, generator=generator, device=state.device)
        streams = tuple(g.get_state() for g in stream.generators) if stream else ()
        gradient = nullcontext() if differentiable else torch.no_grad()
        with gradient, count_calls(denoiser) as count:
            walk = begin_walk(denoiser, state, grid, condition, count=count, stream=stream)
            every = {"last": 0, "all": 1}[record] if isinstance(record, str) else record
            final, kept = self._run(walk, state.to(working_dtype(state)), watch, every)
        if not bool(final.isfinite().all()):
            raise NonFiniteError(
                f"{type(self).__name__}: the state at the end of {grid.shape[-1] - 1} steps is not "
                "finite; pass watch= to see at which step it happens"
            )
        trajectory = torch.stack(kept).to(state.dtype) if kept else None
        return Solution(final.to(state.dtype), grid, count.calls, trajectory, streams)

    def _run(
        self, walk: Walk, state: Tensor, watch: Watch | None, every: int
    ) -> tuple[Tensor, list[Tensor]]:
        steps = len(walk.knots.levels) - 1
        kept = [state] if every else []
        for index in range(steps):
            state, data = self.step(walk, index, state)
            walk.history = [*walk.history[-1:], data]
            last = index == steps - 1
            if watch is not None:
                t, next_t = walk.knots.times[index : index + 2]
                seen = Step(index, t, next_t, state, data)
                last = watch(seen) is True or last
            if every and (last or (index + 1) % every == 0):
                kept.append(state)
            if last:
                break
        return state, kept


def _grid(
    path: GaussianPath, steps: int | None, times: Tensor | Sequence[float] | None, batch: int
) -> Tensor:
    if (steps is None) == (times is None):
        given = "neither" if steps is None else "both"
        raise InputError(
            f"give either steps= or times=, got {given}: no number of steps is assumed"
        )
    if times is None:
        assert steps is not None
        times = uniform_times(path, steps)
    return check_times(precise(times), path, batch)


def working_dtype(state: Tensor) -> torch.dtype:
    """Return the dtype that solvers compute in: the state's own, but at least float32."""
    return torch.promote_types(state.dtype, torch.float32)


def begin_walk(
    denoiser: DataPredictor,
    state: Tensor,
    times: Tensor,
    condition: dict[str, Any],
    *,
    count: CallCount | None = None,
    stream: NoiseStream | None = None,
) -> Walk:
    """Return a walk at its first knot.

    Args:
        denoiser: Predicts the data; called in the dtype of ``state``.
        state: States at the first time; gives dtype, device and number of axes.
        times: A checked grid.
        condition: Passed to the denoiser.
        count: Counts calls of predictors that are not modules.
        stream: For solvers that draw.
    """
    counted = count if count is not None and not isinstance(denoiser, nn.Module) else None

    def predict(current: Tensor, t: Tensor) -> Tensor:
        if counted is not None:
            counted.add()
        rows = t.to(current.device).expand(len(current))
        return denoiser(current.to(state.dtype), rows, **condition).to(current.dtype)

    return Walk(denoiser.path, Knots.along(denoiser.path, times, state), predict, stream)
