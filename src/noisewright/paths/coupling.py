"""Couplings: which noise goes with which data.

A coupling returns index arrays, never re-ordered tensors, and :func:`couple` applies the same index
to a whole batch record; so labels and other conditions travel with their rows by construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from noisewright.types import InputError

__all__ = ["couple", "independent_coupling", "transport_coupling"]


def independent_coupling(
    noise: Float[Tensor, "batch *event"], data: Float[Tensor, "batch *event"]
) -> Int[Tensor, " batch"]:
    """Return the identity: row i of the noise goes with row i of the data."""
    del noise
    return torch.arange(len(data), device=data.device)


def transport_coupling(
    noise: Float[Tensor, "batch *event"], data: Float[Tensor, "batch *event"]
) -> Int[Tensor, " batch"]:
    """Return the data row for each noise row under exact minibatch optimal transport.

    Squared Euclidean cost, solved by POT (Tong et al. 2024, section 3.2).

    Args:
        noise: Starting points.
        data: Examples, as many rows.

    Returns:
        A permutation ``index`` with ``data[index]`` paired to ``noise``.

    Raises:
        InputError: If the numbers of rows differ.

    Example:
        >>> data = torch.tensor([[3.0], [1.0], [2.0]])
        >>> transport_coupling(torch.tensor([[0.1], [0.3], [0.2]]), data)
        tensor([1, 0, 2])
    """
    if len(noise) != len(data):
        raise InputError(f"noise has {len(noise)} rows and data {len(data)}: they must be equal")
    if len(data) == 0:
        return independent_coupling(noise, data)
    import ot

    start = noise.detach().reshape(len(noise), -1).double().cpu()
    end = data.detach().reshape(len(data), -1).double().cpu()
    cost = torch.cdist(start, end).square().numpy()
    plan = torch.from_numpy(ot.emd([], [], cost))
    return plan.argmax(dim=1).to(data.device)


def couple(batch: Mapping[str, Any], index: Int[Tensor, " batch"]) -> dict[str, Any]:
    """Return a batch record with everything that has rows re-ordered by the same index.

    Args:
        batch: Tensors and arrays whose first axis is the batch (data, labels, masks ...), mappings
            of such, and single values that belong to the whole batch.
        index: Rows, as a coupling returns them.

    Raises:
        InputError: If the batch is no record, an entry has another number of rows, or its rows
            cannot be re-ordered as one (a list).

    Example:
        >>> couple({"data": torch.tensor([5.0, 6.0]), "label": torch.tensor([0, 1])},
        ...        torch.tensor([1, 0]))
        {'data': tensor([6., 5.]), 'label': tensor([1, 0])}
    """
    if not isinstance(batch, Mapping):
        raise InputError(
            f"couple() takes a whole batch record, got {type(batch).__name__}: data and labels "
            'must be re-ordered together, as {"data": data, "label": label}'
        )
    return {name: _reordered(name, value, index) for name, value in batch.items()}


def _reordered(name: str, value: Any, index: Tensor) -> Any:
    if isinstance(value, Mapping):
        return couple(value, index)
    if value is None or isinstance(value, (str, int, float)) or getattr(value, "ndim", None) == 0:
        return value
    if not isinstance(value, (Tensor, np.ndarray)):
        raise InputError(
            f"batch entry {name!r} is a {type(value).__name__}: its rows would stay behind; "
            "make it a tensor"
        )
    if len(value) != len(index):
        raise InputError(f"batch entry {name!r} has {len(value)} rows, the index {len(index)}")
    return (
        value[index.to(value.device)] if isinstance(value, Tensor) else value[index.cpu().numpy()]
    )
