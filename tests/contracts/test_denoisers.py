"""Every kind, clock and network, and every wrapper, passes every denoiser check."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from noisewright.nets import MLP, DiT, UNet
from noisewright.paths import (
    CosineSchedule,
    Denoiser,
    EDMSchedule,
    GaussianPath,
    LinearBetaSchedule,
    RectifiedSchedule,
    ShiftedCosineSchedule,
    TableSchedule,
)
from noisewright.random import isolated
from noisewright.steering import ClassifierFree, GradientGuidance, stack
from noisewright.testing import denoiser_checks, gaussian_denoiser

RECTIFIED = GaussianPath(RectifiedSchedule())
FADING = GaussianPath(LinearBetaSchedule())  # a little signal is left: noise and score work
PER_SAMPLE = torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64)
NETS = {
    "mlp": (lambda clock: MLP(6, width=16, depth=1, time=clock), (6,)),
    "unet": (
        lambda clock: UNet(1, (8, 8), blocks=1, vector=8, heads=2, time=clock),
        (1, 8, 8),
    ),
    "dit": (lambda clock: DiT(1, width=16, depth=1, heads=2, patch=4, time=clock), (1, 8, 8)),
}


def awake(build, clock):
    """A network whose layers that start at zero have moved."""
    with isolated(0):
        net = build(clock)
        for parameter in net.parameters():
            nn.init.normal_(parameter, std=0.1)
    return net.eval()


def states(shape, dtype=torch.float32):
    stream = torch.Generator().manual_seed(0)
    return torch.randn(3, *shape, generator=stream, dtype=dtype)


CASES = {
    f"{net}-{kind}-{clock}": (net, kind, clock)
    for net in NETS
    for kind in ("data", "noise", "velocity", "score", "v")
    for clock in ("time", "logsnr")
    if net == "mlp" or (kind, clock) in (("velocity", "time"), ("v", "logsnr"))
}


@pytest.mark.parametrize("check", denoiser_checks(), ids=lambda c: c.__name__)
@pytest.mark.parametrize("case", CASES)
def test_network_contract(case, check):
    name, kind, clock = CASES[case]
    build, shape = NETS[name]
    path = FADING if kind in ("noise", "score") else RECTIFIED
    with torch.no_grad():
        check(Denoiser(awake(build, clock), path, kind=kind, clock=clock), states(shape))


PATHS = {
    "cosine": GaussianPath(CosineSchedule()),
    "edm": GaussianPath(EDMSchedule(20.0)),
    "shifted": GaussianPath(ShiftedCosineSchedule(2.0), scale=0.5),
    "table": GaussianPath(TableSchedule(torch.linspace(0.99, 0.0, 20, dtype=torch.float64))),
}


@pytest.mark.parametrize("check", denoiser_checks(), ids=lambda c: c.__name__)
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("kind", ["data", "v"])
def test_denoiser_contract_on_every_path(path, kind, check):
    with torch.no_grad():
        check(
            Denoiser(awake(NETS["mlp"][0], "logsnr"), path, kind=kind, clock="logsnr"), states((6,))
        )


@pytest.mark.parametrize("check", denoiser_checks(), ids=lambda c: c.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exact_denoiser_contract(check, dtype):
    check(gaussian_denoiser(RECTIFIED, mean=0.3, variance=0.5), states((2, 4), dtype))


WRAPPERS = {
    "classifier-free": lambda d: ClassifierFree(d, 3.0, interval=(0.1, 0.9), rescale=0.7),
    "gradient": lambda d: GradientGuidance(d, lambda x: -x.square().flatten(1).sum(1)),
    "stack": lambda d: stack(
        d,
        lambda inner: ClassifierFree(inner, 2.0),
        lambda inner: GradientGuidance(inner, lambda x: x.flatten(1).sum(1), weight=0.1),
    ),
}


@pytest.mark.parametrize("check", denoiser_checks(), ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", WRAPPERS)
def test_wrapper_contract_around_a_network(name, check):
    net = awake(lambda clock: MLP(6, width=16, depth=1, time=clock, classes=3), "time")
    check(WRAPPERS[name](Denoiser(net, RECTIFIED).requires_grad_(False)), states((6,)))


def test_row_of_a_path_per_sample_is_the_path_of_that_sample():
    net = awake(NETS["mlp"][0], "logsnr")
    paths = GaussianPath(ShiftedCosineSchedule(PER_SAMPLE), scale=PER_SAMPLE.sqrt())
    state, t = states((6,)), torch.tensor([0.2, 0.5, 0.9])
    with torch.no_grad():
        together = Denoiser(net, paths, kind="v", clock="logsnr")(state, t)
        for i in range(3):
            rows = slice(i, i + 1)
            alone = Denoiser(net, paths.select(rows), kind="v", clock="logsnr")(
                state[rows], t[rows]
            )
            assert torch.allclose(together[rows], alone, atol=1e-5)
