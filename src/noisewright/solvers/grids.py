"""Time grids: where a solver stops.

``n`` steps have ``n + 1`` times, falling from the noisiest to 0, where the state is the data. A
schedule with a floor (noise left at t = 0) gets t = 0 twice: the last step then replaces the state
by the prediction of the data. Grids are float64, of shape (n + 1,), or (batch, n + 1) when the path
differs from sample to sample.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from noisewright.paths import GaussianPath, TableSchedule, precise
from noisewright.types import InputError

__all__ = [
    "check_times",
    "karras_times",
    "logsnr_times",
    "table_indices",
    "table_times",
    "uniform_times",
]

WIDEST_LOGSNR = 12.0
"""Where a schedule reaches an infinite log-SNR, spacings in log-SNR start or end at +- this."""


def _check_steps(steps: int) -> None:
    if steps < 1:
        raise InputError(f"steps={steps}: a walk needs at least one step")


def _close(noisy: Tensor) -> Tensor:
    """Append the clean end, t = 0."""
    return torch.cat([noisy, torch.zeros_like(noisy[..., :1])], dim=-1)


def uniform_times(path: GaussianPath, steps: int) -> Float[Tensor, "knots"]:
    """Return times evenly spaced from 1 to 0.

    Args:
        path: Tells whether the schedule has a floor.
        steps: Number of steps, at least 1.

    Example:
        >>> from noisewright.paths import RectifiedSchedule
        >>> uniform_times(GaussianPath(RectifiedSchedule()), 4)
        tensor([1.0000, 0.7500, 0.5000, 0.2500, 0.0000], dtype=torch.float64)
    """
    _check_steps(steps)
    if path.schedule.has_floor:
        return _close(torch.linspace(1, 0, steps, dtype=torch.float64))
    return torch.linspace(1, 0, steps + 1, dtype=torch.float64)


def _range(path: GaussianPath, low: float | None, high: float | None) -> tuple[Tensor, Tensor]:
    """Return noise-to-signal ratios of the cleanest and the noisiest level of a grid."""
    wide = WIDEST_LOGSNR
    ends = [path.logsnr(t).clamp(-wide, wide) for t in (0.0, 1.0)]
    floor, top = (torch.exp(-end / 2) for end in ends)
    return (
        floor if low is None else precise(low),
        top if high is None else precise(high),
    )


def karras_times(
    path: GaussianPath,
    steps: int,
    *,
    sigma_min: float | None = None,
    sigma_max: float | None = None,
    rho: float = 7.0,
) -> Float[Tensor, "*batch knots"]:
    r"""Return times whose noise-to-signal ratios are spaced as in Karras et al. 2022, eq. 5.

    .. math:: \sigma_i = \bigl(\sigma_{\max}^{1/\rho} + \tfrac{i}{n - 1}
        (\sigma_{\min}^{1/\rho} - \sigma_{\max}^{1/\rho})\bigr)^\rho, \quad \sigma_n = 0

    Args:
        path: Where the times are looked up.
        steps: Number of steps n.
        sigma_min: Cleanest ratio before 0; None takes the path's own, or exp(-6).
        sigma_max: Noisiest ratio; None takes the path's own, or exp(6).
        rho: 1 spaces evenly; larger values put more steps at low noise.
    """
    _check_steps(steps)
    low, high = _range(path, sigma_min, sigma_max)
    place = torch.linspace(0, 1, steps, dtype=torch.float64)
    low, high = (v[..., None] ** (1 / rho) for v in (low, high))
    ratio = (high + place * (low - high)) ** rho
    return _close(_times_of(path, -2 * ratio.log()))


def logsnr_times(
    path: GaussianPath,
    steps: int,
    *,
    sigma_min: float | None = None,
    sigma_max: float | None = None,
) -> Float[Tensor, "*batch knots"]:
    """Return times evenly spaced in log-SNR, then 0 (DPM-Solver's spacing).

    Args:
        path: Where the times are looked up.
        steps: Number of steps.
        sigma_min: Cleanest noise-to-signal ratio before 0; None takes the path's own, or exp(-6).
        sigma_max: Noisiest ratio; None takes the path's own, or exp(6).
    """
    _check_steps(steps)
    low, high = _range(path, sigma_min, sigma_max)
    place = torch.linspace(0, 1, steps, dtype=torch.float64)
    low, high = (-2 * v[..., None].log() for v in (low, high))
    return _close(_times_of(path, high + place * (low - high)))


def _times_of(path: GaussianPath, logsnr: Tensor) -> Tensor:
    columns = path.columns() if path.batch else path
    return columns.time_of_logsnr(logsnr)


def table_indices(levels: int, steps: int) -> Int[Tensor, " steps"]:
    """Return which levels of a discrete table a walk visits, noisiest first.

    Args:
        levels: Length T of the table.
        steps: Number of steps, 1 to T.

    Returns:
        ``steps`` different indices in [0, T - 1], strictly falling from T - 1.

    Raises:
        InputError: If ``steps`` is below 1 or above ``levels``.

    Example:
        >>> table_indices(10, 4)
        tensor([9, 6, 3, 0])
    """
    _check_steps(steps)
    if steps > levels:
        raise InputError(f"steps={steps} is more than the {levels} levels of the table")
    return torch.linspace(levels - 1, 0, steps, dtype=torch.float64).round().long()


def table_times(path: GaussianPath, steps: int) -> Float[Tensor, "knots"]:
    """Return the times of :func:`table_indices` on a :class:`~noisewright.paths.TableSchedule`.

    Args:
        path: A path along a table.
        steps: Number of steps, at most the length of the table.

    Raises:
        InputError: If the path has no table, or too few levels.
    """
    if not isinstance(path.schedule, TableSchedule):
        raise InputError(f"table_times needs a TableSchedule, got {type(path.schedule).__name__}")
    levels = len(path.schedule.alphas_cumprod)
    return _close((table_indices(levels, steps).double() + 1) / levels)


def check_times(times: Tensor, path: GaussianPath, batch: int) -> Tensor:
    """Return given times in float64 after checking that a solver can walk them.

    Args:
        times: (n + 1,) or (batch, n + 1), falling; 0 may stand twice at the end.
        path: The path to be walked.
        batch: Number of samples.

    Raises:
        InputError: If the shape, the range or the order is wrong.
    """
    times = precise(times)
    if times.ndim not in (1, 2) or times.shape[-1] < 2:
        raise InputError(f"times has shape {tuple(times.shape)}; give (n + 1,) or (batch, n + 1)")
    if times.ndim == 2 and len(times) != batch:
        raise InputError(f"times has {len(times)} rows for a batch of {batch}")
    if path.batch not in (None, batch):
        raise InputError(f"the path is made for {path.batch} samples, the batch has {batch}")
    if not bool(((times >= 0) & (times <= 1)).all()):
        low, high = float(times.min()), float(times.max())
        raise InputError(f"times must lie in [0, 1] (0 data, 1 noise), got {low:g} to {high:g}")
    falling = times.diff(dim=-1) < 0
    if times.shape[-1] > 2:
        falling[..., -1] |= times[..., -1] == 0
    if not bool(falling.all()):
        raise InputError(
            "times must fall strictly from noise to data (0 may stand twice at the end)"
        )
    return times
