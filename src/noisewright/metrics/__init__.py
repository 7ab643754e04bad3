"""Measures: distances between sets, image quality, spectra, intervals. Each states its bias."""

from __future__ import annotations

from noisewright.metrics.bootstrap import Interval, bootstrap_interval
from noisewright.metrics.coverage import PrecisionRecall, precision_recall
from noisewright.metrics.features import (
    CallableFeatures,
    Features,
    PCAFeatures,
    RandomConvFeatures,
)
from noisewright.metrics.frechet import frechet_distance, gaussian_frechet_distance
from noisewright.metrics.images import psnr, ssim
from noisewright.metrics.kernel import median_distance, mmd
from noisewright.metrics.pixels import checked, signed
from noisewright.metrics.spectra import RadialPower, radial_power

__all__ = [
    "CallableFeatures",
    "Features",
    "Interval",
    "PCAFeatures",
    "PrecisionRecall",
    "RadialPower",
    "RandomConvFeatures",
    "bootstrap_interval",
    "checked",
    "frechet_distance",
    "gaussian_frechet_distance",
    "median_distance",
    "mmd",
    "precision_recall",
    "psnr",
    "radial_power",
    "signed",
    "ssim",
]
