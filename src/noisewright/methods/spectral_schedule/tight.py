r"""A noise schedule for each image, read off its spectrum.

With :math:`u = 1 - t` (u = 0 the noisiest level, the time of the paper), K the highest ring:

* frequency-focused: :math:`\log \sigma_F(u) = \tfrac12 \log S(K u)`: every ring gets equal time;
* power-focused: :math:`\log \sigma_P(u)` linear from sigma_max to sigma_min;
* mixed: :math:`(1 - \beta) \log \sigma_F + \beta \log \sigma_P`, the ends exactly the bounds.

S is made non-increasing by a running maximum from the right. The spacing ``"edm"`` puts the levels
of Karras et al. 2022 (rho = 7) on the image's own range instead.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.methods.spectral_schedule.spectrum import (
    QUANTUM,
    Spectrum,
    feature_rings,
    interpolate,
)
from noisewright.metrics.spectra import radial_power
from noisewright.paths import Schedule, precise
from noisewright.types import InputError, nearest_name

__all__ = ["Spacing", "TightSchedule", "spectrum_of_features"]

Spacing = Literal["mixed", "edm"]

STRICT = 1e-6
"""Share of the power-focused schedule that is always mixed in, so that no two levels tie."""

EDM_RHO = 7.0
EDM_KNOTS = 1025


@dataclass(frozen=True, eq=False, init=False)
class TightSchedule(Schedule):
    r"""One noise schedule per image; the signal level is 1, the noise level is sigma.

    Wrapped in :class:`~noisewright.paths.VariancePreserving` it gives the same levels in
    variance-preserving coordinates. It has a floor: sigma(0) = sigma_min.

    Args:
        spectrum: Spectra of the images.
        beta: 0 frequency-focused, 1 power-focused.
        eps_max: See :meth:`Spectrum.noise_bounds`.
        eps_min: See :meth:`Spectrum.noise_bounds`.
        spacing: ``"mixed"``, or ``"edm"`` (``beta`` is then not used).

    Attributes:
        knots: log sigma at evenly spaced times, noisiest first: (batch, knots), or (knots,) for
            one schedule for all. Between knots log sigma is linear.

    Raises:
        InputError: If ``beta`` is outside [0, 1], a name is unknown, or bounds cross.

    Example:
        >>> images = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1
        >>> from noisewright.methods.spectral_schedule import rapsd
        >>> schedule = TightSchedule(rapsd(images))
        >>> schedule.sigmas(5).shape, bool((schedule.sigmas(5).diff(dim=1) < 0).all())
        (torch.Size([4, 6]), True)
    """

    knots: Tensor
    as_columns: bool

    def __init__(
        self,
        spectrum: Spectrum | None = None,
        *,
        beta: float = 0.75,
        eps_max: float = 1e-2,
        eps_min: float = 1e-3,
        spacing: Spacing = "mixed",
        knots: Tensor | None = None,
        as_columns: bool = False,
    ) -> None:
        if (spectrum is None) == (knots is None):
            raise InputError("give a spectrum, or the knots of a stored schedule")
        if spectrum is not None:
            knots = _knots(spectrum, beta, spectrum.noise_bounds(eps_max, eps_min), spacing)
        object.__setattr__(self, "knots", knots)
        object.__setattr__(self, "as_columns", as_columns)

    @classmethod
    def from_features(
        cls,
        theta: Float[Tensor, "batch j"],
        size: tuple[int, int],
        *,
        trained_size: tuple[int, int] | None = None,
        **settings: object,
    ) -> Self:
        """Return the schedules that belong to spectrum parameters.

        Args:
            theta: log S at log-spaced rings, as :meth:`Spectrum.features` gives it.
            size: Height and width of the images.
            trained_size: Height and width of the images that theta was read from, if another.
            settings: As for the class.
        """
        spectrum = spectrum_of_features(theta, size, trained_size=trained_size)
        return cls(spectrum, **settings)  # pyright: ignore[reportArgumentType]

    def levels(self, t: Float[Tensor, "*times"]) -> tuple[Tensor, Tensor]:
        """Return (1, sigma) at noise times."""
        sigma = self._log_sigma(t).exp()
        return torch.ones_like(sigma), sigma

    def rates(self, t: Float[Tensor, "*times"]) -> tuple[Tensor, Tensor]:
        """Return (0, d sigma / d t)."""
        sigma = self._log_sigma(t).exp()
        _, lower, upper = self._segment(t)
        return torch.zeros_like(sigma), sigma * (lower - upper) * (self.knots.shape[-1] - 1)

    def logsnr(self, t: Tensor | float) -> Tensor:
        """Return -2 log sigma."""
        return -2 * self._log_sigma(precise(t, self.knots.device))

    def time_of_logsnr(self, logsnr: Tensor | float) -> Tensor:
        """Return the noise time of a log-SNR; beyond the bounds 0 or 1."""
        wanted = -precise(logsnr, self.knots.device) / 2
        rows, flat = self._rows(wanted)
        knots = self.knots if self.knots.ndim == 2 else self.knots[None]
        rows = rows if self.knots.ndim == 2 else rows.reshape(1, -1)
        last = knots.shape[1] - 1
        upper = torch.searchsorted(-knots, -rows.contiguous()).clamp(1, last)
        low, high = knots.gather(1, upper - 1), knots.gather(1, upper)
        share = ((low - rows) / (low - high)).clamp(0, 1)
        time = 1 - (upper - 1 + share) / last
        return time.reshape(wanted.shape) if self.knots.ndim == 1 else flat(time)

    def t_of_sigma(self, sigma: Tensor | float) -> Tensor:
        """Return the noise time of a level."""
        return self.time_of_logsnr(-2 * precise(sigma).log())

    def logsnr_rate(self, t: Float[Tensor, "*times"]) -> Tensor:
        """Return d logsnr / d t: constant between knots."""
        _, lower, upper = self._segment(t)
        return -2 * (lower - upper) * (self.knots.shape[-1] - 1)

    def density(self, logsnr: Tensor | float) -> Tensor:
        """Return the density of log-SNR when t is uniform; 0 beyond the bounds."""
        wanted = precise(logsnr, self.knots.device)
        inside = (wanted >= self.logsnr(1.0)) & (wanted <= self.logsnr(0.0))
        return torch.where(inside, -1 / self.logsnr_rate(self.time_of_logsnr(wanted)), 0.0)

    def sigmas(self, n_steps: int) -> Float[Tensor, "*batch knots"]:
        """Return the levels of a walk: ``n_steps`` from sigma_max to sigma_min, then 0.

        Raises:
            InputError: If ``n_steps`` is below 1.
        """
        if n_steps < 1:
            raise InputError(f"n_steps={n_steps} must be at least 1")
        times = torch.linspace(1, 0, n_steps, dtype=torch.float64, device=self.knots.device)
        sigma = self.columns().levels(times)[1]
        return torch.cat([sigma, torch.zeros_like(sigma[..., :1])], dim=-1)

    def mean(self) -> Self:
        """Return one schedule for all images: the geometric mean of their levels."""
        return type(self)(knots=self.knots.mean(0)) if self.knots.ndim == 2 else self

    @property
    def batch(self) -> int | None:
        """Number of images with a schedule of their own."""
        return len(self.knots) if self.knots.ndim == 2 else None

    def columns(self) -> Self:
        """Return the schedule ready to meet a row of times."""
        return replace(self, spectrum=None, as_columns=True) if self.batch is not None else self

    def select(self, rows: Tensor | slice) -> Self:
        """Return the schedules of some images."""
        return type(self)(knots=self.knots[rows]) if self.batch is not None else self

    def to_dict(self) -> dict[str, object]:
        """Return name and knots as plain values."""
        return {"name": type(self).__name__, "knots": self.knots.tolist()}

    def _log_sigma(self, t: Tensor) -> Tensor:
        share, lower, upper = self._segment(t)
        return torch.lerp(lower, upper, share)

    def _segment(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (share within the segment, its noisier knot, its cleaner knot)."""
        last = self.knots.shape[-1] - 1
        place = ((1 - t) * last).clamp(0, last)
        index = place.detach().floor().long().clamp(max=last - 1)
        if self.knots.ndim == 1:
            return place - index, self.knots[index], self.knots[index + 1]
        rows, flat = self._rows(place)
        index, _ = self._rows(index)
        lower, upper = self.knots.gather(1, index), self.knots.gather(1, index + 1)
        return flat(rows - index), flat(lower), flat(upper)

    def _rows(self, values: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return values as (batch, m), and the way back to their own layout."""
        if self.knots.ndim == 1:
            return values, lambda v: v
        batch = len(self.knots)
        if self.as_columns:
            return values.expand(batch, values.shape[-1]), lambda v: v
        return values.expand(batch)[:, None], lambda v: v[:, 0]


def _knots(
    spectrum: Spectrum, beta: float, bounds: tuple[Tensor, Tensor], spacing: Spacing
) -> Tensor:
    """Return log sigma at evenly spaced times, (batch, knots), noisiest first."""
    if not 0 <= beta <= 1:
        raise InputError(f"beta={beta} must lie in [0, 1]")
    if spacing not in get_args(Spacing):
        raise InputError(f"spacing={spacing!r}{nearest_name(str(spacing), get_args(Spacing))}")
    low, high = (bound.log()[:, None] for bound in bounds)
    if spacing == "edm":
        u = torch.linspace(0, 1, EDM_KNOTS, dtype=low.dtype, device=low.device)
        high_root, low_root = (high / EDM_RHO).exp(), (low / EDM_RHO).exp()
        return EDM_RHO * torch.log(high_root + u * (low_root - high_root))
    u = spectrum.freq / spectrum.freq[-1]
    power_focused = high + u * (low - high)
    falling = spectrum.power.clamp(min=QUANTUM**2).clone()
    falling[:, 0] = falling[:, 1]
    falling = falling.flip(1).cummax(1).values.flip(1)
    frequency_focused = (falling.log() / 2).clamp(low, high)
    frequency_focused[:, 0], frequency_focused[:, -1] = high[:, 0], low[:, 0]
    share = STRICT + (1 - STRICT) * beta
    return torch.lerp(frequency_focused, power_focused, share)


def spectrum_of_features(
    theta: Float[Tensor, "batch j"],
    size: tuple[int, int],
    *,
    trained_size: tuple[int, int] | None = None,
) -> Spectrum:
    """Return full spectra from parameters: log S linear in log k, the corners by continuation.

    Parameters are per cycle per image. For pictures of another size than they were read from, the
    power on a ring grows with the number of pixels, and rings beyond the old ones continue the
    line between the last two parameters.

    Args:
        theta: log S at log-spaced rings from 1 to K.
        size: Height and width of the images.
        trained_size: Height and width of the images that theta was read from; None means ``size``.
            Another size is warned about.

    Raises:
        InputError: If theta is not (batch, j) or not finite.
    """
    if theta.ndim != 2 or not bool(theta.isfinite().all()):
        raise InputError(f"theta must be finite, (batch, j), got shape {tuple(theta.shape)}")
    layout = radial_power(torch.zeros(1, 1, *size))
    theta, rings = theta.double(), len(layout.freq) - 1
    if trained_size is None or tuple(trained_size) == tuple(size):
        log_power = interpolate(
            layout.freq[1:].log(), feature_rings(rings, theta.shape[1]).log(), theta
        )
    else:
        log_power = _resized(theta, layout.freq[1:], trained_size, size)
    power = torch.cat([log_power[:, :1], log_power], dim=1).exp()
    spectrum = Spectrum(power, layout.count, power[:, -1], layout.freq, layout.corner_count, size)
    beyond = 1.2**-spectrum.slope  # corner frequencies lie about a fifth beyond ring K
    return replace(spectrum, corner_power=power[:, -1] * beyond.clamp(max=1))


def _resized(
    theta: Tensor, freq: Tensor, trained_size: tuple[int, int], size: tuple[int, int]
) -> Tensor:
    """Return log S at ``freq`` for pictures of ``size``, from parameters of ``trained_size``."""
    warnings.warn(
        f"spectrum parameters were read from images of {trained_size[0]} x {trained_size[1]} "
        f"pixels and are rescaled to {size[0]} x {size[1]}",
        stacklevel=4,
    )
    known = feature_rings(min(trained_size) // 2, theta.shape[1]).log()
    at, gain = freq.log(), math.log(math.prod(size) / math.prod(trained_size))
    slope = (theta[:, -1:] - theta[:, -2:-1]) / (known[-1] - known[-2])
    return interpolate(at, known, theta) + slope * (at - known[-1]).clamp(min=0) + gain
