"""Which examples a training step sees: a pure function of (seed, step).

Each epoch is a permutation of the data set that depends on (seed, epoch) alone; the epochs follow
one another without a gap, so a batch may end one and begin the next and may even be longer than
the data set. A run can therefore start at any step, and every process can cut its own rows out of
the global batch without talking to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from noisewright.random import derive_seed
from noisewright.training.streams import own_streams, seed_streams
from noisewright.types import InputError

__all__ = ["DataOrder", "batches", "dataset_size"]


class DataOrder:
    """The order of examples in an endless, shuffled pass over a data set.

    Args:
        size: Number of examples.
        batch: Examples per step.
        seed: Seed of the run.

    Example:
        >>> order = DataOrder(size=5, batch=3, seed=0)
        >>> seen = torch.cat([order.rows(0), order.rows(1)])
        >>> sorted(seen[:5].tolist())
        [0, 1, 2, 3, 4]
    """

    def __init__(self, size: int, batch: int, seed: int) -> None:
        if size < 1:
            raise InputError("the data set is empty; nothing can be learned from it")
        self.size, self.batch, self.seed = size, batch, seed
        self._epochs: dict[int, Tensor] = {}

    def rows(self, step: int) -> Tensor:
        """Return the indices of the examples of a step, shape (batch,)."""
        first = step * self.batch
        parts, done = [], 0
        while done < self.batch:
            epoch, start = divmod(first + done, self.size)
            parts.append(self._epoch(epoch)[start : start + self.batch - done])
            done += len(parts[-1])
        return torch.cat(parts)

    def _epoch(self, epoch: int) -> Tensor:
        if epoch not in self._epochs:
            generator = torch.Generator().manual_seed(derive_seed(self.seed, "epoch", epoch))
            self._epochs = {epoch: torch.randperm(self.size, generator=generator)}
        return self._epochs[epoch]


def dataset_size(dataset: Any) -> int:
    """Return the number of examples.

    Args:
        dataset: A map-style data set, a tensor, or a mapping of equally long tensors.

    Raises:
        InputError: If it has no length, or its tensors differ in length.
    """
    if isinstance(dataset, Mapping):
        sizes = {name: len(value) for name, value in dataset.items()}
        if len(set(sizes.values())) != 1:
            raise InputError(f"the tensors of the data set differ in length: {sizes}")
        return next(iter(sizes.values()))
    try:
        return len(dataset)
    except TypeError as error:
        raise InputError(
            f"{type(dataset).__name__} has no length, so its order cannot be resumed; give a "
            "map-style data set (__len__ and __getitem__)"
        ) from error


def batches(
    dataset: Any,
    order: DataOrder,
    *,
    steps: range,
    parts: Sequence[slice],
    workers: int = 0,
    pinned: bool = False,
) -> Iterator[Any]:
    """Yield, step after step, each part of the step's batch, collated.

    Tensors held in memory are indexed as a whole; other data sets are read item by item, each item
    under global streams that depend on the seed and its place in the order only, whichever process
    reads it.

    Args:
        dataset: As in :func:`dataset_size`.
        order: Which rows come when.
        steps: The steps wanted.
        parts: Slices of the global batch, one batch each.
        workers: Processes that read items; no use for tensors in memory.
        pinned: Read into page-locked memory.
    """
    take = _indexer(dataset)
    if take is not None:
        for step in steps:
            rows = order.rows(step)
            for part in parts:
                yield take(rows[part])
        return
    yield from DataLoader(
        _SeededItems(dataset, order.seed),
        batch_sampler=_Places(order, steps, parts),
        num_workers=workers,
        pin_memory=pinned,
        generator=torch.Generator().manual_seed(derive_seed(order.seed, "loader")),
    )


def _indexer(dataset: Any) -> Callable[[Tensor], Any] | None:
    """Return a function from row numbers to a batch, for data in memory."""
    if isinstance(dataset, Tensor):
        return lambda rows: dataset[rows.to(dataset.device)]
    if isinstance(dataset, TensorDataset):
        return lambda rows: [tensor[rows.to(tensor.device)] for tensor in dataset.tensors]
    if isinstance(dataset, Mapping):
        return lambda rows: {name: value[rows.to(value.device)] for name, value in dataset.items()}
    return None


class _Places:
    """For each part of each step: (place in the endless order, row of the data set) pairs."""

    def __init__(self, order: DataOrder, steps: range, parts: Sequence[slice]) -> None:
        self.order, self.steps, self.parts = order, steps, parts

    def __len__(self) -> int:
        return len(self.steps) * len(self.parts)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for step in self.steps:
            first = step * self.order.batch
            places = list(enumerate(self.order.rows(step).tolist(), start=first))
            for part in self.parts:
                yield places[part]


class _SeededItems(Dataset[Any]):
    """A data set whose random transforms depend on the seed and the place in the order."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset, self.seed = dataset, seed

    def __getitems__(self, places: list[tuple[int, int]]) -> list[Any]:
        items = []
        with own_streams(self.seed):
            for place, row in places:
                seed_streams(derive_seed(self.seed, "item", place))
                items.append(self.dataset[row])
        return items
