"""The law of spectrum parameters: choice of size, draws, classes, storage."""

from __future__ import annotations

import pytest
import sklearn.mixture  # noqa: F401 - importing it (not fitting) draws from Python's own stream
import torch

from noisewright.methods.spectral_schedule import Spectrum, SpectrumPrior, TightSchedule
from noisewright.metrics.spectra import radial_power
from noisewright.types import InputError


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def spectra(count, *, slopes=(2.5,), intercept=2.0, seed=0, side=32):
    """Power laws with slopes around each of ``slopes`` in turn."""
    layout = radial_power(torch.zeros(1, 1, side, side))
    which = torch.arange(count) % len(slopes)
    slope = torch.tensor(slopes, dtype=torch.float64)[which]
    slope = slope + 0.05 * torch.randn(count, generator=stream(seed), dtype=torch.float64)
    lift = intercept + 0.1 * torch.randn(count, generator=stream(seed + 1), dtype=torch.float64)
    k = layout.freq.clamp(min=1)
    power = torch.exp(lift[:, None] - slope[:, None] * k.log())
    return Spectrum(
        power, layout.count, power[:, -1], layout.freq, layout.corner_count, (side, side)
    )


def test_draws_have_mean_and_covariance_of_the_parameters():
    spectrum = spectra(400)
    theta = spectrum.features()
    drawn = SpectrumPrior(n_components=1).fit(spectrum).sample(20_000)
    spread = theta.std(0)
    assert torch.allclose(drawn.mean(0), theta.mean(0), atol=float(0.05 * spread.max()))
    # The ridge of 1e-3 is part of the law.
    wanted = (spread.square() * 399 / 400 + 1e-3).sqrt()
    assert torch.allclose(drawn.std(0), wanted, rtol=0.03)


def test_bic_finds_the_number_of_groups():
    one = SpectrumPrior().fit(spectra(300)).mixtures["all"]
    three = SpectrumPrior().fit(spectra(300, slopes=(1.0, 2.5, 4.0))).mixtures["all"]
    assert len(one["weights"]) == 1
    assert len(three["weights"]) == 3


def test_a_mixture_explains_grouped_spectra_better_than_one_gaussian():
    slopes = (1.0, 2.5, 4.0)
    held_out = spectra(200, slopes=slopes, seed=7).features()
    fits = [
        SpectrumPrior(n_components=n).fit(spectra(300, slopes=slopes)).log_prob(held_out).mean()
        for n in ("bic", 1)
    ]
    assert float(fits[0] - fits[1]) > 1


def test_log_density_integrates_to_one_along_a_line():
    prior = SpectrumPrior(n_components=1, features=2).fit(spectra(100))
    mixture = prior.mixtures["all"]
    center = torch.from_numpy(mixture["means"][0])
    width = torch.from_numpy(mixture["covariances"][0]).diagonal().sqrt()
    ticks = torch.linspace(-8, 8, 401, dtype=torch.float64)
    grid = torch.cartesian_prod(*(center[i] + ticks * width[i] for i in range(2)))
    cell = float((ticks[1] - ticks[0]) ** 2 * width.prod())
    assert float(prior.log_prob(grid).exp().sum() * cell) == pytest.approx(1, abs=1e-4)


def test_temperature_zero_gives_component_means_and_one_is_the_law():
    prior = SpectrumPrior().fit(spectra(300, slopes=(1.0, 4.0)))
    cold = prior.sample(50, temperature=0.0)
    means = torch.from_numpy(prior.mixtures["all"]["means"])
    assert bool((torch.cdist(cold, means).min(1).values == 0).all())
    assert len(cold.unique(dim=0)) == 2
    warm, hot = (prior.sample(4000, temperature=t) for t in (1.0, 4.0))
    near = [torch.cdist(x, means).min(1).values.square().mean() for x in (warm, hot)]
    assert float(near[1] / near[0]) == pytest.approx(4, rel=0.1)


