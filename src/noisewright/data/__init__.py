"""Data that methods run on: a registry of sources, one loader for each kind, and provenance."""

from __future__ import annotations

from noisewright.data.images import ImageSet, ImageSetView
from noisewright.data.photos import PHOTOGRAPHS, Photograph, photographs, photos
from noisewright.data.provenance import Provenance

__all__ = [
    "PHOTOGRAPHS",
    "ImageSet",
    "ImageSetView",
    "Photograph",
    "Provenance",
    "photographs",
    "photos",
]
