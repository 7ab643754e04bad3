"""DensityRatioFlow: what it learns, and how it behaves as an estimator."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from noisewright.methods.density_ratio import DensityRatioFlow
from noisewright.methods.density_ratio.flow import LearnedFields
from noisewright.methods.density_ratio.folds import fold_rows, row_keys
from noisewright.methods.density_ratio.plan import checked_plan

SMALL = {"hidden": (24, 24), "batch_size": 256, "lr": 3e-3, "random_state": 0, "device": "cpu"}


def groups(
    sizes: dict[str, int], size: int = 2, seed: int = 0, apart: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Unit Gaussians at 0, apart, 2 apart, ... in every coordinate."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(i * apart, 1, (n, size)) for i, n in enumerate(sizes.values())]
    return np.concatenate(X), np.repeat(list(sizes), list(sizes.values()))


@pytest.fixture(scope="module")
def three() -> DensityRatioFlow:
    X, y = groups({"a": 500, "b": 500, "c": 500})
    return DensityRatioFlow(**SMALL, steps=120, label_dropout=0.2).fit(X, y)


@pytest.fixture(scope="module")
def learned() -> DensityRatioFlow:
    X, y = groups({"ctrl": 4000, "stim": 4000})
    return DensityRatioFlow(**SMALL, steps=600).fit(X, y)


QUERIES = np.random.default_rng(5).normal(0.5, 1.2, (200, 2))
TRUTH = QUERIES.sum(axis=1) - 1.0


@pytest.mark.parametrize("along", ["numerator", "denominator", "ctrl"])
def test_learned_ratio_of_gaussians(learned, along):
    r = learned.log_ratio(QUERIES, "stim", "ctrl", along=along)
    assert np.mean((r - TRUTH) ** 2) <= 0.05 * TRUTH.var()
    assert np.corrcoef(r, TRUTH)[0, 1] >= 0.98


def test_solvers_agree_on_the_learned_fields(learned):
    exact = learned.log_ratio(QUERIES, "stim", "ctrl", solver="rk4", n_steps=40)
    adaptive = learned.log_ratio(QUERIES, "stim", "ctrl", solver="dopri5")
    assert np.abs(learned.log_ratio(QUERIES, "stim", "ctrl") - exact).max() < 0.05
    assert np.abs(adaptive - exact).max() < 0.05


def test_log_density_and_samples_follow_the_data(learned):
    truth = -0.5 * ((QUERIES - 1) ** 2).sum(1) - np.log(2 * np.pi)
    density = learned.log_density(QUERIES, "stim")
    assert np.corrcoef(density, truth)[0, 1] > 0.97
    assert abs(np.mean(density - truth)) < 0.15
    drawn = learned.sample(2000, "stim", n_steps=20)
    assert np.abs(drawn.mean(axis=0) - 1).max() < 0.12
    assert np.abs(drawn.std(axis=0) - 1).max() < 0.12


def test_two_log_densities_differ_by_the_ratio(learned):
    naive = learned.log_density(QUERIES, "stim") - learned.log_density(QUERIES, "ctrl")
    r = learned.log_ratio(QUERIES, "stim", "ctrl")
    assert np.corrcoef(naive, r)[0, 1] > 0.99


def test_diagnostics_of_a_good_ratio(learned):
    X, y = groups({"ctrl": 400, "stim": 400}, seed=9)
    found = learned.diagnostics(X, y)["pairs"]["ctrl / stim"]
    assert 0.7 < found["mean_exp_r"] < 1.4
    assert found["auc"] > 0.8
    worst = max(abs(d["predicted"] - d["observed"]) for d in found["calibration"])
    assert worst < 0.2


def test_query_far_outside_is_finite_and_flagged(learned):
    X, y = np.array([[0.0, 0.0], [40.0, -40.0]]), ["ctrl", "ctrl"]
    assert np.isfinite(learned.log_ratio(X, "stim", "ctrl")).all()
    assert learned.diagnostics(X, y)["outside"].tolist() == [False, True]


def test_antisymmetric_transitive_and_zero_with_itself(three):
    X, _ = groups({"a": 20, "b": 20, "c": 20}, seed=3)

    def r(a, b):
        return three.log_ratio(X, a, b, along="b")

    assert np.abs(r("a", "c") + r("c", "a")).max() <= 1e-5
    assert np.abs(r("a", "b") + r("b", "c") - r("a", "c")).max() <= 1e-5
    assert (r("a", "a") == 0).all()


def test_matrix_columns_differ_by_the_ratios(three):
    matrix = three.log_ratio_matrix(QUERIES)
    assert matrix.shape == (200, 3)
    r = three.log_ratio(QUERIES, "a", "c", along="a")
    np.testing.assert_allclose(matrix[:, 0] - matrix[:, 2], r, atol=1e-5)


def test_mixed_guides_in_one_batch_equal_rows_alone(three):
    own = np.array(["a", "b", "c", "b", "a", "c"])
    X = QUERIES[:6]
    together = three.log_ratio(X, "a", "b", along=own)
    for i, label in enumerate(own):
        alone = three.log_ratio(X[i : i + 1], "a", "b", along=str(label))
        np.testing.assert_allclose(alone, together[i : i + 1], atol=1e-5)


def test_divergence_of_each_row_is_its_own_labels(three):
    """The trace by forward derivatives equals the one by automatic differentiation, per label."""
    net, path = three.flows_[0].net, checked_plan(three.get_params()).path
    x = torch.from_numpy(QUERIES[:4]).float()
    codes = torch.tensor([[0], [1], [2], [-1]])
    fields = LearnedFields(net, path, codes, torch.zeros(4, 1, dtype=torch.long))
    terms = fields.terms(x, 0.7)
    for k, code in enumerate(codes):
        for row in range(4):

            def u(point, code=code):
                clock = torch.tensor([0.3])
                return -net(point[None], clock, label=code[None]).chunk(2, dim=1)[0][0]

            jacobian = torch.autograd.functional.jacobian(u, x[row])
            torch.testing.assert_close(
                terms.divergence[k, row, 0], torch.trace(jacobian), rtol=1e-4, atol=1e-4
            )


def test_probes_are_unbiased_common_and_fixed(three):
    X = QUERIES[:20]
    exact = three.log_ratio(X, "a", "b", divergence="exact")
    settings = {"divergence": "hutchinson", "n_probes": 64, "return_std": True}
    r, error = three.log_ratio(X, "a", "b", **settings)
    assert np.abs(r - exact).max() < 6 * error.max() + 1e-4
    again, _ = three.log_ratio(X, "a", "b", **settings)
    np.testing.assert_array_equal(r, again)
    back = three.log_ratio(X, "b", "a", along="a", divergence="hutchinson", n_probes=64)
    np.testing.assert_allclose(back, -r, atol=1e-5)


def test_fixed_probes_give_an_adaptive_solver_a_deterministic_field(three):
    X = QUERIES[:10]
    probing = {"divergence": "hutchinson", "n_probes": 2}
    adaptive = three.log_ratio(X, "a", "b", solver="dopri5", **probing)
    fixed = three.log_ratio(X, "a", "b", solver="rk4", n_steps=40, **probing)
    np.testing.assert_allclose(adaptive, fixed, atol=2e-2)


def test_shared_affine_map_changes_no_ratio():
    X, y = groups({"a": 300, "b": 300})
    model = DensityRatioFlow(**SMALL, steps=60)
    plain = model.fit(X, y).log_ratio(QUERIES, "b", "a")
    moved = clone(model).fit(8 * X - 64, y).log_ratio(8 * QUERIES - 64, "b", "a")
    np.testing.assert_allclose(moved, plain, atol=2e-3)


def test_group_sizes_do_not_enter():
    even = groups({"a": 1500, "b": 1500})
    uneven = groups({"a": 3000, "b": 500})
    fits = [DensityRatioFlow(**SMALL, steps=300).fit(*data) for data in (even, uneven)]
    means = [float(np.mean(f.log_ratio(QUERIES, "b", "a") - TRUTH)) for f in fits]
    assert abs(means[0] - means[1]) < 0.5  # the log odds of the sizes would be -1.8


def test_cross_fit_scores_each_sample_by_a_model_that_has_not_seen_it():
    X, y = groups({"a": 30, "b": 30})
    model = DensityRatioFlow(**SMALL, steps=10, cv=3).fit(X, y)
    assert len(model.flows_) == 3
    r = model.log_ratio(X, "a", "b")
    parts = []
    for fold in range(3):
        alone = clone(model).fit(X, y)
        alone.flows_, alone.folds_ = [model.flows_[fold]], None
        rows = model.folds_ == fold
        parts.append((rows, alone.log_ratio(X[rows], "a", "b")))
    for rows, expected in parts:
        np.testing.assert_allclose(r[rows], expected, atol=1e-6)
    fresh, error = model.log_ratio(X + 0.5, "a", "b", return_std=True)
    assert (error > 0).all()
    assert np.isfinite(fresh).all()


def test_folds_spread_conditions_and_keep_equal_rows_together():
    X = np.repeat(np.arange(40.0)[:, None], 2, axis=0)
    codes = np.repeat(np.arange(2), 40)[:, None]
    folds = fold_rows(row_keys(X), codes, 4, seed=0)
    assert (folds[::2] == folds[1::2]).all()
    table = np.array(
        [[np.sum((folds == f) & (codes[:, 0] == c)) for f in range(4)] for c in (0, 1)]
    )
    assert table.min() == table.max() == 10


def test_two_label_columns_partial_and_unconditional_queries():
    X, y = groups({"a": 200, "b": 200})
    condition = pd.DataFrame({"drug": y, "donor": np.tile([1, 2], 200)})
    model = DensityRatioFlow(**SMALL, steps=30, label_dropout=0.3).fit(X, condition)
    assert model.conditions_ == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    full = model.log_ratio(X[:5], ("a", 1), ("b", 2))
    assert full.shape == (5,)
    part = model.log_ratio(X[:5], {"drug": "a"}, {"drug": "b"}, along="unconditional")
    assert np.isfinite(part).all()
    assert model.log_density(X[:5], "unconditional").shape == (5,)


def test_same_seed_same_bits_and_zero_is_a_seed():
    X, y = groups({"a": 60, "b": 60})
    model = DensityRatioFlow(**SMALL, steps=8)
    first, second = (clone(model).fit(X, y).log_ratio(X, "a", "b") for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = clone(model).set_params(random_state=1).fit(X, y).log_ratio(X, "a", "b")
    assert np.abs(other - first).max() > 1e-6


def test_saved_model_gives_the_same_ratios(tmp_path):
    X, y = groups({"a": 40, "b": 40})
    model = DensityRatioFlow(**SMALL, steps=5, cv=2).fit(X, y)
    model.save(tmp_path / "model")
    back = DensityRatioFlow.load(tmp_path / "model")
    np.testing.assert_array_equal(back.log_ratio(X, "a", "b"), model.log_ratio(X, "a", "b"))
    assert back.conditions_ == ["a", "b"]
    assert {p.name for p in (tmp_path / "model").iterdir()} == {
        "arrays.safetensors",
        "record.json",
    }


def test_it_is_an_estimator():
    model = DensityRatioFlow(steps=3, hidden=(8,))
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(lr=0.1).lr == 0.1
    with pytest.raises(NotFittedError):
        model.log_ratio([[0.0]], "a", "b")
    X, y = groups({"a": 20, "b": 20})
    before = model.get_params()
    assert model.fit(X, y) is model
    assert model.get_params() == before
    assert model.n_features_in_ == 2


def test_weights_of_zero_take_samples_out():
    X, y = groups({"a": 400, "b": 400})
    spoilt = np.concatenate([X, X[y == "a"]]), np.concatenate([y, np.repeat("b", 400)])
    weight = np.r_[np.ones(800), np.zeros(400)]
    model = DensityRatioFlow(**SMALL, steps=300).fit(*spoilt, sample_weight=weight)
    r = model.log_ratio(QUERIES, "b", "a")
    assert np.corrcoef(r, TRUTH)[0, 1] > 0.95
    assert abs(np.mean(r - TRUTH)) < 0.4
