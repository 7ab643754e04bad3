"""Series: bad time axes are refused by their first bad time; sets and files are read."""

from __future__ import annotations

import importlib.util

import numpy as np
import pandas as pd
import pytest

from noisewright.data import (
    PACKAGED_SERIES,
    NotAtHandError,
    calendar_columns,
    check_time_axis,
    ett,
    packaged_series,
    read_series,
)
from noisewright.types import InputError

HOURS = pd.date_range("2026-03-28", periods=48, freq="h")


@pytest.mark.parametrize("freq", ["15min", "h", "D", "W-SAT", "MS", "ME", "YS-JAN", "YE"])
def test_even_axes_pass_with_their_step(freq):
    index = pd.date_range("1999-12-31", periods=40, freq=freq)
    bare = pd.DatetimeIndex(index.to_numpy())  # no frequency attached
    assert (pd.date_range(bare[0], periods=40, freq=check_time_axis(bare)) == bare).all()


def test_change_of_the_clocks_is_no_gap():
    local = pd.date_range("2026-03-28", periods=72, freq="h", tz="Europe/Berlin")
    assert check_time_axis(local) == pd.Timedelta("1h")


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (HOURS.delete(10), "gap: after 2026-03-28 09:00:00 comes 2026-03-28 11:00:00"),
        (HOURS.insert(5, HOURS[4]), "2026-03-28 04:00:00 stands twice"),
        (HOURS[[0, 1, 3, 2, *range(4, 48)]], "2026-03-28 02:00:00 follows 2026-03-28 03:00:00"),
        (HOURS.insert(5, pd.NaT), "row 5 has no time"),
        (HOURS[:2], "at least 3"),
        (pd.RangeIndex(48), "DatetimeIndex"),
        (
            pd.date_range("2026-01-01", periods=30, freq="MS").delete(7),
            "gap: after 2026-07-01 00:00:00 comes 2026-09-01",
        ),
        (HOURS[[0, 1, 2, 3, 4]].append(HOURS[5:6] + pd.Timedelta("7min")), "gap: after"),
    ],
)
def test_axis_that_cannot_work_is_refused_by_its_first_bad_time(index, words):
    with pytest.raises(InputError, match=words):
        check_time_axis(index)


def test_calendar_is_local_and_leaves_out_what_the_step_cannot_tell():
    local = pd.date_range("2026-03-28", periods=48, freq="h", tz="Europe/Berlin")
    columns, names = calendar_columns(local)
    assert names == ("sin_hour", "cos_hour", "sin_weekday", "cos_weekday", "sin_year", "cos_year")
    assert np.abs(columns).max() <= 1
    np.testing.assert_allclose(columns[0, :2], [0, 1], atol=1e-12)  # midnight in Berlin
    np.testing.assert_allclose(columns[24, :2], [0, 1], atol=1e-12)
    assert calendar_columns(pd.date_range("2026", periods=9, freq="D"))[1][0] == "sin_weekday"
    assert calendar_columns(pd.date_range("2026", periods=9, freq="MS"))[1] == (
        "sin_year",
        "cos_year",
    )
    assert calendar_columns(pd.date_range("2026", periods=9, freq="YS"))[0].shape == (9, 0)


@pytest.mark.parametrize(
    ("name", "rows", "missing"),
    [("sunspots", 309, 0), ("co2", 2284, 59), ("elnino", 732, 0), ("nile", 100, 0)],
)
def test_packaged_series_are_whole(name, rows, missing):
    if importlib.util.find_spec("statsmodels") is None:
        pytest.skip("statsmodels is not installed (extra 'forecast')")
    frame, provenance = packaged_series(name)
    assert frame.shape == (rows, 1)
    assert int(frame.isna().sum().sum()) == missing
    check_time_axis(frame.index)
    assert f"{missing} values missing" in provenance.describe()


def test_sunspots_are_those_of_statsmodels():
    if importlib.util.find_spec("statsmodels") is None:
        pytest.skip("statsmodels is not installed (extra 'forecast')")
    frame, _ = packaged_series("sunspots")
    assert frame.index[0].year == 1700
    assert frame["sunspots"].iloc[:2].tolist() == [5.0, 11.0]


def test_unknown_names_get_the_nearest():
    with pytest.raises(InputError, match="did you mean 'sunspots'"):
        packaged_series("sunspot")
    with pytest.raises(InputError, match="did you mean 'ETTh"):
        ett("ETTh")
    assert len(PACKAGED_SERIES) == 4


def test_ett_is_the_published_series(mirror):
    mirror("ett")
    for name in ("ETTh1", "ETTh2"):
        frame, provenance = ett(name)
        assert frame.shape == (17_420, 7)
        assert list(frame.columns) == ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"]
        assert check_time_axis(frame.index) == pd.Timedelta("1h")
        assert "CC BY-ND" in provenance.describe()
    assert frame["OT"].iloc[0] == pytest.approx(38.6619987)


def test_ett_that_is_not_at_hand_says_how_to_get_it(no_data):
    with pytest.raises(NotAtHandError, match="noisewright data fetch ett"):
        ett()


def test_file_is_read_with_what_is_missing(tmp_path):
    path = tmp_path / "load.csv"
    path.write_text("when,a,b\n2026-01-01 00:00,1,2\n2026-01-01 01:00,,3\n2026-01-01 02:00,4,5\n")
    frame, provenance = read_series(path, time="when", columns=["b", "a"])
    assert list(frame.columns) == ["b", "a"]
    assert np.isnan(frame["a"].iloc[1])
    assert "1 values missing" in provenance.describe()


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("date,x\n2026-01-01,1\n", {"time": "dat"}, "no column 'dat'; did you mean 'date'"),
        ("date,x\n2026-01-01,1\n", {"columns": ["y"]}, "no column 'y'"),
        ("date,x\n2026-01-01,1\nsoon,2\n", {}, "row 3: 'soon' is no time"),
        ("date,x\n2026-01-01,1\n2026-01-02,high\n", {}, "row 3 holds 'high'"),
        ("date\n2026-01-01\n", {}, "no column of numbers"),
        ("", {}, "cannot be read"),
    ],
)
def test_file_that_cannot_be_read_is_refused_by_place(tmp_path, text, options, words):
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_series(path, **options)
