"""A predictor for GluonTS: futures as its ``SampleForecast``, scored by its own evaluator.

Needs ``gluonts``, of the extra ``forecast``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from noisewright.methods.kineflow.forecaster import KineFlowForecaster
from noisewright.random import derive_seed
from noisewright.types import InputError

try:
    from gluonts.model.forecast import SampleForecast
    from gluonts.model.predictor import RepresentablePredictor
except ImportError as error:
    raise ImportError(
        "the predictor needs gluonts; install it with: pip install 'noisewright[forecast]'"
    ) from error

__all__ = ["KineFlowPredictor"]


class KineFlowPredictor(RepresentablePredictor):
    """Forecast entries of a GluonTS data set with a fitted forecaster.

    Reads ``target`` (T,) or (C, T), ``start``, and ``feat_dynamic_real`` (E, T + H).

    Args:
        forecaster: Fitted; on frames with a calendar, or on arrays.
        num_samples: Futures per entry.
        seed: Of the futures; each entry has a stream of its own.
    """

    def __init__(
        self, forecaster: KineFlowForecaster, num_samples: int = 100, seed: int = 0
    ) -> None:
        super().__init__(prediction_length=forecaster.horizon)
        self.forecaster, self.num_samples, self.seed = forecaster, num_samples, seed

    def predict_item(self, item: dict[str, Any]) -> SampleForecast:
        """Return futures of one entry.

        Args:
            item: An entry of a data set.

        Raises:
            InputError: If the entry is too short, or its drivers do not cover context and horizon.
        """
        import pandas as pd

        target = np.atleast_2d(np.asarray(item["target"], dtype=np.float64)).T
        length, horizon = self.forecaster.context_length, self.forecaster.horizon
        times: Any = pd.period_range(
            item["start"], periods=len(target) + horizon, freq=item["start"].freq
        )
        stamps = times.to_timestamp()
        known = self.forecaster.known_
        names = known.channels.names or tuple(map(str, range(target.shape[1])))
        context = pd.DataFrame(
            target, index=stamps[: len(target)], columns=np.asarray(names, dtype=object)
        )
        past = future = None
        if len(known.exog):
            given = np.atleast_2d(np.asarray(item.get("feat_dynamic_real", np.empty((0, 0)))))
            if given.shape[1] < len(target) + horizon:
                raise InputError(
                    f"feat_dynamic_real has {given.shape[1]} steps; target {len(target)} and "
                    f"horizon {horizon} need {len(target) + horizon}"
                )
            past = given[:, len(target) - length : len(target)].T
            future = given[:, len(target) : len(target) + horizon].T
        samples = self.forecaster.predict_samples(
            context if len(context) > 2 else target,
            future,
            exog_past=past,
            n_samples=self.num_samples,
            seed=derive_seed(self.seed, item.get("item_id"), str(times[len(target)])),
        )[0]
        if samples.shape[2] == 1 and np.ndim(item["target"]) == 1:
            samples = samples[:, :, 0]
        return SampleForecast(
            samples=samples, start_date=times[len(target)], item_id=item.get("item_id")
        )