def test_seeds_repeat_draws_and_the_first_draws_never_change():
    prior = SpectrumPrior().fit(spectra(300, slopes=(1.0, 2.5, 4.0)))
    few, many = prior.sample(3, seed=0), prior.sample(50, seed=0)
    assert torch.equal(few, prior.sample(3, seed=0))
    assert torch.allclose(few, many[:3], rtol=1e-12)
    assert not torch.equal(few, prior.sample(3, seed=1))


def test_components_are_drawn_by_their_weights():
    slopes = (1.0, 4.0, 4.0, 4.0)
    prior = SpectrumPrior(n_components=2).fit(spectra(400, slopes=slopes))
    means = torch.from_numpy(prior.mixtures["all"]["means"])
    nearest = torch.cdist(prior.sample(8000), means).argmin(1)
    share = torch.bincount(nearest, minlength=2).double() / 8000
    weights = torch.from_numpy(prior.mixtures["all"]["weights"])
    assert torch.allclose(share, weights, atol=0.02)
    assert sorted(share.tolist()) == pytest.approx([0.25, 0.75], abs=0.02)


def test_large_classes_have_their_own_law_and_small_ones_a_moved_one():
    spectrum = spectra(430, slopes=(1.0, 4.0))
    labels = torch.arange(430) % 2
    labels[400:] = 2  # thirty of both kinds
    labels[:400] = torch.arange(400) % 2
    prior = SpectrumPrior().fit(spectrum, labels)
    theta = spectrum.features()
    for label in (0, 1, 2):
        drawn = prior.sample(3000, label).mean(0)
        assert torch.allclose(drawn, theta[labels == label].mean(0), atol=0.25)
    assert len(prior.mixtures["0"]["weights"]) == 1
    small, every = prior.mixtures["2"], prior.mixtures["all"]
    assert (small["covariances"] == every["covariances"]).all()
    assert float(prior.sample(500, 0).std(0).max()) < float(prior.sample(500).std(0).max()) / 3


@pytest.mark.parametrize("known", [(0, 1), (3, 11)])
def test_unseen_labels_are_refused_listing_the_known_ones(known):
    labels = torch.tensor(known)[torch.arange(40) % 2]
    prior = SpectrumPrior().fit(spectra(40), labels)
    with pytest.raises(InputError, match=rf"label 7 .*\[{known[0]}, {known[1]}\]"):
        prior.sample(1, 7)


def test_saved_priors_draw_the_same(tmp_path):
    labels = torch.arange(60) % 2
    prior = SpectrumPrior(features=5, seed=3).fit(spectra(60), labels)
    prior.save(tmp_path / "prior")
    back = SpectrumPrior.load(tmp_path / "prior")
    assert back.size == (32, 32)
    assert (back.features, back.seed, back.n_components) == (5, 3, "bic")
    for label in (None, 0, 1):
        assert torch.equal(back.sample(9, label), prior.sample(9, label))


def test_few_images_give_one_gaussian_with_a_warning():
    with pytest.warns(UserWarning, match="12 spectra are too few for a mixture"):
        prior = SpectrumPrior(n_components=4).fit(spectra(12, slopes=(1.0, 4.0)))
    assert len(prior.mixtures["all"]["weights"]) == 1


def test_drawn_parameters_make_schedules():
    theta = SpectrumPrior().fit(spectra(60)).sample(5)
    schedule = TightSchedule.from_features(theta, (32, 32))
    assert schedule.batch == 5
    assert bool((schedule.sigmas(6).diff(dim=1) < 0).all())


def test_priors_that_cannot_work_are_refused():
    with pytest.raises(InputError, match="at least two spectra, got 1"):
        SpectrumPrior().fit(spectra(1))
    with pytest.raises(InputError, match="2 labels for 30 spectra"):
        SpectrumPrior().fit(spectra(30), torch.tensor([0, 1]))
    with pytest.raises(InputError, match="n_components=0"):
        SpectrumPrior(n_components=0)
    with pytest.raises(InputError, match="not fitted"):
        SpectrumPrior().sample(1)
    with pytest.raises(InputError, match=r"temperature=-1\.0"):
        SpectrumPrior().fit(spectra(30)).sample(1, temperature=-1.0)
