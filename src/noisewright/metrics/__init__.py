"""Measures: distances between sets, image quality, spectra, intervals. Each states its bias."""

from __future__ import annotations

from noisewright.metrics.features import (
    CallableFeatures,
    Features,
    PCAFeatures,
    RandomConvFeatures,
)
from noisewright.metrics.frechet import frechet_distance, gaussian_frechet_distance
from noisewright.metrics.pixels import checked, signed
from noisewright.metrics.spectra import RadialPower, radial_power

__all__ = [
    "CallableFeatures",
    "Features",
    "PCAFeatures",
    "RadialPower",
    "RandomConvFeatures",
    "frechet_distance",
    "gaussian_frechet_distance",
    "radial_power",
    "checked",
    "signed",
]
