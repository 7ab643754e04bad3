"""The one training loop.

Every step is a function of (weights, seed, step): its examples, its noise and times and its dropout
come from streams that are seeded for the step, so a run that was stopped and resumed, or was spread
over more processes, is the run that would have been. The loop is an iterator; what happens
between two steps (a progress bar, a preview, an early stop) is the caller's own code, and the
global random streams that it sees are its own too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from noisewright.random import StepDraws, derive_seed
from noisewright.training.average import Average
from noisewright.training.checkpoint import (
    latest_checkpoint,
    load_optimizer,
    read_checkpoint,
    refuse_other_settings,
    shapes_of,
    write_checkpoint,
)
from noisewright.training.order import DataOrder, batches, dataset_size
from noisewright.training.plan import Decay, Plan
from noisewright.training.processes import accelerator_for, device_for, own_parts
from noisewright.training.streams import own_streams
from noisewright.types import InputError, NonFiniteError

__all__ = ["Loss", "TrainStep", "Training", "fit"]


@runtime_checkable
class Loss(Protocol):
    """What is minimised: one number per row of the batch, or their mean."""

    def __call__(self, module: Any, batch: Any, draws: StepDraws, /) -> Tensor:
        """Return the loss of ``batch``; random numbers come from ``draws``."""
        ...


@dataclass(frozen=True)
class TrainStep:
    """What is known of one finished training step.

    Attributes:
        step: Number of finished steps, this one included.
        loss: Mean over the global batch.
        rate: Learning rate that was used.
        grad_norm: Norm of the whole gradient before clipping.
        seconds: Wall time of the step.
    """

    step: int
    loss: float
    rate: float
    grad_norm: float
    seconds: float


class _Objective(nn.Module):
    """The loss as a module, so that accelerate wraps it and leaves the caller's module alone."""

    def __init__(self, module: nn.Module, loss: Loss, precision: torch.dtype | None) -> None:
        super().__init__()
        self.module, self.loss, self.precision = module, loss, precision

    def forward(self, batch: Any, draws: StepDraws) -> Tensor:
        cast = nullcontext()
        if self.precision is not None:
            cast = torch.autocast(torch.device(draws.device).type, self.precision)
        with cast:
            value = self.loss(self.module, batch, draws)
        if value.ndim > 1:
            raise InputError(
                f"the loss has shape {tuple(value.shape)}; return one number per row or their mean"
            )
        return value.float().mean()


