r"""Second-order equations: positions and momenta under an acceleration, from noise to data.

.. math:: dq / ds = p, \qquad dp / ds = a(q, p, t), \qquad s = 1 - t

============  =====  =====  ===============================================================
method        calls  order  what one step does
============  =====  =====  ===============================================================
``bridge``    1      1      exact while the acceleration falls in a straight line to 0 at t = 0, as
                            it does on :class:`~noisewright.paths.KineticPath` for one prediction
                            of the data; its last step arrives at that prediction
``midpoint``  2      2      explicit midpoint rule
``verlet``    2      2      kick, drift, kick; the second kick sees a momentum moved by the first
``rk4``       4      4      the classical Runge-Kutta method
============  =====  =====  ===============================================================

On the kinetic path the acceleration is not defined at t = 0, so methods that would look there
(``verlet``, ``rk4``) take the step that ends there with ``bridge``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.paths import precise
from noisewright.solvers.walk import working_dtype
from noisewright.types import InputError, NonFiniteError, nearest_name

__all__ = ["SECOND_ORDER_METHODS", "Acceleration", "PhaseSolution", "integrate_second_order"]

Acceleration = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Called with positions, momenta (batch, *event) and a noise time (scalar)."""

Step = Callable[[Acceleration, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class PhaseSolution:
    """Where a walk in phase space ended and what it cost.

    Attributes:
        state: Positions at the last time, (batch, *event), in the dtype that came in.
        momentum: Momenta there.
        times: Noise times visited, (n + 1,).
        calls: Evaluations of the acceleration.
        trajectory: Positions and momenta at all times, (n + 1, 2, batch, *event), if asked for.
    """

    state: Tensor
    momentum: Tensor
    times: Tensor
    calls: int
    trajectory: Tensor | None = None


def _bridge(
    field: Acceleration, q: Tensor, p: Tensor, t: Tensor, h: Tensor
) -> tuple[Tensor, Tensor]:
    bend = field(q, p, t) / (3 * t)
    return (
        q + h * p + bend * (3 * t * h**2 - h**3) / 2,
        p + 3 * bend * (t * h - h**2 / 2),
    )


def _midpoint(
    field: Acceleration, q: Tensor, p: Tensor, t: Tensor, h: Tensor
) -> tuple[Tensor, Tensor]:
    first = field(q, p, t)
    middle = p + h / 2 * first
    second = field(q + h / 2 * p, middle, t - h / 2)
    return q + h * middle, p + h * second


def _verlet(
    field: Acceleration, q: Tensor, p: Tensor, t: Tensor, h: Tensor
) -> tuple[Tensor, Tensor]:
    first = field(q, p, t)
    moved = q + h * p + h**2 / 2 * first
    second = field(moved, p + h * first, t - h)
    return moved, p + h / 2 * (first + second)


def _rk4(field: Acceleration, q: Tensor, p: Tensor, t: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    a1 = field(q, p, t)
    p2 = p + h / 2 * a1
    a2 = field(q + h / 2 * p, p2, t - h / 2)
    p3 = p + h / 2 * a2
    a3 = field(q + h / 2 * p2, p3, t - h / 2)
    p4 = p + h * a3
    a4 = field(q + h * p3, p4, t - h)
    return q + h * (p + 2 * p2 + 2 * p3 + p4) / 6, p + h * (a1 + 2 * a2 + 2 * a3 + a4) / 6


_STEPS: dict[str, Step] = {
    "bridge": _bridge,
    "midpoint": _midpoint,
    "verlet": _verlet,
    "rk4": _rk4,
}
_LOOK_AT_THE_END = ("verlet", "rk4")

SECOND_ORDER_METHODS = tuple(_STEPS)


def integrate_second_order(
    acc: Acceleration,
    q0: Float[Tensor, "batch *event"],
    p0: Float[Tensor, "batch *event"],
    n: int | None = None,
    method: str = "bridge",
    *,
    times: Sequence[float] | Tensor | None = None,
    record: bool = False,
) -> PhaseSolution:
    """Walk positions and momenta from noise to data.

    Args:
        acc: The acceleration per unit of s = 1 - t, as a function of (q, p, noise time).
        q0: Positions at the first time.
        p0: Momenta there.
        n: Steps, even in time from 1 to 0. Give this or ``times``.
        method: ``"bridge"``, ``"midpoint"``, ``"verlet"`` or ``"rk4"``.
        times: Falling noise times in [0, 1], at least two.
        record: Keep positions and momenta at all times.

    Raises:
        InputError: If the method is unknown, the times do not fall, or both or neither of ``n``
            and ``times`` are given.
        NonFiniteError: If the walk ends at a NaN or an infinity.

    Example:
        >>> from noisewright.paths import KineticPath
        >>> path, data = KineticPath(), torch.full((1, 1), 3.0)
        >>> field = lambda q, p, t: path.acceleration(data, q, p, t)
        >>> integrate_second_order(field, *path.prior(data, seed=0), n=3).state.round(decimals=4)
        tensor([[3.]])
    """
    if method not in _STEPS:
        raise InputError(f"method {method!r} is unknown{nearest_name(method, _STEPS)}")
    if q0.shape != p0.shape:
        raise InputError(f"positions {tuple(q0.shape)} and momenta {tuple(p0.shape)} differ")
    grid = _grid(n, times).to(q0.device)
    calls = 0

    def counted(q: Tensor, p: Tensor, t: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return acc(q.to(q0.dtype), p.to(q0.dtype), t).to(q.dtype)

    q, p = q0.to(working_dtype(q0)), p0.to(working_dtype(q0))
    kept = [torch.stack([q, p])] if record else []
    with torch.no_grad():
        for t, following in pairwise(grid):
            ends = bool(following == 0) and method in _LOOK_AT_THE_END
            step = _bridge if ends else _STEPS[method]
            q, p = step(counted, q, p, t, t - following)
            if record:
                kept.append(torch.stack([q, p]))
    if not bool(q.isfinite().all()):
        raise NonFiniteError(
            f"the positions after {len(grid) - 1} steps of {method} are not finite"
        )
    trajectory = torch.stack(kept).to(q0.dtype) if record else None
    return PhaseSolution(q.to(q0.dtype), p.to(q0.dtype), grid, calls, trajectory)


def _grid(n: int | None, times: Sequence[float] | Tensor | None) -> Tensor:
    if (n is None) == (times is None):
        raise InputError("give either n= or times=: no number of steps is assumed")
    if times is None:
        if n is None or n < 1:
            raise InputError(f"n={n} steps; give at least 1")
        return torch.linspace(1, 0, n + 1, dtype=torch.float64)
    grid = precise(times)
    falls = grid.ndim == 1 and len(grid) > 1 and bool((grid.diff() < 0).all())
    if not falls or not 0 <= float(grid[-1]) <= float(grid[0]) <= 1:
        raise InputError(f"times={grid.tolist()} must fall within [0, 1]: 1 is noise, 0 is data")
    return grid
