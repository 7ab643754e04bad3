"""Guidance against closed forms on Gaussian laws."""

from __future__ import annotations

import pytest
import torch

from noisewright.paths import Denoiser, GaussianPath, RectifiedSchedule
from noisewright.solvers import DDIM, Euler, Heun
from noisewright.steering import ClassifierFree, GradientGuidance, rescale_spread, stack
from noisewright.testing import denoiser_checks, gaussian_denoiser
from noisewright.types import InputError

PATH = GaussianPath(RectifiedSchedule())


def two_classes():
    """Predict the mean of the class: labels 0 and 1 sit at -1 and +1, None at 0."""

    def net(state, t, label=None):
        means = torch.zeros(len(state)) if label is None else 2.0 * label - 1.0
        return means.to(state.dtype)[:, None].expand_as(state)

    return Denoiser(net, PATH, kind="data")


def noise(batch=3):
    return PATH.prior(torch.empty(batch, 2), seed=0)


LABELS = torch.tensor([0, 1, 1])


@pytest.mark.parametrize(("weight", "factor"), [(0.0, 0.0), (1.0, 1.0), (3.0, 3.0), (-1.0, -1.0)])
def test_weight_is_affine(weight, factor):
    guided = ClassifierFree(two_classes(), weight)
    expected = factor * (2.0 * LABELS - 1.0)[:, None].expand(3, 2)
    assert torch.equal(guided(noise(), torch.full((3,), 0.5), label=LABELS), expected)


@pytest.mark.parametrize(("weight", "calls"), [(0.0, 4), (1.0, 4), (2.0, 8)])
def test_calls_count_the_network_not_the_wrapper(weight, calls):
    guided = ClassifierFree(two_classes(), weight)
    assert Euler()(guided, noise(), steps=4, label=LABELS).calls == calls


def test_interval_limits_guidance_and_its_calls():
    guided = ClassifierFree(two_classes(), 5.0, interval=(0.4, 0.6))
    solution = Euler()(guided, noise(), times=[1.0, 0.5, 0.1, 0.0], label=LABELS)
    assert solution.calls == 4  # three steps, one of them inside


def test_interval_acts_row_by_row():
    guided = ClassifierFree(two_classes(), 5.0, interval=(0.4, 0.6))
    got = guided(noise(), torch.tensor([0.5, 0.9, 0.5]), label=LABELS)
    assert got[:, 0].tolist() == [-5.0, 1.0, 5.0]


@pytest.mark.parametrize("bad", [{"interval": (0.6, 0.4)}, {"rescale": 1.5}])
def test_classifier_free_refuses_bad_ranges(bad):
    with pytest.raises(InputError, match="must"):
        ClassifierFree(two_classes(), 2.0, **bad)


def test_full_rescale_has_the_conditional_spread():
    generator = torch.Generator().manual_seed(0)
    guided, conditional = torch.randn(2, 4, 3, 5, generator=generator).unbind(0)
    got = rescale_spread(3 * guided, conditional, 1.0)
    assert torch.allclose(got.std(dim=(1, 2)), conditional.std(dim=(1, 2)), rtol=1e-5)
    assert torch.equal(rescale_spread(guided, conditional, 0.0), guided)


def test_gradient_guidance_gives_the_product_of_gaussians():
    """N(0, 1) times exp(c x) is N(c, 1); the log reward is linear, so the formula is exact."""
    c = 0.8
    inner = gaussian_denoiser(PATH, variance=torch.tensor(1.0, dtype=torch.float64))
    guided = GradientGuidance(inner, lambda data: c * data.sum(1))
    start = PATH.prior(torch.empty(4000, 1, dtype=torch.float64), seed=0)
    end = Heun()(guided, start, steps=60).state
    assert abs(float(end.mean()) - c) < 0.05
    assert abs(float(end.var()) - 1) < 0.06


def test_gradient_guidance_is_finite_without_signal():
    guided = GradientGuidance(gaussian_denoiser(PATH), lambda d: -d.square().sum(1))
    state = noise()
    assert torch.equal(guided(state, torch.ones(3)), guided.inner(state, torch.ones(3)))


def test_wrappers_stack():
    double = stack(
        two_classes(), lambda d: ClassifierFree(d, 2.0), lambda d: ClassifierFree(d, 3.0)
    )
    # The outer wrapper's unconditional branch asks the inner one without a label: 0.
    solution = DDIM()(double, noise(), steps=5, label=LABELS)
    assert torch.allclose(solution.state[:, 0], torch.tensor([-6.0, 6.0, 6.0]))
    assert solution.calls == 20


WRAPPED = {
    "classifier-free": lambda d: ClassifierFree(d, 2.0, unconditional={}),
    "gradient": lambda d: GradientGuidance(d, lambda data: -data.square().flatten(1).sum(1)),
    "both": lambda d: GradientGuidance(
        ClassifierFree(d, 2.0, unconditional={}, rescale=0.7),
        lambda data: -data.square().flatten(1).sum(1),
    ),
}


@pytest.mark.parametrize("check", denoiser_checks(), ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", WRAPPED)
def test_wrapper_contract(name, check):
    generator = torch.Generator().manual_seed(0)
    denoiser = gaussian_denoiser(PATH, mean=0.3, variance=0.5)
    check(WRAPPED[name](denoiser), torch.randn(3, 2, 4, generator=generator))
