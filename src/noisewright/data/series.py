"""Time series: tables with a regular time axis, packaged sets, files, and calendar columns.

A series is a pandas DataFrame: a DatetimeIndex that rises in even steps, one column a channel. What
is wrong with a time axis is said with the first time that is wrong; nothing is resampled, sorted or
filled silently.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from noisewright.data.provenance import Provenance
from noisewright.data.sources import NotAtHandError, find, source
from noisewright.types import InputError, nearest_name

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "PACKAGED_SERIES",
    "calendar_columns",
    "check_time_axis",
    "ett",
    "packaged_series",
    "read_series",
]

_DAY = 86_400_000_000_000  # nanoseconds


# ---------------------------------------------------------------------------- the time axis


def check_time_axis(index: pd.Index, name: str = "the series") -> Any:
    """Return the step of a time axis as a pandas offset.

    Times with a zone are compared in UTC, so a change of the clocks is no gap.

    Args:
        index: The times.
        name: What to call the series in messages.

    Raises:
        InputError: If it is no DatetimeIndex, has a time twice, does not rise, or has a gap; the
            first offending time is named.
    """
    import pandas as pd

    times: Any = index
    if not isinstance(index, pd.DatetimeIndex):
        raise InputError(
            f"{name} has a {type(index).__name__}; set a DatetimeIndex, for instance "
            "df.set_index(pd.to_datetime(df['date']))"
        )
    if times.hasnans:
        raise InputError(f"{name}: row {int(np.argmax(times.isna()))} has no time")
    if times.tz is not None:
        times = times.tz_convert("UTC").tz_localize(None)
    if times.has_duplicates:
        raise InputError(
            f"{name}: {index[times.duplicated()][0]} stands twice; keep one row a time"
        )
    if not times.is_monotonic_increasing:
        place = int(np.argmax(np.diff(times.asi8) < 0)) + 1
        raise InputError(f"{name} is not sorted: {index[place]} follows {index[place - 1]}")
    if len(times) < 3:
        raise InputError(f"{name} has {len(times)} rows; a time axis needs at least 3")
    step = _likely_step(times)
    expected = pd.date_range(times[0], periods=len(times), freq=step)
    odd = np.flatnonzero(expected != times)
    if odd.size:
        place = int(odd[0])
        raise InputError(
            f"{name} has a gap: after {index[place - 1]} comes {index[place]}, where the step "
            f"{step.freqstr} asks for {expected[place]}; fill or mark the missing rows (reindex to "
            "an even axis, then say missing='interpolate' or missing='mask')"
        )
    return step


def _likely_step(times: Any) -> Any:
    """Return the offset that most steps have, calendar months and years included."""
    import pandas as pd
    from pandas.tseries.frequencies import to_offset

    if times.freq is not None:
        return times.freq
    gaps, counts = np.unique(np.diff(times.as_unit("ns").asi8), return_counts=True)
    common = int(gaps[np.argmax(counts)])
    if 27 * _DAY < common <= 31 * _DAY:
        return to_offset("MS" if bool((times.day == 1).all()) else "ME")
    if 364 * _DAY < common <= 366 * _DAY:
        return to_offset(f"YS-{times[0]:%b}".upper() if times[0].day == 1 else "YE")
    return to_offset(cast(Any, pd.Timedelta(common, unit="ns")))


def calendar_columns(index: pd.DatetimeIndex) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return hour, weekday and day of the year as sines and cosines, in local time.

    What the steps cannot tell apart is left out: hours of daily data, weekdays of weekly data.

    Args:
        index: Times.

    Returns:
        Columns (n, k) in [-1, 1] and their names.
    """
    times: Any = index
    turns = {
        "hour": (times.hour + times.minute / 60) / 24,
        "weekday": (times.weekday + times.hour / 24) / 7,
        "year": (times.dayofyear - 1 + times.hour / 24) / 365.25,
    }
    step = np.median(np.diff(times.as_unit("ns").asi8)) if len(times) > 1 else _DAY / 24
    kept = {
        name: np.asarray(turn, dtype=np.float64)
        for name, turn in turns.items()
        if step < {"hour": 1.0, "weekday": 7.0, "year": 364.0}[name] * _DAY
    }
    names = tuple(f"{part}_{name}" for name in kept for part in ("sin", "cos"))
    waves = [f(2 * np.pi * turn) for turn in kept.values() for f in (np.sin, np.cos)]
    return (np.stack(waves, axis=1) if waves else np.empty((len(index), 0))), names


# ---------------------------------------------------------------------------- named sets


def ett(name: str = "ETTh1", folder: str | Path | None = None) -> tuple[pd.DataFrame, Provenance]:
    """Return an hourly electricity-transformer series: six loads and the oil temperature.

    Args:
        name: ``"ETTh1"`` or ``"ETTh2"``.
        folder: Where the CSV files lie; looked up by default.

    Raises:
        NotAtHandError: If the set is not at hand; the message says how to get it.
        InputError: If the name is unknown or the file is damaged.
    """
    if name not in ("ETTh1", "ETTh2"):
        raise InputError(f"no ETT series {name!r}{nearest_name(name, ('ETTh1', 'ETTh2'))}")
    place = Path(folder) if folder is not None else find("ett")
    if place is None:
        raise NotAtHandError(
            f"{name} is not at hand; run `noisewright data fetch ett`, or set NOISEWRIGHT_DATA to "
            "a folder that holds ett/"
        )
    frame, _ = read_series(place / f"{name}.csv", time="date")
    entry = source("ett")
    return frame, Provenance(
        name=name,
        title="loads and oil temperature of a transformer, hourly",
        licence=entry.licence,
        origin=entry.origin,
        place=f"{name}.csv",
        count=len(frame),
        shape=(frame.shape[1],),
        unit="loads as published, OT in degrees Celsius",
        notes=(f"From {frame.index[0]} to {frame.index[-1]}, no value missing.",),
    )


