r"""Phase space: a position q and a momentum p, driven by an acceleration from noise to data.

.. math:: dq / ds = p, \qquad dp / ds = a(q, p, s)

from :math:`q_0 \sim N(0, I)`, :math:`p_0 \sim N(0, \sigma_p^2 I)`. The path that reaches the data
:math:`y` with the least acceleration and a free end momentum is, with
:math:`D = y - q_0 - p_0`, :math:`b = (3 s^2 - s^3) / 2`, :math:`c = 3 s - 3 s^2 / 2`,

.. math:: q_s = q_0 + s\,p_0 + b\,D, \qquad p_s = p_0 + c\,D, \qquad a_s = 3 (1 - s)\,D
          = 3\,\frac{y - q_s - (1 - s)\,p_s}{(1 - s)^2}.

Only the acceleration has to be learned: the velocity is the momentum, a part of the state. And all
that (q, p) says about the data is one number per coordinate, a noisy look at it,

.. math:: u = \cos\varphi\; y + \sin\varphi\; \varepsilon,

so a phase-space flow with a Gaussian start learns the denoiser that a first-order flow learns; the
levels :math:`\varphi` that it visits and the integrator differ, and so does the direction of the
noise in the (q, p) plane, which turns on the way.

Clocks: the functions :func:`kinetic_path`, :func:`kinetic_statistic` and :func:`matched_grid` write
these formulas and take their s (0 noise, 1 data). :class:`KineticPath` is what enters solvers; its
times are noise times, t = 1 - s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.paths.gaussian import expand_to
from noisewright.paths.schedule import precise
from noisewright.random import noise_stream
from noisewright.types import InputError

__all__ = [
    "SMALLEST_SIGMA_P",
    "KineticPath",
    "PhasePoint",
    "kinetic_path",
    "kinetic_statistic",
    "matched_grid",
]

SMALLEST_SIGMA_P = 0.05
"""Below it the start has next to no momentum, (q, p) gives the data away at once, and the ODE has
no unique solution."""


class PhasePoint(NamedTuple):
    """Position, momentum and acceleration, each (batch, *event)."""

    position: Tensor
    momentum: Tensor
    acceleration: Tensor


def _clock(s: Tensor | float, state: Tensor) -> Tensor:
    """Return s in [0, 1], float64, ready to meet states in their working precision."""
    value = precise(s, state.device)
    if bool(((value < 0) | (value > 1)).any()):
        raise InputError(f"s={value.tolist()} leaves [0, 1]; 0 is noise, 1 is data")
    return expand_to(value, state)


def _bends(s: Tensor) -> tuple[Tensor, Tensor]:
    """Return b(s) and c(s), the shares of D in position and momentum."""
    return (3 * s**2 - s**3) / 2, 3 * s - 1.5 * s**2


def kinetic_path(
    q0: Float[Tensor, "batch *event"],
    p0: Float[Tensor, "batch *event"],
    q1: Float[Tensor, "batch *event"],
    s: Float[Tensor, "*times"] | float,
) -> tuple[
    Float[Tensor, "batch *event"], Float[Tensor, "batch *event"], Float[Tensor, "batch *event"]
]:
    """Return position, momentum and acceleration on the way from (q0, p0) to the data q1.

    Args:
        q0: Starting positions.
        p0: Starting momenta, the same draw as ``q0``.
        q1: Data.
        s: 0 is noise, 1 is data: this function writes the formula. One number, or one per row.

    Raises:
        InputError: If s leaves [0, 1].

    Example:
        >>> q, p, a = kinetic_path(torch.zeros(1), torch.ones(1), torch.tensor([3.0]), 1.0)
        >>> q, p, a
        (tensor([3.]), tensor([4.]), tensor([0.]))
    """
    s = _clock(s, q0)
    b, c = _bends(s)
    gap = q1 - q0 - p0
    return q0 + s * p0 + b * gap, p0 + c * gap, 3 * (1 - s) * gap


def kinetic_statistic(
    q: Float[Tensor, "batch *event"],
    p: Float[Tensor, "batch *event"],
    s: Float[Tensor, "*times"] | float,
    sigma_p: float,
) -> tuple[Float[Tensor, "batch *event"], Float[Tensor, "*angles"]]:
    r"""Return all that (q, p) says about the data.

    .. math:: u = \cos\varphi\; y + \sin\varphi\; \varepsilon

    Args:
        q: Positions.
        p: Momenta.
        s: 0 is noise, 1 is data; one number, or one per row.
        sigma_p: Spread of the starting momenta.

    Returns:
        The noisy look u, and its angle, scalar or (batch, 1, ..., 1); pi / 2 is noise alone, 0 data
        alone. Both are finite at both ends: u is :math:`p_0 / \sigma_p` at s = 0, the data at 1.
    """
    u, _, angle = _looks(q, p, _clock(s, q), sigma_p)
    return u, angle


def _looks(q: Tensor, p: Tensor, s: Tensor, sigma_p: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return u, the direction across it that holds noise only (times (1 - s)^3), and the angle."""
    b, c = _bends(s)
    fade = (1 - s) ** 3
    # Both noisy looks at the data, q0 + alpha y and p0 + beta y, times (1 - s)^3.
    look_q, look_p = (1 - c) * q + (b - s) * p, c * q + (1 - b) * p
    along_q, along_p = -s * (1.5 - s), 1.5 * (2 - s) / sigma_p  # alpha, beta / sigma_p over s
    reach = (along_q**2 + along_p**2).sqrt()
    along_q, along_p = along_q / reach, along_p / reach
    level = (s**2 * reach**2 + fade**2).sqrt()
    u = (along_q * look_q + along_p * look_p / sigma_p) / level
    across = along_q * look_p / sigma_p - along_p * look_q
    return u, across, torch.atan2(fade, s * reach)


