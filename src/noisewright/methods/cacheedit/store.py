"""What one round leaves for the next: keys and values or activations, references, outputs.

Tensors are kept on the device and in the dtype that the configuration says, blocks dealt to
devices in runs. float8 keeps a scale per token and head, so that small tokens survive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.adapters.dit import TokenGrid
from noisewright.methods.cacheedit.config import CacheEditConfig

__all__ = ["Kept", "RoundStore", "bytes_per_number"]

EIGHT_BITS = torch.float8_e4m3fn
TOP = 448.0
"""Largest number of float8_e4m3fn."""

Address = tuple[Any, ...]


def bytes_per_number(config: CacheEditConfig, computed: torch.dtype, last_axis: int) -> float:
    """Return bytes of a number in the cache, with its share of a scale.

    Args:
        config: Says the dtype of the cache.
        computed: Dtype of the model.
        last_axis: Numbers that share a scale.
    """
    dtype = config.cache_dtype or computed
    return dtype.itemsize + (4 / last_axis if dtype is EIGHT_BITS else 0)


@dataclass(frozen=True)
class Kept:
    """A tensor put away.

    Attributes:
        data: Where and how it is kept.
        scale: float32, what ``data`` is multiplied with along the last axis; None without.
        dtype: As it was computed.
        device: Where it was computed.
    """

    data: Tensor
    scale: Tensor | None
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def put(
        cls,
        tensor: Float[Tensor, "*shape"],
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> Kept:
        """Return a copy of a tensor, on a device and in a dtype.

        Args:
            tensor: Any; it is not changed.
            device: None leaves it where it is.
            dtype: None leaves it as it is.
        """
        device, dtype = device or tensor.device, dtype or tensor.dtype
        scale = None
        data = tensor.detach()
        if dtype is EIGHT_BITS:
            scale = data.float().abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / TOP
            data = data.float() / scale
            scale = scale.to(device)
        moved = data.to(device=device, dtype=dtype, copy=True)
        if device.type == "cpu" and tensor.device.type == "cuda":
            moved = moved.pin_memory()
        return cls(moved, scale, tensor.dtype, tensor.device)

    def get(self, index: Tensor | None = None) -> Tensor:
        """Return the tensor, or some of its rows along the second axis, as it was computed."""
        data, scale = self.data, self.scale
        if index is not None:
            data = _bytes(data)[:, index.to(data.device)].view(data.dtype)
            scale = None if scale is None else scale[:, index.to(scale.device)]
        data = data.to(self.device, non_blocking=True)
        if scale is not None:
            data = data.float() * scale.to(self.device, non_blocking=True)
        return data.to(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes it takes."""
        return self.data.nbytes + (0 if self.scale is None else self.scale.nbytes)


def _bytes(data: Tensor) -> Tensor:
    """Return a view that can be indexed: float8 cannot on every device."""
    return data.view(torch.uint8) if data.dtype is EIGHT_BITS else data


@dataclass
class RoundStore:
    """One round.

    Attributes:
        layers: Blocks of the model.
        devices: Where blocks are kept, dealt in runs; empty: where they were computed.
        dtype: Of the cache; None: as computed.
        layout: Batch, and how image tokens lie; set by the first call.
        times: Time of each step.
        kept: By (kind, branch, step, layer): ``"key"``, ``"value"``, ``"state"``.
        reference: By (branch, step): the activations that rounds are compared by.
        velocity: By (branch, step): the model's output for latent tokens.
    """

    layers: int
    devices: tuple[torch.device, ...] = ()
    dtype: torch.dtype | None = None
    layout: tuple[int, TokenGrid] = (0, TokenGrid(0, 0))
    times: list[float] = field(default_factory=list)
    kept: dict[Address, Kept] = field(default_factory=dict)
    reference: dict[Address, Tensor] = field(default_factory=dict)
    velocity: dict[Address, Tensor] = field(default_factory=dict)

    def put(self, kind: str, branch: str, step: int, layer: int, tensor: Tensor) -> None:
        """Put a tensor of a block away."""
        device = None
        if self.devices:
            device = self.devices[layer * len(self.devices) // self.layers]
        self.kept[kind, branch, step, layer] = Kept.put(tensor, device, self.dtype)

    def get(
        self, kind: str, branch: str, step: int, layer: int, index: Tensor | None = None
    ) -> Tensor:
        """Return a tensor of a block, or some of its tokens."""
        return self.kept[kind, branch, step, layer].get(index)

    @property
    def nbytes(self) -> int:
        """Bytes of everything."""
        plain = [*self.reference.values(), *self.velocity.values()]
        return sum(kept.nbytes for kept in self.kept.values()) + sum(t.nbytes for t in plain)
