from .paths import (
    CosineSchedule,
    Denoiser,
    EDMSchedule,
    GaussianPath,
    LinearBetaSchedule,
    RectifiedSchedule,
    ShiftedCosineSchedule,
    SigmoidSchedule,
)
from .solvers import DDIM, DPMSolverPP, Euler, Heun
from .types import InputError, NonFiniteError

__all__ = [
    "DDIM",
    "CosineSchedule",
    "DPMSolverPP",
    "Denoiser",
    "EDMSchedule",
    "Euler",
    "GaussianPath",
    "Heun",
    "InputError",
    "LinearBetaSchedule",
    "NonFiniteError",
    "RectifiedSchedule",
    "ShiftedCosineSchedule",
    "SigmoidSchedule",
]

__version__: str
