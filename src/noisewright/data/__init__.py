"""Data that methods run on: a registry of sources, one loader for each kind, and provenance.

A new kind of data is one loader file here; a new named set is one entry in ``sources.SOURCES``.
"""

from __future__ import annotations

from noisewright.data.archives import read_members, unpack
from noisewright.data.cells import describe_cells, pbmc68k_reduced, read_cells
from noisewright.data.cifar10 import cifar10
from noisewright.data.decode import decode_picture
from noisewright.data.digits import digits
from noisewright.data.folder import SUFFIXES, image_folder
from noisewright.data.images import ImageSet, ImageSetView
from noisewright.data.opening import IMAGE_SETS, open_images
from noisewright.data.photos import PHOTOGRAPHS, Photograph, photographs, photos
from noisewright.data.provenance import Provenance
from noisewright.data.series import (
    PACKAGED_SERIES,
    calendar_columns,
    check_time_axis,
    ett,
    packaged_series,
    read_series,
)
from noisewright.data.series_oscillator import DrivenOscillator, PredictiveLaw
from noisewright.data.sources import SOURCES, NotAtHandError, Source, fetch, find, source

__all__ = [
    "IMAGE_SETS",
    "PACKAGED_SERIES",
    "PHOTOGRAPHS",
    "SOURCES",
    "SUFFIXES",
    "DrivenOscillator",
    "ImageSet",
    "ImageSetView",
    "NotAtHandError",
    "Photograph",
    "PredictiveLaw",
    "Provenance",
    "Source",
    "calendar_columns",
    "check_time_axis",
    "cifar10",
    "decode_picture",
    "describe_cells",
    "digits",
    "ett",
    "fetch",
    "find",
    "image_folder",
    "open_images",
    "packaged_series",
    "photographs",
    "pbmc68k_reduced",
    "photos",
    "read_cells",
    "read_members",
    "read_series",
    "source",
    "unpack",
]
