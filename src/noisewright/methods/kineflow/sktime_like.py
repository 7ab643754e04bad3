"""The signature of sktime's forecasters around the model, without the dependency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from noisewright.methods.kineflow.forecaster import KineFlowForecaster
from noisewright.types import InputError

__all__ = ["SktimeLikeForecaster"]


class SktimeLikeForecaster:
    """``fit(y, X, fh)``, ``predict(fh, X)``, ``predict_quantiles(fh, X, alpha)``.

    Args:
        context_length: Steps of the past that a forecast sees.
        n_samples: Futures that means and quantiles are taken from.
        options: As in :class:`~noisewright.methods.kineflow.KineFlowForecaster`.
    """

    def __init__(self, context_length: int, *, n_samples: int = 200, **options: Any) -> None:
        self.context_length, self.n_samples, self.options = context_length, n_samples, options

    def fit(self, y: Any, X: Any = None, fh: Any = None) -> Self:
        """Learn from a series.

        Args:
            y: DataFrame or Series with a DatetimeIndex, or an array.
            X: Drivers known in advance, one row for each of ``y``.
            fh: Steps ahead that will be asked for, whole numbers from 1 on.
        """
        self.fh_ = self._leads(fh)
        model = KineFlowForecaster(self.context_length, int(self.fh_.max()), **self.options)
        self.forecaster_ = model.fit(y, X)
        return self

    def predict(self, fh: Any = None, X: Any = None) -> Any:
        """Return the mean at the steps asked for.

        Args:
            fh: Steps ahead; None means those of ``fit``.
            X: Drivers over the whole horizon of ``fit``.
        """
        frame = self._frame(fh, X, (0.5,))
        return frame.xs("mean", axis=1, level="quantile")

    def predict_quantiles(
        self, fh: Any = None, X: Any = None, alpha: Sequence[float] | float = 0.5
    ) -> Any:
        """Return quantiles at the steps asked for, columns (channel, level).

        Args:
            fh: Steps ahead; None means those of ``fit``.
            X: Drivers over the whole horizon of ``fit``.
            alpha: Levels in (0, 1).
        """
        levels = tuple(map(float, np.atleast_1d(alpha)))
        return self._frame(fh, X, levels).drop(columns="mean", level="quantile")

    def _frame(self, fh: Any, X: Any, levels: tuple[float, ...]) -> Any:
        leads = self.fh_ if fh is None else self._leads(fh)
        if leads.max() > self.forecaster_.horizon:
            raise InputError(
                f"fh reaches {leads.max()} steps ahead, fit was told {self.forecaster_.horizon}"
            )
        frame = self.forecaster_.predict(
            None, X, quantiles=levels, n_samples=self.n_samples, seed=0
        )
        return frame.iloc[leads - 1]

    @staticmethod
    def _leads(fh: Any) -> np.ndarray:
        if fh is None:
            raise InputError("fh is missing: give the steps ahead, for instance [1, 2, 3]")
        leads = np.atleast_1d(np.asarray(fh))
        if leads.dtype.kind not in "iu" or not len(leads) or (leads < 1).any():
            raise InputError(f"fh={fh!r} must be whole numbers from 1 on")
        return leads
