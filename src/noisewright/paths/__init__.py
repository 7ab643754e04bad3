"""How data becomes noise: schedules, Gaussian paths, denoisers, couplings.

Discrete corruption, bridges and phase-space paths arrive with the rooms that need them, as
``discrete.py``, ``bridge.py`` and ``phase_space.py`` beside these files.
"""

from noisewright.paths.coupling import couple, independent_coupling, transport_coupling
from noisewright.paths.denoiser import Clock, DataPredictor, Denoiser
from noisewright.paths.gaussian import GaussianPath, Levels, expand_to
from noisewright.paths.schedule import (
    CosineSchedule,
    EDMSchedule,
    LinearBetaSchedule,
    RectifiedSchedule,
    Schedule,
    ShiftedCosineSchedule,
    SigmoidSchedule,
    TableSchedule,
    VariancePreserving,
    precise,
    schedule_from_dict,
)

__all__ = [
    "Clock",
    "CosineSchedule",
    "DataPredictor",
    "Denoiser",
    "EDMSchedule",
    "GaussianPath",
    "Levels",
    "LinearBetaSchedule",
    "RectifiedSchedule",
    "Schedule",
    "ShiftedCosineSchedule",
    "SigmoidSchedule",
    "TableSchedule",
    "VariancePreserving",
    "couple",
    "expand_to",
    "independent_coupling",
    "precise",
    "schedule_from_dict",
    "transport_coupling",
]
