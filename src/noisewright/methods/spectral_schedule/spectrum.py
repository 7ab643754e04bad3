r"""The spectrum of an image and the noise levels that matter for it.

====================  ====================================================================
:math:`S(k)`          mean power on the ring of k cycles per image, k = 0 .. K
:math:`n(k)`          number of frequencies on the ring
:math:`\sigma`        noise-to-signal ratio: noise of this level has power :math:`\sigma^2`
:math:`w_k`           Wiener gain :math:`S / (S + \sigma^2)`
:math:`R(\sigma)`     :math:`\sum n S w / \sum n S`, what the best linear denoiser recovers
:math:`E(\sigma)`     :math:`\sum n S (1 - w) / \sum n S`, what it leaves
====================  ====================================================================

Above the largest level with :math:`R > \epsilon_{\max}` a denoiser can only answer with the mean;
below the smallest level with :math:`E > \epsilon_{\min}`, or below the rounding of 8 bits, a step
changes nothing that can be seen. (Esteves & Makadia 2026 state such
bounds; these formulas are ours.)
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from noisewright.metrics.spectra import RadialPower, radial_power
from noisewright.types import InputError

__all__ = ["QUANTUM", "Spectrum", "feature_rings", "rapsd"]

QUANTUM = 2 / 255 / math.sqrt(12)
"""Standard deviation of rounding to 8 bits on [-1, 1]: 0.00226."""

SMALLEST_SIDE = 8
BISECTIONS = 40


@dataclass(frozen=True)
class Spectrum:
    """Radial power spectra of a batch of images.

    Attributes:
        power: :math:`S(k)`, (batch, K + 1), float64.
        count: :math:`n(k)`, (K + 1,).
        corner_power: Mean power beyond ring K, (batch,).
        freq: Rings in cycles per image along the shorter side, (K + 1,).
        corner_count: Number of frequencies beyond ring K.
        size: Height and width of the images in pixels.
    """

    power: Float[Tensor, "batch rings"]
    count: Float[Tensor, " rings"]
    corner_power: Float[Tensor, " batch"]
    freq: Float[Tensor, " rings"]
    corner_count: int
    size: tuple[int, int]

    def __len__(self) -> int:
        return len(self.power)

    def select(self, rows: Tensor | slice) -> Spectrum:
        """Return the spectra of some images."""
        return replace(self, power=self.power[rows], corner_power=self.corner_power[rows])

    @property
    def slope(self) -> Float[Tensor, " batch"]:
        """Exponent a of the power law S = b k^(-a), by least squares over rings 1 to K."""
        return -self._line()[0]

    @property
    def intercept(self) -> Float[Tensor, " batch"]:
        """Logarithm of b of the power law."""
        return self._line()[1]

    def _line(self) -> tuple[Tensor, Tensor]:
        x = self.freq[1:].log()
        y = self.power[:, 1:].clamp(min=torch.finfo(self.power.dtype).tiny).log()
        away = x - x.mean()
        slope = (y * away).sum(1) / away.square().sum()
        return slope, y.mean(1) - slope * x.mean()

    def features(self, j: int = 8) -> Float[Tensor, "batch j"]:
        """Return log S at ``j`` log-spaced rings from 1 to K: the parameters theta.

        Between rings log S is interpolated linearly in log k; powers below the rounding of 8 bits
        count as that rounding.

        Raises:
            InputError: If ``j`` is below 2.
        """
        rings = feature_rings(len(self.freq) - 1, j)
        log_power = self.power[:, 1:].clamp(min=QUANTUM**2).log()
        return interpolate(rings.log(), self.freq[1:].log(), log_power)

    def noise_bounds(
        self, eps_max: float = 1e-2, eps_min: float = 1e-3, *, include_dc: bool = False
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        """Return (sigma_min, sigma_max), the useful noise levels of each image.

        Args:
            eps_max: Share of power that a denoiser still recovers at sigma_max, in (0, 1).
            eps_min: Share of power that a denoiser leaves at sigma_min, in (0, 1).
            include_dc: Count the mean brightness too; it is a single number.

        Raises:
            InputError: If a share is outside (0, 1) or the bounds of an image cross.
        """
        for name, share in (("eps_max", eps_max), ("eps_min", eps_min)):
            if not 0 < share < 1:
                raise InputError(f"{name}={share} must lie inside (0, 1)")
        first = 0 if include_dc else 1
        power = torch.cat([self.power[:, first:], self.corner_power[:, None]], dim=1)
        count = torch.cat([self.count[first:], self.count.new_tensor([self.corner_count])])
        targets = power.new_tensor([1 - eps_min, eps_max])  # what is left is 1 - retained
        remaining, retained = _level_at_share(power, count, targets).unbind(1)
        sigma_min = remaining.clamp(min=QUANTUM)
        crossed = sigma_min >= retained
        if bool(crossed.any()):
            i = int(crossed.nonzero()[0])
            raise InputError(
                f"image {i}: sigma_min={float(sigma_min[i]):.4g} is not below sigma_max="
                f"{float(retained[i]):.4g}; lower eps_max={eps_max} or eps_min={eps_min}"
            )
        return sigma_min, retained


def interpolate(at: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return rows of ``y`` (batch, n), given at increasing ``x`` (n,), linearly at ``at`` (m,)."""
    upper = torch.searchsorted(x, at).clamp(1, len(x) - 1)
    low, high = x[upper - 1], x[upper]
    return torch.lerp(y[:, upper - 1], y[:, upper], ((at - low) / (high - low)).clamp(0, 1))


