"""Forecasts from arrays and frames: the estimator around the flow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from noisewright.methods.kineflow.flow import KineFlow
from noisewright.methods.kineflow.known import Known
from noisewright.methods.kineflow.options import check_options, model_options
from noisewright.methods.kineflow.reading import read_series_list
from noisewright.methods.kineflow.scaling import Layout
from noisewright.methods.kineflow.training import (
    FlowPlan,
    hold_out,
    linear_head,
    train_flow,
)
from noisewright.methods.kineflow.windows import Table, Windows
from noisewright.random import derive_seed, isolated
from noisewright.storage import load_record, save_record
from noisewright.types import InputError

__all__ = ["KineFlowForecaster"]

FORMAT = 1


class KineFlowForecaster(BaseEstimator):
    """Sample many plausible futures of a series, given its past and its drivers.

    A linear forecast carries the mean; a flow in phase space carries what it leaves over, with
    drivers as forces on the momentum (see :mod:`noisewright.methods.kineflow.field`).

    Args:
        context_length: Steps of the past that a forecast sees, L.
        horizon: Steps ahead, H.
        n_exog: Number of drivers known in advance; checked against what ``fit`` gets, 0 takes any.
        hidden: Width of the networks.
        depth: Residual blocks of the inner force.
        order: 2 draws in phase space, 1 by the usual flow; one trained network serves both.
        sigma_p: Spread of the starting momenta, at least 0.05.
        precondition: Whether the flow works on whitened residuals.
        momentum: ``"zero"``, or ``"context"`` for starting momenta that point along the force.
        path: ``"free_end"``, the path of least acceleration.
        target: ``"endpoint"``, the network predicts where the path ends; ``"D"`` its bend, from
            position and momentum fed apart (for comparison; needs ``forces=False``).
        forces: Drivers as forces; False concatenates them to the context.
        damping: Learn a multiple of the momentum's information-free part (an ablation).
        loss_units: ``"data"``, or ``"whitened"`` (an ablation).
        grid: ``"matched"`` noise levels, or ``"uniform"`` times.
        temperature: Spread of the start; 1 is the law that was learned.
        steps: Optimizer steps.
        batch_size: Windows per step.
        lr: Peak learning rate.
        n_sampling_steps: Network calls per future.
        scaling: ``"instance"`` measures each context in its own units, ``"global"`` does not.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
        random_state: Seed; None takes fresh entropy.
        calendar: Whether a frame's hours, weekdays and days of the year become drivers; a cycle
            that the series does not hold twice is left out.
        missing: About missing target values: ``"raise"``, ``"interpolate"`` (filled and noted), or
            ``"mask"`` (contexts mark them, windows whose horizon has one are not learned from).

    Attributes:
        model_: The trained :class:`~noisewright.methods.kineflow.flow.KineFlow`.
        notes_: What was filled, masked or floored.
        held_out_: (step, score) of each look at the held-out windows.

    Example:
        >>> t = np.arange(400)
        >>> y = np.sin(2 * np.pi * t / 24) + 0.1 * np.random.default_rng(0).standard_normal(400)
        >>> model = KineFlowForecaster(48, 12, hidden=16, depth=1, steps=20, random_state=0).fit(y)
        >>> model.predict_samples(n_samples=5).shape  # (windows, futures, horizon, channels)
        (1, 5, 12, 1)
    """

    def __init__(
        self,
        context_length: int,
        horizon: int,
        *,
        n_exog: int = 0,
        hidden: int = 168,
        depth: int = 3,
        order: int = 2,
        sigma_p: float = 1.0,
        precondition: bool = True,
        momentum: str = "zero",
        path: str = "free_end",
        target: str = "endpoint",
        forces: bool = True,
        damping: bool = False,
        loss_units: str = "data",
        grid: str = "matched",
        temperature: float = 1.0,
        steps: int = 3000,
        batch_size: int = 40,
        lr: float = 1e-3,
        n_sampling_steps: int = 10,
        scaling: str = "instance",
        device: str = "auto",
        random_state: int | None = None,
        calendar: bool = True,
        missing: str = "raise",
    ) -> None:
        self.context_length = context_length
        self.horizon = horizon
        self.n_exog = n_exog
        self.hidden = hidden
        self.depth = depth
        self.order = order
        self.sigma_p = sigma_p
        self.precondition = precondition
        self.momentum = momentum
        self.path = path
        self.target = target
        self.forces = forces
        self.damping = damping
        self.loss_units = loss_units
        self.grid = grid
        self.temperature = temperature
        self.steps = steps
        self.batch_size = batch_size
        self.lr = lr
        self.n_sampling_steps = n_sampling_steps
        self.scaling = scaling
        self.device = device
        self.random_state = random_state
        self.calendar = calendar
        self.missing = missing

    # ------------------------------------------------------------------ fit

    def fit(self, y: Any, exog: Any = None, *, past_exog: Any = None, val: Any = None) -> Self:
        """Learn from one or more series.

        Args:
            y: DataFrame (DatetimeIndex x channels), array (T,), (T, C) or (series, T, C), or a
                list of frames with the same columns.
            exog: Drivers known in advance, shaped like ``y`` with their own columns; every row of
                ``y`` needs one.
            past_exog: Drivers known up to the forecast only, likewise.
            val: Series that choose among the weights, like ``y``, without drivers; None holds out
                the last tenth of each series' windows. Not available with drivers.

        Raises:
            InputError: If a setting or an input cannot work.
            TypeError: If a column is no number.
        """
        check_options(self.get_params())
        blocks = read_series_list(y, "y", missing=self.missing)
        self.known_, table = Known.of(
            blocks,
            exog,
            past_exog,
            length=self.context_length,
            horizon=self.horizon,
            missing=self.missing,
            calendar=self.calendar,
        )
        if self.n_exog and self.n_exog != len(self.known_.exog):
            raise InputError(f"n_exog={self.n_exog}, but exog has {len(self.known_.exog)} columns")
        self.notes_ = tuple(note for block in blocks for note in block.notes)
        starts = self._starts(table, max(len(block.values) for block in blocks))
        held_table, held, starts = self._held_out(table, starts, val)
        layout = self._layout(table)
        self._seed = self._fresh_seed()
        with isolated(derive_seed(self._seed, "weights")):
            self.model_ = KineFlow(asdict(layout), **model_options(self.get_params()))
        # Drivers may act on each channel in its own way.
        by_channel = layout.channels > 1 and layout.exogenous > 0
        head = linear_head(table, starts, held_table, held, layout, by_channel=by_channel)
        if self.model_.set_head(head):
            self.notes_ += (
                "Residuals of some leads are constant or repeat each other; the smallest "
                "eigenvalues of their covariance were raised to 1e-4 of the mean.",
            )
        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        plan = FlowPlan(self.steps, self.batch_size, self.lr, device=device)
        probe = None
        if held_table is not None and held is not None:
            probe = held_table.windows(held, self.context_length, self.horizon)
        trained = train_flow(self.model_, table, starts, plan, self._seed, held=probe)
        self.held_out_ = trained.held_out
        return self

    def _layout(self, table: Table) -> Layout:
        return Layout(
            self.context_length,
            self.horizon,
            table.values.shape[1],
            future=table.future.shape[1],
            past=table.past.shape[1],
            calendar=table.calendar.shape[1],
            instance=self.scaling == "instance",
            masked=self.missing == "mask",
        )

    def _fresh_seed(self) -> int:
        if self.random_state is not None:
            return int(self.random_state)
        return int(np.random.SeedSequence().generate_state(1)[0])

    def _starts(self, table: Table, longest: int) -> torch.Tensor:
        need = self.context_length + self.horizon
        if longest < need:
            raise InputError(
                f"need at least {need} time steps (context {self.context_length} + horizon "
                f"{self.horizon}), got {longest}"
            )
        starts = table.starts(self.context_length, self.horizon)
        if not len(starts):
            raise InputError("every window has a missing value in its horizon; nothing to learn")
        return starts

    def _held_out(
        self, table: Table, starts: torch.Tensor, val: Any
    ) -> tuple[Table | None, torch.Tensor | None, torch.Tensor]:
        """Return table and windows that choose among weights, and windows to learn from."""
        if val is not None:
            if len(self.known_.exog) or len(self.known_.past_exog):
                raise InputError("val= goes without drivers only; leave it out to hold out windows")
            blocks = read_series_list(val, "val", missing=self.missing)
            held = self.known_.table(blocks, [], [])
            found = held.starts(self.context_length, self.horizon, stride=self.horizon)
            return held, found, starts
        held, kept = hold_out(table, starts, self.horizon)
        return (table, held, kept) if len(held) else (None, None, starts)

    # ------------------------------------------------------------------ predict

    def predict_samples(
        self,
        context: Any = None,
        exog_future: Any = None,
        *,
        exog_past: Any = None,
        n_samples: int = 100,
        horizon: int | None = None,
        seed: int | Sequence[int] | None = None,
    ) -> np.ndarray:
        """Draw futures.

        Args:
            context: What is known: DataFrame, (L,), (L, C) or (windows, L, C); longer ones are cut
                to their last L rows. None goes on from the end of the training series.
            exog_future: Drivers over the horizon, (H, E) or (windows, H, E).
            exog_past: Drivers over the context, those known in advance first, then those known up
                to now, (L, E + P) or (windows, L, E + P); not needed with ``context=None``.
            n_samples: Futures per window.
            horizon: Return only the first steps; at most the horizon of the fit.
            seed: One integer, or one per window; None continues from ``random_state``.

        Returns:
            (windows, n_samples, H, C), in the unit of the series.

        Raises:
            InputError: If something does not fit the training data.
        """
        windows, _ = self._asked(context, exog_future, exog_past)
        return self.sample_windows(windows, n_samples, horizon=horizon, seed=seed)

    def sample_windows(
        self,
        windows: Windows,
        n_samples: int,
        *,
        horizon: int | None = None,
        seed: int | Sequence[int] | None = None,
    ) -> np.ndarray:
        """Draw futures of windows that are in the model's units already.

        Args:
            windows: As ``known_.windows`` makes them.
            n_samples: As in :meth:`predict_samples`.
            horizon: As there.
            seed: As there.
        """
        leads = self._leads(horizon)
        if not isinstance(n_samples, (int, np.integer)) or n_samples < 1:
            raise InputError(f"n_samples={n_samples!r} must be a whole number from 1 on")
        if seed is None:
            seed = derive_seed(
                self._seed if self.random_state is not None else self._fresh_seed(), "draw"
            )
        device = next(self.model_.parameters()).device
        drawn = self.model_.sample(
            windows.to(device),
            int(n_samples),
            order=self.order,
            steps=self.n_sampling_steps,
            seed=seed,
            sigma_p=self.sigma_p,
            grid="matched" if self.grid == "matched" else "uniform",
            momentum="context" if self.momentum == "context" else "zero",
            temperature=self.temperature,
        )
        values, units = drawn.cpu().double().numpy(), self.known_.channels
        return (values * units.spread + units.centre)[:, :, :leads]

    def _leads(self, horizon: int | None) -> int:
        if horizon is None:
            return self.horizon
        if not 1 <= horizon <= self.horizon:
            raise InputError(
                f"horizon={horizon}: the model was fitted for {self.horizon} steps; ask for at "
                "most that, or fit again"
            )
        return horizon

    def predict(
        self,
        context: Any = None,
        exog_future: Any = None,
        *,
        exog_past: Any = None,
        quantiles: Sequence[float] = (0.1, 0.5, 0.9),
        n_samples: int = 100,
        horizon: int | None = None,
        seed: int | None = None,
    ) -> Any:
        """Return mean and quantiles of one window as a DataFrame.

        Args:
            context: One window, as in :meth:`predict_samples`.
            exog_future: As there.
            exog_past: As there.
            quantiles: Levels in (0, 1).
            n_samples: Futures that they are taken from.
            horizon: As there.
            seed: As there.

        Returns:
            Rows are times ahead (or 1..H for arrays); columns (channel, "mean" or level).
        """
        import pandas as pd

        if not all(0 < level < 1 for level in quantiles):
            raise InputError(f"quantiles={tuple(quantiles)} must be in (0, 1)")
        windows, ahead = self._asked(context, exog_future, exog_past)
        if len(windows) != 1:
            raise InputError(f"predict takes one window, got {len(windows)}; use predict_samples")
        samples = self.sample_windows(windows, n_samples, horizon=horizon, seed=seed)[0]
        channels = self.known_.channels
        names = channels.names or tuple(map(str, range(len(channels))))
        columns = {}
        for place, name in enumerate(names):
            columns[name, "mean"] = samples[:, :, place].mean(axis=0)
            for level in quantiles:
                columns[name, level] = np.quantile(samples[:, :, place], level, axis=0)
        leads = samples.shape[1]
        index = pd.RangeIndex(1, leads + 1, name="lead") if ahead is None else ahead[:leads]
        frame = pd.DataFrame(columns, index=index)
        frame.columns = pd.MultiIndex.from_tuples(list(columns), names=["channel", "quantile"])
        return frame

    def _asked(self, context: Any, exog_future: Any, exog_past: Any) -> tuple[Windows, Any]:
        if not hasattr(self, "model_"):
            raise NotFittedError("call fit before asking for forecasts")
        return self.known_.windows(context, exog_future, exog_past)

    # ------------------------------------------------------------------ storage

    def save(self, path: str | Path) -> Path:
        """Store settings, weights and units in a folder; no pickle.

        Args:
            path: The folder; replaced as a whole.
        """
        if not hasattr(self, "model_"):
            raise NotFittedError("call fit before saving")
        record = {
            "format": FORMAT,
            "params": self.get_params(),
            "layout": self.model_.settings(),
            "weights": self.model_.state_dict(),
            "seed": str(self._seed),
            "known": self.known_.as_record(),
            "notes": list(self.notes_),
            "held_out": [[step, score] for step, score in self.held_out_],
        }
        return save_record(path, record)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return a stored forecaster; with the same seed it draws the same bits.

        Args:
            path: The folder that :meth:`save` filled.

        Raises:
            DamagedRecordError: If a file is missing, cut short or altered.
            InputError: If it was written by another version's format.
        """
        record = load_record(path)
        if record["format"] != FORMAT:
            raise InputError(f"{path} has format {record['format']}; this version reads {FORMAT}")
        model = cls(**record["params"])
        with isolated(0):
            model.model_ = KineFlow(record["layout"], **model_options(model.get_params()))
        model.model_.load_state_dict(record["weights"])
        model.model_.eval()
        model._seed = int(record["seed"])
        model.known_ = Known.from_record(record["known"])
        model.notes_ = tuple(record["notes"])
        model.held_out_ = [(int(step), float(score)) for step, score in record["held_out"]]
        return model
