"""Walking samples with trained flows: blocks that bound the memory, and several models at once."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noisewright.methods.density_ratio.blur import start_of_blur
from noisewright.methods.density_ratio.flow import LearnedFields, TrainedFlow
from noisewright.methods.density_ratio.plan import FlowPlan
from noisewright.methods.density_ratio.ratio import Changes, density_changes, times
from noisewright.solvers import SUM_METHODS
from noisewright.types import InputError, nearest_name

__all__ = ["Scoring", "WalkPlan", "Walked"]

TANGENT_ROWS = 8192
"""Points times directions that go through the network together; bounds the memory of scoring."""


LARGEST_AUTO_EXACT = 64
"""Features up to which ``"auto"`` takes the exact divergence."""


@dataclass(frozen=True)
class WalkPlan:
    """How samples walk to noise; the fields are the arguments of ``DensityRatioFlow.log_ratio``.

    Raises:
        InputError: If one of them cannot work.
    """

    solver: str = "midpoint"
    n_steps: int = 40
    divergence: str = "auto"
    n_probes: int = 1

    def __post_init__(self) -> None:
        if self.solver not in SUM_METHODS:
            near = nearest_name(self.solver, SUM_METHODS)
            raise InputError(f"solver {self.solver!r} is unknown{near}")
        if self.divergence not in ("auto", "exact", "hutchinson"):
            raise InputError(f"divergence={self.divergence!r}; use 'auto', 'exact' or 'hutchinson'")
        for name in ("n_steps", "n_probes"):
            value = getattr(self, name)
            if not isinstance(value, numbers.Integral) or value < 1:
                raise InputError(f"{name}={value!r} must be a positive integer")

    def probes(self, features: int) -> int:
        """Return the number of probes, 0 for the exact divergence."""
        exact = self.divergence == "exact"
        auto_exact = self.divergence == "auto" and features <= LARGEST_AUTO_EXACT
        return 0 if exact or auto_exact else self.n_probes


class Scoring:
    """One model, walking points in blocks that bound the memory.

    Args:
        flow: The model.
        plan: How it was trained.
        codes: Codes of the K conditions, (K, columns).
        blur: Blur of the densities, at least the plan's floor.
    """

    def __init__(self, flow: TrainedFlow, plan: FlowPlan, codes: np.ndarray, blur: float) -> None:
        self.net, self.path, self.device = flow.net.to(plan.device), plan.path, plan.device
        self.codes = torch.from_numpy(codes).to(plan.device)
        self.start = start_of_blur(plan.path, blur)

    def walk(
        self, points: Tensor, guide: np.ndarray, signs: Tensor | None, walk: WalkPlan
    ) -> Changes:
        """Walk points (batch, size) from data to noise.

        Args:
            points: Of order one, float32.
            guide: Codes of the condition that moves each point, (batch, columns).
            signs: Probes (batch, probes, size), or None for the exact divergence.
            walk: Solver and steps.

        Returns:
            Changes of the blurred log densities; with the prior at the ends they are the densities.
        """
        knots = [self.start * t for t in times(walk.n_steps)]
        points = self.start * points
        directions = points.shape[1] if signs is None else signs.shape[1]
        block = max(1, TANGENT_ROWS // max(directions, points.shape[1] // 32))
        parts = []
        for start in range(0, len(points), block):
            rows = slice(start, start + block)
            labels = torch.from_numpy(guide[rows]).to(self.device)
            same = (labels[:, None] == self.codes).all(2)
            known = bool(same.any(1).all())
            probes = None if signs is None else signs[rows].transpose(0, 1).to(self.device)
            fields = LearnedFields(self.net, self.path, self.codes, labels, probes)
            parts.append(
                density_changes(
                    fields,
                    points[rows].to(self.device),
                    knots,
                    guide=same.int().argmax(1) if known else None,
                    solver=walk.solver,
                )
            )
        stretch = points.shape[1] * math.log(self.start)
        return Changes(
            torch.cat([part.log_changes for part in parts]).cpu() + stretch,
            torch.cat([part.noise for part in parts]).cpu(),
            sum(part.calls for part in parts),
        )


class Walked:
    """Changes of all samples by all models that scored them."""

    def __init__(self, changes: np.ndarray, noise: np.ndarray) -> None:
        self.changes, self.noise = changes, noise

    @classmethod
    def empty(cls, rows: int, conditions: int, probes: int, size: int, models: int) -> Walked:
        """Return room for samples that nobody has scored yet."""
        changes = np.full((models, rows, conditions, probes), np.nan)
        return cls(changes, np.full((rows, size), np.nan))

    def put(self, rows: np.ndarray, model: int, found: Changes) -> None:
        """Keep what a model found for some samples."""
        self.changes[model, rows] = found.log_changes.numpy()
        self.noise[rows] = found.noise.double().numpy()

    def of(self, quantity: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean of a quantity of (rows, conditions, probes), and its standard error."""
        each = np.stack([quantity(changes) for changes in self.changes])  # models, ..., probes
        scored = np.isfinite(each[..., 0])
        models = np.maximum(scored.sum(axis=0), 1)
        per_model = np.where(scored, each.mean(axis=-1), 0.0)
        mean = per_model.sum(axis=0) / models
        spread = np.where(scored, (per_model - mean) ** 2, 0.0).sum(axis=0)
        variance = spread / (models * np.maximum(models - 1, 1))
        probes = each.shape[-1]
        if probes > 1:
            noise = np.where(scored, each.var(axis=-1, ddof=1) / probes, 0.0)
            variance = variance + noise.sum(axis=0) / models**2
        return mean, np.sqrt(variance)
