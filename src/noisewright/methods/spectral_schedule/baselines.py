"""What the tight schedule is compared with: the usual noise levels, behind the same interface."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.methods.spectral_schedule.regimes import Regime
from noisewright.methods.spectral_schedule.spectrum import Spectrum
from noisewright.paths import (
    CosineSchedule,
    EDMSchedule,
    GaussianPath,
    Schedule,
    ShiftedCosineSchedule,
    SigmoidSchedule,
)
from noisewright.solvers import karras_times

__all__ = ["CosineRegime", "EDMRegime", "ShiftedCosineRegime", "SigmoidRegime"]

REFERENCE_SIDE = 64
"""Side in pixels at which the shifted cosine is the cosine (Hoogeboom et al. 2023)."""


@dataclass(frozen=True)
class CosineRegime(Regime):
    """The cosine schedule of Nichol & Dhariwal 2021."""

    def schedule(self, spectrum: Spectrum) -> Schedule:
        """Return the cosine schedule."""
        del spectrum
        return CosineSchedule()


@dataclass(frozen=True)
class ShiftedCosineRegime(Regime):
    """Cosine shifted by side / 64 (simple diffusion; SiD2 of Hoogeboom et al. 2024)."""

    def schedule(self, spectrum: Spectrum) -> Schedule:
        """Return the cosine schedule shifted for the size."""
        return ShiftedCosineSchedule(min(spectrum.size) / REFERENCE_SIDE)


@dataclass(frozen=True)
class SigmoidRegime(Regime):
    """The sigmoid schedule of Jabri et al. 2023."""

    def schedule(self, spectrum: Spectrum) -> Schedule:
        """Return the sigmoid schedule."""
        del spectrum
        return SigmoidSchedule()


@dataclass(frozen=True)
class EDMRegime(Regime):
    r"""Levels, weight and spacing of Karras et al. 2022 (table 1, column "Ours").

    Training levels are log-normal; the weight :math:`(\sigma^2 + s^2) / (\sigma s)^2` of a data
    error becomes :math:`(\sigma^2 + s^2) / (s^2 (1 + \sigma^2))` of a v error.

    Attributes:
        mean: Mean of log sigma in training (their P_mean).
        std: Standard deviation of log sigma in training (their P_std).
        data_std: Standard deviation s of the data.
        sigma_min: Cleanest level of a walk before 0.
        sigma_max: Noisiest level.
        rho: Exponent of the spacing.
    """

    mean: float = -1.2
    std: float = 1.2
    data_std: float = 0.5
    sigma_min: float = 0.002
    sigma_max: float = 80.0
    rho: float = 7.0

    def schedule(self, spectrum: Spectrum) -> Schedule:
        """Return sigma = sigma_max * t."""
        del spectrum
        return EDMSchedule(self.sigma_max)

    def draw_times(self, uniform: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """Return times of log-normal levels."""
        unit = torch.special.ndtri(uniform.double().clamp(1e-7, 1 - 1e-7))
        return (torch.exp(self.mean + self.std * unit) / self.sigma_max).clamp(max=1)

    def weight(self, path: GaussianPath, t: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """Return the weight of a squared v error."""
        del path
        power, data = (self.sigma_max * t) ** 2, self.data_std**2
        return (power + data) / (data * (1 + power))

    def times(self, path: GaussianPath, steps: int) -> Float[Tensor, "*batch knots"]:
        """Return the grid with their spacing."""
        return karras_times(
            path, steps, sigma_min=self.sigma_min, sigma_max=self.sigma_max, rho=self.rho
        )
