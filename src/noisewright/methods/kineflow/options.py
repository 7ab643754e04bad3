"""Options of the forecaster: which ones work, and what they mean for the model."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisewright.methods.kineflow.field import Drivers
from noisewright.methods.kineflow.flow import Draw
from noisewright.methods.kineflow.reading import MISSING
from noisewright.types import InputError

__all__ = ["check_options", "model_options"]

WHOLE = (
    "context_length",
    "horizon",
    "hidden",
    "depth",
    "steps",
    "batch_size",
    "n_sampling_steps",
)

CHOICES = {
    "path": ("free_end",),
    "target": ("endpoint", "D"),
    "loss_units": ("data", "whitened"),
    "scaling": ("instance", "global"),
    "missing": MISSING,
}


def check_options(options: dict[str, Any]) -> None:
    """Refuse options that cannot work, before anything long.

    Args:
        options: Parameters of :class:`~noisewright.methods.kineflow.KineFlowForecaster`.

    Raises:
        InputError: With the value and what can.
    """
    for name in WHOLE:
        value = options[name]
        if not isinstance(value, (int, np.integer)) or value < 1:
            raise InputError(f"{name}={value!r} must be a whole number from 1 on")
    for name, known in CHOICES.items():
        if options[name] not in known:
            raise InputError(f"{name}={options[name]!r}; choose from {known}")
    if not options["lr"] > 0:
        raise InputError(f"lr={options['lr']} must be above 0")
    Draw(
        options["order"],
        options["n_sampling_steps"],
        options["sigma_p"],
        options["grid"],
        "multistep",
        options["momentum"],
        antithetic=False,
        temperature=options["temperature"],
    ).check(2, bound=options["damping"] or options["target"] == "D")
    if options["target"] == "D" and (options["forces"] or options["damping"]):
        raise InputError("target='D' feeds drivers to the network: say forces=False, damping=False")


def model_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return what :class:`~noisewright.methods.kineflow.KineFlow` is built with.

    Args:
        options: Parameters of the forecaster.
    """
    drivers: Drivers = "forces" if options["forces"] else "concatenated"
    return {
        "hidden": options["hidden"],
        "depth": options["depth"],
        "drivers": drivers,
        "precondition": options["precondition"],
        "data_units": options["loss_units"] == "data",
        "damping": options["damping"],
        "apart": options["sigma_p"] if options["target"] == "D" else None,
    }
