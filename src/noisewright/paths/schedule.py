r"""Noise schedules: how much signal and how much noise a state holds at each time.

A state is :math:`x_t = \alpha(t)\,\text{data} + \sigma(t)\,\text{noise}`; time is noise time, 0 is
data and 1 is noise. A schedule gives both levels, their rates and the log signal-to-noise ratio

.. math:: \lambda(t) = 2 \log \frac{\alpha(t)}{\sigma(t)},

which falls with t. Each parameter may be a number or a tensor of shape (batch,): then each sample
has a schedule of its own, and times given to it are scalars or (batch,).

A schedule whose noise level at t = 0 is not zero has a *floor*: a walk along it ends with one step
that replaces the state by the prediction of the data (see :mod:`noisewright.solvers.grids`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.types import InputError, nearest_name

__all__ = [
    "CosineSchedule",
    "EDMSchedule",
    "LinearBetaSchedule",
    "RectifiedSchedule",
    "Schedule",
    "ShiftedCosineSchedule",
    "SigmoidSchedule",
    "precise",
    "schedule_from_dict",
]

BISECTIONS = 60
"""Halvings of [0, 1] that bring an inverse to the last bit of float64."""


def precise(
    t: Tensor | float | Sequence[float], device: torch.device | str | None = None
) -> Tensor:
    """Return times or levels in float64 (float32 on devices without it).

    Raises:
        InputError: If they come in half precision, which has rounded them already.
    """
    if not isinstance(t, Tensor):
        t = torch.as_tensor(t, dtype=torch.float64, device="cpu")
    if t.dtype in (torch.float16, torch.bfloat16):
        raise InputError(
            f"times and levels in {t.dtype} are rounded (0.7505 becomes 0.75 in bfloat16); pass "
            "them in float32, the states may keep their dtype"
        )
    place = t.device if device is None else torch.device(device)
    return t.to(place, torch.float32 if place.type == "mps" else torch.float64)


@dataclass(frozen=True, eq=False)
class Schedule(ABC):
    """Signal level, noise level and their inverse; subclasses give :meth:`levels`."""

    @abstractmethod
    def levels(self, t: Float[Tensor, "*times"]) -> tuple[Tensor, Tensor]:
        """Return (signal level, noise level) at times in float64; parameters broadcast."""

    def rates(self, t: Float[Tensor, "*times"]) -> tuple[Tensor, Tensor]:
        """Return d/dt of both levels, exact, by automatic differentiation."""
        shape = self.levels(t)[0].shape
        with torch.enable_grad():
            t = t.detach().expand(shape).clone().requires_grad_(True)
            alpha, sigma = self.levels(t)
            rates = [torch.autograd.grad(v.sum(), t, retain_graph=True)[0] for v in (alpha, sigma)]
        return rates[0], rates[1]

    def logsnr_rate(self, t: Float[Tensor, "*times"]) -> Tensor:
        """Return d logsnr / d t, below 0; infinite where a level is zero."""
        (alpha, sigma), (d_alpha, d_sigma) = self.levels(t), self.rates(t)
        return 2 * (d_alpha / alpha - d_sigma / sigma)

    def alpha(self, t: Tensor | float) -> Tensor:
        """Return the signal level at noise time ``t`` in [0, 1]: scalar or (batch,)."""
        return self.levels(precise(t))[0]

    def sigma(self, t: Tensor | float) -> Tensor:
        """Return the noise level at noise time ``t`` in [0, 1]: scalar or (batch,)."""
        return self.levels(precise(t))[1]

    def logsnr(self, t: Tensor | float) -> Tensor:
        """Return 2 log(signal level / noise level); infinite where one of them is zero."""
        alpha, sigma = self.levels(precise(t))
        return 2 * (alpha.log() - sigma.log())

    def time_of_logsnr(self, logsnr: Tensor | float) -> Tensor:
        """Return the time with this log-SNR; beyond the schedule's range, 0 or 1.

        Args:
            logsnr: Natural logarithm of the signal-to-noise power ratio, scalar or (batch,).
        """
        target = precise(logsnr)
        low, high = torch.zeros_like(target), torch.ones_like(target)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            noisier = self.logsnr(middle) < target
            low, high = torch.where(noisier, low, middle), torch.where(noisier, middle, high)
        high = torch.where(target <= self.logsnr(torch.ones_like(target)), 1.0, (low + high) / 2)
        return torch.where(target >= self.logsnr(torch.zeros_like(target)), 0.0, high)

    @property
    def has_floor(self) -> bool:
        """Whether the state at t = 0 still holds noise."""
        return bool((self.sigma(0.0) > 0).any())

    @property
    def batch(self) -> int | None:
        """Number of samples with a schedule of their own, or None if one serves all."""
        sizes = {len(p) for p in self._parameters().values() if p.ndim}
        if len(sizes) > 1:
            raise InputError(f"{type(self).__name__}: parameters of different batches: {sizes}")
        return sizes.pop() if sizes else None

    def columns(self) -> Self:
        """Return the schedule with parameters (batch, 1), to meet a row of times."""
        return self._with({k: p[:, None] for k, p in self._parameters().items() if p.ndim})

    def select(self, rows: Tensor | slice) -> Self:
        """Return the schedule of some samples; the same schedule if one serves all."""
        return self._with({k: p[rows] for k, p in self._parameters().items() if p.ndim})

    def to_dict(self) -> dict[str, Any]:
        """Return name and parameters as plain values."""
        parameters = {k: p.tolist() for k, p in self._parameters().items()}
        return {"name": type(self).__name__, **parameters}

    def _parameters(self) -> dict[str, Tensor]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: precise(v) for k, v in values.items() if isinstance(v, (Tensor, float, int))}

    def _with(self, changes: dict[str, Tensor]) -> Self:
        return replace(self, **changes) if changes else self


@dataclass(frozen=True, eq=False)
class RectifiedSchedule(Schedule):
    r"""Straight line, :math:`\alpha = 1 - t,\ \sigma = t` (Liu et al. 2022; Lipman et al. 2023).

    Example:
        >>> RectifiedSchedule().levels(torch.tensor([0.0, 0.25, 1.0]))
        (tensor([1.0000, 0.7500, 0.0000]), tensor([0.0000, 0.2500, 1.0000]))
    """

    def levels(self, t: Float[Tensor, "*times"]) -> tuple[Tensor, Tensor]:
        """Return (1 - t, t)."""
        return 1 - t, t

    def rates(self, t: Float[Tensor, "*times"]) -> tuple[Tensor, Tensor]:
        """Return (-1, 1)."""
        one = torch.ones_like(t)
        return -one, one

    def time_of_logsnr(self, logsnr: Tensor | float) -> Tensor:
        """Return 1 / (1 + exp(logsnr / 2))."""
        return torch.sigmoid(-precise(logsnr) / 2)


@dataclass(frozen=True, eq=False)
class CosineSchedule(Schedule):
    r"""Quarter circle, :math:`\alpha = \cos(\pi t / 2),\ \sigma = \sin(\pi t / 2)`.

    Nichol & Dhariwal 2021 without their offset; the ends are exact.
    """

    def levels(self, t: Float[Tensor, "*times"]) -> tuple[Tensor, Tensor]:
        """Return (cos, sin) of the quarter circle."""
        return torch.sin(math.pi / 2 * (1 - t)), torch.sin(math.pi / 2 * t)

    def time_of_logsnr(self, logsnr: Tensor | float) -> Tensor:
        """Return 2/pi * atan(exp(-logsnr / 2))."""
        return 2 / math.pi * torch.atan(torch.exp(-precise(logsnr) / 2))


@dataclass(frozen=True, eq=False)
class ShiftedCosineSchedule(Schedule):
    r"""Cosine with :math:`\sigma/\alpha` multiplied by ``shift`` (Hoogeboom et al. 2023, eq. 3).

    Attributes:
        shift: Ratio of side lengths, image over reference (64 px there): 1 is the cosine.
    """

    shift: Tensor | float = 1.0

    def levels(self, t: Float[Tensor, "*times"]) -> tuple[Tensor, Tensor]:
        """Return the levels of the shifted quarter circle."""
        alpha = torch.sin(math.pi / 2 * (1 - t))
        sigma = precise(self.shift, t.device) * torch.sin(math.pi / 2 * t)
        norm = torch.sqrt(alpha**2 + sigma**2)
        return alpha / norm, sigma / norm

    def time_of_logsnr(self, logsnr: Tensor | float) -> Tensor:
        """Return 2/pi * atan(exp(-logsnr / 2) / shift)."""
        ratio = torch.exp(-precise(logsnr) / 2)
        return 2 / math.pi * torch.atan(ratio / precise(self.shift, ratio.device))


@dataclass(frozen=True, eq=False)
class LinearBetaSchedule(Schedule):
    r"""Variance preserving with :math:`\beta` linear in time (Song et al. 2021, appendix C).

    .. math:: \log \alpha = -\tfrac14 t^2 (\beta_1 - \beta_0) - \tfrac12 t \beta_0

    Attributes:
        beta_min: Rate at t = 0, per unit of time.
        beta_max: Rate at t = 1.
    """

    beta_min: Tensor | float = 0.1
    beta_max: Tensor | float = 20.0

    def levels(self, t: Float[Tensor, "*times"]) -> tuple[Tensor, Tensor]:
        """Return (exp(log alpha), sqrt(1 - alpha^2)) without cancellation near t = 0."""
        low, high = (precise(b, t.device) for b in (self.beta_min, self.beta_max))
        log_alpha = -(t**2) * (high - low) / 4 - t * low / 2
        return torch.exp(log_alpha), torch.sqrt(-torch.expm1(2 * log_alpha))


@dataclass(frozen=True, eq=False)
class SigmoidSchedule(Schedule):
    r"""Variance preserving with :math:`\alpha^2` a sigmoid in time (Jabri et al. 2023).

    Attributes:
        start: Argument of the sigmoid at t = 0.
        end: Argument of the sigmoid at t = 1.
        temperature: Width of the sigmoid.
    """

    start: Tensor | float = -3.0
    end: Tensor | float = 3.0
    temperature: Tensor | float = 1.0

    def levels(self, t: Float[Tensor, "*times"]) -> tuple[Tensor, Tensor]:
        """Return the square roots of the rescaled sigmoid and of its complement."""
        start, end, width = (precise(v, t.device) for v in (self.start, self.end, self.temperature))
        first, last = torch.sigmoid(start / width), torch.sigmoid(end / width)
        here = torch.sigmoid((start + t * (end - start)) / width)
        return (
            torch.sqrt(((last - here) / (last - first)).clamp(min=0)),
            torch.sqrt(((here - first) / (last - first)).clamp(min=0)),
        )


@dataclass(frozen=True, eq=False)
class EDMSchedule(Schedule):
    r"""Variance exploding, :math:`\alpha = 1,\ \sigma = \sigma_{\max} t` (Karras et al. 2022).

    The spacing of levels that goes with it is :func:`noisewright.solvers.grids.karras_times`.

    Attributes:
        sigma_max: Noise level at t = 1, in units of the data.
    """

    sigma_max: Tensor | float = 80.0

    def levels(self, t: Float[Tensor, "*times"]) -> tuple[Tensor, Tensor]:
        """Return (1, sigma_max * t)."""
        sigma = precise(self.sigma_max, t.device) * t
        return torch.ones_like(sigma), sigma

    def rates(self, t: Float[Tensor, "*times"]) -> tuple[Tensor, Tensor]:
        """Return (0, sigma_max)."""
        rate = precise(self.sigma_max, t.device) * torch.ones_like(t)
        return torch.zeros_like(rate), rate

    def time_of_logsnr(self, logsnr: Tensor | float) -> Tensor:
        """Return exp(-logsnr / 2) / sigma_max, at most 1."""
        sigma = torch.exp(-precise(logsnr) / 2)
        return (sigma / precise(self.sigma_max, sigma.device)).clamp(max=1)


def schedule_from_dict(plain: dict[str, Any]) -> Schedule:
    """Return the schedule that :meth:`Schedule.to_dict` wrote down.

    Raises:
        InputError: If no schedule of that name is imported.
    """
    known = {c.__name__: c for c in _descendants(Schedule)}
    values = dict(plain)
    name = values.pop("name")
    if name not in known:
        raise InputError(f"schedule {name!r} is unknown{nearest_name(name, known)}")
    made = {
        k: schedule_from_dict(v)
        if isinstance(v, dict)
        else torch.tensor(v, dtype=torch.float64)
        if isinstance(v, list)
        else v
        for k, v in values.items()
    }
    return known[name](**made)


def _descendants(kind: type) -> list[type]:
    children = kind.__subclasses__()
    return children + [grandchild for child in children for grandchild in _descendants(child)]
