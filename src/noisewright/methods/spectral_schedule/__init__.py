"""Tight noise schedules per image, from its power spectrum."""

import lazy_loader

from noisewright.types import Room

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

ROOM = Room(
    name="spectral_schedule",
    title="a noise schedule for each image",
    paper="Esteves & Makadia, Spectrally-Guided Diffusion Noise Schedules, ICML 2026",
    field="images",
    data="crops of packaged photographs",
    module=__name__,
    commands={"spectrum": "noisewright.methods.spectral_schedule.command:main"},
)
