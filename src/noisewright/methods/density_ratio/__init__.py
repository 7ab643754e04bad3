"""Log density ratios between conditions, all of them along one flow."""

import lazy_loader

from noisewright.types import Room

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

ROOM = Room(
    name="density_ratio",
    title="how much likelier under one condition",
    paper="E. Antipov, A. Palma, L. Consoli, S. Günnemann, A. Dittadi, F. J. Theis, Flow-Based "
    "Density Ratio Estimation for Intractable Distributions with Applications in Genomics, "
    "ICML 2026, arXiv:2602.24201",
    field="single cells",
    data="Gaussians in closed form and 700 packaged blood cells",
    module=__name__,
    extras=("cells",),
    commands={"density_ratio": "noisewright.methods.density_ratio.command:main"},
)
