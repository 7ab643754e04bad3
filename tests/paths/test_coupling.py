"""Couplings: a permutation, never dearer than chance, and labels that travel."""

from __future__ import annotations

import ot  # noqa: F401 - first, here: it brings matplotlib, whose import moves the stream of `random`
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from noisewright.paths import couple, independent_coupling, transport_coupling


def points(seed, rows, width, grid):
    """Random points; on a coarse grid many coincide."""
    stream = torch.Generator().manual_seed(seed)
    noise, data = torch.randn(2, rows, width, generator=stream, dtype=torch.float64)
    return (noise.round(), data.round()) if grid else (noise, data)


batches = st.builds(
    points, st.integers(0, 10**6), st.integers(1, 16), st.integers(1, 3), st.booleans()
)


def cost(noise, data, index):
    return float((noise - data[index]).square().sum())


@given(batches)
def test_transport_is_the_cheapest_permutation(batch):
    noise, data = batch
    index = transport_coupling(noise, data)
    assert sorted(index.tolist()) == list(range(len(data)))
    assert cost(noise, data, index) <= cost(noise, data, independent_coupling(noise, data)) + 1e-9
    rows, columns = linear_sum_assignment(torch.cdist(noise, data).square().numpy())
    best = float((noise[rows] - data[columns]).square().sum())
    assert cost(noise, data, index) == pytest.approx(best, abs=1e-9)


@given(batches)
def test_labels_travel_with_their_rows(batch):
    noise, data = batch
    record = {"data": data, "label": data[:, 0].clone(), "mask": data > 0}
    paired = couple(record, transport_coupling(noise, data))
    assert torch.equal(paired["label"], paired["data"][:, 0])
    assert torch.equal(paired["mask"], paired["data"] > 0)


def test_on_a_line_transport_sorts():
    noise, data = points(0, 12, 1, grid=False)
    paired = data[transport_coupling(noise, data)]
    assert torch.equal(noise[:, 0].argsort(), paired[:, 0].argsort())


def test_pictures_are_compared_as_vectors():
    noise, data = points(1, 6, 12, grid=False)
    flat = transport_coupling(noise, data)
    shaped = transport_coupling(noise.reshape(6, 3, 2, 2), data.reshape(6, 3, 2, 2))
    assert torch.equal(flat, shaped)


def test_empty_batch_gives_an_empty_index():
    assert transport_coupling(torch.empty(0, 2), torch.empty(0, 2)).shape == (0,)


def test_different_numbers_of_rows_are_refused(refuses):
    with refuses("3 rows and data 2"):
        transport_coupling(torch.ones(3, 1), torch.ones(2, 1))
