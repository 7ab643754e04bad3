r"""A regime: which noise levels a model is trained on, with which weight, and sampled along.

All regimes share network, prediction kind and coordinates (variance preserving, v-prediction), so
that they differ in the levels only. The loss is

.. math:: E_t\, W(t)\, \lVert v - \hat v \rVert^2, \qquad
    W = \mathrm{sigmoid}(b - \lambda)\, \mathrm{sigmoid}(\lambda)\, \lvert d\lambda/dt \rvert,

the sigmoid weight of Hoogeboom et al. 2024 on the noise error (sigmoid(lambda) = alpha^2 turns a v
error into a noise error) over the density of lambda. Its expectation does not depend on the
schedule; the schedule only decides where the samples of the integral fall.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.methods.spectral_schedule.spectrum import Spectrum
from noisewright.methods.spectral_schedule.tight import Spacing, TightSchedule, spectrum_of_features
from noisewright.paths import GaussianPath, Schedule, VariancePreserving
from noisewright.solvers import uniform_times

__all__ = ["Regime", "TightRegime", "invariant_weight"]

CLIP = 20.0
"""The factor 1 / density is cut at this many times its median over the schedule."""


def invariant_weight(
    schedule: Schedule, t: Float[Tensor, " batch"], bias: float
) -> Float[Tensor, " batch"]:
    """Return the weight W of a squared v error at uniform times.

    Args:
        schedule: Of the rows of ``t``.
        t: Noise times.
        bias: The bias b of the sigmoid weight.
    """
    logsnr = schedule.logsnr(t)
    grid = torch.linspace(0.005, 0.995, 100, dtype=torch.float64)
    usual = schedule.columns().logsnr_rate(grid).abs().median(dim=-1).values
    speed = torch.minimum(schedule.logsnr_rate(t).abs(), CLIP * usual)
    return torch.sigmoid(bias - logsnr) * torch.sigmoid(logsnr) * speed


@dataclass(frozen=True)
class Regime(ABC):
    """Levels for training and sampling.

    Attributes:
        bias: Bias of the sigmoid weight.
    """

    bias: float = 0.0

    conditioned = False
    """Whether the network is told the spectrum parameters."""

    @abstractmethod
    def schedule(self, spectrum: Spectrum) -> Schedule:
        """Return the schedule of images with these spectra: one per row, or one for all."""

    def path(self, spectrum: Spectrum) -> GaussianPath:
        """Return the path in variance-preserving coordinates."""
        return GaussianPath(VariancePreserving(self.schedule(spectrum)))

    def draw_times(self, uniform: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """Return training times from uniform draws."""
        return uniform.double()

    def weight(self, path: GaussianPath, t: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """Return the weight of a squared v error at drawn times."""
        return invariant_weight(path.schedule, t, self.bias)

    def times(self, path: GaussianPath, steps: int) -> Float[Tensor, "*batch knots"]:
        """Return the grid of a walk."""
        return uniform_times(path, steps)


@dataclass(frozen=True)
class TightRegime(Regime):
    """The method: a schedule per image from its spectrum, and a network that is told the spectrum.

    Attributes:
        beta: 0 frequency-focused, 1 power-focused.
        eps_max: Share of power still recovered at the noisiest level.
        eps_min: Share of power left at the cleanest level.
        spacing: ``"mixed"`` or ``"edm"``.
        told: Whether the network is told the parameters.
        shared: One parameter vector for all images instead; None gives each its own.
    """

    beta: float = 0.75
    eps_max: float = 1e-2
    eps_min: float = 1e-3
    spacing: Spacing = "mixed"
    told: bool = True
    shared: tuple[float, ...] | None = None

    @property
    def conditioned(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the network is told the spectrum parameters."""
        return self.told

    def schedule(self, spectrum: Spectrum) -> Schedule:
        """Return a schedule per row, or one for all."""
        if self.shared is not None:
            theta = torch.tensor([self.shared], dtype=torch.float64)
            spectrum = spectrum_of_features(theta, spectrum.size)
        tight = TightSchedule(
            spectrum,
            beta=self.beta,
            eps_max=self.eps_max,
            eps_min=self.eps_min,
            spacing=self.spacing,
        )
        return tight.mean() if self.shared is not None else tight
