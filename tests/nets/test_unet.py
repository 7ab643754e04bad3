from __future__ import annotations

import pytest
import torch
from torch import nn

from noisewright.nets import UNet
from noisewright.random import isolated
from noisewright.types import InputError


def test_default_network_has_about_one_and_a_half_million_weights():
    with torch.device("meta"):
        net = UNet()
    count = sum(parameter.numel() for parameter in net.parameters())
    assert 1.4e6 < count < 1.7e6


@pytest.mark.parametrize("patch", [1, 2, 3])
@pytest.mark.parametrize("size", [(1, 1), (5, 8), (16, 16), (17, 31)])
def test_any_picture_size_works(size, patch):
    with isolated(0):
        net = UNet(2, (8, 8, 8), blocks=1, vector=8, patch=patch)
    assert net(torch.ones(1, 2, *size), torch.tensor([0.5])).shape == (1, 2, *size)


def test_every_pixel_reaches_every_other_through_attention():
    with isolated(0):
        net = UNet(1, (8, 8), blocks=1, vector=8)
        for parameter in net.parameters():
            nn.init.normal_(parameter, std=0.3)
    state = torch.zeros(1, 1, 32, 32, requires_grad=True)
    net(state, torch.tensor([0.5]))[0, 0, 0, 0].backward()
    assert state.grad[0, 0, -1, -1] != 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"blocks": (1, 2)}, "differ in length"),
        ({"blocks": 0}, "at least 1"),
        ({"heads": 5}, "heads=5 must divide"),
    ],
)
def test_shape_that_cannot_be_built_is_refused(options, words):
    with pytest.raises(InputError, match=words):
        UNet(3, (8, 8, 8), **options)
