"""Whatever cannot be forecast is refused before long work, with what was wrong and where."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from noisewright.methods.kineflow import KineFlowForecaster, LongForecaster, SktimeLikeForecaster
from noisewright.types import InputError

SMALL = {"hidden": 8, "depth": 1, "steps": 2, "random_state": 0}
HOURS = pd.date_range("2026-01-01", periods=200, freq="h")
RNG = np.random.default_rng(0)
LOAD = RNG.standard_normal(200)
FRAME = pd.DataFrame({"OT": LOAD, "HUFL": RNG.standard_normal(200)}, index=HOURS)
DRIVER = pd.DataFrame({"wind": RNG.standard_normal(200), "sun": LOAD[::-1]}, index=HOURS)


def model(**options):
    return KineFlowForecaster(24, 6, **SMALL | options)


@pytest.fixture(scope="module")
def driven():
    return model().fit(FRAME, DRIVER)


@pytest.fixture(scope="module")
def plain():
    return model().fit(FRAME)


def changed(row, column, value):
    frame = FRAME.astype(object) if isinstance(value, str) else FRAME.copy()
    frame.iloc[row, column] = value
    return frame


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (LOAD[:20], r"need at least 30 time steps \(context 24 \+ horizon 6\), got 20"),
        (changed(7, 0, np.nan), "1 missing values, first in column 'OT' at 2026-01-01 07:00"),
        (np.where(np.arange(200) == 9, np.nan, LOAD), "first in column 0 at row 9"),
        (changed(7, 1, np.inf), "1 infinite values, first in column 'HUFL'"),
        (FRAME.drop(index=HOURS[50]), "gap: after 2026-01-03 01:00:00 comes 2026-01-03 03:00"),
        (pd.concat([FRAME, FRAME.iloc[-1:]]), "2026-01-09 07:00:00 stands twice"),
        (FRAME.iloc[::-1], "not sorted"),
        (FRAME.reset_index(drop=True), "DatetimeIndex"),
        (np.ones(200), "channel 0 is constant"),
        (FRAME.assign(OT=3.0), "channel 'OT' is constant"),
        (np.zeros((2, 3, 4, 5)), "shape"),
        ([FRAME, FRAME[["OT"]]], "same columns"),
    ],
)
def test_series_that_cannot_be_learned_is_refused(y, words):
    with pytest.raises(InputError, match=words):
        model().fit(y)


def test_infinity_is_refused_whatever_is_said_about_missing_values():
    for missing in ("interpolate", "mask"):
        with pytest.raises(InputError, match="infinite"):
            model(missing=missing).fit(changed(7, 1, np.inf))


def test_column_without_any_value_cannot_be_filled():
    with pytest.raises(InputError, match="no value at all"):
        model(missing="interpolate").fit(FRAME.assign(OT=np.nan))


def test_masks_that_leave_no_horizon_are_refused():
    holes = LOAD.copy()
    holes[::5] = np.nan
    with pytest.raises(InputError, match="nothing to learn"):
        model(missing="mask").fit(holes)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (changed(3, 0, "high"), "column 'OT' is not numeric"),
        (np.array(["a"] * 200), "not numeric"),
        (FRAME.assign(OT=pd.Timestamp("2026-01-01")), "column 'OT' is not numeric"),
    ],
)
def test_text_is_a_type_error_that_names_the_column(y, words):
    with pytest.raises(TypeError, match=words):
        model().fit(y)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"context_length": 0}, "context_length=0"),
        ({"horizon": -1}, "horizon=-1"),
        ({"horizon": 2.5}, "horizon=2.5"),
        ({"hidden": 0}, "hidden=0"),
        ({"steps": 0}, "steps=0"),
        ({"n_sampling_steps": 0}, "n_sampling_steps=0"),
        ({"sigma_p": 0.01}, "sigma_p=0.01"),
        ({"order": 3}, "order=3"),
        ({"order": 1, "damping": True}, "order must be 2"),
        ({"path": "hermite"}, "path='hermite'"),
        ({"target": "D"}, "say forces=False"),
        ({"target": "odd"}, "target='odd'"),
        ({"target": "D", "forces": False, "order": 1}, "order must be 2"),
        ({"loss_units": "odd"}, "loss_units='odd'"),
        ({"grid": "odd"}, "grid='odd'"),
        ({"momentum": "odd"}, "momentum='odd'"),
        ({"scaling": "odd"}, "scaling='odd'"),
        ({"missing": "odd"}, "missing='odd'"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"lr": 0.0}, "lr=0.0"),
        ({"n_exog": 3}, "n_exog=3, but exog has 2"),
    ],
)
def test_setting_that_cannot_work_is_refused(options, words, refuses):
    lengths = {"context_length": 24, "horizon": 6}
    settings = SMALL | lengths | options
    with refuses(words):
        KineFlowForecaster(**settings).fit(FRAME, DRIVER)


@pytest.mark.parametrize(
    ("exog", "words"),
    [
        (DRIVER.iloc[:150], "exog has 150 rows, y 200"),
        (DRIVER.set_axis(HOURS + pd.Timedelta("1h")), "different times, from 2026-01-01 00:00"),
        (DRIVER.drop(index=HOURS[5]).reindex(HOURS), "exog holds 2 missing values"),
        ([DRIVER, DRIVER], "exog holds 2 series, y 1"),
    ],
)
def test_drivers_that_do_not_fit_the_series_are_refused(exog, words):
    with pytest.raises(InputError, match=words):
        model().fit(FRAME, exog)


def test_validation_series_do_not_go_with_drivers():
    with pytest.raises(InputError, match="val="):
        model().fit(FRAME, DRIVER, val=FRAME)


AHEAD = pd.date_range(HOURS[-1] + pd.Timedelta("1h"), periods=6, freq="h")
FUTURE = pd.DataFrame({"wind": np.ones(6), "sun": np.ones(6)}, index=AHEAD)


@pytest.mark.parametrize(
    ("future", "words"),
    [
        (None, r"fitted with drivers \(wind, sun\); give exog_future"),
        (np.ones((4, 2)), "exog_future has 4 rows, horizon is 6"),
        (
            FUTURE.iloc[:4],
            "exog_future has 4 rows, horizon is 6: no row for 2026-01-09 12:00:00",
        ),
        (FUTURE.set_axis(AHEAD + pd.Timedelta("3h")), "no row for 2026-01-09 08:00:00"),
        (FUTURE[["wind"]], "lacks the columns sun"),
        (np.ones((6, 1)), "exog_future has 1 columns, the model was fitted with 2"),
        (FUTURE.assign(sun=np.nan), "6 missing values"),
    ],
)
def test_drivers_that_end_early_or_differ_are_refused(driven, future, words):
    with pytest.raises(InputError, match=words):
        driven.predict_samples(None, future)


def test_drivers_in_another_order_are_matched_by_name(driven):
    first, second = (
        driven.predict_samples(None, f, seed=0, n_samples=2)
        for f in (FUTURE, FUTURE[["sun", "wind"]])
    )
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("past", "words"),
    [
        (None, "fitted with 2 drivers; give exog_past"),
        (DRIVER.iloc[-10:], "exog_past has 10 rows, the context 24"),
        (DRIVER[["sun"]].iloc[-24:], "lacks the columns wind"),
        (np.ones((24, 3)), "exog_past has 3 columns"),
    ],
)
def test_past_of_the_drivers_is_needed_whole(driven, past, words):
    with pytest.raises(InputError, match=words):
        driven.predict_samples(FRAME.iloc[-24:], FUTURE, exog_past=past)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.predict_samples(None, FUTURE), "columns wind, sun; the model was fitted with"),
        (
            lambda m: m.predict_samples(FRAME.iloc[-24:], exog_past=DRIVER.iloc[-24:]),
            "fitted without drivers",
        ),
        (lambda m: m.predict_samples(FRAME.iloc[-10:]), "context has 10 rows, the model needs 24"),
        (lambda m: m.predict_samples(FRAME[["OT"]]), "lacks the columns HUFL"),
        (lambda m: m.predict_samples(np.ones((24, 2))), "fitted with calendar columns"),
        (lambda m: m.predict_samples(changed(199, 0, np.nan)), "1 missing values"),
        (lambda m: m.predict_samples(FRAME.iloc[-30:].drop(index=HOURS[190])), "gap"),
        (lambda m: m.predict_samples(n_samples=0), "n_samples=0"),
        (lambda m: m.predict_samples(horizon=7), "horizon=7: the model was fitted for 6"),
        (lambda m: m.predict_samples(seed=[1, 2]), "2 entries for 1 windows"),
        (lambda m: m.predict(quantiles=(0.0,)), "quantiles"),
    ],
)
def test_request_that_does_not_fit_the_model_is_refused(plain, call, words):
    with pytest.raises(InputError, match=words):
        call(plain)


def test_windows_and_drivers_must_be_equally_many():
    fitted = model().fit(LOAD, DRIVER["wind"].to_numpy())
    contexts = np.stack([LOAD[:24, None]] * 2)
    with pytest.raises(InputError, match="2 windows, but drivers for 1"):
        fitted.predict_samples(contexts, np.ones((1, 6, 1)), exog_past=np.ones((2, 24, 1)))
    with pytest.raises(InputError, match="predict takes one window"):
        fitted.predict(contexts, np.ones((2, 6, 1)), exog_past=np.ones((2, 24, 1)))


def test_forecast_before_fit_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        model().predict_samples()
    with pytest.raises(NotFittedError):
        model().save(tmp_path)


def long(**changes):
    return pd.DataFrame({"unique_id": "a", "ds": HOURS, "y": LOAD, "wind": 1.0 + LOAD}).assign(
        **changes
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.fit(long().drop(columns="y")), "lacks y; it has unique_id, ds"),
        (lambda m: m.fit(long().drop(index=20)), "series 'a' has a gap"),
        (lambda m: m.predict(), "call fit"),
        (lambda m: m.fit(long()).predict(), "series 'a': the model was fitted with drivers"),
        (
            lambda m: m.fit(long()).predict(
                pd.DataFrame({"unique_id": "a", "ds": AHEAD[:4], "wind": 1.0})
            ),
            "series 'a': exog_future has 4 rows, horizon is 6: no row for 2026-01-09 12:00",
        ),
        (
            lambda m: m.fit(long()).predict(
                pd.DataFrame({"unique_id": "b", "ds": AHEAD, "wind": 1.0})
            ),
            "no rows of the series 'a'",
        ),
        (lambda m: m.cross_validation(long(), n_windows=0), "n_windows=0"),
        (lambda m: m.cross_validation(long(), n_windows=40), "has 200 rows; 270 are needed"),
    ],
)
def test_long_frame_that_cannot_work_is_refused_by_its_series(call, words):
    with pytest.raises(InputError, match=words):
        call(LongForecaster(6, 24, futr_exog_list=["wind"], n_samples=4, **SMALL))


@pytest.mark.parametrize(
    ("fh", "words"), [(None, "fh is missing"), ([0], "whole numbers"), ([1.5], "whole numbers")]
)
def test_steps_ahead_that_cannot_work_are_refused(fh, words):
    with pytest.raises(InputError, match=words):
        SktimeLikeForecaster(24, **SMALL).fit(FRAME, fh=fh)


def test_steps_beyond_the_fit_are_refused():
    fitted = SktimeLikeForecaster(24, **SMALL).fit(FRAME, fh=[1, 2])
    with pytest.raises(InputError, match="fh reaches 3"):
        fitted.predict([3])
