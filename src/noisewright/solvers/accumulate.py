r"""Integrals along a trajectory: a state that moves, and sums that it gathers on its way.

.. math:: \dot x = f(x, t), \qquad \dot G = g(x, t)

The sums :math:`G` are kept in float64 whatever the state's dtype. A stage of a Runge-Kutta method
whose weight is zero (the first one of the midpoint rule) asks for the slope alone, so that what is
costly in :math:`g` (a divergence) is computed only where it counts.

Times are the caller's: any monotone sequence, rising or falling.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.solvers.ode import EULER, HEUN, MIDPOINT, RUNGE_KUTTA_4, Tableau
from noisewright.types import InputError, NonFiniteError, nearest_name

__all__ = ["SUM_METHODS", "Accumulated", "Rates", "walk_with_sums"]

TABLEAUS: dict[str, Tableau] = {
    "euler": EULER,
    "midpoint": MIDPOINT,
    "heun": HEUN,
    "rk4": RUNGE_KUTTA_4,
}
ADAPTIVE = ("dopri5", "bosh3", "adaptive_heun")
SUM_METHODS = (*TABLEAUS, *ADAPTIVE)
"""Names that :func:`walk_with_sums` knows: fixed steps, then adaptive ones."""


class Rates(Protocol):
    """Gives the slope of the state and, where wanted, the rates of the sums."""

    def __call__(self, t: float, state: Tensor, wanted: bool) -> tuple[Tensor, Tensor | None]:
        """Return (slope shaped like ``state``, rates (batch, *sums) or None if not ``wanted``)."""
        ...


@dataclass(frozen=True)
class Accumulated:
    """Where a walk ended and what it gathered.

    Attributes:
        state: Final state, (batch, *event), in the dtype that came in.
        sums: Integrals of the rates over time, (batch, *sums), float64; None without a step.
        calls: Evaluations of the slope.
    """

    state: Tensor
    sums: Tensor
    calls: int


def walk_with_sums(
    rates: Rates,
    state: Float[Tensor, "batch *event"],
    times: Sequence[float] | Tensor,
    *,
    method: str = "midpoint",
    rtol: float = 1e-4,
    atol: float = 1e-4,
) -> Accumulated:
    """Integrate a state and sums along its trajectory.

    Args:
        rates: Slope and rates of the sums.
        state: Start.
        times: Where steps begin and end; an adaptive method takes the first and the last only.
        method: One of :data:`SUM_METHODS`.
        rtol: Relative tolerance of an adaptive method, for state and sums.
        atol: Absolute tolerance of an adaptive method, for state and sums.

    Raises:
        InputError: If the method is unknown or there are fewer than two times.
        NonFiniteError: If a NaN or an infinity appears, with the time and the number of rows.

    Example:
        >>> def rates(t, state, wanted):  # x' = -x, G' = x: G is what x has lost
        ...     return -state, state if wanted else None
        >>> done = walk_with_sums(rates, torch.ones(1, 1), [0.0, 0.5, 1.0], method="rk4")
        >>> round(float(done.state + done.sums), 4), done.calls
        (1.0, 8)
    """
    if method not in SUM_METHODS:
        raise InputError(f"solver {method!r} is unknown{nearest_name(method, SUM_METHODS)}")
    knots = [float(t) for t in times]
    if len(knots) < 2:
        raise InputError(f"a walk needs at least two times, got {knots}")
    with torch.no_grad():
        if method in TABLEAUS:
            return _fixed(rates, state, knots, TABLEAUS[method])
        return _adaptive(rates, state, knots, method, rtol, atol)


def _fixed(rates: Rates, state: Tensor, knots: list[float], tableau: Tableau) -> Accumulated:
    sums, calls = None, 0
    places = (0.0, *tableau.nodes)
    for start, end in itertools.pairwise(knots):
        step = end - start
        slopes: list[Tensor] = []
        gained = None
        for place, weights, weight in zip(
            places, ((), *tableau.stages), tableau.weights, strict=True
        ):
            here = state
            for w, slope in zip(weights, slopes, strict=True):
                here = here + step * w * slope if w else here
            slope, rate = rates(start + place * step, here, weight != 0)
            slopes.append(slope)
            calls += 1
            if rate is not None and weight:
                part = step * weight * rate.double()
                gained = part if gained is None else gained + part
        for w, slope in zip(tableau.weights, slopes, strict=True):
            state = state + step * w * slope if w else state
        assert gained is not None
        sums = gained if sums is None else sums + gained
        _refuse_non_finite(state, sums, end)
    assert sums is not None
    return Accumulated(state, sums, calls)


def _adaptive(
    rates: Rates, state: Tensor, knots: list[float], method: str, rtol: float, atol: float
) -> Accumulated:
    from torchdiffeq import odeint

    calls = 0

    def slope(t: Tensor, both: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        nonlocal calls
        calls += 1
        change, rate = rates(float(t), both[0].to(state.dtype), True)
        assert rate is not None
        _refuse_non_finite(change, rate, float(t))
        return change.double(), rate.double()

    _, first = rates(knots[0], state, True)
    assert first is not None
    begin = (state.double(), torch.zeros_like(first, dtype=torch.float64))
    span = torch.tensor([knots[0], knots[-1]], dtype=torch.float64, device=state.device)
    try:
        ends, sums = odeint(slope, begin, span, method=method, rtol=rtol, atol=atol)  # pyright: ignore[reportGeneralTypeIssues] - a tuple for a tuple
    except AssertionError as error:
        raise NonFiniteError(f"{method} over [{knots[0]:g}, {knots[-1]:g}]: {error}") from error
    _refuse_non_finite(ends[-1], sums[-1], knots[-1])
    return Accumulated(ends[-1].to(state.dtype), sums[-1], calls + 1)


def _refuse_non_finite(state: Tensor, sums: Tensor, t: float) -> None:
    if bool(state.isfinite().all()) and bool(sums.isfinite().all()):
        return
    good = state.flatten(1).isfinite().all(1) & sums.flatten(1).isfinite().all(1)
    raise NonFiniteError(
        f"at t = {t:.4g} {int((~good).sum())} of {len(good)} rows are not finite; use more steps, "
        "or look for samples far outside the data"
    )
