"""The experiment in a miniature setting, on a file of one's own, and its parts."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pandas as pd
import pytest

from noisewright import methods
from noisewright.methods.kineflow import cases, experiment, trials
from noisewright.methods.kineflow.footprint import measure
from noisewright.methods.kineflow.scores import score_line, score_quantiles, score_samples
from noisewright.methods.kineflow.settings import Settings
from noisewright.reports import load_claims
from noisewright.reports.run import Options, execute, room_folder
from noisewright.types import InputError

OSC = cases.oscillator_case(2400)
TINY = {"steps": 8, "hidden": 16, "samples": 8, "calls": 3, "seed": 0}


class Silent:
    def progress(self, done, total, **numbers):
        pass


def test_parts_of_a_set_do_not_overlap_in_what_is_forecast():
    parts = OSC.parts()
    first, second, third = OSC.ends
    assert int(parts.starts.max()) + OSC.context + OSC.horizon == first
    begins = parts.test_rows.numpy() + OSC.context
    assert begins.min() == second
    assert begins.max() + OSC.horizon <= third
    table = (OSC.values - OSC.values[:first].mean()) / OSC.values[:first].std()
    wanted = table[begins[:, None] + np.arange(OSC.horizon)]
    np.testing.assert_allclose(parts.test.target.numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_cycle_that_training_does_not_hold_twice_is_left_out():
    index = pd.date_range("2026", periods=24 * 360, freq="h")
    names = ("sin_hour", "sin_weekday", "sin_year")
    kept, left = cases.learnable_cycles(np.zeros((len(index), 3)), names, index, len(index))
    assert left == ("sin_hour", "sin_weekday")
    assert kept.shape == (8640, 2)


def test_packaged_sets_become_cases_without_gaps():
    if importlib.util.find_spec("statsmodels") is None:
        pytest.skip("statsmodels is not installed (extra 'forecast')")
    for name in ("sunspots", "co2", "elnino", "nile"):
        case = cases.series_case(name)
        assert np.isfinite(case.values).all()
        assert len(case.parts().test) > 10


def test_ett_is_split_as_in_the_literature(mirror):
    mirror("ett")
    case = cases.series_case("etth1", channels=3, stride=100)
    assert case.ends == (8640, 11520, 14400)
    assert case.values.shape == (14400, 3)
    hours = (case.parts().test_rows.numpy() + case.context) % 24
    assert len(set(hours)) > 4


def test_scores_of_futures_lines_and_quantiles_agree_on_a_sharp_forecast():
    truth = np.random.default_rng(0).standard_normal((5, 6, 2))
    samples = np.repeat((truth + 0.5)[:, None], 8, axis=1)
    by_samples = score_samples(samples, truth, antithetic=False)
    by_line = score_line(truth + 0.5, truth)
    values = np.repeat((truth + 0.5)[..., None], 20, axis=3)
    by_quantiles = score_quantiles(values, (np.arange(20) + 0.5) / 20, truth)
    for found in (by_samples, by_line, by_quantiles):
        assert found["crps"] == pytest.approx(0.5)
        assert found["mse"] == pytest.approx(0.25)
    assert by_samples["roughness_ratio"] == pytest.approx(1.0)
    assert by_quantiles["coverage90"] == 0.0


def test_oscillator_forecast_is_held_against_its_exact_law():
    settings = TINY | {"call_counts": (), "noise": 0.0, "detail": True}
    found = trials.flow_trial(Silent(), case=OSC, arm="forces", **settings)
    ratio = found["methods"]["kineflow"]["crps"] / found["osc"]["crps_exact"]
    assert 0.95 < ratio < 1.5
    assert found["osc"]["force_effect_error"] < 0.25
    assert found["osc"]["switch"]["flipped"].shape == (8, 24)
    blind = trials.flow_trial(Silent(), case=OSC, arm="no_drivers", **settings)
    assert blind["methods"]["no_drivers"]["crps"] > 1.5 * found["methods"]["kineflow"]["crps"]


def test_simple_laws_choose_their_form_on_validation():
    found = trials.simple_trial(Silent(), case=OSC, steps=5, samples=8, seed=0)
    scores = found["methods"]
    assert scores["linear_gaussian"] == scores[f"linear_gaussian_{found['form']}"]
    assert scores["linear_gaussian"]["crps"] < scores["seasonal_naive"]["crps"]
    assert set(scores) >= {"linear_bootstrap", "quantile_linear"}


def test_seconds_and_memory_are_measured():
    found = measure(windows=4)
    assert set(found["seconds"]) == {"50", "100", "200", "400"}
    assert all(value > 0 for value in found["seconds"].values())
    assert found["peak_mb"] >= found["libraries_mb"] > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sets": ("etth3",)}, "did you mean 'etth"),
        ({"sets": ()}, "--sets is empty"),
        ({"steps": 0}, "--steps"),
        ({"samples": 6}, "--samples 6"),
        ({"channels": 8}, "--channels 8"),
        ({"osc_hours": 10}, "--osc-hours 10"),
        ({"call_counts": (0,)}, "--call-counts"),
        ({"noise": -1.0}, "--noise"),
        ({"order": 3}, "--order 3"),
    ],
)
def test_setting_that_cannot_work_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        Settings(**settings).checked()


def own_file(folder, rows=400):
    t = np.arange(rows)
    price = np.sign(np.sin(t / 5))
    load = np.sin(2 * np.pi * t / 24) + 0.3 * price
    load = load + 0.1 * np.random.default_rng(0).standard_normal(rows)
    frame = pd.DataFrame(
        {"when": pd.date_range("2026-01-01", periods=rows, freq="h"), "load": load, "price": price}
    )
    frame.to_csv(folder / "load.csv", index=False)
    return folder / "load.csv"


OWN = {"context": 24, "horizon": 6, "steps": 20, "hidden": 16, "samples": 16}


def test_own_file_is_forecast_and_scored(tmp_path):
    path = own_file(tmp_path)
    settings = Settings(time="when", target=("load",), exog=("price",), **OWN)
    options = Options(out=tmp_path / "run", jobs=1, data=str(path))
    result = execute(methods.room("kineflow"), experiment, settings, options)
    assert result.values["own.crps.kineflow"] < result.values["own.crps.seasonal_naive"]
    assert "CRPS" in result.finding
    assert {one.verdict for one in result.judged} == {"not measured"}


@pytest.mark.parametrize(
    ("settings", "rows", "words"),
    [
        ({"context": 300}, 400, "need at least 510 time steps"),
        ({"target": ("price",), "exog": ("price",)}, 400, "nothing to forecast"),
        ({"target": ("lod",)}, 400, "did you mean 'load'"),
        ({"target": ("load,prce",)}, 400, "did you mean 'price'"),
    ],
)
def test_own_file_that_does_not_fit_is_refused(tmp_path, settings, rows, words):
    path = own_file(tmp_path, rows)
    options = Options(out=tmp_path / "run", jobs=1, data=str(path))
    with pytest.raises(InputError, match=words):
        execute(methods.room("kineflow"), experiment, Settings(**OWN | settings), options)


@pytest.mark.slow
def test_miniature_run_judges_every_claim_it_can(tmp_path, no_data):
    tiny = Settings(
        sets=("etth1", "osc"), osc_steps=30, osc_hours=3000, hidden=16, samples=16, calls=4
    )
    result = execute(
        methods.room("kineflow"), experiment, tiny, Options(quick=True, out=tmp_path, jobs=1)
    )
    claims = load_claims(room_folder(methods.room("kineflow")) / "claims.toml")
    assert [one.key for one in result.judged] == [claim.key for claim in claims]
    unmeasured = {one.key.split(".")[0] for one in result.judged if one.verdict == "not measured"}
    assert unmeasured == {"etth1"}
    values = json.loads((tmp_path / "metrics.json").read_text())["values"]
    exact = {one.key: one.verdict for one in result.judged if one.key.startswith("exact.")}
    assert set(exact.values()) == {"holds"}
    assert values["osc.crps_ratio_to_exact"]["mean"] < 1.4
    for method in ("kineflow", "first_order_flow", "linear_gaussian", "seasonal_naive", "dlinear"):
        assert np.isfinite(values[f"osc.crps.{method}"]["mean"])
    assert len(list((tmp_path / "figures").glob("*.png"))) >= 8
    assert "noisewright data fetch ett" in (tmp_path / "report.html").read_text()
