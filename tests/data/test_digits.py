from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits

from noisewright.data import digits


def test_digits_are_those_of_scikit_learn():
    whole = digits("all")
    bunch = load_digits()
    restored = whole.images[:, 0].double() * 16 / 255
    assert torch.allclose(restored, torch.from_numpy(bunch.images), atol=0.04)
    assert torch.equal(whole.labels, torch.from_numpy(bunch.target).long())


def test_parts_make_the_whole():
    train, test, whole = digits(), digits("test"), digits("all")
    assert torch.equal(torch.cat([train.images, test.images]), whole.images)
    assert test.labels.unique().tolist() == list(range(10))


def test_enlarging_keeps_the_mean_brightness():
    small, large = digits(), digits(size=32, channels=3)
    assert large.images.shape[1:] == (3, 32, 32)
    assert abs(small.images.float().mean() - large.images.float().mean()) < 2


@pytest.mark.parametrize("arguments", [{"size": 4}, {"channels": 2}, {"split": "validation"}])
def test_arguments_that_cannot_work_are_refused(arguments, refuses):
    with refuses("must be"):
        digits(**arguments)
