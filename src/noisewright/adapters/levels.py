"""Grids of noise levels made to fit what a pre-trained model knows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.paths import precise
from noisewright.types import InputError

__all__ = [
    "Grid",
    "checked_grid",
    "inside_table",
    "nearest_indices",
    "table_levels",
    "told_log_sigma",
    "within_range",
]

Grid = Tensor | Sequence[float] | Sequence[Sequence[float]]
"""Levels as callers give them: (n + 1,), or (batch, n + 1)."""

BEYOND = 1e-6
"""Levels may exceed a range by this share before anybody is told."""


def checked_grid(sigmas: Grid) -> Float[Tensor, "*batch knots"]:
    """Return a grid in float64 on the CPU after checking that it can be walked.

    Args:
        sigmas: Noise-to-signal ratios, (n + 1,) or (batch, n + 1), falling to a final 0.

    Raises:
        InputError: If the shape is wrong, or the levels are not finite or do not fall to 0.
    """
    grid = precise(torch.as_tensor(sigmas)).detach().cpu()
    if grid.ndim not in (1, 2) or grid.shape[-1] < 2:
        raise InputError(f"sigmas has shape {tuple(grid.shape)}; give (n + 1,) or (batch, n + 1)")
    if not bool(grid.isfinite().all()):
        raise InputError("sigmas holds NaN or infinity")
    if bool((grid[..., -1] != 0).any()):
        raise InputError(f"sigmas must end with 0, not {float(grid.flatten()[-1]):.4g}; append it")
    if not bool((grid.diff(dim=-1) < 0).all()):
        raise InputError("sigmas must fall strictly from the noisiest level to 0")
    return grid


def within_range(
    grid: Float[Tensor, "*batch knots"], low: float, high: float, *, name: str
) -> Float[Tensor, "*batch knots"]:
    """Return the grid with levels outside a trained range moved into it, with a warning.

    Levels inside stay where they are. Those beyond an end are spread in log sigma between that end
    and the nearest level inside, so that the grid still falls strictly.

    Args:
        grid: A checked grid.
        low: Cleanest trained level.
        high: Noisiest trained level.
        name: Whose range it is, for the warning.

    Raises:
        InputError: If several levels lie beyond one end and none elsewhere.
    """
    levels = grid[..., :-1]
    beyond = (levels > high * (1 + BEYOND)) | (levels < low * (1 - BEYOND))
    if not bool(beyond.any()):
        return grid
    warnings.warn(
        f"{int(beyond.sum())} of {levels.numel()} levels ({float(levels.min()):.4g} to "
        f"{float(levels.max()):.4g}) lie outside the range that {name} was trained on "
        f"({low:.4g} to {high:.4g}) and are moved into it",
        stacklevel=5,
    )
    rows = [_spread(row, low, high) for row in levels.reshape(-1, levels.shape[-1])]
    fitted = torch.stack(rows).reshape(levels.shape)
    return torch.cat([fitted, grid[..., -1:]], dim=-1)


def _spread(row: Tensor, low: float, high: float) -> Tensor:
    logs, count = row.clamp(low, high).log(), len(row)
    above, below = int((row >= high).sum()), int((row <= low).sum())
    if count > 1 and count in (above, below):
        raise InputError(
            f"all {count} levels, {float(row[-1]):.4g} to {float(row[0]):.4g}, lie outside the "
            f"trained range {low:.4g} to {high:.4g}; this model cannot walk them"
        )
    if above > 1:
        logs[: above + 1] = torch.linspace(
            float(logs[0]), float(logs[above]), above + 1, dtype=logs.dtype
        )
    if below > 1:
        first = count - below - 1
        logs[first:] = torch.linspace(
            float(logs[first]), float(logs[-1]), below + 1, dtype=logs.dtype
        )
    return logs.exp().clamp(low, high)


def nearest_indices(levels: Float[Tensor, " n"], table: Float[Tensor, " size"]) -> list[int]:
    """Return the entries of a rising table nearest to falling levels, all different, falling.

    Args:
        levels: Wanted levels, noisiest first, without the final 0.
        table: Known levels, cleanest first.

    Raises:
        InputError: If there are more levels than entries.

    Example:
        >>> table = torch.tensor([0.1, 0.2, 0.4, 0.8])
        >>> nearest_indices(torch.tensor([0.8, 0.75, 0.1]), table)
        [3, 2, 0]
    """
    count = len(levels)
    if count > len(table):
        raise InputError(f"{count} steps are more than the {len(table)} levels of the model")
    distance = (precise(levels).log()[:, None] - precise(table).log()[None]).abs()
    indices = distance.argmin(dim=1).tolist()
    for i in range(1, count):
        indices[i] = min(indices[i], indices[i - 1] - 1)
    return [max(index, count - 1 - i) for i, index in enumerate(indices)]


def table_levels(scheduler: Any) -> Tensor:
    """Return the levels that a discrete model was trained on, cleanest first."""
    kept = scheduler.alphas_cumprod.double()
    return ((1 - kept) / kept).sqrt()


def told_log_sigma(scheduler: Any) -> bool:
    """Whether the model is told log sigma, and so knows no table."""
    config = scheduler.config
    return config.timestep_type == "continuous" and config.prediction_type == "v_prediction"


def inside_table(scheduler: Any, grid: Tensor) -> Tensor:
    """Return a grid within the table of a scheduler's model, with a warning if levels move."""
    table = table_levels(scheduler)
    name = "a model of this scheduler"
    return within_range(grid, float(table.min()), float(table.max()), name=name)
