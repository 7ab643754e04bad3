"""The estimator and its front ends: arrays, frames, long frames, GluonTS, sktime's signature."""

from __future__ import annotations

import importlib.util

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from noisewright.methods.kineflow import KineFlowForecaster, LongForecaster, SktimeLikeForecaster
from noisewright.storage import DamagedRecordError

SMALL = {"hidden": 16, "depth": 1, "steps": 30, "random_state": 0}
HOURS = pd.date_range("2026-01-01", periods=500, freq="h")
T = np.arange(500)
FORCE = np.repeat(np.random.default_rng(1).choice([-1.0, 1.0], size=125), 4)
NOISE = np.random.default_rng(0).standard_normal((500, 2))
LOAD = np.sin(2 * np.pi * T / 24) + 0.5 * FORCE + 0.1 * NOISE[:, 0]
HEAT = 20 + 5 * np.cos(2 * np.pi * T / 24) + 0.5 * NOISE[:, 1]
FRAME = pd.DataFrame({"load": LOAD, "heat": HEAT}, index=HOURS)
DRIVER = pd.DataFrame({"force": FORCE}, index=HOURS)


@pytest.fixture(scope="module")
def fitted():
    return KineFlowForecaster(48, 12, **SMALL).fit(FRAME.iloc[:400], DRIVER.iloc[:400])


def asked(rows=slice(352, 400)):
    end = rows.stop
    return {
        "context": FRAME.iloc[rows],
        "exog_future": DRIVER.iloc[end : end + 12],
        "exog_past": DRIVER.iloc[rows],
    }


@pytest.mark.parametrize(
    ("y", "shape"),
    [
        (LOAD, (1, 7, 12, 1)),
        (LOAD[:, None], (1, 7, 12, 1)),
        (np.stack([LOAD, HEAT], axis=1), (1, 7, 12, 2)),
        (np.stack([LOAD, HEAT])[:, :, None], (1, 7, 12, 1)),
        (np.arange(500) % 24, (1, 7, 12, 1)),  # whole numbers are cast
        (FRAME["load"], (1, 7, 12, 1)),
        ([FRAME[["load"]].iloc[:200], FRAME[["load"]].iloc[200:]], (1, 7, 12, 1)),
    ],
)
def test_series_of_many_forms_are_learned_from(y, shape):
    model = KineFlowForecaster(48, 12, **SMALL | {"steps": 3}).fit(y)
    found = model.predict_samples(n_samples=7)
    assert found.shape == shape
    assert np.isfinite(found).all()


def test_forecast_is_near_what_came(fitted):
    found = fitted.predict_samples(**asked(), n_samples=100, seed=0)[0]
    error = np.abs(found.mean(axis=0) - FRAME.iloc[400:412].to_numpy()).mean(axis=0)
    assert error[0] < 0.25
    assert error[1] < 1.5
    assert found[..., 1].std(axis=0).mean() > 0.1


def test_frame_has_times_channels_and_quantiles_that_do_not_cross(fitted):
    frame = fitted.predict(**asked(), quantiles=(0.1, 0.5, 0.9))
    assert list(frame.index) == list(HOURS[400:412])
    assert list(frame["load"].columns) == ["mean", 0.1, 0.5, 0.9]
    for name in ("load", "heat"):
        assert (frame[name, 0.1] <= frame[name, 0.5]).all()
        assert (frame[name, 0.5] <= frame[name, 0.9]).all()


def test_end_of_the_training_series_is_the_default_context(fitted):
    by_memory = fitted.predict(None, DRIVER.iloc[400:412])
    by_hand = fitted.predict(**asked())
    pd.testing.assert_frame_equal(by_memory, by_hand, rtol=1e-5, check_freq=False)


def test_longer_context_is_cut_and_columns_are_matched_by_name(fitted):
    plain = fitted.predict_samples(**asked(), seed=1, n_samples=4)
    long = fitted.predict_samples(
        FRAME[["heat", "load"]].iloc[:400],
        DRIVER.iloc[395:430],
        exog_past=DRIVER.iloc[300:400],
        seed=1,
        n_samples=4,
    )
    np.testing.assert_allclose(long, plain, rtol=1e-5)


