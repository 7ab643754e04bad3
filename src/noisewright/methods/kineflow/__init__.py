"""Probabilistic forecasts of series with drivers, by a flow in phase space."""

import lazy_loader

from noisewright.types import Room

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

ROOM = Room(
    name="kineflow",
    title="forecasts by a flow with momentum",
    paper="KineFlow: flow matching in phase space with a neural acceleration field, ICML 2026",
    field="forecasting",
    data="series of statsmodels and a driven oscillator; ETTh1 and ETTh2 when at hand",
    module=__name__,
    extras=("forecast",),
)