def _signal_to_noise(s: float, sigma_p: float) -> float:
    """Return the square of signal over noise of u."""
    fade = (1 - s) ** 3
    return ((s * s * (1.5 - s)) ** 2 + (1.5 * s * (2 - s) / sigma_p) ** 2) / fade**2


def matched_grid(n: int, sigma_p: float = 1.0) -> list[float]:
    """Return n + 1 values of s where the noise levels are those of n even first-order steps.

    A first-order flow at share w of its way has signal over noise w / (1 - w). Even steps in s
    would waste most of them: here signal over noise grows like (1 - s)^-3.

    Args:
        n: Steps.
        sigma_p: Spread of the starting momenta.

    Example:
        >>> [round(s, 3) for s in matched_grid(10)]
        [0.0, 0.034, 0.07, 0.107, 0.148, 0.193, 0.244, 0.305, 0.382, 0.497, 1.0]
    """
    if n < 1:
        raise InputError(f"n={n} steps; give at least 1")
    check_sigma_p(sigma_p)
    inner = []
    for i in range(1, n):
        wanted, low, high = (i / (n - i)) ** 2, 0.0, 1.0
        while high - low > 1e-15 and low < (middle := (low + high) / 2) < high:
            below = _signal_to_noise(middle, sigma_p) < wanted
            low, high = (middle, high) if below else (low, middle)
        inner.append((low + high) / 2)
    return [0.0, *inner, 1.0]


def check_sigma_p(sigma_p: float) -> None:
    """Refuse a spread of momenta for which the flow is not defined.

    Raises:
        InputError: If it is below 0.05 or not finite.
    """
    if not (math.isfinite(sigma_p) and sigma_p >= SMALLEST_SIGMA_P):
        raise InputError(
            f"sigma_p={sigma_p} must be at least {SMALLEST_SIGMA_P}: without momentum at the start "
            "the field has no unique solution; 1 is common"
        )


@dataclass(frozen=True)
class KineticPath:
    """The path of least acceleration from a Gaussian start in phase space, in noise time.

    Attributes:
        sigma_p: Spread of the momenta at noise time 1, at least 0.05.

    Example:
        >>> path = KineticPath()
        >>> q0, p0 = path.prior(torch.empty(1, 2), seed=0)
        >>> bool((path.point(q0, p0, torch.ones(1, 2), 0.0).position == 1).all())
        True
    """

    sigma_p: float = 1.0

    def __post_init__(self) -> None:
        check_sigma_p(self.sigma_p)

    def prior(
        self,
        like: Float[Tensor, "batch *event"],
        *,
        seed: int | Sequence[int] | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Float[Tensor, "batch *event"], Float[Tensor, "batch *event"]]:
        """Draw starting positions and momenta.

        Args:
            like: Gives shape, dtype and device; its values are not read.
            seed: One integer, or one per sample.
            generator: A running stream instead of ``seed``.
        """
        stream = noise_stream(len(like), seed=seed, generator=generator, device=like.device)
        return stream.normal_like(like), self.sigma_p * stream.normal_like(like)

    def point(
        self,
        q0: Float[Tensor, "batch *event"],
        p0: Float[Tensor, "batch *event"],
        data: Float[Tensor, "batch *event"],
        t: Float[Tensor, "*times"] | float,
    ) -> PhasePoint:
        """Return position, momentum and acceleration at noise time t (0 is data)."""
        return PhasePoint(*kinetic_path(q0, p0, data, 1 - precise(t)))

    def statistic(
        self,
        q: Float[Tensor, "batch *event"],
        p: Float[Tensor, "batch *event"],
        t: Float[Tensor, "*times"] | float,
    ) -> tuple[Float[Tensor, "batch *event"], Float[Tensor, "*angles"]]:
        """Return the noisy look at the data and its angle; see :func:`kinetic_statistic`."""
        return kinetic_statistic(q, p, 1 - precise(t), self.sigma_p)

    def across(
        self,
        q: Float[Tensor, "batch *event"],
        p: Float[Tensor, "batch *event"],
        t: Float[Tensor, "*times"] | float,
    ) -> Float[Tensor, "batch *event"]:
        """Return the rest of (q, p): N(0, I), independent of the data and of the noisy look.

        Args:
            q: Positions.
            p: Momenta.
            t: Noise time above 0.
        """
        s = _clock(1 - precise(t), q)
        if bool((s >= 1).any()):
            raise InputError("at noise time 0 the state is the data; there is nothing across it")
        return _looks(q, p, s, self.sigma_p)[1] / (1 - s) ** 3

    def acceleration(
        self,
        data: Float[Tensor, "batch *event"],
        q: Float[Tensor, "batch *event"],
        p: Float[Tensor, "batch *event"],
        t: Float[Tensor, "*times"] | float,
    ) -> Float[Tensor, "batch *event"]:
        """Return the acceleration towards a prediction of the data, at noise time t > 0."""
        left = 1 - _clock(1 - precise(t), q)
        if bool((left <= 0).any()):
            raise InputError("at noise time 0 the path has arrived; t must be above 0")
        return 3 * (data - q - left * p) / left**2

    def times(self, n: int) -> list[float]:
        """Return n + 1 falling noise times, matched to n even first-order steps."""
        return [1 - s for s in matched_grid(n, self.sigma_p)]
