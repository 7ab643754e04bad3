import noisewright.types

from .flow import KineFlow as KineFlow
from .forecaster import KineFlowForecaster as KineFlowForecaster
from .formulas import crps_ensemble as crps_ensemble
from .formulas import kinetic_path as kinetic_path
from .formulas import kinetic_statistic as kinetic_statistic
from .formulas import matched_grid as matched_grid
from .long_frame import LongForecaster as LongForecaster
from .sktime_like import SktimeLikeForecaster as SktimeLikeForecaster

ROOM: noisewright.types.Room
