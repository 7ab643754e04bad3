r"""Stochastic solvers, each step a Gaussian with a mean and a standard deviation one can ask for.

That makes the density of a whole path computable: :func:`path_log_density` sums the log densities
of its steps.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.paths import DataPredictor, precise
from noisewright.solvers.grids import check_times
from noisewright.solvers.walk import Solver, Walk, begin_walk, working_dtype
from noisewright.types import InputError

__all__ = [
    "DDIM",
    "DDPM",
    "EulerMaruyama",
    "StochasticSolver",
    "Transition",
    "path_log_density",
]


class Transition(NamedTuple):
    """The law of one step: N(mean, std^2 I), and the prediction of the data behind it."""

    mean: Tensor
    std: Tensor
    data: Tensor


@dataclass(frozen=True)
class StochasticSolver(Solver):
    """A solver whose steps are Gaussian."""

    stochastic = True

    @property
    def draws(self) -> bool:
        """Whether any step draws; without, the random stream is left alone."""
        return True

    @abstractmethod
    def transition(self, walk: Walk, index: int, state: Tensor) -> Transition:
        """Return mean (batch, *event) and standard deviation of the state at the next knot."""

    def step(self, walk: Walk, index: int, state: Tensor) -> tuple[Tensor, Tensor]:
        """Draw the state at the next knot."""
        assert walk.stream is not None
        mean, std, data = self.transition(walk, index, state)
        if not self.draws:
            return mean, data
        return mean + std * walk.stream.normal_like(mean), data


@dataclass(frozen=True)
class DDIM(StochasticSolver):
    """The posterior of the path with the predicted data put in (Song et al. 2021a, eq. 12).

    Attributes:
        eta: 0 is deterministic, 1 ancestral sampling.

    Raises:
        InputError: If ``eta`` is negative.
    """

    eta: float = 0.0

    def __post_init__(self) -> None:
        if self.eta < 0:
            raise InputError(f"eta={self.eta} must be at least 0")

    @property
    def draws(self) -> bool:
        """Whether eta is above 0."""
        return self.eta > 0

    def transition(self, walk: Walk, index: int, state: Tensor) -> Transition:
        """Return the law of the next state."""
        data = walk.predict(state, walk.knots.times[index])
        levels, following = walk.knots.levels[index], walk.knots.levels[index + 1]
        mean, std = walk.path.posterior(
            state, data, levels=levels, next_levels=following, eta=self.eta
        )
        return Transition(mean, std, data)


class DDPM(DDIM):
    """Ancestral sampling (Ho et al. 2020, eq. 7), on any Gaussian path."""

    def __init__(self) -> None:
        super().__init__(eta=1.0)


@dataclass(frozen=True)
class EulerMaruyama(StochasticSolver):
    r"""Euler-Maruyama for a reverse SDE with the path's marginals, on the straightened path.

    With diffusion :math:`2 c \tau` (the choice w = sigma of Ma et al. 2024, section 2.4) the step
    over :math:`\Delta\tau` is

    .. math:: w' = w - \Delta\tau \bigl((1 + c)\, \hat\varepsilon - \hat y\bigr)
        + \sqrt{2 c \tau \Delta\tau}\; z,

    finite at both ends; c = 0 is Euler's method. A step to the clean end draws nothing.

    Attributes:
        diffusion: The factor c >= 0.

    Raises:
        InputError: If ``diffusion`` is negative.
    """

    diffusion: float = 1.0

    def __post_init__(self) -> None:
        if self.diffusion < 0:
            raise InputError(f"diffusion={self.diffusion} must be at least 0")

    @property
    def draws(self) -> bool:
        """Whether the diffusion is above 0."""
        return self.diffusion > 0

    def transition(self, walk: Walk, index: int, state: Tensor) -> Transition:
        """Return the law of the next state."""
        data = walk.predict(state, walk.knots.times[index])
        tau, next_tau = walk.knots.fractions[index : index + 2]
        reach, scale = walk.knots.reaches[index : index + 2]
        straight = state / reach
        noise = (straight - (1 - tau) * data) / tau
        c = torch.where(next_tau > 0, self.diffusion, 0.0)
        width = tau - next_tau
        mean = straight - width * ((1 + c) * noise - data)
        return Transition(mean * scale, (2 * c * tau * width).sqrt() * scale, data)


def path_log_density(
    solver: StochasticSolver,
    denoiser: DataPredictor,
    trajectory: Float[Tensor, "knots batch *event"],
    times: Tensor | Sequence[float],
    **condition: Any,
) -> Float[Tensor, " batch"]:
    """Return the log density of a path under a solver's steps, given its first state.

    Steps without noise (DDIM with eta = 0, the step to the clean end) have no density and are left
    out. Gradients flow to the denoiser's parameters.

    Args:
        solver: The stochastic solver.
        denoiser: Predicts the data.
        trajectory: All states, as ``record="all"`` keeps them.
        times: The times they belong to.
        condition: Passed to the denoiser.

    Returns:
        Natural log densities, float64.

    Raises:
        InputError: If states and times do not match.
    """
    batch = trajectory.shape[1]
    grid = check_times(precise(times), denoiser.path, batch)
    if len(trajectory) != grid.shape[-1]:
        raise InputError(
            f"trajectory has {len(trajectory)} states for {grid.shape[-1]} times; record='all'"
        )
    working = trajectory.to(working_dtype(trajectory))
    walk = begin_walk(denoiser, trajectory[0], grid, condition)
    total = torch.zeros(batch, dtype=torch.float64, device=trajectory.device)
    for index in range(len(trajectory) - 1):
        mean, std, data = solver.transition(walk, index, working[index])
        walk.history = [*walk.history[-1:], data]
        total = total + _gaussian_log_density(working[index + 1] - mean, std)
    return total


def _gaussian_log_density(error: Tensor, std: Tensor) -> Tensor:
    """Return log N(error; 0, std^2 I) per row; rows with std = 0 count as 0."""
    rows = error.double().flatten(1)
    spread = std.double().flatten().expand(len(rows))
    safe = torch.where(spread > 0, spread, 1.0)
    size = rows.shape[1]
    log = -0.5 * (rows / safe[:, None]).square().sum(1) - size * (
        safe.log() + 0.5 * math.log(2 * math.pi)
    )
    return torch.where(spread > 0, log, 0.0)
