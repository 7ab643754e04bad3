"""How data becomes noise: schedules, Gaussian paths, denoisers, couplings.

Discrete corruption and bridges arrive with the rooms that need them, as ``discrete.py`` and
``bridge.py`` beside these files.
"""

from noisewright.paths.coupling import couple, independent_coupling, transport_coupling
from noisewright.paths.denoiser import Clock, DataPredictor, Denoiser
from noisewright.paths.derived_schedules import TableSchedule, VariancePreserving
from noisewright.paths.gaussian import GaussianPath, Levels, expand_to
from noisewright.paths.phase_space import (
    KineticPath,
    PhasePoint,
    kinetic_path,
    kinetic_statistic,
    matched_grid,
)
from noisewright.paths.schedule import (
    CosineSchedule,
    EDMSchedule,
    LinearBetaSchedule,
    RectifiedSchedule,
    Schedule,
    ShiftedCosineSchedule,
    SigmoidSchedule,
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
    "KineticPath",
    "Levels",
    "LinearBetaSchedule",
    "PhasePoint",
    "RectifiedSchedule",
    "Schedule",
    "ShiftedCosineSchedule",
    "SigmoidSchedule",
    "TableSchedule",
    "VariancePreserving",
    "couple",
    "expand_to",
    "independent_coupling",
    "kinetic_path",
    "kinetic_statistic",
    "matched_grid",
    "precise",
    "schedule_from_dict",
    "transport_coupling",
]
