"""Divisions by zero at the ends, rounding of times, and predictions without spread."""

from __future__ import annotations

import pytest
import torch

from noisewright.nets import MLP, fourier_features
from noisewright.paths import (
    CosineSchedule,
    Denoiser,
    GaussianPath,
    RectifiedSchedule,
    TableSchedule,
)
from noisewright.random import isolated
from noisewright.solvers import DDIM, DPMSolverPP, Euler, EulerMaruyama, table_times, uniform_times
from noisewright.steering import ClassifierFree, rescale_spread
from noisewright.types import InputError

RESCALED = torch.tensor([0.99, 0.7, 0.3, 0.0], dtype=torch.float64)
SILENT = {
    "rectified": GaussianPath(RectifiedSchedule()),
    "cosine": GaussianPath(CosineSchedule()),
    "rescaled-table": GaussianPath(TableSchedule(RESCALED)),
}


def copycat(state, t):
    return state


@pytest.mark.parametrize("path", SILENT.values(), ids=SILENT)
@pytest.mark.parametrize("kind", ["noise", "score"])
def test_noise_prediction_with_zero_terminal_signal_divides_by_zero(path, kind):
    """huggingface/diffusers#3851: the first step gave infinities that clipping then hid."""
    with pytest.raises(InputError, match=r"no signal is left at t = 1.*'data'"):
        Denoiser(copycat, path, kind=kind)


@pytest.mark.parametrize("path", SILENT.values(), ids=SILENT)
@pytest.mark.parametrize("kind", ["data", "velocity", "v"])
@pytest.mark.parametrize("solver", [Euler(), DDIM(1.0), DPMSolverPP(), EulerMaruyama()], ids=str)
def test_kinds_named_by_the_refusal_stay_finite(path, kind, solver):
    tabled = isinstance(path.schedule, TableSchedule)
    if tabled and kind == "velocity":
        with pytest.raises(InputError, match=r"stand still.*'v'"):
            Denoiser(copycat, path, kind="velocity")
        return
    denoiser = Denoiser(copycat, path, kind=kind)
    for steps in (1, 4):
        times = table_times(path, steps) if tabled else uniform_times(path, steps)
        seen = []
        solver(denoiser, torch.ones(2, 3), times=times, seed=0, watch=seen.append)
        assert len(seen) == steps
        assert all(bool(s.state.isfinite().all() and s.data.isfinite().all()) for s in seen)


def test_refusal_names_every_kind_that_works():
    for path in SILENT.values():
        with pytest.raises(InputError) as caught:
            Denoiser(copycat, path, kind="noise")
        for kind in str(caught.value).split("kinds that do: ")[1].split(", "):
            Denoiser(copycat, path, kind=kind.strip("'"))


def test_times_rounded_by_half_precision_before_they_reach_the_embedding():
    """huggingface/diffusers#9405: a time of 750 became 752."""
    t = torch.tensor([0.7505])
    rounded = t.bfloat16().float()
    assert rounded != t
    assert (fourier_features(t) - fourier_features(rounded)).abs().max() > 0.1
    told = []

    def net(state, t):
        told.append((state.dtype, t.dtype, t[0].item()))
        return state

    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        denoiser = Denoiser(net, GaussianPath(RectifiedSchedule()), kind="velocity")
        end = Euler()(denoiser, torch.ones(1, 2, dtype=dtype), times=[1.0, 0.7505, 0.0])
        assert end.state.dtype == dtype
        assert told[-2:] == [(dtype, torch.float32, 1.0), (dtype, torch.float32, t.item())]


def test_network_in_bfloat16_hears_the_exact_time():
    with isolated(0):
        net = MLP(3, width=16, depth=1).to(torch.bfloat16)
    with torch.no_grad():
        net.head.weight.fill_(0.1)
    heard = []
    net.conditioning.register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0]))
    denoiser = Denoiser(net, GaussianPath(RectifiedSchedule()))
    data = denoiser(torch.ones(2, 3, dtype=torch.bfloat16), torch.tensor(0.7505))
    assert data.dtype == torch.bfloat16
    assert torch.equal(heard[0], torch.full((2,), 0.7505))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_times_that_are_rounded_already_are_refused(dtype):
    path = GaussianPath(RectifiedSchedule())
    denoiser = Denoiser(copycat, path)
    state, t = torch.ones(2, 3), torch.full((2,), 0.75).to(dtype)
    for use in (
        lambda: denoiser(state, t),
        lambda: path.state(state, state, t),
        lambda: Euler()(denoiser, state, times=torch.tensor([1.0, 0.5, 0.0], dtype=dtype)),
        lambda: fourier_features(t),
    ):
        with pytest.raises(InputError, match="float32"):
            use()


def test_coefficients_are_computed_in_float32_for_half_precision_states():
    path = GaussianPath(CosineSchedule())
    stream = torch.Generator().manual_seed(0)
    data, noise = torch.randn(2, 64, 8, generator=stream).bfloat16().unbind(0)
    t = torch.rand(64, generator=stream)
    exact = path.state(data.double(), noise.double(), t)
    got = path.state(data, noise, t).double()
    assert ((got - exact).abs() <= 2**-8 * exact.abs() + 1e-6).all()  # one rounding, at the end


@pytest.mark.parametrize("constant", [0.0, 0.1, -3.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rescaled_guidance_returns_nan_for_a_constant_prediction(constant, dtype):
    """huggingface/diffusers#13425: division by a standard deviation of zero."""
    stream = torch.Generator().manual_seed(0)
    guided, wanted = torch.randn(2, 4, 3, 32, 32, generator=stream, dtype=torch.float64).to(dtype)
    guided = 3 * guided
    alone = rescale_spread(guided, wanted, 0.7)
    guided[2] = constant
    together = rescale_spread(guided, wanted, 0.7)
    assert torch.equal(together[2], guided[2])
    others = [0, 1, 3]
    assert torch.equal(together[others], alone[others])
    assert not torch.equal(alone[others], guided[others])
    whole = torch.full_like(guided, constant)
    assert torch.equal(rescale_spread(whole, wanted, 1.0), whole)


def test_rescaled_guidance_of_single_numbers_passes_unchanged():
    guided, wanted = torch.tensor([[1.0], [2.0]]), torch.tensor([[5.0], [6.0]])
    assert torch.equal(rescale_spread(guided, wanted, 1.0), guided)
    assert torch.equal(rescale_spread(guided[:, 0], wanted[:, 0], 1.0), guided[:, 0])


def test_rescaled_guidance_walks_through_a_constant_prediction():
    def net(state, t, label=None):
        return torch.zeros_like(state) if label is None else state

    denoiser = Denoiser(net, GaussianPath(RectifiedSchedule()), kind="data")
    guided = ClassifierFree(denoiser, 2.0, rescale=0.7)
    state = torch.stack([torch.zeros(3), torch.arange(3.0)])  # guided row 0 is constant
    end = Euler()(guided, state, steps=3, label=torch.tensor([1, 1]))
    assert torch.equal(end.state[0], torch.zeros(3))
    assert (end.state[1, 1:] != 0).all()
