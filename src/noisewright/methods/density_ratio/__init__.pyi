import noisewright.types

from .cells import CellStateRatio as CellStateRatio
from .estimator import DensityRatioFlow as DensityRatioFlow
from .mutual import mutual_information as mutual_information
from .ratio import ratio_ode as ratio_ode

ROOM: noisewright.types.Room
