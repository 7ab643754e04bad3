r"""Noise levels of ours on the schedulers of diffusers: a shared grid, or one per sample.

A grid is written as noise-to-signal ratios :math:`\sigma`, n levels and a final 0. What a scheduler
wants instead differs from class to class:

===============================  =====================  ==========  ===============================
scheduler                        is handed              final 0     a walk starts from
===============================  =====================  ==========  ===============================
``EulerDiscreteScheduler``       sigma                  expected    noise * ``init_noise_sigma``
``PerSampleEulerScheduler``      sigma, per sample too  expected    noise * ``init_noise_sigma``
``EDMEulerScheduler``            its ramp of sigma      appended    noise * ``sigmas[0]``
``FlowMatchEulerDiscrete-``      sigma / (1 + sigma)    appended    noise * ``sigmas[0]``
``Scheduler``
``DPMSolverMultistepScheduler``  nearest ``timesteps``  appended    noise
===============================  =====================  ==========  ===============================

``EDMEulerScheduler`` reads explicit sigmas as positions on its Karras ramp; they are converted so
that the ramp gives them back. Whatever the class, ``scheduler.sigmas`` is read back afterwards and
a difference is an error, since some settings (shift, Karras sigmas) change explicit levels without
a word.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.adapters.levels import (
    Grid,
    checked_grid,
    inside_table,
    nearest_indices,
    table_levels,
    told_log_sigma,
)
from noisewright.adapters.per_sample import PerSampleEulerScheduler
from noisewright.adapters.requirement import diffusers, numpy_conversions_silenced
from noisewright.types import InputError

__all__ = ["SUPPORTED", "set_levels"]

TOLERANCE = 1e-5
"""Relative difference between levels asked for and read back that float32 explains."""

ROUNDING = 1e-3
"""Relative error of levels rounded to a table that is worth a warning."""

Device = torch.device | str | None


def set_levels(
    scheduler: Any, sigmas: Grid, *, device: Device = None
) -> Float[Tensor, "*batch knots"]:
    """Make a diffusers scheduler stop at these noise levels.

    Call it in place of ``scheduler.set_timesteps``; the next ``set_timesteps`` replaces the levels.
    A model with a table of levels knows only their range: levels outside are moved into it, with a
    warning.

    Args:
        scheduler: An instance of one of :data:`SUPPORTED`.
        sigmas: Noise-to-signal ratios, (n + 1,), falling to a final 0 whatever the scheduler; for
            :class:`PerSampleEulerScheduler` also (batch, n + 1).
        device: Where ``scheduler.timesteps`` shall be.

    Returns:
        ``scheduler.sigmas`` after the call, in the scheduler's own terms.

    Raises:
        InputError: If the class is not supported, the grid cannot be walked, or the scheduler's
            settings would change it; the scheduler is then as it was.

    Example:
        >>> from diffusers import FlowMatchEulerDiscreteScheduler
        >>> set_levels(FlowMatchEulerDiscreteScheduler(), [3.0, 1.0, 0.0])
        tensor([0.7500, 0.5000, 0.0000])
    """
    hand_over = _handler(scheduler)
    grid = checked_grid(sigmas)
    if grid.ndim == 2 and not isinstance(scheduler, PerSampleEulerScheduler):
        raise InputError(
            f"{type(scheduler).__name__} takes one grid for all samples, got {tuple(grid.shape)}; "
            "use PerSampleEulerScheduler, or the mean grid"
        )
    before = dict(vars(scheduler))
    try:
        wanted = hand_over(scheduler, grid, device)
        _read_back(scheduler, wanted)
    except (ValueError, TypeError) as error:
        vars(scheduler).clear()
        vars(scheduler).update(before)
        if isinstance(error, InputError):
            raise
        raise InputError(f"{type(scheduler).__name__} refuses these levels: {error}") from error
    return scheduler.sigmas


def _handler(scheduler: Any) -> Callable[[Any, Tensor, Device], Tensor]:
    for kind, hand_over in HANDLERS.items():
        if isinstance(scheduler, kind):
            return hand_over
    raise InputError(
        f"{type(scheduler).__name__} cannot be given noise levels; supported are "
        + ", ".join(kind.__name__ for kind in SUPPORTED)
    )


def _read_back(scheduler: Any, wanted: Tensor) -> None:
    found = scheduler.sigmas.detach().double().cpu()
    same = found.shape == wanted.shape and torch.allclose(
        found, wanted.double(), rtol=TOLERANCE, atol=1e-8
    )
    if not same:
        raise InputError(
            f"{type(scheduler).__name__} changed the levels: asked for {_short(wanted)}, got "
            f"{_short(found)}; its settings {_suspects(scheduler.config)} do that, make it anew "
            "with from_config(scheduler.config, ...) without them"
        )


def _short(levels: Tensor) -> str:
    flat = [f"{v:.4g}" for v in levels.flatten().tolist()]
    return "[" + ", ".join(flat if len(flat) < 7 else [*flat[:3], "...", *flat[-2:]]) + "]"


def _suspects(config: Any) -> str:
    """Name the settings of a scheduler that move levels and are on."""
    usual = {"shift": 1.0, "final_sigmas_type": "zero", "sigma_schedule": "karras"}
    switches = ("use_", "invert_", "shift_terminal")
    found = {k: v for k, v in config.items() if k in usual and v != usual[k]}
    found |= {k: v for k, v in config.items() if k.startswith(switches) and v}
    return ", ".join(f"{k}={v!r}" for k, v in found.items()) or "(a shift set later, perhaps)"


# ---------------------------------------------------------------------------- one class each


def _hand_to_euler(scheduler: Any, grid: Tensor, device: Device) -> Tensor:
    if not told_log_sigma(scheduler):
        grid = inside_table(scheduler, grid)
    with numpy_conversions_silenced():
        scheduler.set_timesteps(sigmas=grid.tolist(), device=device)
    return grid


def _hand_to_edm(scheduler: Any, grid: Tensor, device: Device) -> Tensor:
    config = scheduler.config
    low, high = (s ** (1 / config.rho) for s in (config.sigma_min, config.sigma_max))
    ramp = (high - grid[:-1] ** (1 / config.rho)) / (high - low)
    scheduler.set_timesteps(len(ramp), device=device, sigmas=ramp)
    return grid


def _hand_to_flow(scheduler: Any, grid: Tensor, device: Device) -> Tensor:
    fraction = grid / (1 + grid)
    scheduler.set_timesteps(sigmas=fraction[:-1].tolist(), device=device)
    return fraction


def _hand_to_multistep(scheduler: Any, grid: Tensor, device: Device) -> Tensor:
    if scheduler.config.use_flow_sigmas:
        raise InputError(
            "DPMSolverMultistepScheduler with use_flow_sigmas=True ignores explicit levels; use "
            "FlowMatchEulerDiscreteScheduler"
        )
    table = table_levels(scheduler)
    levels = inside_table(scheduler, grid)[:-1]
    indices = nearest_indices(levels, table)
    rounded = table[indices]
    worst = float((rounded / levels - 1).abs().max())
    if worst > ROUNDING:
        warnings.warn(
            "DPMSolverMultistepScheduler takes whole timesteps only: levels are rounded to its "
            f"table, by up to {100 * worst:.2g} %",
            stacklevel=3,
        )
    with numpy_conversions_silenced():
        scheduler.set_timesteps(timesteps=indices, device=device)
    return torch.cat([rounded, rounded.new_zeros(1)])


HANDLERS: dict[type, Callable[[Any, Tensor, Device], Tensor]] = {
    PerSampleEulerScheduler: _hand_to_euler,
    diffusers.EulerDiscreteScheduler: _hand_to_euler,
    diffusers.EDMEulerScheduler: _hand_to_edm,
    diffusers.FlowMatchEulerDiscreteScheduler: _hand_to_flow,
    diffusers.DPMSolverMultistepScheduler: _hand_to_multistep,
}

SUPPORTED: tuple[type, ...] = tuple(HANDLERS)
"""Scheduler classes that :func:`set_levels` knows."""
