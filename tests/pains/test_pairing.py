"""Couplings that re-order one side of a pair only."""

from __future__ import annotations

import numpy as np
import ot  # noqa: F401 - first, here: it brings matplotlib, whose import moves the stream of `random`
import pytest
import torch

from noisewright.paths import couple, independent_coupling, transport_coupling
from noisewright.types import InputError


def eight_points():
    stream = torch.Generator().manual_seed(0)
    data, noise = torch.randn(2, 8, 2, generator=stream)
    return data, noise


@pytest.mark.parametrize("coupling", [transport_coupling, independent_coupling])
def test_transport_coupling_shuffles_the_data_but_not_the_labels(coupling):
    """atong01/conditional-flow-matching#172: labels kept the order the data had before."""
    data, noise = eight_points()
    batch = {
        "data": data,
        "label": data[:, 0].clone(),
        "features": {"first": data[:, :1].clone(), "name": "points"},
        "array": data[:, 0].numpy().copy(),
        "weight": torch.tensor(2.0),
        "rate": 0.5,
    }
    index = coupling(noise, data)
    paired = couple(batch, index)
    assert torch.equal(paired["data"], data[index])
    assert torch.equal(paired["label"], paired["data"][:, 0])
    assert torch.equal(paired["features"]["first"], paired["data"][:, :1])
    assert np.array_equal(paired["array"], paired["data"][:, 0].numpy())
    assert (paired["features"]["name"], paired["weight"], paired["rate"]) == ("points", 2.0, 0.5)


def test_transport_coupling_does_reorder_these_points():
    data, noise = eight_points()
    assert transport_coupling(noise, data).tolist() != list(range(8))


def test_coupling_returns_an_index_and_no_data():
    data, noise = eight_points()
    index = transport_coupling(noise, data)
    assert index.dtype == torch.int64
    assert index.shape == (8,)


@pytest.mark.parametrize(
    "label",
    [list(range(8)), tuple(range(8)), torch.arange(7), np.arange(9), {"inner": [0] * 8}],
    ids=["list", "tuple", "short", "long", "nested list"],
)
def test_label_whose_rows_cannot_follow_is_refused(label):
    data, noise = eight_points()
    index = transport_coupling(noise, data)
    with pytest.raises(InputError, match=r"rows|stay behind"):
        couple({"data": data, "label": label}, index)


def test_bare_label_beside_a_coupling_is_refused(refuses):
    data, noise = eight_points()
    index = transport_coupling(noise, data)
    with refuses("whole batch record"):
        couple(data, index)
    with pytest.raises(TypeError):
        transport_coupling(noise, data, data[:, 0])
