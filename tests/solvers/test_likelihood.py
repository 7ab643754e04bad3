"""Likelihoods against the closed form for Gaussian data."""

from __future__ import annotations

import math

import pytest
import torch

from noisewright.paths import CosineSchedule, EDMSchedule, GaussianPath, RectifiedSchedule
from noisewright.solvers import (
    DDIM,
    DDPM,
    EulerMaruyama,
    elbo_terms,
    log_likelihood,
    logsnr_times,
    path_log_density,
)
from noisewright.testing import gaussian_denoiser
from noisewright.types import InputError

MEAN, VARIANCE = torch.tensor([0.5, -1.0, 2.0]), torch.tensor([0.3, 1.0, 2.0])
LAW = torch.distributions.Normal(MEAN.double(), VARIANCE.double().sqrt())


def examples(n=4):
    generator = torch.Generator().manual_seed(0)
    unit = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    return MEAN + VARIANCE.sqrt() * unit


def truth(data):
    return LAW.log_prob(data).sum(1)


@pytest.mark.parametrize("schedule", [RectifiedSchedule(), CosineSchedule(), EDMSchedule(2000.0)])
@pytest.mark.parametrize("divergence", ["exact", "hutchinson"])
def test_log_likelihood_of_gaussian_data(schedule, divergence):
    denoiser = gaussian_denoiser(GaussianPath(schedule), MEAN.double(), VARIANCE.double())
    got = log_likelihood(denoiser, examples(), steps=200, divergence=divergence, start=1e-6, seed=0)
    # The Jacobian is diagonal, so Rademacher probes are exact here too.
    assert torch.allclose(got, truth(examples()), atol=2e-2)


def test_log_likelihood_follows_the_prior_scale_of_each_sample():
    scale = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.float64)
    path = GaussianPath(RectifiedSchedule(), scale=scale)
    denoiser = gaussian_denoiser(path, MEAN.double(), VARIANCE.double())
    got = log_likelihood(denoiser, examples(), steps=200, start=1e-5)
    assert torch.allclose(got, truth(examples()), atol=2e-2)


def test_elbo_is_a_bound_that_closes_with_more_steps():
    path = GaussianPath(EDMSchedule(80.0))
    denoiser = gaussian_denoiser(path, MEAN.double(), VARIANCE.double())
    data = examples(1).expand(4000, -1)
    gaps = []
    for steps in (8, 32, 128):
        times = logsnr_times(path, steps, sigma_min=1e-3)[:-1]
        bound = elbo_terms(denoiser, data, times, seed=0).total().mean()
        gaps.append(float(bound + truth(examples(1))))
    assert gaps[2] > 0
    assert gaps[1] / gaps[2] > 3  # a first-order sum: four times the steps, a quarter of the gap
    assert gaps[0] / gaps[1] > 3


def test_elbo_with_one_seed_gives_two_models_common_noise():
    path = GaussianPath(RectifiedSchedule())
    times = torch.linspace(0.99, 0.05, 9)
    same = [
        elbo_terms(gaussian_denoiser(path, MEAN, VARIANCE), examples().float(), times, seed=5)
        for _ in range(2)
    ]
    assert torch.equal(same[0].diffusion, same[1].diffusion)
    assert same[0].diffusion.shape == (4, 8)


def test_elbo_refuses_to_end_at_the_data():
    path = GaussianPath(RectifiedSchedule())
    with pytest.raises(InputError, match="end above 0"):
        elbo_terms(gaussian_denoiser(path), examples(), [1.0, 0.5, 0.0])


@pytest.mark.parametrize("solver", [DDPM(), DDIM(0.5), EulerMaruyama(1.0)])
def test_path_log_density_is_that_of_the_drawn_noise(solver):
    path = GaussianPath(RectifiedSchedule())
    denoiser = gaussian_denoiser(path, MEAN.double(), VARIANCE.double())
    noise = path.prior(examples(3), seed=0)
    solution = solver(denoiser, noise, steps=5, seed=[1, 2, 3], record="all")
    got = path_log_density(solver, denoiser, solution.trajectory, solution.times)
    # Recompute from the definition: the draws are those of the per-sample streams.
    expected = torch.zeros(3, dtype=torch.float64)
    from noisewright.random import noise_stream
    from noisewright.solvers.walk import begin_walk

    stream = noise_stream(3, seed=[1, 2, 3])
    walk = begin_walk(denoiser, noise, solution.times, {})
    for i in range(4):  # the fifth step ends at the data and draws nothing
        z = stream.normal_like(noise)
        std = solver.transition(walk, i, solution.trajectory[i]).std.flatten().expand(3)
        expected += -0.5 * z.square().sum(1) - 3 * (std.log() + 0.5 * math.log(2 * math.pi))
    assert torch.allclose(got, expected, atol=1e-8)


@pytest.mark.parametrize("bad", [{"steps": 0}, {"steps": 3, "probes": 0}, {"steps": 3, "start": 1}])
def test_log_likelihood_refuses_bad_arguments(bad):
    denoiser = gaussian_denoiser(GaussianPath(RectifiedSchedule()))
    with pytest.raises(InputError, match="must be at least 1"):
        log_likelihood(denoiser, examples(), **bad)
