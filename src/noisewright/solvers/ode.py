r"""Deterministic solvers: Runge-Kutta along the straightened path.

Divide a state by (alpha + sigma) and measure time by tau = sigma / (alpha + sigma): every Gaussian
path becomes the straight line :math:`w = (1 - \tau) y + \tau \varepsilon` with slope
:math:`\varepsilon - y = (w - y) / \tau`. Both ends are finite for every schedule, one Euler step is
exact for a constant prediction of the data (it is the step of DDIM), and for a rectified path the
methods are those of flow matching. A schedule only says where to stop.

At the clean end (tau = 0) the slope is not defined. Methods that would evaluate there use, for that
last step, a method whose stages all lie before it (Heun: Euler, as in Karras et al. 2022, alg. 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from noisewright.paths import DataPredictor, Levels, expand_to
from noisewright.solvers.walk import Solution, Solver, Walk, count_calls, working_dtype
from noisewright.types import InputError, NonFiniteError

__all__ = ["AdaptiveODE", "Euler", "Heun", "Midpoint", "RK4", "RungeKutta", "Tableau"]


@dataclass(frozen=True)
class Tableau:
    """An explicit Runge-Kutta method (Butcher's tableau without its leading row).

    Attributes:
        nodes: Places of the stages after the first, as shares of the step.
        stages: Weights of the earlier slopes for each of them.
        weights: Weights of all slopes for the step.
    """

    nodes: tuple[float, ...]
    stages: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]


EULER = Tableau((), (), (1.0,))
MIDPOINT = Tableau((1 / 2,), ((1 / 2,),), (0.0, 1.0))
HEUN = Tableau((1.0,), ((1.0,),), (1 / 2, 1 / 2))
HEUN3 = Tableau((1 / 3, 2 / 3), ((1 / 3,), (0.0, 2 / 3)), (1 / 4, 0.0, 3 / 4))
RUNGE_KUTTA_4 = Tableau(
    (1 / 2, 1 / 2, 1.0),
    ((1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)),
    (1 / 6, 1 / 3, 1 / 3, 1 / 6),
)


@dataclass(frozen=True)
class RungeKutta(Solver):
    """An explicit Runge-Kutta method on the straightened path.

    Attributes:
        tableau: The method.
        last: The method for a step that ends at the clean end; its nodes lie below 1.
    """

    tableau: Tableau = EULER
    last: Tableau = EULER

    def step(self, walk: Walk, index: int, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the state one interval on and the first prediction of the data."""
        knots, following = walk.knots, walk.knots.levels[index + 1]
        t, next_t = knots.times[index : index + 2]
        start, end = knots.fractions[index : index + 2]
        method = self.tableau
        if knots.clean[index + 1]:
            method = EULER if knots.clean[index] else self.last
        straight = state / knots.reaches[index]
        data = walk.predict(state, t)
        slopes = [(straight - data) / start]
        for node, weights in zip(method.nodes, method.stages, strict=True):
            here = straight + (end - start) * _combine(weights, slopes)
            fraction = start + node * (end - start)
            state, time = _place(walk, here, fraction, following, next_t, node)
            slopes.append((here - walk.predict(state, time)) / fraction)
        straight = straight + (end - start) * _combine(method.weights, slopes)
        return straight * knots.reaches[index + 1], data


def _combine(weights: tuple[float, ...], slopes: list[Tensor]) -> Tensor:
    terms = [w * k if w != 1 else k for w, k in zip(weights, slopes, strict=True) if w]
    return sum(terms[1:], start=terms[0])


def _place(
    walk: Walk, straight: Tensor, fraction: Tensor, end: Levels, end_t: Tensor, node: float
) -> tuple[Tensor, Tensor]:
    """Return state and time of a stage, given its place on the straightened path."""
    if node == 1.0:
        return straight * end.reach, end_t
    time = walk.path.time_of_fraction(fraction.flatten() if fraction.ndim else fraction)
    return straight * expand_to(walk.path.levels(time).reach, straight), time


class Euler(RungeKutta):
    """First order, one call a step; the deterministic step of DDIM on every path."""

    def __init__(self) -> None:
        super().__init__(EULER, EULER)


class Heun(RungeKutta):
    """Second order, two calls a step but one for the last: 2 n - 1 in all."""

    def __init__(self) -> None:
        super().__init__(HEUN, EULER)


class Midpoint(RungeKutta):
    """Second order, two calls a step."""

    def __init__(self) -> None:
        super().__init__(MIDPOINT, MIDPOINT)


class RK4(RungeKutta):
    """Fourth order, four calls a step but three for the last: 4 n - 1 in all."""

    def __init__(self) -> None:
        super().__init__(RUNGE_KUTTA_4, HEUN3)


@dataclass(frozen=True)
class AdaptiveODE:
    """Adaptive steps by torchdiffeq on the straightened path.

    Attributes:
        method: A name of torchdiffeq's adaptive methods.
        rtol: Relative tolerance per step.
        atol: Absolute tolerance per step, in units of the data.
        end: Noise time at which the last step replaces the state by the prediction of the data.
    """

    method: str = "dopri5"
    rtol: float = 1e-5
    atol: float = 1e-5
    end: float = 1e-3

    def __call__(
        self, denoiser: DataPredictor, state: Tensor, *, start: float = 1.0, **condition: object
    ) -> Solution:
        """Walk a batch of states from time ``start`` to the data; all rows share their steps.

        Args:
            denoiser: Predicts the data; its path must serve all samples alike.
            state: States at ``start``, (batch, *event).
            start: Noise time of the states.
            condition: Passed to the denoiser.

        Raises:
            InputError: If the path differs from sample to sample.
            NonFiniteError: If the step size collapses, as it does for a field that blows up.
        """
        path = denoiser.path
        if path.batch is not None:
            raise InputError(
                "AdaptiveODE walks all samples in common steps; the path has its own "
                "schedule per sample: use a fixed-step solver"
            )
        from torchdiffeq import odeint

        def predict(straight: Tensor, t: Tensor) -> Tensor:
            here = straight * expand_to(path.levels(t).reach, straight)
            data = denoiser(here.to(state.dtype), t.expand(len(here)), **condition)
            return data.to(straight.dtype)

        def slope(fraction: Tensor, straight: Tensor) -> Tensor:
            fraction = fraction.clamp(min=span[1])  # the last step overshoots, then interpolates
            return (straight - predict(straight, path.time_of_fraction(fraction))) / fraction

        times = torch.tensor([start, self.end, 0.0], dtype=torch.float64)
        span = path.levels(times[:2]).fraction.to(working_dtype(state))
        with torch.no_grad(), count_calls(denoiser) as count:
            straight = state.to(working_dtype(state))
            straight = straight / expand_to(path.levels(times[0]).reach, straight)
            try:
                tolerance = {"rtol": self.rtol, "atol": self.atol}
                ends = odeint(slope, straight, span, method=self.method, **tolerance)
                assert isinstance(ends, Tensor)
            except AssertionError as error:
                raise NonFiniteError(f"AdaptiveODE({self.method}): {error}") from error
            data = predict(ends[1], times[1])
        return Solution(data.to(state.dtype), times, count.calls)
