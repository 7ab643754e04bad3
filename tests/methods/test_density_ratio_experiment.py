"""The experiment in a miniature setting, on cells of one's own, and its parts."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest

from noisewright import methods
from noisewright.methods.density_ratio import baselines, experiment, mutual_information
from noisewright.methods.density_ratio.cases import (
    centred_per_group,
    correlated_pairs,
    drawn_treatment,
    exact_errors,
    gaussian_case,
    pushed_batches,
)
from noisewright.methods.density_ratio.diagnostics import pair_diagnostics
from noisewright.methods.density_ratio.settings import Settings
from noisewright.methods.density_ratio.trials import rank_correlation
from noisewright.reports import load_claims
from noisewright.reports.run import Options, execute, room_folder
from noisewright.types import InputError

CASE = gaussian_case(2, 1.0, 2000, 300, 0)

BARS = {"logreg": 0.05, "quad": 0.05, "knn": 0.5, "kde": 1.0, "rulsif": 4.0, "meld": 1.0}
"""Largest mean squared error; the variance of the truth is 3."""


@pytest.mark.parametrize("method", baselines.available_methods())
def test_every_baseline_estimates_the_ratio_of_plain_gaussians(method):
    groups = CASE.X[CASE.y == 1], CASE.X[CASE.y == 0]
    found = baselines.sample_log_ratio(method, *groups, CASE.queries, 0)
    assert np.mean((found - CASE.truth) ** 2) < BARS[method]
    again = baselines.sample_log_ratio(method, *groups, CASE.queries, 0)
    # MELD's filter rests on an eigenvalue whose iteration scipy starts anew each time.
    np.testing.assert_allclose(found, again, rtol=0, atol=0.05 if method == "meld" else 0)


@pytest.mark.parametrize("method", ["logreg", "knn"])
def test_group_sizes_do_not_enter_a_baseline(method):
    over, under = CASE.X[CASE.y == 1], CASE.X[CASE.y == 0]
    even = baselines.sample_log_ratio(method, over, under, CASE.queries, 0)
    uneven = baselines.sample_log_ratio(method, over[:200], under, CASE.queries, 0)
    assert abs(np.mean(even - uneven)) < 0.4  # the log odds of the sizes would be -1.6


def test_unknown_baseline_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'knn'"):
        baselines.sample_log_ratio("knnn", CASE.X, CASE.X, CASE.queries, 0)


def test_gaussian_case_has_the_ratio_of_its_densities():
    case = gaussian_case(3, 2.0, 10, 50, 1)
    log = [-0.5 * ((case.queries - mean) ** 2).sum(axis=1) for mean in (2.0, 0.0)]
    np.testing.assert_allclose(case.truth, log[0] - log[1])


def test_correlated_pairs_have_the_mutual_information_asked_for():
    X, Y = correlated_pairs(4, 1.2, 40_000, 0)
    covariance = np.cov(np.hstack([X, Y]).T)
    parts = [np.linalg.slogdet(covariance[i][:, i])[1] for i in (slice(0, 2), slice(2, 4))]
    assert abs(0.5 * (sum(parts) - np.linalg.slogdet(covariance)[1]) - 1.2) < 0.05


def test_drawn_treatments_follow_their_odds():
    clusters = np.repeat(["0", "1", "2"], 4000)
    treated, odds = drawn_treatment(clusters, 0.9, 0)
    shares = [treated[clusters == c].mean() for c in "012"]
    np.testing.assert_allclose(shares, [0.5, 0.9, 0.1], atol=0.03)
    np.testing.assert_allclose(np.unique(odds), [-np.log(9), 0, np.log(9)])


def test_pushed_batches_are_equal_at_strength_zero_and_centring_undoes_a_push():
    rng = np.random.default_rng(0)
    points, clusters = rng.standard_normal((300, 3)), rng.choice(["a", "b"], 300)
    still, _ = pushed_batches(points, clusters, 0.0, 0)
    np.testing.assert_array_equal(still, points)
    moved, batch = pushed_batches(points, clusters, 3.0, 0)
    corrected = centred_per_group(moved, clusters, batch)
    for cluster in "ab":
        means = [
            [table[(clusters == cluster) & (batch == b)].mean(axis=0) for b in (0, 1)]
            for table in (moved, corrected)
        ]
        assert np.linalg.norm(means[0][0] - means[0][1]) > 1
        np.testing.assert_allclose(means[1][0], means[1][1], atol=1e-9)


def test_exact_fields_meet_the_bar_of_the_claims():
    assert max(exact_errors().values()) <= 1e-4


def test_diagnostics_of_exact_ratios():
    case = gaussian_case(1, 1.0, 10, 40_000, 3)
    found = pair_diagnostics(case.truth[case.query_labels == 1], case.truth[case.query_labels == 0])
    for mean in ("mean_exp_r", "mean_exp_minus_r"):
        assert abs(found[mean] - 1) < 5 * found[f"{mean}_se"]
    assert found["auc"] == pytest.approx(0.7602, abs=0.01)  # Phi(1 / sqrt 2)
    assert all(abs(d["predicted"] - d["observed"]) < 0.04 for d in found["calibration"])


def test_rank_correlation_of_a_perfect_order_is_one():
    assert rank_correlation([0, 0.5, 1, 2], [0.01, 0.2, 0.3, 0.9]) == 1.0
    assert rank_correlation([1, 1], [0, 1]) == 0.0


def test_mutual_information_of_a_strong_pair_and_of_none():
    flow = {"hidden": (24, 24), "steps": 250, "lr": 5e-3, "batch_size": 256, "n_steps": 10}
    rng = np.random.default_rng(0)
    X = rng.standard_normal(3000)
    value, error = mutual_information(X, X + 0.5 * rng.standard_normal(3000), **flow)
    assert abs(value - 0.5 * np.log(5)) < 0.25
    assert 0 < error < 0.2
    none, _ = mutual_information(X, rng.standard_normal(3000), **flow)
    assert abs(none) < 0.15
    with pytest.raises(InputError, match="held_out"):
        mutual_information(X[:5], X[:5], **flow)


TINY = Settings(
    dims=(10,),
    shifts=(1.0,),
    samples=300,
    queries=60,
    hidden=(8,),
    steps=4,
    n_steps=2,
    step_counts=(1, 2),
    pair_steps=4,
    scale_counts=(20, 40),
    scale_large=50,
    shares=(0.5, 0.9),
    strengths=(0.0, 1.0, 2.0),
    cell_hidden=(8,),
    cell_steps=3,
    batch_hidden=(8,),
    batch_steps=3,
    batch_n_steps=2,
    folds=2,
)


@pytest.mark.skipif(
    importlib.util.find_spec("scanpy") is None or importlib.util.find_spec("anndata") is None,
    reason="the extra cells is not installed",
)
def test_miniature_run_writes_every_key_of_the_claims(tmp_path):
    room = methods.room("density_ratio")
    options = Options(out=tmp_path / "run", jobs=1, threads=1)
    result = execute(room, experiment, TINY, options)
    measured = json.loads((result.folder / "metrics.json").read_text())["values"]
    absent = {claim.key for claim in load_claims(room_folder(room) / "claims.toml")}
    absent -= {
        claim.key
        for claim in load_claims(room_folder(room) / "claims.toml")
        if claim.value(result.values) is not None
    }
    assert absent == {key for key in absent if ".2.1." in key or ".5.1." in key}, (
        "only the sets that the miniature leaves out"
    )
    assert "gauss.10.1.mse.rulsif" in measured or importlib.util.find_spec("densratio") is None
    assert (result.folder / "figures" / "landscape.png").is_file()
    assert (result.folder / "report.html").is_file()


def test_run_on_cells_of_ones_own(tmp_path):
    anndata = pytest.importorskip("anndata", reason="the extra cells is not installed")
    rng = np.random.default_rng(0)
    cells = anndata.AnnData(np.zeros((60, 2), dtype=np.float32))
    cells.obsm["X_pca"] = rng.standard_normal((60, 5))
    cells.obs["drug"] = np.tile(["a", "b"], 30)
    cells.obs["kind"] = np.repeat(["B", "T"], 30)
    cells.write_h5ad(tmp_path / "cells.h5ad")
    settings = Settings(
        h5ad=str(tmp_path / "cells.h5ad"), condition="drug", n_dims=5, groupby="kind",
        cell_hidden=(8,), cell_steps=3, folds=2, n_steps=2,
    )  # fmt: skip
    options = Options(out=tmp_path / "run", jobs=1, threads=1)
    result = execute(methods.room("density_ratio"), experiment, settings, options)
    assert "mean_ratio" in result.values
    assert {p.name for p in (result.folder / "figures").iterdir()} >= {"cells.png", "effects.png"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 0}, "--steps"),
        ({"folds": 1}, "--folds 1"),
        ({"pair_size": 3}, "--pair-size 3"),
        ({"shares": (0.2,)}, "--shares"),
        ({"strengths": (-1.0,)}, "--strengths"),
    ],
)
def test_settings_that_cannot_work_are_refused(change, words):
    with pytest.raises(InputError, match=words):
        Settings(**change).checked()
