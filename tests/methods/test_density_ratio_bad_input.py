"""What cannot work is refused before long work, with the value and the remedy."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from noisewright.methods.density_ratio import DensityRatioFlow
from noisewright.types import InputError

MODEL = DensityRatioFlow(hidden=(8,), steps=2, batch_size=16, random_state=0, device="cpu")
X = np.random.default_rng(0).standard_normal((40, 3))
Y = np.repeat(["ctrl", "stim"], 20)


@pytest.fixture(scope="module")
def fitted() -> DensityRatioFlow:
    return clone(MODEL).fit(X, Y)


def _spoilt(value: float) -> np.ndarray:
    spoilt = X.copy()
    spoilt[[7, 9], 1] = value
    return spoilt


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_counted_with_the_first_row(fitted, value):
    for call in (
        lambda: clone(MODEL).fit(_spoilt(value), Y),
        lambda: fitted.log_ratio(_spoilt(value), "stim", "ctrl"),
    ):
        with pytest.raises(InputError, match="2 of 40 rows, first in row 7"):
            call()


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(InputError, match=r"shape \(40,\)"):
        clone(MODEL).fit(X[:, 0], Y)
    with pytest.raises(InputError, match=r"40 samples.*\(39,\)"):
        clone(MODEL).fit(X, Y[:39])
    with pytest.raises(InputError, match=r"sample_weight has shape \(3,\)"):
        clone(MODEL).fit(X, Y, sample_weight=[1, 1, 1])


def test_one_condition_is_refused_unless_allowed():
    with pytest.raises(InputError, match=r"need at least two conditions, got 1 \('ctrl'\)"):
        clone(MODEL).fit(X, ["ctrl"] * 40)
    alone = clone(MODEL).set_params(allow_single=True).fit(X, ["ctrl"] * 40)
    assert np.isfinite(alone.log_density(X, "ctrl")).all()
    assert alone.sample(3, "ctrl", n_steps=2).shape == (3, 3)


def test_small_conditions_warn_and_single_samples_are_refused():
    with pytest.warns(UserWarning, match="'rare' has only 4 samples"):
        clone(MODEL).fit(X, [*Y[:36], *["rare"] * 4])
    with pytest.raises(InputError, match="'once' has 1 sample"):
        clone(MODEL).fit(X, [*Y[:39], "once"])


def test_unknown_labels_list_the_known_ones(fitted):
    with pytest.raises(KeyError, match="unknown condition 'stimm'; known: 'ctrl', 'stim'"):
        fitted.log_ratio(X, "stimm", "ctrl")
    with pytest.raises(KeyError, match="known"):
        fitted.log_ratio(X, "stim", "ctrl", along=["ctrl"] * 39 + ["who"])


@pytest.mark.parametrize("absent", [None, np.nan])
def test_missing_labels_are_counted(absent):
    with pytest.raises(InputError, match="3 samples have no condition"):
        clone(MODEL).fit(X, [*Y[:37], absent, absent, absent])


def test_number_of_features_must_agree(fitted):
    with pytest.raises(InputError, match="X has 5 features, expected 3"):
        fitted.log_ratio(np.ones((2, 5)), "stim", "ctrl")


def test_constant_feature_is_fine_and_all_constant_is_not():
    some = X.copy()
    some[:, 1] = 3.0
    assert np.isfinite(clone(MODEL).fit(some, Y).log_ratio(some, "stim", "ctrl")).all()
    with pytest.raises(InputError, match="all 3 features are constant"):
        clone(MODEL).fit(np.ones_like(X), Y)


def test_same_condition_twice_is_zero_without_a_walk(fitted):
    assert (fitted.log_ratio(X, "stim", "stim", n_steps=10**9) == 0).all()


def test_open_queries_need_label_dropout(fitted):
    with pytest.raises(InputError, match="label_dropout"):
        fitted.log_ratio(X, "unconditional", "ctrl")


def test_single_and_empty_queries_work(fitted):
    assert fitted.log_ratio(X[:1], "stim", "ctrl", n_steps=2).shape == (1,)
    assert fitted.log_ratio(np.empty((0, 3)), "stim", "ctrl").shape == (0,)
    assert fitted.log_ratio_matrix(np.empty((0, 3))).shape == (0, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sigma_min": -0.1}, "sigma_min=-0.1"),
        ({"sigma": -1.0}, "sigma=-1.0"),
        ({"hidden": (8, 16)}, "hidden"),
        ({"hidden": ()}, "hidden"),
        ({"steps": 0}, "steps=0"),
        ({"label_dropout": 1.0}, "label_dropout"),
        ({"cv": 1}, "cv=1"),
        ({"cv": 50}, "cv=50 exceeds"),
    ],
)
def test_parameters_that_cannot_work_are_refused(change, words):
    with pytest.raises(InputError, match=words):
        clone(MODEL).set_params(**change).fit(X, Y)


def test_settings_of_the_walk_are_checked(fitted):
    for wrong, words in (
        ({"solver": "midpiont"}, "midpoint"),
        ({"n_steps": 0}, "n_steps=0"),
        ({"divergence": "guess"}, "hutchinson"),
        ({"n_probes": 0}, "n_probes=0"),
    ):
        with pytest.raises(InputError, match=words):
            fitted.log_ratio(X, "stim", "ctrl", **wrong)


def test_no_floor_starts_a_little_off_the_data():
    model = clone(MODEL).set_params(sigma_min=0.0).fit(X, Y)
    for solver in ("midpoint", "dopri5"):
        r = model.log_ratio(X[:4], "stim", "ctrl", solver=solver, n_steps=5)
        assert np.isfinite(r).all()


def test_continuous_conditions_are_out_of_scope_and_few_numbers_are_labels():
    with pytest.raises(TypeError, match="40 different numbers"):
        clone(MODEL).fit(X, np.linspace(0, 1, 40))
    assert clone(MODEL).fit(X, np.repeat([0, 10], 20)).conditions_ == [0, 10]


def test_reserved_words_are_no_conditions():
    with pytest.raises(InputError, match="reserved"):
        clone(MODEL).fit(X, np.where(Y == "ctrl", "unconditional", "stim"))
