"""Stop where it is best: the averaged weights that did best on samples the training never sees."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from noisewright.training.loop import Training, TrainStep
from noisewright.types import InputError

__all__ = ["Best", "train_to_best"]


@dataclass(frozen=True)
class Best:
    """Which weights were kept.

    Attributes:
        step: Finished steps when they were looked at; 0 for those before the training.
        score: Their score; None if nothing was looked at.
        seen: All looks, (step, score).
    """

    step: int
    score: float | None
    seen: tuple[tuple[int, float], ...]


def train_to_best(
    training: Training,
    score: Callable[[Any], float] | None,
    *,
    looks: int = 40,
    patience: int | None = None,
    start: bool = False,
    watch: Callable[[TrainStep], object] | None = None,
) -> Best:
    """Train; give the module the averaged weights with the lowest score, in evaluation mode.

    Args:
        training: From :func:`fit`, with ``average=`` and without ``checkpoint=``: which weights
            were best so far is not in a checkpoint.
        score: The lower the better; gets the module with averaged weights, in evaluation mode and
            without gradients. It should draw the same noise at each look. None keeps the weights
            of the end.
        looks: How often to look, evenly; the end is always looked at.
        patience: Looks without improvement before stopping; None never stops early.
        start: Whether the weights before the training stand for choice too.
        watch: Called after each step.

    Raises:
        InputError: If the training has no average, or writes checkpoints.

    Example:
        >>> from noisewright.training import Average, fit
        >>> net = nn.Linear(1, 1)
        >>> loss = lambda net, x, draws: net(x).square().mean(dim=1)
        >>> data = torch.ones(8, 1)
        >>> training = fit(net, data, loss, steps=20, batch=8, seed=0, average=Average(net, 0.5))
        >>> best = train_to_best(training, lambda net: float(net(data).square().mean()), looks=4)
        >>> [step for step, _ in best.seen]
        [5, 10, 15, 20]
    """
    average, steps = training.average, training.plan.steps
    if average is None:
        raise InputError("train_to_best looks at averaged weights: give fit(..., average=)")
    if training.folder is not None:
        raise InputError("train_to_best keeps its choice in memory: leave out fit's checkpoint=")
    every = max(1, steps // looks)
    seen: list[tuple[int, float]] = []
    best, place, waited = math.inf, 0, 0
    kept = copy.deepcopy(average.state_dict())

    def look(step: int) -> bool:
        """Look at the averaged weights; return whether they are the best so far."""
        nonlocal best, place, kept
        assert score is not None
        with average.applied() as module, torch.no_grad():
            mode = module.training
            found = float(score(module.eval()))
            module.train(mode)
        seen.append((step, found))
        if not found < best:
            return False
        best, place, kept = found, step, copy.deepcopy(average.state_dict())
        return True

    if start and score is not None:
        look(0)
    for done in training:
        if watch is not None:
            watch(done)
        if score is None or (done.step % every and done.step != steps):
            continue
        waited = 0 if look(done.step) else waited + 1
        if patience is not None and waited >= patience:
            break
    if score is not None:
        average.load_state_dict(kept)
    _settle(training.module, average.values)
    if score is None:
        return Best(training.step, None, ())
    return Best(place, best, tuple(seen))


@torch.no_grad()
def _settle(module: nn.Module, values: dict[str, torch.Tensor]) -> None:
    """Give a module the values of its average for good."""
    for group in (module.named_parameters(), module.named_buffers()):
        for name, value in group:
            value.copy_(values[name])
    module.eval()
