"""Denoisers: what the network is told, what comes back, saving, other paths."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn

from noisewright.nets import MLP
from noisewright.paths import (
    CosineSchedule,
    DataPredictor,
    Denoiser,
    EDMSchedule,
    GaussianPath,
    LinearBetaSchedule,
    RectifiedSchedule,
    SigmoidSchedule,
)
from noisewright.random import isolated
from noisewright.testing import gaussian_denoiser
from noisewright.types import KINDS, InputError


def listening(heard):
    def net(state, t):
        heard.append(t)
        return torch.zeros_like(state)

    return net


def test_clock_is_the_noise_time_or_the_bounded_log_snr():
    heard = []
    path = GaussianPath(RectifiedSchedule())
    times = torch.tensor([0.0, 0.25, 1.0])
    for clock in ("time", "logsnr"):
        Denoiser(listening(heard), path, clock=clock)(torch.ones(3, 2), times)
    assert heard[0].tolist() == [0.0, 0.25, 1.0]
    assert heard[1].tolist() == pytest.approx([20.0, 2 * math.log(3), -20.0])
    assert {t.dtype for t in heard} == {torch.float32}


def test_a_scalar_time_is_told_to_every_row():
    heard = []
    Denoiser(listening(heard), GaussianPath(RectifiedSchedule()))(torch.ones(3, 2), 0.5)
    assert heard[0].tolist() == [0.5] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_prediction_of_any_kind_of_gaussian_data(kind):
    """A network that is exact in its own kind denoises as the exact predictor of the data does."""
    path = GaussianPath(LinearBetaSchedule() if kind != "velocity" else RectifiedSchedule())
    exact = gaussian_denoiser(path, mean=0.5, variance=torch.tensor(0.3, dtype=torch.float64))
    state = path.prior(torch.empty(4, 3, dtype=torch.float64), seed=0)
    t = torch.tensor([0.2, 0.5, 0.7, 0.9], dtype=torch.float64)

    def net(state, _):
        return exact.predict(state, t, kind=kind)

    denoiser = Denoiser(net, path, kind=kind)
    assert torch.allclose(denoiser(state, t), exact(state, t), atol=1e-8)
    for wanted in KINDS:
        assert torch.allclose(
            denoiser.predict(state, t, kind=wanted), exact.predict(state, t, kind=wanted), atol=1e-7
        )


def test_prediction_without_a_kind_is_the_network_untouched():
    denoiser = Denoiser(lambda state, t: state * t[:, None], GaussianPath(RectifiedSchedule()))
    assert denoiser.predict(torch.ones(2, 1), 0.25)[:, 0].tolist() == [0.25, 0.25]


def test_condition_reaches_the_network():
    denoiser = Denoiser(
        lambda state, t, label: state * label[:, None],
        GaussianPath(RectifiedSchedule()),
        kind="data",
    )
    label = torch.tensor([2.0, 3.0])
    assert denoiser(torch.ones(2, 1), 0.5, label=label)[:, 0].tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [(LinearBetaSchedule(), "infinitely fast"), (SigmoidSchedule(), "infinitely fast")],
)
def test_velocity_is_refused_where_levels_change_infinitely_fast(schedule, reason):
    with pytest.raises(InputError, match=reason):
        Denoiser(listening([]), GaussianPath(schedule))


@pytest.mark.parametrize(
    ("options", "words"),
    [({"kind": "nois"}, "did you mean 'noise'"), ({"clock": "tim"}, "did you mean 'time'")],
)
def test_unknown_names_are_refused_with_the_nearest(refuses, options, words):
    with refuses(words):
        Denoiser(listening([]), GaussianPath(RectifiedSchedule()), **options)


def test_another_path_leaves_the_first_denoiser_alone():
    path, tops = GaussianPath(EDMSchedule(80.0)), torch.tensor([5.0, 80.0])
    denoiser = Denoiser(listening([]), path, kind="noise")
    other = denoiser.on(GaussianPath(EDMSchedule(tops)))
    assert denoiser.path is path
    assert other.path.batch == 2
    assert other.net is denoiser.net
    with pytest.raises(InputError, match="no signal"):
        denoiser.on(GaussianPath(CosineSchedule()))


def test_saved_denoiser_predicts_the_same(tmp_path):
    with isolated(0):
        net = MLP(3, width=8, depth=1, time="logsnr")
        nn.init.normal_(net.head.weight)
    path = GaussianPath(CosineSchedule(), scale=1.5)
    denoiser = Denoiser(net, path, kind="v", clock="logsnr")
    denoiser.save_pretrained(tmp_path)
    again = Denoiser.from_pretrained(tmp_path, MLP)
    state, t = torch.ones(2, 3), torch.tensor([0.2, 0.9])
    assert torch.equal(again(state, t), denoiser(state, t))
    assert json.loads((tmp_path / "denoiser.json").read_text())["kind"] == "v"


def test_denoisers_are_data_predictors():
    assert isinstance(gaussian_denoiser(GaussianPath(RectifiedSchedule())), DataPredictor)


def test_denoiser_asks_the_network_which_clock_it_reads():
    with isolated(0):
        net = MLP(2, width=8, time="logsnr")
    path = GaussianPath(RectifiedSchedule())
    assert Denoiser(net, path).clock == "logsnr"
    with pytest.raises(InputError, match="reads 'logsnr'"):
        Denoiser(net, path, clock="time")
