from __future__ import annotations

import pytest
import torch
from scipy.spatial.distance import cdist

from noisewright.metrics import precision_recall
from noisewright.types import InputError


def normal(*shape, seed=0):
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=stream, dtype=torch.float64)


def slow_share(points, centres, k):
    radii = [sorted(row)[k] for row in cdist(centres, centres)]  # the 0th is the row itself
    return float((cdist(points, centres) <= radii).any(1).mean())


@pytest.mark.parametrize("k", [1, 3, 5])
def test_values_follow_the_definition(k):
    real, made = normal(60, 3), 0.7 * normal(50, 3, seed=1) + 0.4
    both = precision_recall(real, made, k=k)
    assert both.precision == pytest.approx(slow_share(made.numpy(), real.numpy(), k))
    assert both.recall == pytest.approx(slow_share(real.numpy(), made.numpy(), k))


def test_a_sample_covers_itself_and_nothing_far_away():
    real = normal(40, 4)
    assert precision_recall(real, real).precision == 1
    far = precision_recall(real, real + 100)
    assert (far.precision, far.recall) == (0, 0)


def test_a_dropped_mode_costs_recall_and_a_false_one_costs_precision():
    left, right = normal(100, 2) - 20, normal(100, 2, seed=1) + 20
    again = normal(100, 2, seed=2) - 20
    dropped = precision_recall(torch.cat([left, right]), again)
    assert dropped.precision > 0.8
    assert dropped.recall < 0.55
    false = precision_recall(left, torch.cat([again, right]))
    assert false.recall > 0.8
    assert false.precision < 0.55


def test_swapping_the_sets_swaps_the_values():
    real, made = normal(30, 2), normal(40, 2, seed=1) + 0.5
    there, back = precision_recall(real, made), precision_recall(made, real)
    assert (there.precision, there.recall) == (back.recall, back.precision)


@pytest.mark.parametrize("k", [0, 5, 6])
def test_a_neighbour_that_does_not_exist_is_refused(k):
    with pytest.raises(InputError, match=f"k={k}"):
        precision_recall(normal(5, 2), normal(9, 2), k=k)
