r"""Gaussian paths: the state on the way from data to noise, and the algebra of predictions.

.. math:: x_t = \alpha(t)\, y + s\, \sigma(t)\, \varepsilon, \qquad \varepsilon \sim N(0, I)

* ``data``: :math:`y`.
* ``noise``: :math:`\varepsilon`.
* ``velocity``: :math:`\dot x_t = \dot\alpha y + s \dot\sigma \varepsilon` (flow matching).
* ``v``: :math:`\alpha \varepsilon - s \sigma y` (Salimans & Ho 2022), the velocity along the angle
  of a variance-preserving path; unlike ``velocity`` it does not depend on the schedule's speed.
* ``score``: :math:`\nabla \log p(x_t \mid y) = -\varepsilon / (s \sigma)`.

Each kind is affine in (data, noise), and the state is a second affine combination; so any kind plus
the state gives any other kind. This module is the only place with that algebra.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.paths.schedule import Schedule, precise
from noisewright.random import noise_stream
from noisewright.types import KINDS, InputError, Kind, nearest_name

__all__ = ["GaussianPath", "Levels", "expand_to"]

Row = tuple[Tensor | float, Tensor | float]
TINY = 1e-12
"""Divisors below this are raised to it, so that t = 0 and t = 1 stay finite."""


class Levels(NamedTuple):
    r"""Signal and noise level of a path at some times; prior scale included.

    Divided by :attr:`reach`, every path is the straight line
    :math:`(1 - \tau) y + \tau \varepsilon` with :math:`\tau` the :attr:`fraction` of noise;
    solvers work there.
    """

    alpha: Tensor
    sigma: Tensor

    @property
    def reach(self) -> Tensor:
        """Return alpha + sigma."""
        return self.alpha + self.sigma

    @property
    def fraction(self) -> Tensor:
        """Return tau = sigma / (alpha + sigma), in [0, 1]."""
        return self.sigma / (self.alpha + self.sigma)


def expand_to(value: Tensor, state: Tensor) -> Tensor:
    """Return per-row numbers (batch,) as (batch, 1, ..., 1) in the state's working precision.

    Args:
        value: Scalar, (batch,), or already (batch, 1, ..., 1).
        state: The tensor that it will meet, (batch, *event).
    """
    dtype = torch.promote_types(state.dtype, torch.float32)
    value = value.to(device=state.device, dtype=dtype)
    return value if value.ndim in (0, state.ndim) else value.reshape(-1, *(1,) * (state.ndim - 1))


def _guarded(divisor: Tensor) -> Tensor:
    """Return a divisor that is TINY where it was nearer to zero than that."""
    return torch.where(divisor.abs() < TINY, TINY, divisor)


@dataclass(frozen=True, eq=False)
class GaussianPath:
    r"""Data mixed with Gaussian noise along a schedule.

    Attributes:
        schedule: Signal and noise levels against time.
        scale: Standard deviation of the prior, multiplies the noise level; a number or (batch,)
            for a prior of its own per sample.

    Example:
        >>> from noisewright.paths import RectifiedSchedule
        >>> path = GaussianPath(RectifiedSchedule())
        >>> data, noise = torch.ones(2, 3), torch.zeros(2, 3)
        >>> path.state(data, noise, torch.tensor([0.25, 0.0]))[:, 0]
        tensor([0.7500, 1.0000])
    """

    schedule: Schedule
    scale: Tensor | float = 1.0

    def levels(self, t: Tensor | float) -> Levels:
        """Return signal and noise level at times: scalar, or (batch,) with per-sample parts."""
        alpha, sigma = self.schedule.levels(precise(t))
        return Levels(alpha, sigma * self._scale(sigma.device))

    def _scale(self, device: torch.device) -> Tensor | float:
        scale = self.scale
        return precise(scale, device) if isinstance(scale, Tensor) else scale

    def alpha(self, t: Tensor | float) -> Tensor:
        """Return the signal level."""
        return self.levels(t).alpha

    def sigma(self, t: Tensor | float) -> Tensor:
        """Return the noise level, prior scale included."""
        return self.levels(t).sigma

    def logsnr(self, t: Tensor | float) -> Tensor:
        """Return 2 log(alpha / sigma), prior scale included."""
        return self.schedule.logsnr(t) - 2 * precise(self.scale).log()

    def time_of_logsnr(self, logsnr: Tensor | float) -> Tensor:
        """Return the time at which :meth:`logsnr` has this value."""
        return self.schedule.time_of_logsnr(precise(logsnr) + 2 * precise(self.scale).log())

    def time_of_fraction(self, fraction: Tensor) -> Tensor:
        """Return the time at which the noise is this fraction of the sum of both levels."""
        fraction = precise(fraction)
        return self.time_of_logsnr(2 * torch.log((1 - fraction) / fraction))

    @property
    def batch(self) -> int | None:
        """Number of samples with a schedule or scale of their own; None if all share one."""
        scale = precise(self.scale)
        sizes = {n for n in (self.schedule.batch, len(scale) if scale.ndim else None) if n}
        if len(sizes) > 1:
            raise InputError(f"schedule and scale are made for different batches: {sizes}")
        return sizes.pop() if sizes else None

    def columns(self) -> Self:
        """Return the path with per-sample parts (batch, 1), to meet a row of times."""
        scale = self.scale
        column = scale[:, None] if isinstance(scale, Tensor) and scale.ndim else scale
        return replace(self, schedule=self.schedule.columns(), scale=column)

    def select(self, rows: Tensor | slice) -> Self:
        """Return the path of some samples."""
        scale = self.scale
        some = scale[rows] if isinstance(scale, Tensor) and scale.ndim else scale
        return replace(self, schedule=self.schedule.select(rows), scale=some)

    def state(
        self,
        data: Float[Tensor, "batch *event"],
        noise: Float[Tensor, "batch *event"],
        t: Tensor | float,
    ) -> Float[Tensor, "batch *event"]:
        """Return alpha(t) data + sigma(t) noise, in the data's dtype.

        Args:
            data: Examples.
            noise: Draws from N(0, I).
            t: Noise time in [0, 1], scalar or (batch,).

        Raises:
            InputError: If the shapes of data and noise differ.
        """
        if data.shape != noise.shape:
            raise InputError(f"data {tuple(data.shape)} and noise {tuple(noise.shape)} must match")
        alpha, sigma = (expand_to(level, data) for level in self.levels(t))
        return (alpha * data + sigma * noise).to(data.dtype)

    def target(self, data: Tensor, noise: Tensor, t: Tensor | float, kind: Kind) -> Tensor:
        """Return what a network of this kind should predict for a state made of data and noise."""
        t = precise(t, data.device)
        return self._value(data, noise, self._row(t, self.levels(t), kind)).to(data.dtype)

    def convert(
        self,
        value: Float[Tensor, "batch *event"],
        state: Float[Tensor, "batch *event"],
        t: Tensor | float,
        *,
        source: Kind,
        target: Kind,
    ) -> Float[Tensor, "batch *event"]:
        """Turn a prediction of one kind into another kind.

        Computed in at least float32, returned in the state's dtype. Divisions by a level that is
        exactly zero (noise from data at t = 0, data from noise at t = 1) give large finite
        numbers without meaning; :class:`~noisewright.paths.Denoiser` refuses the kinds that
        need them.

        Args:
            value: The prediction.
            state: The state it was made from.
            t: Noise time, scalar or (batch,).
            source: Kind of ``value``.
            target: Kind wanted.

        Raises:
            InputError: If a kind is unknown.
        """
        if source == target:
            return value
        for kind in (source, target):
            if kind not in KINDS:
                raise InputError(f"prediction kind {kind!r} is unknown{nearest_name(kind, KINDS)}")
        t = precise(t, state.device)
        levels = self.levels(t)
        if source == "score":  # the noise divided by -sigma
            value, source = -expand_to(levels.sigma, state) * value, "noise"
        data, noise = self._parts(value, state, levels, self._row(t, levels, source), target)
        data, noise = (value if source == "data" else data), (value if source == "noise" else noise)
        if target == "data":
            return data.to(state.dtype)
        return self._value(data, noise, self._row(t, levels, target)).to(state.dtype)

    def _row(self, t: Tensor, levels: Levels, kind: Kind) -> Row:
        """Return (c, e) of a kind, whose value is c data + e noise."""
        if kind == "data":
            return 1.0, 0.0
        if kind == "noise":
            return 0.0, 1.0
        if kind == "score":
            return 0.0, -1 / _guarded(levels.sigma)
        if kind == "v":
            return -levels.sigma, levels.alpha
        d_alpha, d_sigma = self.schedule.rates(t)
        return d_alpha, d_sigma * self._scale(t.device)

    @staticmethod
    def _value(data: Tensor, noise: Tensor, row: Row) -> Tensor:
        c, e = (expand_to(part, data) if isinstance(part, Tensor) else part for part in row)
        return c * data + e * noise

    @staticmethod
    def _parts(
        value: Tensor, state: Tensor, levels: Levels, row: Row, target: Kind
    ) -> tuple[Tensor, Tensor]:
        """Solve (state, value) for (data, noise); noise stays the state if only data is wanted."""
        (a, s), (c, e) = levels, row
        scale = 1 / _guarded(a * e - s * c)

        def mix(of_state: Tensor | float, of_value: Tensor | float) -> Tensor:
            return expand_to(of_state * scale, state) * state + (
                expand_to(of_value * scale, state) * value
            )

        return mix(e, -s), state if target == "data" else mix(-c, a)

    def posterior(
        self,
        state: Float[Tensor, "batch *event"],
        data: Float[Tensor, "batch *event"],
        *,
        levels: Levels,
        next_levels: Levels,
        eta: float = 1.0,
    ) -> tuple[Tensor, Tensor]:
        r"""Return mean and standard deviation of the state at a cleaner time, given the data.

        .. math::
            \tau^2 = \eta^2 \sigma_s^2
                \Bigl(1 - \frac{\alpha_t^2 \sigma_s^2}{\alpha_s^2 \sigma_t^2}\Bigr), \qquad
            \mu = \alpha_s y + \sqrt{\sigma_s^2 - \tau^2}\, \hat\varepsilon

        With eta = 1 it is q(x_s | x_t, y) of the path (Ho et al. 2020, eq. 7, for any alpha and
        sigma); with eta = 0 the deterministic step of DDIM (Song et al. 2021a, eq. 16).

        Args:
            state: State at the noisier time.
            data: The data, or a prediction of it.
            levels: Levels at the noisier time, scalars or (batch,).
            next_levels: Levels at the cleaner time.
            eta: Share of the posterior's standard deviation that is drawn afresh, >= 0.

        Returns:
            Mean (batch, *event) and standard deviation (batch, 1, ...) or scalar.
        """
        a, s = (expand_to(level, state) for level in levels)
        a_next, s_next = (expand_to(level, state) for level in next_levels)
        kept = (a * s_next / (a_next * s).clamp(min=TINY)) ** 2
        std = eta * s_next * (1 - kept).clamp(min=0).sqrt()
        share = (s_next**2 - std**2).clamp(min=0).sqrt()
        return a_next * data + share / _guarded(s) * (state - a * data), std

    def prior(
        self,
        like: Float[Tensor, "batch *event"],
        *,
        t: Tensor | float = 1.0,
        seed: int | Sequence[int] | None = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "batch *event"]:
        """Draw starting states: N(0, sigma(t)^2), the law at t once the data has faded.

        Args:
            like: Gives shape, dtype and device; its values are not read.
            t: Noise time of the start.
            seed: One integer, or one per sample.
            generator: A running stream instead of ``seed``.
        """
        stream = noise_stream(len(like), seed=seed, generator=generator, device=like.device)
        draw = stream.normal_like(like)
        return (expand_to(self.sigma(t), like) * draw).to(like.dtype)