class Training:
    """A run in progress: iterate to train; see :func:`fit`.

    Attributes:
        module: The caller's module, trained in place.
        average: Its average, if one was asked for.
        plan: The settings.
        step: Finished steps.
        losses: The loss of each finished step, those before a resume included.
    """

    def __init__(
        self,
        module: nn.Module,
        dataset: Any,
        loss: Loss,
        plan: Plan,
        *,
        optimizer: Callable[..., Optimizer] | None,
        average: Average | None,
        checkpoint: str | Path | None,
        every: int,
        accelerator: Accelerator | None,
        accumulate: int,
        workers: int,
        device: str | torch.device | None,
    ) -> None:
        if average is not None and all(average.module is not part for part in module.modules()):
            raise InputError("average= is of another module; build it as Average(module)")
        self.module, self.average, self.plan = module, average, plan
        self.step = 0
        self.losses: list[float] = []
        self.folder = None if checkpoint is None else Path(checkpoint)
        self.every = every
        self.dataset, self.workers = dataset, workers
        self.order = DataOrder(dataset_size(dataset), plan.batch, plan.seed)
        self.accelerator = accelerator or accelerator_for(device)
        self.device = device_for(device, self.accelerator)
        self.parts = own_parts(plan.batch, accumulate, self.accelerator)
        module.to(self.device)
        optimizer = optimizer or _adamw(self.device)
        parameters = [p for p in module.parameters() if p.requires_grad]
        self.parameters = parameters
        self.inner = optimizer(parameters, lr=plan.rate)
        self.peaks = [group["lr"] for group in self.inner.param_groups]
        half = torch.bfloat16 if plan.mixed_precision == "bf16" else None
        self.objective, self.optimizer = self.accelerator.prepare(
            _Objective(module, loss, half), self.inner
        )
        self._batches: Iterator[Any] | None = None
        self._resume()

    def __iter__(self) -> Iterator[TrainStep]:
        return self

    def __next__(self) -> TrainStep:
        if self.step >= self.plan.steps:
            self.module.eval()
            raise StopIteration
        began = time.perf_counter()
        if not self.module.training:
            self.module.train()
        level = self.plan.level(self.step)
        for group, peak in zip(self.inner.param_groups, self.peaks, strict=True):
            group["lr"] = peak * level
        streams = derive_seed(self.plan.seed, "streams", self.step, self.accelerator.process_index)
        with own_streams(streams, self.device):
            loss = self._differentiate()
            norm = self._clip(loss)
            self.optimizer.step()
        self.optimizer.zero_grad()
        if self.average is not None:
            self.average.update()
        self.step += 1
        self.losses.append(loss)
        if self.folder and (self.step % self.every == 0 or self.step == self.plan.steps):
            self._save(self.folder)
        seconds = time.perf_counter() - began
        return TrainStep(self.step, loss, self.plan.rate * level, norm, seconds)

    def finish(self, watch: Callable[[TrainStep], object] | None = None) -> Training:
        """Train to the last step.

        Args:
            watch: Called with every finished step.

        Returns:
            Itself, with the module in evaluation mode.
        """
        for done in self:
            if watch is not None:
                watch(done)
        return self

    def _differentiate(self) -> float:
        """Accumulate the gradient of the step's loss; return the loss over the global batch."""
        if self._batches is None:
            self._batches = batches(
                self.dataset,
                self.order,
                steps=range(self.step, self.plan.steps),
                parts=self.parts,
                workers=self.workers,
                pinned=self.device.type == "cuda",
            )
        total = torch.zeros((), device=self.device)
        for part in self.parts:
            batch = send_to_device(next(self._batches), self.device, non_blocking=True)
            draws = StepDraws(self.plan.seed, self.step, self.plan.batch, part, self.device)
            last = part is self.parts[-1]
            with nullcontext() if last else self.accelerator.no_sync(self.objective):
                value = self.objective(batch, draws) / len(self.parts)
                self.accelerator.backward(value)
            total += value.detach()
        if self.accelerator.num_processes > 1:
            total = torch.as_tensor(self.accelerator.reduce(total, "mean"))
        return float(total)

    def _clip(self, loss: float) -> float:
        """Clip the gradient and return its norm; stop if it or the loss is not finite."""
        clip = math.inf if self.plan.clip is None else self.plan.clip
        norm = float(self.accelerator.clip_grad_norm_(self.parameters, clip) or 0.0)
        scaled = self.accelerator.scaler is not None  # fp16: the scaler skips such steps itself
        if math.isfinite(loss) and (scaled or math.isfinite(norm)):
            return norm
        self.optimizer.zero_grad()
        name, value = ("gradient norm", norm) if math.isfinite(loss) else ("loss", loss)
        raise NonFiniteError(
            f"training stopped: {name} is {value} at step {self.step + 1} of {self.plan.steps}; "
            f"the weights are those after step {self.step}, last good checkpoint: "
            f"{latest_checkpoint(self.folder) or 'none'}; try a lower rate (now "
            f"{self.plan.rate:g}), a longer warm-up, or look for bad values in the data"
        )

    def _identity(self) -> dict[str, Any]:
        average = None if self.average is None else [self.average.decay, self.average.warmup]
        return self.plan.identity() | {
            "examples": self.order.size,
            "optimizer": type(self.inner).__name__,
            "average": average,
        }

    def _save(self, folder: Path) -> None:
        if self.accelerator.is_main_process:
            scaler = self.accelerator.scaler
            pieces = {
                "settings": self._identity(),
                "shapes": shapes_of(self.module),
                "step": self.step,
                "module": self.module.state_dict(),
                "average": None if self.average is None else self.average.state_dict(),
                "optimizer": self.inner.state_dict(),
                "scaler": None if scaler is None else scaler.state_dict(),
                "losses": torch.tensor(self.losses, dtype=torch.float64),
            }
            write_checkpoint(folder, pieces)
        self.accelerator.wait_for_everyone()

    def _resume(self) -> None:
        path = latest_checkpoint(self.folder)
        if path is None:
            return
        stored = read_checkpoint(path)
        refuse_other_settings(path, stored["settings"], self._identity())
        refuse_other_settings(path, stored["shapes"], shapes_of(self.module))
        self.module.load_state_dict(stored["module"])
        load_optimizer(self.inner, stored["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(stored["average"])
        if self.accelerator.scaler is not None and stored["scaler"] is not None:
            self.accelerator.scaler.load_state_dict(stored["scaler"])
        self.step, self.losses = stored["step"], stored["losses"].tolist()


def fit(
    module: nn.Module,
    dataset: Any,
    loss: Loss,
    *,
    steps: int,
    batch: int,
    seed: int,
    rate: float = 1e-3,
    warmup: int | None = None,
    decay: Decay = "cosine",
    clip: float | None = 1.0,
    optimizer: Callable[..., Optimizer] | None = None,
    average: Average | None = None,
    checkpoint: str | Path | None = None,
    every: int = 100,
    accelerator: Accelerator | None = None,
    accumulate: int = 1,
    mixed_precision: str = "no",
    workers: int = 0,
    device: str | torch.device | None = None,
) -> Training:
    """Train a module in place, one step per turn of a ``for`` loop.

    Started again with the same ``checkpoint`` folder, the run goes on from the newest checkpoint
    and, on a CPU, ends with the same bits. Under ``accelerate launch`` (or ``torchrun``, which
    also starts several processes on CPUs) every process calls this with the same arguments;
    ``batch`` is shared out among them.

    Args:
        module: What is trained; moved to the device; in evaluation mode when the last step is done.
        dataset: A map-style data set, a tensor, or a mapping of equally long tensors (the last two
            and ``TensorDataset`` are indexed as a whole, which is much faster).
        loss: Called with the module, a collated batch on the device, and the step's random draws.
        steps: Optimizer steps in all.
        batch: Examples per step, over all processes and accumulated parts.
        seed: Seed of order, draws and dropout (not of the weights, which the module has already).
        rate: Peak learning rate.
        warmup: Steps over which the rate rises; None means a twentieth of ``steps``, at most 500.
        decay: What the rate does after that: ``"cosine"`` falls to 0, ``"constant"`` stays.
        clip: Largest norm of the gradient, None for any.
        optimizer: Called as ``optimizer(parameters, lr=rate)``; a class or a ``partial`` of one.
            None means AdamW. Groups with rates of their own keep their proportions.
        average: Updated after every step.
        checkpoint: Folder for checkpoints, None for none.
        every: Steps between two checkpoints; the last step always gets one.
        accelerator: Your own; None makes one that follows ``accelerate launch``.
        accumulate: Parts that a process cuts its rows into, one after the other, to save memory.
        mixed_precision: ``"no"``, or ``"bf16"`` for autocast inside the loss.
        workers: Processes that read items of a data set that is not in memory.
        device: Where to train; None leaves it to accelerate.

    Returns:
        An iterator over finished steps that also holds ``losses``, ``module`` and ``average``.

    Raises:
        InputError: Before any work, if a setting cannot work or differs from the checkpoint's.
        DamagedRecordError: If the newest checkpoint cannot be read.
        NonFiniteError: While iterating, if the loss or the gradient is not finite; the weights stay
            those of the step before.

    Example:
        >>> net = nn.Linear(1, 1)
        >>> data = torch.linspace(-1, 1, 32)[:, None]
        >>> def loss(net, batch, draws):
        ...     return (net(batch) - 2 * batch).square().mean(dim=1)
        >>> for step in fit(net, data, loss, steps=200, batch=16, seed=0, rate=0.1):
        ...     pass
        >>> round(net.weight.item(), 1)
        2.0
    """
    if every < 1:
        raise InputError(f"every={every} must be at least 1")
    plan = Plan(
        steps=steps,
        batch=batch,
        seed=seed,
        rate=rate,
        warmup=min(steps // 20, 500) if warmup is None else warmup,
        decay=decay,
        clip=clip,
        mixed_precision=mixed_precision,
    )
    return Training(
        module,
        dataset,
        loss,
        plan,
        optimizer=optimizer,
        average=average,
        checkpoint=checkpoint,
        every=every,
        accelerator=accelerator,
        accumulate=accumulate,
        workers=workers,
        device=device,
    )


def _adamw(device: torch.device) -> Callable[..., Optimizer]:
    def build(parameters: list[nn.Parameter], lr: float) -> Optimizer:
        return AdamW(parameters, lr=lr, fused=device.type in ("cpu", "cuda"))

    return build