def test_shorter_horizon_is_a_slice(fitted):
    whole, part = (
        fitted.predict_samples(**asked(), seed=1, n_samples=4, horizon=h) for h in (None, 5)
    )
    np.testing.assert_array_equal(part, whole[:, :, :5])


def test_several_windows_are_those_one_by_one():
    values = np.stack([LOAD, HEAT], axis=1)
    model = KineFlowForecaster(48, 12, **SMALL).fit(values[:400], FORCE[:400])
    starts = (100, 300)
    contexts = np.stack([values[s : s + 48] for s in starts])
    futures = np.stack([FORCE[s + 48 : s + 60, None] for s in starts])
    pasts = np.stack([FORCE[s : s + 48, None] for s in starts])
    together = model.predict_samples(contexts, futures, exog_past=pasts, seed=[4, 5], n_samples=6)
    alone = model.predict_samples(
        contexts[1], futures[1], exog_past=pasts[1], seed=[5], n_samples=6
    )
    np.testing.assert_allclose(together[1:], alone, rtol=1e-4, atol=1e-5)


def test_known_driver_moves_the_forecast_the_right_way(fitted):
    up, down = (
        fitted.predict_samples(
            asked()["context"],
            pd.DataFrame({"force": np.full(12, sign)}, index=HOURS[400:412]),
            exog_past=asked()["exog_past"],
            seed=0,
        )
        for sign in (1.0, -1.0)
    )
    gap = (up - down).mean(axis=(0, 1))
    assert gap[:, 0].mean() == pytest.approx(1.0, abs=0.4)  # half a unit, twice


def test_past_drivers_need_no_future():
    model = KineFlowForecaster(48, 12, **SMALL).fit(
        FRAME[["load"]].iloc[:400], past_exog=FRAME[["heat"]].iloc[:400]
    )
    found = model.predict(None)
    given = model.predict(FRAME[["load"]].iloc[:400], exog_past=FRAME[["heat"]].iloc[:400])
    pd.testing.assert_frame_equal(found, given, rtol=1e-5, check_freq=False)