PACKAGED_SERIES = ("sunspots", "co2", "elnino", "nile")
"""Series that statsmodels carries."""

_UNITS = {
    "sunspots": "sunspot number, yearly",
    "co2": "CO2 in the air of Mauna Loa, ppm, weekly",
    "elnino": "sea surface temperature, degrees Celsius, monthly",
    "nile": "flow of the Nile at Aswan, 1e8 m3, yearly",
}


def packaged_series(name: str) -> tuple[pd.DataFrame, Provenance]:
    """Return a series that statsmodels carries, missing values as NaN.

    Args:
        name: One of ``PACKAGED_SERIES``.

    Raises:
        NotAtHandError: If statsmodels is not installed.
        InputError: If the name is unknown.
    """
    import pandas as pd

    if name not in PACKAGED_SERIES:
        raise InputError(f"no packaged series {name!r}{nearest_name(name, PACKAGED_SERIES)}")
    spec = importlib.util.find_spec("statsmodels")
    if spec is None or spec.origin is None:
        raise NotAtHandError(
            f"{name} comes with statsmodels, which is not installed; install it with: "
            "pip install 'noisewright[forecast]'"
        )
    table: Any = pd.read_csv(Path(spec.origin).parent / "datasets" / name / f"{name}.csv")
    table.columns = [str(column).strip().lower() for column in table.columns]
    if name == "elnino":
        values = table.drop(columns="year").to_numpy(np.float64).ravel()
        times = pd.date_range(f"{int(table['year'].iloc[0])}-01-01", periods=len(values), freq="MS")
    elif name == "co2":
        values = table["co2"].to_numpy(np.float64)
        times = pd.DatetimeIndex(pd.to_datetime(table["date"].astype(str), format="%Y%m%d"))
    else:
        values = table.iloc[:, 1].to_numpy(np.float64)
        years = table.iloc[:, 0].astype(float).astype(int)
        times = pd.DatetimeIndex(pd.to_datetime(years.astype(str), format="%Y"))
    frame = pd.DataFrame({name: values}, index=pd.DatetimeIndex(times.as_unit("s"), name="time"))
    return frame, Provenance(
        name=name,
        title=_UNITS[name],
        licence="public domain or BSD-3-Clause, as stated by statsmodels",
        origin=f"statsmodels.datasets.{name}",
        place=f"statsmodels {importlib.metadata.version('statsmodels')}",
        count=len(frame),
        shape=(1,),
        unit=_UNITS[name],
        notes=(f"{int(np.isnan(values).sum())} values missing.",),
    )


# ---------------------------------------------------------------------------- files


def read_series(
    path: str | Path, *, time: str | None = None, columns: Sequence[str] | None = None
) -> tuple[pd.DataFrame, Provenance]:
    """Read a CSV file of series: a column of times and columns of numbers.

    Args:
        path: The file, comma separated, one header line.
        time: Name of the column of times; None takes the first column.
        columns: Which columns to read; None reads all but the times.

    Raises:
        InputError: If the file cannot be read, a column is missing, a time cannot be understood, or
            a cell is neither number nor empty.
    """
    import pandas as pd

    path = Path(path)
    try:
        table: Any = pd.read_csv(path)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a table: {error}") from error
    time = table.columns[0] if time is None and len(table.columns) else time
    wanted = [c for c in table.columns if c != time] if columns is None else list(columns)
    for column in (time, *wanted):
        if column not in table.columns:
            raise InputError(
                f"{path.name} has no column {column!r}"
                f"{nearest_name(str(column), map(str, table.columns))}"
            )
    stamps: Any = pd.to_datetime(table[time], errors="coerce", format="ISO8601")
    if stamps.isna().any():
        row = int(np.argmax(stamps.isna()))
        raise InputError(
            f"{path.name}, row {row + 2}: {table[time].iloc[row]!r} is no time; write dates as "
            "2026-01-31 or 2026-01-31 14:00"
        )
    if not wanted:
        raise InputError(f"{path.name} has no column of numbers beside {time!r}")
    frame = pd.DataFrame({column: _numbers(table[column], path.name) for column in wanted})
    frame.index = pd.DatetimeIndex(stamps, name="time")
    return frame, Provenance(
        name=path.stem,
        title="series of your own",
        licence="yours",
        origin=str(path.name),
        place=str(path.name),
        count=len(frame),
        shape=(frame.shape[1],),
        unit="as in the file",
        notes=(
            f"From {frame.index[0]} to {frame.index[-1]}; columns {', '.join(map(str, wanted))}; "
            f"{int(frame.isna().to_numpy().sum())} values missing.",
        ),
    )


def _numbers(column: Any, place: str) -> np.ndarray:
    import pandas as pd

    numbers = np.asarray(pd.to_numeric(column, errors="coerce"), dtype=np.float64)
    bad = np.flatnonzero(np.isnan(numbers) & column.notna().to_numpy())
    if bad.size:
        raise InputError(
            f"{place}: column {column.name!r} is not numeric, row {bad[0] + 2} holds "
            f"{column.iloc[bad[0]]!r}"
        )
    return numbers
