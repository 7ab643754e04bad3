"""Bending the walk: wrappers that turn a denoiser into another denoiser."""

from noisewright.steering.classifier_free import ClassifierFree, rescale_spread
from noisewright.steering.gradient import GradientGuidance
from noisewright.steering.wrapper import Steered, stack

__all__ = ["ClassifierFree", "GradientGuidance", "Steered", "rescale_spread", "stack"]
