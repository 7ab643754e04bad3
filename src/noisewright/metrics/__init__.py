"""Measures: distances, image quality, spectra, forecasts, intervals. Each states its bias."""

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
from noisewright.metrics.scoring import (
    crps_ensemble,
    crps_quantiles,
    interval_hits,
    mean_error_squared,
    randomised_ranks,
    roughness,
)
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
    "crps_ensemble",
    "crps_quantiles",
    "frechet_distance",
    "gaussian_frechet_distance",
    "interval_hits",
    "mean_error_squared",
    "median_distance",
    "mmd",
    "precision_recall",
    "psnr",
    "radial_power",
    "randomised_ranks",
    "roughness",
    "signed",
    "ssim",
]
