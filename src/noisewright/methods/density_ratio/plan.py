"""How a flow is built and trained, checked before anything long begins."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from noisewright.methods.density_ratio.schedule import FloorSchedule
from noisewright.paths import GaussianPath
from noisewright.types import InputError

__all__ = ["FlowPlan", "checked_plan"]


@dataclass(frozen=True)
class FlowPlan:
    """How a flow is built and trained; the fields are those of ``DensityRatioFlow``."""

    sigma_min: float
    sigma: float
    width: int
    depth: int
    steps: int
    batch: int
    rate: float
    weight_decay: float
    label_dropout: float
    ema: float
    held_out: float
    patience: int
    device: str

    @property
    def path(self) -> GaussianPath:
        """The path from data to noise."""
        return GaussianPath(FloorSchedule(self.sigma_min, self.sigma))


def checked_plan(parameters: Mapping[str, Any]) -> FlowPlan:
    """Return the plan of an estimator's parameters.

    Raises:
        InputError: If one of them cannot work.
    """
    hidden = [int(width) for width in parameters["hidden"]]
    if not hidden or len(set(hidden)) > 1 or hidden[0] < 1:
        raise InputError(f"hidden={parameters['hidden']}: give equal positive widths, one a block")
    for name in ("sigma_min", "sigma", "weight_decay"):
        if not (math.isfinite(parameters[name]) and parameters[name] >= 0):
            raise InputError(f"{name}={parameters[name]} must be finite and not negative")
    for name in ("label_dropout", "validation_fraction", "ema"):
        if not 0 <= parameters[name] < 1:
            raise InputError(f"{name}={parameters[name]} must lie in [0, 1)")
    for name in ("steps", "batch_size", "patience"):
        value = parameters[name]
        if not isinstance(value, numbers.Integral) or value < 1:
            raise InputError(f"{name}={value!r} must be a positive integer")
    cv, blur = parameters["cv"], parameters["blur"]
    if cv is not None and (not isinstance(cv, numbers.Integral) or cv < 2):
        raise InputError(f"cv={cv!r} must be None or an integer of at least 2")
    _check_blur(blur, parameters["sigma_min"], cv)
    return FlowPlan(
        sigma_min=float(parameters["sigma_min"]),
        sigma=float(parameters["sigma"]),
        width=hidden[0],
        depth=len(hidden),
        steps=int(parameters["steps"]),
        batch=int(parameters["batch_size"]),
        rate=float(parameters["lr"]),
        weight_decay=float(parameters["weight_decay"]),
        label_dropout=float(parameters["label_dropout"]),
        ema=float(parameters["ema"]),
        held_out=float(parameters["validation_fraction"]),
        patience=int(parameters["patience"]),
        device=_device(parameters["device"]),
    )


def _check_blur(blur: Any, floor: float, cv: Any) -> None:
    if blur is None:
        return
    if blur == "auto":
        if cv is None:
            raise InputError("blur='auto' is chosen on samples no model has seen; give cv=5 too")
        return
    if not (isinstance(blur, numbers.Real) and floor <= float(blur) < math.inf):
        raise InputError(f"blur={blur!r} must be 'auto', None or a number of at least {floor}")


def _device(device: Any) -> str:
    if device != "auto":
        return str(device)
    return "cuda" if torch.cuda.is_available() else "cpu"
