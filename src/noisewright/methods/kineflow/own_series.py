"""``noisewright run kineflow --data FILE.csv``: forecast a series of one's own, and score it."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisewright.data import calendar_columns, check_time_axis, read_series
from noisewright.methods.kineflow import pictures
from noisewright.methods.kineflow.cases import Case, learnable_cycles
from noisewright.methods.kineflow.settings import Settings
from noisewright.methods.kineflow.trials import own_trial
from noisewright.reports.run import Run
from noisewright.types import InputError

__all__ = ["forecast_own_series"]

SEASONS = {"h": 24, "D": 7, "W": 52, "MS": 12, "ME": 12}
"""Seasons that the naive forecast assumes, in steps, by the step of the time axis."""


def forecast_own_series(settings: Settings, run: Run) -> None:
    """Fit on the first 60 %, choose weights on the next 20 %, score on the last 20 %."""
    case = own_case(settings, str(run.data))
    run.data_note(case.note)
    tasks = [
        {
            "case": case,
            "steps": settings.steps,
            "hidden": settings.hidden,
            "samples": settings.samples,
            "calls": settings.calls,
            "order": settings.order,
            "seed": seed,
        }
        for seed in run.seeds
    ]
    records = run.stages("own", own_trial, tasks)
    for seed, record in zip(run.seeds, records, strict=True):
        for method, scores in record["methods"].items():
            for score in ("crps", "mse", "coverage90"):
                run.record(f"own.{score}.{method}", scores[score], seed=seed)
    run.figure(
        "fans",
        pictures.fans({"own": records[0]["fan"]}),
        caption="Test windows of the last forecast column: 50 and 90 % bands, four futures each, "
        "and what came (orange).",
        alt="Three fan charts.",
    )
    run.table(
        "Scores on the last fifth of the series, standardised units",
        ["method", "CRPS", "squared error of the mean", "90 % interval holds"],
        [
            [
                pictures.NAMES[m],
                *(run.spread(f"own.{s}.{m}") for s in ("crps", "mse", "coverage90")),
            ]
            for m in records[0]["methods"]
        ],
        ours=pictures.NAMES["kineflow"],
    )
    ours, naive = (run.spread(f"own.crps.{m}")[0] for m in ("kineflow", "seasonal_naive"))
    run.finding(
        f"{case.name}: CRPS {ours:.3g} in units of the series' spread, {ours / naive:.2f} times "
        "that of the seasonal naive forecast"
    )


def own_case(settings: Settings, path: str) -> Case:
    """Read a file as a set.

    Args:
        settings: Columns, context and horizon.
        path: A CSV file.

    Raises:
        InputError: If the file or a setting cannot work.
    """
    chosen, exog = (_names(part) for part in (settings.target, settings.exog))
    wanted = [*chosen, *exog] if chosen else None
    frame, provenance = read_series(path, time=settings.time, columns=wanted)
    step = check_time_axis(frame.index, provenance.name)
    target = [str(c) for c in frame.columns if c not in exog]
    lost = [c for c in exog if c not in frame.columns]
    if lost or not target:
        raise InputError(f"{path}: drivers {lost or exog} leave nothing to forecast, or are absent")
    rows, context, horizon = len(frame), settings.context, settings.horizon
    ends = (int(0.6 * rows), int(0.8 * rows), rows)
    if ends[0] < context + horizon or rows - ends[1] < horizon:
        need = int(np.ceil((context + horizon) / 0.6))
        raise InputError(
            f"need at least {max(need, 5 * horizon)} time steps (context {context} + horizon "
            f"{horizon} in the first 60 %), got {rows}"
        )
    missing = int(frame.isna().sum().sum())
    frame = frame.interpolate(limit_direction="both")
    index: Any = frame.index
    columns, names = learnable_cycles(*calendar_columns(index), index, ends[0])
    filling = f" {missing} missing values were filled along time." if missing else ""
    note = (
        f"{provenance.describe()} Forecast: {', '.join(target)}; drivers: "
        f"{', '.join(exog) or 'none'}; calendar: {', '.join(names) or 'none'}; "
        f"{context} steps of context, {horizon} ahead.{filling}"
    )
    season = SEASONS.get(step.freqstr.split("-")[0], 1)
    return Case(
        name=provenance.name,
        values=frame[target].to_numpy(np.float64),
        future=frame[exog].to_numpy(np.float64),
        calendar=columns,
        ends=ends,
        context=context,
        horizon=horizon,
        period=season if season <= context else 1,
        instance=True,
        stride=max(1, (rows - ends[1]) // 150),
        note=note,
    )


def _names(given: tuple[str, ...]) -> list[str]:
    """Return column names given one by one or with commas between them."""
    return [name for part in given for name in part.split(",") if name]
