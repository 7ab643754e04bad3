"""Where a run happens: its processes, their devices, and the rows of the batch that each takes."""

from __future__ import annotations

import os

import torch
from accelerate import Accelerator

from noisewright.types import InputError

__all__ = ["accelerator_for", "device_for", "own_parts"]


def _launched() -> int:
    """Return how many processes torchrun or accelerate launch started."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def accelerator_for(device: str | torch.device | None) -> Accelerator:
    """Return an accelerator that also joins processes that were launched on CPUs.

    Left to itself, accelerate takes each of them for a run of its own.
    """
    wanted = torch.device(device).type if device is not None else None
    cpu = wanted == "cpu" or (wanted is None and not torch.accelerator.is_available())
    return Accelerator(cpu=cpu and _launched() > 1, device_placement=False)


def device_for(device: str | torch.device | None, accelerator: Accelerator) -> torch.device:
    """Return where this process trains.

    Raises:
        InputError: If the processes that were launched do not know of each other, or were launched
            for another kind of device.
    """
    if accelerator.num_processes != _launched():
        raise InputError(
            f"{_launched()} processes were launched, but accelerate sees "
            f"{accelerator.num_processes}; on CPUs pass Accelerator(cpu=True)"
        )
    wanted = accelerator.device if device is None else torch.device(device)
    if accelerator.num_processes == 1:
        return wanted
    if wanted.type != accelerator.device.type:
        raise InputError(
            f"device={device!r}, but the processes were launched for {accelerator.device}; "
            "leave device=None under accelerate launch"
        )
    return accelerator.device  # with the number of this process's own card


def own_parts(batch: int, accumulate: int, accelerator: Accelerator) -> list[slice]:
    """Return this process's rows of the global batch, cut into parts to accumulate.

    Raises:
        InputError: If the batch cannot be cut evenly.
    """
    if accelerator.gradient_accumulation_steps != 1:
        raise InputError("the accelerator accumulates gradients itself; pass accumulate= instead")
    processes = accelerator.num_processes
    if accumulate < 1 or batch % (processes * accumulate):
        raise InputError(
            f"batch={batch} must be a multiple of processes x accumulate = {processes} x "
            f"{accumulate}"
        )
    rows = batch // (processes * accumulate)
    first = accelerator.process_index * accumulate
    return [slice(rows * i, rows * (i + 1)) for i in range(first, first + accumulate)]
