"""Forecasts from long frames: one row a series and time, in the manner of neuralforecast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from noisewright.data import check_time_axis
from noisewright.methods.kineflow.forecaster import KineFlowForecaster
from noisewright.random import derive_seed
from noisewright.types import InputError

__all__ = ["LongForecaster"]

NAME = "KineFlow"


class LongForecaster:
    """``fit(df)``, ``predict()``, ``cross_validation(df)`` on frames with ``unique_id, ds, y``.

    Each series is one id; all share one model, and each has its own units.

    Args:
        h: Steps ahead.
        input_size: Steps of the past that a forecast sees.
        futr_exog_list: Columns that are known in advance.
        hist_exog_list: Columns that are known up to the forecast only.
        n_samples: Futures that quantiles are taken from.
        options: As in :class:`~noisewright.methods.kineflow.KineFlowForecaster`.

    Attributes:
        forecaster_: The fitted forecaster.
    """

    def __init__(
        self,
        h: int,
        input_size: int,
        *,
        futr_exog_list: Sequence[str] = (),
        hist_exog_list: Sequence[str] = (),
        n_samples: int = 200,
        **options: Any,
    ) -> None:
        self.h, self.input_size, self.n_samples = h, input_size, n_samples
        self.futr_exog_list, self.hist_exog_list = list(futr_exog_list), list(hist_exog_list)
        self.options = options

    def fit(self, df: Any) -> Self:
        """Learn from a long frame.

        Args:
            df: Columns ``unique_id``, ``ds``, ``y`` and those of the drivers. Rows of one id must
                rise in time in even steps.

        Raises:
            InputError: If a column is missing or a time axis cannot work; the id is named.
        """
        self.series_ = self._split(df)
        parts = list(self.series_.values())
        self.forecaster_ = KineFlowForecaster(self.input_size, self.h, **self.options)
        self.forecaster_.fit(
            [part[["y"]] for part in parts],
            [part[self.futr_exog_list] for part in parts] if self.futr_exog_list else None,
            past_exog=[part[self.hist_exog_list] for part in parts]
            if self.hist_exog_list
            else None,
        )
        return self

    def predict(
        self, futr_df: Any = None, *, level: Sequence[int] = (80, 90), seed: int = 0
    ) -> Any:
        """Return the forecast after the end of each series.

        Args:
            futr_df: ``unique_id``, ``ds`` and the drivers known in advance, over the horizon.
            level: Intervals in percent.
            seed: Of the futures.

        Returns:
            A long frame: ``unique_id, ds, KineFlow, KineFlow-median, KineFlow-lo-80, ...``.

        Raises:
            InputError: If drivers of an id are missing or end early; the first missing time and
                both lengths are named.
        """
        import pandas as pd

        self._fitted()
        ahead = None if futr_df is None else self._split(futr_df, target=False)
        rows = []
        for name, part in self.series_.items():
            if ahead is not None and name not in ahead:
                raise InputError(f"futr_df has no rows of the series {name!r}")
            future = None if ahead is None else ahead[name][self.futr_exog_list]
            rows.append(self._forecast(name, part, future, level, seed))
        return pd.concat(rows, ignore_index=True)

    def cross_validation(
        self,
        df: Any,
        *,
        n_windows: int = 1,
        step_size: int | None = None,
        level: Sequence[int] = (80, 90),
        seed: int = 0,
    ) -> Any:
        """Fit before the first of several cut-offs, and forecast from each of them.

        Args:
            df: As in :meth:`fit`, with the truth of all windows.
            n_windows: Cut-offs at the end of each series.
            step_size: Steps between them; None means the horizon.
            level: Intervals in percent.
            seed: Of the futures.

        Returns:
            The columns of :meth:`predict`, and ``cutoff`` and ``y``.
        """
        import pandas as pd

        step = self.h if step_size is None else step_size
        if n_windows < 1 or step < 1:
            raise InputError(f"n_windows={n_windows} and step_size={step} must be at least 1")
        whole = self._split(df)
        back = self.h + (n_windows - 1) * step
        need = self.input_size + self.h + back
        for name, part in whole.items():
            if len(part) < need:
                raise InputError(f"series {name!r} has {len(part)} rows; {need} are needed")
        self.fit(self._long({name: part.iloc[:-back] for name, part in whole.items()}))
        rows = []
        for name, part in whole.items():
            for window in range(n_windows):
                cut = len(part) - back + window * step
                past, future = part.iloc[:cut], part.iloc[cut : cut + self.h]
                pushes = future[self.futr_exog_list] if self.futr_exog_list else None
                found = self._forecast(name, past, pushes, level, seed)
                found.insert(2, "cutoff", past.index[-1])
                found.insert(3, "y", future["y"].to_numpy())
                rows.append(found)
        return pd.concat(rows, ignore_index=True)

    # ------------------------------------------------------------------ parts

    def _fitted(self) -> None:
        if not hasattr(self, "forecaster_"):
            raise InputError("call fit before predict")

    def _split(self, df: Any, *, target: bool = True) -> dict[Any, Any]:
        """Return one frame per id, indexed by time."""
        import pandas as pd

        drivers = self.futr_exog_list + (self.hist_exog_list if target else [])
        wanted = ["unique_id", "ds", *(["y"] if target else []), *drivers]
        lost = [column for column in wanted if column not in df.columns]
        if lost:
            raise InputError(f"the frame lacks {', '.join(lost)}; it has {', '.join(df.columns)}")
        parts = {}
        for name, part in df.groupby("unique_id", sort=False):
            part = part.set_index(pd.DatetimeIndex(part["ds"]))[wanted[2:]]
            if len(part) > 2:
                check_time_axis(part.index, f"series {name!r}")
            parts[name] = part
        return parts

    @staticmethod
    def _long(parts: dict[Any, Any]) -> Any:
        import pandas as pd

        rows = [
            part.rename_axis("ds").reset_index().assign(unique_id=n) for n, part in parts.items()
        ]
        return pd.concat(rows, ignore_index=True)

    def _forecast(self, name: Any, past: Any, future: Any, level: Sequence[int], seed: int) -> Any:
        import pandas as pd

        if not all(0 < one < 100 for one in level):
            raise InputError(f"level={tuple(level)} must be percents in (0, 100)")
        drivers = self.futr_exog_list + self.hist_exog_list
        try:
            windows, ahead = self.forecaster_.known_.windows(
                past[["y"]], future, past[drivers] if drivers else None
            )
        except InputError as error:
            raise InputError(f"series {name!r}: {error}") from error
        samples = self.forecaster_.sample_windows(
            windows, self.n_samples, seed=derive_seed(seed, name)
        )[0, :, :, 0]
        columns = {"unique_id": name, "ds": ahead, NAME: samples.mean(axis=0)}
        columns[f"{NAME}-median"] = np.median(samples, axis=0)
        for one in sorted(level):
            ends = np.quantile(samples, [0.5 - one / 200, 0.5 + one / 200], axis=0)
            columns |= {f"{NAME}-lo-{one}": ends[0], f"{NAME}-hi-{one}": ends[1]}
        return pd.DataFrame(columns)
