r"""The exponential moving average of a network's weights.

.. math:: \bar\theta_n = \beta_n \bar\theta_{n-1} + (1 - \beta_n) \theta_n,
   \qquad \beta_n = \min\!\left(\beta, \frac{1 + n}{10 + n}\right)

The smaller :math:`\beta_n` of the first updates (``warmup``) keeps the initial weights from
lingering in the average.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from noisewright.types import InputError

__all__ = ["Average"]


class Average:
    r"""A running average of a module's parameters and buffers, to look through or to keep.

    The values are held in at least float32, on the device where the module's are. Buffers that are
    not floating point (counters) are copied.

    Args:
        module: Whose weights are averaged; it is only changed inside :meth:`applied`.
        decay: :math:`\beta` in [0, 1); nearer to 1 is smoother.
        warmup: Whether early updates use a smaller decay.

    Attributes:
        updates: Number of updates so far.

    Example:
        >>> net = nn.Linear(1, 1, bias=False)
        >>> average = Average(net, decay=0.5, warmup=False)
        >>> _ = nn.init.constant_(net.weight, 4.0), average.values["weight"].fill_(2.0)
        >>> average.update()
        >>> with average.applied():
        ...     net.weight.item()
        3.0
        >>> net.weight.item()
        4.0
    """

    def __init__(self, module: nn.Module, decay: float = 0.999, *, warmup: bool = True) -> None:
        if not 0 <= decay < 1:
            raise InputError(f"decay={decay} must lie in [0, 1); 0.999 is common")
        self.module = module
        self.decay = decay
        self.warmup = warmup
        self.updates = 0
        self.values = {name: _wide(value) for name, value in self._live().items()}
        self._depth = 0

    def _live(self) -> dict[str, Tensor]:
        return {
            name: value.detach()
            for group in (self.module.named_parameters(), self.module.named_buffers())
            for name, value in group
        }

    @property
    def current_decay(self) -> float:
        """The decay that the next update uses."""
        early = (1 + self.updates) / (10 + self.updates)
        return min(self.decay, early) if self.warmup else self.decay

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the module's present weights.

        Raises:
            RuntimeError: Inside :meth:`applied`, where the module holds the average itself.
        """
        if self._depth:
            raise RuntimeError("Average.update() inside applied(): the live weights are set aside")
        averages, targets = [], []
        for name, value in self._live().items():
            average = self.values[name]
            if average.device != value.device:
                average = self.values[name] = average.to(value.device)
            if value.is_floating_point():
                averages.append(average)
                targets.append(value.to(average.dtype))
            else:
                average.copy_(value)
        torch._foreach_lerp_(averages, targets, 1 - self.current_decay)
        self.updates += 1

    @contextmanager
    def applied(self) -> Iterator[nn.Module]:
        """Give the module the averaged weights inside the block, and its own back afterwards.

        The live weights come back bit for bit, also when the block raises; blocks may nest.

        Yields:
            The module.
        """
        live = {name: value.clone() for name, value in self._live().items()}
        self._write(self.values)
        self._depth += 1
        try:
            yield self.module
        finally:
            self._depth -= 1
            self._write(live)

    def averaged(self) -> nn.Module:
        """Return a copy of the module that carries the averaged weights, in evaluation mode."""
        with self.applied() as module:
            return copy.deepcopy(module).eval()

    def state_dict(self) -> dict[str, Any]:
        """Return everything that :meth:`load_state_dict` needs, tensors and plain values."""
        return {
            "decay": self.decay,
            "warmup": self.warmup,
            "updates": self.updates,
            "values": {name: value.clone() for name, value in self.values.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state_dict` returned.

        Raises:
            InputError: If it belongs to a module with other weights.
        """
        shapes = {name: tuple(value.shape) for name, value in self.values.items()}
        given = {name: tuple(value.shape) for name, value in state["values"].items()}
        if shapes != given:
            odd = sorted(set(shapes.items()) ^ set(given.items()))
            raise InputError(f"the stored average is of another network; differing: {odd[:4]}")
        self.decay, self.warmup, self.updates = state["decay"], state["warmup"], state["updates"]
        for name, value in state["values"].items():
            self.values[name] = value.to(self.values[name]).clone()

    @torch.no_grad()
    def _write(self, values: dict[str, Tensor]) -> None:
        for name, value in self._live().items():
            value.copy_(values[name])


def _wide(value: Tensor) -> Tensor:
    """Return a copy in at least float32, or in its own dtype if it is not floating point."""
    if not value.is_floating_point():
        return value.clone()
    return value.to(torch.promote_types(value.dtype, torch.float32), copy=True)
