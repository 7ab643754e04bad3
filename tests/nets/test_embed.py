from __future__ import annotations

import pytest
import torch

from noisewright.nets import Conditioning, fourier_features
from noisewright.random import isolated


@pytest.mark.parametrize(("time", "span"), [("time", 1.0), ("logsnr", 40.0)])
def test_features_are_sines_and_cosines_of_one_angle(time, span):
    sine, cosine = fourier_features(torch.linspace(0, span, 50), 32, time=time).chunk(2, dim=1)
    torch.testing.assert_close(sine**2 + cosine**2, torch.ones(50, 16))


@pytest.mark.parametrize(("time", "low", "high"), [("time", 0.0, 1.0), ("logsnr", -20.0, 20.0)])
def test_far_apart_times_never_look_alike(time, low, high):
    t = torch.linspace(low, high, 101)
    gaps = torch.cdist(fourier_features(t, time=time), fourier_features(t, time=time))
    assert gaps.fill_diagonal_(9.0).min() > 0.5


def test_double_precision_time_gives_the_features_of_single_precision():
    t = torch.tensor([0.123456, 0.9])
    assert torch.equal(fourier_features(t.double()), fourier_features(t))


def test_unknown_reading_of_time_is_refused(refuses):
    with refuses("time='sigma' is unknown"):
        Conditioning(8, time="sigma")


def test_labels_beyond_the_last_class_are_an_error():
    with isolated(0):
        conditioning = Conditioning(8, classes=3)
    with pytest.raises(IndexError):
        conditioning(torch.tensor([0.5]), label=torch.tensor([4]))