def test_saved_forecaster_draws_the_same_bits(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = KineFlowForecaster.load(tmp_path / "model")
    for seed in (0, None):
        first, second = (
            m.predict_samples(**asked(), seed=seed, n_samples=6) for m in (fitted, again)
        )
        np.testing.assert_array_equal(first, second)
    pd.testing.assert_frame_equal(
        fitted.predict(None, DRIVER.iloc[400:412]), again.predict(None, DRIVER.iloc[400:412])
    )
    (tmp_path / "model" / "arrays.safetensors").write_bytes(b"cut")
    with pytest.raises(DamagedRecordError):
        KineFlowForecaster.load(tmp_path / "model")


def test_seed_zero_is_a_seed_and_none_follows_random_state(fitted):
    first, second = (fitted.predict_samples(**asked(), seed=0, n_samples=3) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    fresh = KineFlowForecaster(48, 12, **SMALL | {"random_state": None, "steps": 2}).fit(LOAD)
    one, other = (fresh.predict_samples(n_samples=3) for _ in range(2))
    assert not np.array_equal(one, other)


def test_same_seed_fits_the_same_model():
    first, second = (
        KineFlowForecaster(48, 12, **SMALL).fit(LOAD).predict_samples(seed=0, n_samples=3)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_settings_are_those_of_an_estimator():
    model = KineFlowForecaster(48, 12, order=1, sigma_p=2.0)
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize(
    "options",
    [
        {"order": 1},
        {"forces": False},
        {"precondition": False},
        {"momentum": "context"},
        {"damping": True},
        {"target": "D", "forces": False, "sigma_p": 2.0},
        {"loss_units": "whitened"},
        {"grid": "uniform"},
        {"scaling": "global"},
        {"sigma_p": 3.0, "temperature": 0.9},
    ],
)
def test_every_variant_fits_and_draws(options):
    model = KineFlowForecaster(24, 6, **SMALL | {"steps": 5} | options)
    found = model.fit(LOAD, FORCE).predict_samples(None, FORCE[:6], n_samples=4)
    assert np.isfinite(found).all()


def test_missing_values_are_filled_or_masked_and_noted():
    holes = FRAME[["load"]].copy()
    holes.iloc[[50, 51, 200]] = np.nan
    filled = KineFlowForecaster(48, 12, missing="interpolate", **SMALL).fit(holes)
    assert "3 missing values were filled" in filled.notes_[0]
    masked = KineFlowForecaster(48, 12, missing="mask", **SMALL).fit(holes)
    assert "3 missing values are masked" in masked.notes_[0]
    context = holes.iloc[20:68]
    assert np.isfinite(masked.predict_samples(context, n_samples=4)).all()
    assert masked.model_.layout.masked


def test_time_zone_keeps_local_hours_over_a_change_of_the_clocks():
    local = pd.date_range("2026-03-20", periods=300, freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame({"load": LOAD[:300]}, index=local)
    model = KineFlowForecaster(48, 12, **SMALL | {"steps": 3}).fit(frame.iloc[:205])
    assert model.known_.calendar == ("sin_hour", "cos_hour")
    assert list(model.predict().index) == list(local[205:217])


def test_calendar_that_repeats_less_than_twice_is_left_out_and_may_be_switched_off():
    year = pd.DataFrame({"x": LOAD}, index=pd.date_range("2025-01-01", periods=500, freq="D"))
    options = SMALL | {"steps": 2}
    assert KineFlowForecaster(48, 12, **options).fit(year).known_.calendar == (
        "sin_weekday",
        "cos_weekday",
    )
    plain = KineFlowForecaster(48, 12, calendar=False, **options).fit(year)
    assert plain.known_.calendar == ()
    assert plain.predict_samples(LOAD[:48], n_samples=2).shape == (1, 2, 12, 1)


def test_very_large_values_stay_finite():
    model = KineFlowForecaster(24, 6, **SMALL | {"steps": 5}).fit(1e12 * (10 + LOAD))
    found = model.predict_samples(n_samples=10)
    assert np.isfinite(found).all()
    assert np.abs(found / 1e12 - 10).max() < 6


def test_constant_context_gives_finite_futures(fitted):
    flat = FRAME.iloc[352:400].copy()
    flat[:] = 0.5
    found = fitted.predict_samples(flat, asked()["exog_future"], exog_past=asked()["exog_past"])
    assert np.isfinite(found).all()


def test_repeated_leads_are_noted():
    steps = np.repeat(np.random.default_rng(0).standard_normal(80), 6)  # six equal values each
    model = KineFlowForecaster(12, 6, **SMALL | {"steps": 2}).fit(steps)
    assert np.isfinite(model.predict_samples(n_samples=3)).all()
    constant = np.zeros(300)
    constant[:12] = np.arange(12)
    noted = KineFlowForecaster(12, 6, **SMALL | {"steps": 2}).fit(constant)
    assert any("eigenvalues" in note for note in noted.notes_)


# ---------------------------------------------------------------------------- front ends


def long_frame():
    parts = [
        pd.DataFrame({"unique_id": name, "ds": HOURS[:300], "y": y[:300], "force": FORCE[:300]})
        for name, y in (("a", LOAD), ("b", HEAT))
    ]
    return pd.concat(parts, ignore_index=True)


def test_long_frame_is_forecast_after_the_end_of_each_series():
    model = LongForecaster(12, 48, futr_exog_list=["force"], n_samples=50, **SMALL)
    model.fit(long_frame())
    ahead = pd.concat(
        [
            pd.DataFrame({"unique_id": name, "ds": HOURS[300:312], "force": FORCE[300:312]})
            for name in ("a", "b")
        ]
    )
    found = model.predict(ahead, level=[90])
    assert list(found.columns) == [
        "unique_id",
        "ds",
        "KineFlow",
        "KineFlow-median",
        "KineFlow-lo-90",
        "KineFlow-hi-90",
    ]
    assert found["unique_id"].tolist() == ["a"] * 12 + ["b"] * 12
    assert found["ds"].tolist() == list(HOURS[300:312]) * 2
    assert found.loc[found["unique_id"] == "b", "KineFlow"].between(10, 30).all()


def test_cross_validation_forecasts_from_each_cut_off_without_seeing_ahead():
    model = LongForecaster(12, 48, n_samples=50, **SMALL)
    found = model.cross_validation(long_frame()[["unique_id", "ds", "y"]], n_windows=2)
    assert found.groupby(["unique_id", "cutoff"]).size().tolist() == [12] * 4
    assert sorted(found["cutoff"].unique()) == [HOURS[275], HOURS[287]]
    assert (found["ds"] > found["cutoff"]).all()
    assert model.forecaster_.known_.end == HOURS[275]
    merged = found.merge(long_frame(), on=["unique_id", "ds"], suffixes=("", "_truth"))
    np.testing.assert_array_equal(merged["y"], merged["y_truth"])


def test_sktime_signature_returns_the_steps_asked_for():
    model = SktimeLikeForecaster(48, n_samples=20, **SMALL).fit(
        FRAME[["load"]].iloc[:400], DRIVER.iloc[:400], fh=[1, 3, 12]
    )
    ahead = DRIVER.iloc[400:412]
    assert list(model.predict(X=ahead).index) == list(HOURS[[400, 402, 411]])
    quantiles = model.predict_quantiles([2], ahead, alpha=[0.1, 0.9])
    assert list(quantiles.columns) == [("load", 0.1), ("load", 0.9)]
    assert quantiles.shape == (1, 2)


@pytest.fixture
def gluonts():
    if importlib.util.find_spec("gluonts") is None:
        pytest.skip("gluonts is not installed (extra 'forecast')")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # notices of its own dependencies, at import
        from noisewright.methods.kineflow import gluonts_predictor
    return gluonts_predictor


def entries(count=2):
    return [
        {
            "start": pd.Period("2026-01-01", freq="h"),
            "target": LOAD[: 300 + 12 * i].astype(np.float32),
            "feat_dynamic_real": FORCE[None, : 312 + 12 * i],
            "item_id": f"item{i}",
        }
        for i in range(count)
    ]


@pytest.mark.filterwarnings("ignore")  # the evaluator's own divisions and pandas notices
def test_gluonts_scores_our_forecasts_with_its_own_evaluator(gluonts):
    from gluonts.dataset.common import ListDataset
    from gluonts.evaluation import Evaluator, make_evaluation_predictions

    model = KineFlowForecaster(48, 12, **SMALL).fit(LOAD[:300], FORCE[:300])
    predictor = gluonts.KineFlowPredictor(model, num_samples=30)
    whole = [
        entry | {"feat_dynamic_real": entry["feat_dynamic_real"][:, : len(entry["target"])]}
        for entry in entries()
    ]
    found, truth = make_evaluation_predictions(
        ListDataset(whole, freq="h"), predictor=predictor, num_samples=30
    )
    forecasts, series = list(found), list(truth)
    assert forecasts[0].samples.shape == (30, 12)
    assert forecasts[0].start_date == pd.Period("2026-01-13 00:00", freq="h")
    scores, _ = Evaluator(quantiles=[0.1, 0.5, 0.9], num_workers=0)(series, forecasts)
    assert 0 < scores["mean_wQuantileLoss"] < 1


def test_gluonts_entry_with_short_drivers_is_refused_with_both_lengths(gluonts):
    model = KineFlowForecaster(48, 12, **SMALL | {"steps": 2}).fit(LOAD[:300], FORCE[:300])
    entry = entries(1)[0]
    entry["feat_dynamic_real"] = entry["feat_dynamic_real"][:, :300]
    with pytest.raises(ValueError, match="has 300 steps; target 300 and horizon 12 need 312"):
        gluonts.KineFlowPredictor(model).predict_item(entry)