def feature_rings(rings: int, j: int) -> Float[Tensor, " j"]:
    """Return ``j`` log-spaced frequencies from 1 to ``rings`` cycles per image.

    Raises:
        InputError: If ``j`` is below 2.
    """
    if j < 2:
        raise InputError(f"j={j}: a spectrum needs at least two parameters")
    return torch.logspace(0, math.log10(rings), j, dtype=torch.float64).clamp(1, rings)


def _level_at_share(
    power: Float[Tensor, "batch rings"], count: Float[Tensor, " rings"], targets: Tensor
) -> Float[Tensor, "batch targets"]:
    """Return the levels at which R(sigma) has each target value, by bisection in log sigma.

    For a flat spectrum S = s^2 the level is s sqrt(1 / R - 1); for any other it lies between those
    of its smallest and its largest power.
    """
    power = power.clamp(min=torch.finfo(power.dtype).tiny)
    total = power @ count
    flat = (1 / targets - 1).log()
    low, high = ((p.log()[:, None] + flat) / 2 for p in (power.amin(1), power.amax(1)))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        gains = power[:, None] / (power[:, None] + (2 * middle).exp()[..., None])
        above = (gains * power[:, None]) @ count / total[:, None] > targets
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return ((low + high) / 2).exp()


def rapsd(images: Shaped[Tensor, "batch channels height width"], window: bool = False) -> Spectrum:
    """Return the radially averaged power spectral density of each image.

    A constant image has no spectrum: it gets the median spectrum of the others, with a warning.

    Args:
        images: uint8, or floating point in [-1, 1]; any number of channels, at least 8 x 8.
        window: Remove the mean and apply a Hann window, against leakage from the border.

    Raises:
        InputError: If images are too small, out of range, not finite, or all constant.

    Example:
        >>> noise = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)) / 4
        >>> spectrum = rapsd(noise.clamp(-1, 1))
        >>> spectrum.power.shape, bool((spectrum.slope.abs() < 0.3).all())
        (torch.Size([2, 17]), True)
    """
    _check(images)
    found = radial_power(images, window=window)
    return _mend_constant(found, (int(images.shape[2]), int(images.shape[3])))


def _check(images: Tensor) -> None:
    if images.ndim != 4 or min(images.shape[2:]) < SMALLEST_SIDE:
        raise InputError(
            f"images has shape {tuple(images.shape)}; give (batch, channels, height, width) with "
            f"sides of at least {SMALLEST_SIDE} pixels"
        )
    if not len(images):
        return
    if images.is_floating_point():
        bad = ~images.isfinite().flatten(1).all(1)
        if bool(bad.any()):
            raise InputError(
                f"image {int(bad.nonzero()[0])} holds NaN or infinity; drop or mend it"
            )
        low, high = float(images.min()), float(images.max())
        if low < -1.001 or high > 1.001:
            raise InputError(
                f"float images must lie in [-1, 1], got {low:.4g} to {high:.4g}; pass uint8, or "
                "scale [0, 255] by x / 127.5 - 1 and [0, 1] by 2 * x - 1"
            )
    elif images.dtype != torch.uint8:
        raise InputError(f"images has dtype {images.dtype}; give uint8 or floating point")
    flat_rows = (images == images[..., :1]).all(-1).all(1).float().mean(1)
    padded = flat_rows.gt(0.3) & flat_rows.lt(1)
    if bool(padded.any()):
        warnings.warn(
            f"{int(padded.sum())} of {len(images)} images have more than 30 % constant rows "
            "(padding?): their spectra are those of the border; crop them",
            stacklevel=3,
        )


def _mend_constant(found: RadialPower, size: tuple[int, int]) -> Spectrum:
    power, corner = found.power, found.corner_power
    constant = power[:, 1:].sum(1) <= 1e-12
    if bool(constant.any()):
        if bool(constant.all()):
            raise InputError("all images are constant: there is no spectrum to read")
        warnings.warn(
            f"{int(constant.sum())} of {len(power)} images are constant; they get the median "
            "spectrum of the others",
            stacklevel=4,
        )
        power = torch.where(constant[:, None], power[~constant].median(0).values, power)
        corner = torch.where(constant, corner[~constant].median(), corner)
    return Spectrum(power, found.count, corner, found.freq, found.corner_count, size)
