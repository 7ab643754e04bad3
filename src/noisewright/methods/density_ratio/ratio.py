r"""The ratio ODE: how much likelier a point is under one condition than under another.

Times here are the paper's: t = 0 is noise, t = 1 is data. Along any line :math:`\dot x = f(x, t)`

.. math:: \frac{d}{dt} \log p_t(x_t \mid c) = g_c
          := -\nabla \cdot u_c + (f - u_c) \cdot s_c

(:math:`u_c` and :math:`s_c`: velocity and score of condition c). At t = 0 all conditions are
the same N(0, I); so, from a data point at t = 1 back to t = 0 on **one** trajectory,

.. math:: \log \frac{p(x \mid a)}{p(x \mid b)} = \int_0^1 (g_a - g_b)\, dt

for every pair of conditions at once: K conditions cost K evaluations, not K (K - 1) / 2 solves, and
antisymmetry and transitivity hold to rounding (Antipov et al. 2026, extended to K conditions).

With a floor of noise ``sigma_min`` on the path, the result is the ratio of the densities blurred
by N(0, sigma_min^2 I).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from noisewright.solvers import walk_with_sums
from noisewright.types import InputError

__all__ = ["Changes", "ConditionFields", "Grid", "Terms", "density_changes", "ratio_ode", "times"]

Grid = Literal["uniform", "quadratic"]

CLIPPED_START = 1e-3
"""How far from t = 1 the walk starts on a path without a floor, where the score is infinite."""


class Terms(NamedTuple):
    """What K conditions say at the same points and time.

    Attributes:
        velocity: (K, batch, size).
        score: (K, batch, size).
        divergence: Of each velocity, (K, batch, probes): a value per probe, or one exact value.
    """

    velocity: Tensor
    score: Tensor
    divergence: Tensor


class ConditionFields(Protocol):
    """Fields of K conditions."""

    def terms(self, state: Tensor, t: float) -> Terms:
        """Return velocity, score and divergence of every condition."""
        ...

    def flow(self, state: Tensor, t: float) -> Tensor:
        """Return the field that moves the points, (batch, size)."""
        ...


@dataclass(frozen=True)
class Changes:
    """What the walk from data to noise found.

    Attributes:
        log_changes: Integral of g over [0, 1] per point and condition, (batch, K, probes), float64.
            Its differences between conditions are the log ratios.
        noise: Where each point ended, (batch, size).
        calls: Evaluations of the fields.
    """

    log_changes: Tensor
    noise: Tensor
    calls: int


def times(steps: int, *, grid: Grid = "uniform", clipped: bool = False) -> list[float]:
    """Return falling times from 1 to 0 in the paper's count.

    Args:
        steps: Number of steps.
        grid: ``"uniform"``, or ``"quadratic"`` for steps that shrink towards the data.
        clipped: Start a little below 1.

    Raises:
        InputError: If ``steps`` is below 1 or the grid unknown.

    Example:
        >>> times(2), times(2, grid="quadratic")
        ([1.0, 0.5, 0.0], [1.0, 0.75, 0.0])
    """
    if steps < 1:
        raise InputError(f"n_steps={steps} must be at least 1")
    if grid not in ("uniform", "quadratic"):
        raise InputError(f"grid={grid!r} is unknown; use 'uniform' or 'quadratic'")
    power = 2 if grid == "quadratic" else 1
    first = CLIPPED_START if clipped else 0.0
    return [1 - (first + (1 - first) * (i / steps) ** power) for i in range(steps + 1)]


def density_changes(
    fields: ConditionFields,
    data: Float[Tensor, "batch size"],
    knots: Sequence[float],
    *,
    guide: Int[Tensor, " batch"] | None = None,
    solver: str = "midpoint",
    tolerance: float = 1e-4,
) -> Changes:
    """Walk points to noise on one trajectory each and gather every condition's g.

    Args:
        fields: The conditions.
        data: Points at the first time.
        knots: Falling times, see :func:`times`.
        guide: Whose velocity moves each point, an index into the conditions; None asks
            ``fields.flow``.
        solver: A name of :data:`noisewright.solvers.SUM_METHODS`.
        tolerance: Relative and absolute, of an adaptive solver.

    Raises:
        NonFiniteError: With the time and the number of rows.
    """
    rows = torch.arange(len(data), device=data.device)

    def rates(t: float, state: Tensor, wanted: bool) -> tuple[Tensor, Tensor | None]:
        if not wanted:
            return fields.flow(state, t), None
        velocity, score, divergence = fields.terms(state, t)
        flow = fields.flow(state, t) if guide is None else velocity[guide, rows]
        drift = ((flow - velocity).double() * score.double()).sum(2)
        return flow, (drift[..., None] - divergence.double()).transpose(0, 1)

    walk = walk_with_sums(rates, data, knots, method=solver, rtol=tolerance, atol=tolerance)
    return Changes(-walk.sums, walk.state, walk.calls)


class _CallableFields:
    """Two conditions and a guide from one function (x, t, c) -> (u, score, divergence)."""

    def __init__(self, fields: Callable[..., Any], pair: tuple[Any, Any], along: Any) -> None:
        self.fields, self.pair, self.along = fields, pair, along

    def terms(self, state: Tensor, t: float) -> Terms:
        parts = [self.fields(state, t, c) for c in self.pair]
        velocity, score, divergence = (torch.stack(part) for part in zip(*parts, strict=True))
        return Terms(velocity, score, divergence[..., None])

    def flow(self, state: Tensor, t: float) -> Tensor:
        along: Any = self.along
        moved: Any = along(state, t) if callable(along) else self.fields(state, t, along)[0]
        return moved


def ratio_ode(
    fields: Callable[[Tensor, float, Any], tuple[Tensor, Tensor, Tensor]],
    x: Float[Tensor, "batch size"],
    a: Hashable,
    b: Hashable,
    along: Any = None,
    *,
    n_steps: int = 40,
    solver: str = "rk4",
    grid: Grid = "uniform",
    clipped: bool = False,
    tolerance: float = 1e-4,
) -> Float[Tensor, " batch"]:
    r"""Return log p(x | a) / p(x | b) for fields in closed form or of your own model.

    .. math:: \int_0^1 \bigl[\nabla \cdot (v - u) + (f - u) \cdot s_a + (v - f) \cdot s_b\bigr] dt

    Time is the paper's: 0 is noise, 1 is data.

    Args:
        fields: ``fields(x, t, c)`` returns the velocity (batch, size), the score (batch, size) and
            the divergence of the velocity (batch,) of condition c.
        x: Points.
        a: Condition in the numerator.
        b: Condition in the denominator.
        along: Whose field moves the points: any condition, or a function of (x, t); None means a.
            With exact fields the result does not depend on it.
        n_steps: Steps of a fixed-step solver.
        solver: A name of :data:`noisewright.solvers.SUM_METHODS`.
        grid: Spacing of the steps.
        clipped: Start at t = 1 - 1e-3, for paths whose score is infinite at t = 1.
        tolerance: Relative and absolute, of an adaptive solver.

    Returns:
        Natural logarithm, float64.

    Example:
        Two unit Gaussians at 0 and 1 on the straight path with floor 0.01.

        >>> def fields(x, t, mean):
        ...     level = 1 - 0.99 * t
        ...     variance = t * t + level * level
        ...     score = -(x - t * mean) / variance
        ...     slope = (t - 0.99 * level) / variance
        ...     u = mean + slope * (x - t * mean)
        ...     return u, score, torch.full(x.shape[:1], slope * x.shape[1], dtype=x.dtype)
        >>> x = torch.tensor([[2.0]], dtype=torch.float64)
        >>> round(ratio_ode(fields, x, 1.0, 0.0).item(), 3)  # exact: x - 1/2
        1.5
    """
    knots = times(n_steps, grid=grid, clipped=clipped)
    if a == b:
        return torch.zeros(len(x), dtype=torch.float64, device=x.device)
    pair = _CallableFields(fields, (a, b), a if along is None else along)
    done = density_changes(pair, x, knots, solver=solver, tolerance=tolerance)
    return done.log_changes[:, 0, 0] - done.log_changes[:, 1, 0]
