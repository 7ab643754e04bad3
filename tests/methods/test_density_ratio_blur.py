"""One flow, every blur: the walk that starts later, and the choice by labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from noisewright.methods.density_ratio import DensityRatioFlow
from noisewright.methods.density_ratio.blur import best_per_fold, start_of_blur
from noisewright.methods.density_ratio.cases import exact_fields, exact_laws
from noisewright.methods.density_ratio.ratio import Terms, density_changes, times
from noisewright.methods.density_ratio.schedule import FloorSchedule
from noisewright.paths import GaussianPath
from noisewright.types import InputError

LAWS = exact_laws(4, 1.0)


class ExactPair:
    """Conditions a and b in closed form, on the path with a floor and a bulge."""

    def __init__(self, floor: float, bulge: float) -> None:
        self.fields = exact_fields(LAWS, floor, bulge)

    def terms(self, state, t):
        parts = zip(*(self.fields(state, t, name) for name in "ab"), strict=True)
        velocity, score, divergence = map(torch.stack, parts)
        return Terms(velocity, score, divergence[..., None])

    def flow(self, state, t):
        return self.fields(state, t, "a")[0]


@pytest.mark.parametrize("bulge", [0.0, 0.5])
@pytest.mark.parametrize("blur", [0.1, 0.4, 1.5])
def test_a_walk_that_starts_later_gives_the_blurred_ratio(blur, bulge):
    start = start_of_blur(GaussianPath(FloorSchedule(0.1, bulge)), blur)
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    knots = [start * t for t in times(100)]
    found = density_changes(ExactPair(0.1, bulge), start * x, knots, solver="rk4").log_changes
    noise = blur**2 * torch.eye(4, dtype=torch.float64)
    a, b = (MultivariateNormal(LAWS[c][0], LAWS[c][1] + noise).log_prob(x) for c in "ab")
    torch.testing.assert_close(found[:, 0, 0] - found[:, 1, 0], a - b, rtol=0, atol=1e-6)


def test_the_start_is_where_the_path_is_blurred_so_much():
    path = GaussianPath(FloorSchedule(0.05, 0.3))
    for blur in (0.05, 0.3, 2.0):
        t = 1 - start_of_blur(path, blur)
        assert float(path.sigma(t) / path.alpha(t)) == pytest.approx(blur, rel=1e-9)
    assert start_of_blur(GaussianPath(FloorSchedule(0.0)), 0.0) == 1 - 1e-3


def line(count: int, apart: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 2
    return rng.normal(apart * y, 1.0)[:, None], y


PLAN = {"hidden": (16, 16), "steps": 150, "lr": 5e-3, "random_state": 0, "device": "cpu"}


def test_blurred_densities_are_normalised_and_as_wide_as_they_should_be():
    X, y = line(2000, 2.0)
    model = DensityRatioFlow(**PLAN, blur=0.8).fit(X, y)
    grid = np.linspace(-8, 9, 400)
    density = np.exp(model.log_density(grid[:, None], 1))
    step = grid[1] - grid[0]
    assert density.sum() * step == pytest.approx(1.0, abs=0.03)
    mean = (density * grid).sum() * step
    variance = (density * (grid - mean) ** 2).sum() * step
    assert variance == pytest.approx(1 + (0.8 * model.scale_) ** 2, rel=0.12)


def test_labels_without_meaning_choose_more_blur_than_the_floor():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 3)), rng.permutation(120) % 2
    long = PLAN | {"steps": 500, "cv": 2, "validation_fraction": 0.0}
    model = DensityRatioFlow(**long, blur="auto").fit(X, y)
    assert model.blur_.shape == (2,)
    assert (model.blur_ > model.sigma_min).all()
    sharp = DensityRatioFlow(**long).fit(X, y)
    assert np.abs(model.log_ratio(X, 1, 0)).mean() < np.abs(sharp.log_ratio(X, 1, 0)).mean()


def test_own_fold_has_no_say_in_its_blur():
    rng = np.random.default_rng(1)
    found = rng.normal(size=(3, 60, 2))
    own, folds = rng.permutation(60) % 2, np.arange(60) % 3
    chosen = best_per_fold(found, own, folds, 3)
    flipped = np.where(folds == 1, 1 - own, own)
    assert best_per_fold(found, flipped, folds, 3)[1] == chosen[1]


def test_saved_models_keep_their_blur(tmp_path):
    X, y = line(80, 1.0)
    model = DensityRatioFlow(**PLAN | {"steps": 20}, cv=2, blur="auto").fit(X, y)
    again = DensityRatioFlow.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.blur_, model.blur_)
    np.testing.assert_array_equal(again.log_ratio(X, 1, 0), model.log_ratio(X, 1, 0))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"blur": "auto"}, "give cv=5"),
        ({"blur": 0.001}, "at least 0.01"),
        ({"blur": float("inf")}, "blur=inf"),
        ({"blur": "wide"}, "blur='wide'"),
    ],
)
def test_a_blur_that_cannot_be_is_refused(parameters, words):
    with pytest.raises(InputError, match=words):
        DensityRatioFlow(**PLAN, **parameters).fit(*line(40, 1.0))
