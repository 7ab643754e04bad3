from __future__ import annotations

import random

import numpy as np
import pytest
import torch


@pytest.mark.global_stream  # what the guard must catch
@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda: torch.rand(1), "torch"),
        (lambda: torch.nn.Linear(2, 2), "torch"),
        (lambda: torch.manual_seed(1), "torch"),
        (lambda: np.random.rand(), "numpy"),  # noqa: NPY002
        (random.random, "random"),
    ],
)
def test_guard_catches_use_of_a_global_stream(stream_guard, draw, name):
    with pytest.raises(pytest.fail.Exception, match=name), stream_guard():
        draw()


def test_guard_lets_generators_pass(stream_guard):
    with stream_guard():
        torch.rand(1, generator=torch.Generator().manual_seed(0))
        np.random.default_rng(0).random()
        random.Random(0).random()
