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

from noisewright.adapters.levels import checked_grid, nearest_indices, within_range
from noisewright.adapters.requirement import diffusers, numpy_conversions_silenced
from noisewright.types import InputError

__all__ = ["SUPPORTED", "PerSampleEulerScheduler", "set_levels"]

TOLERANCE = 1e-5
"""Relative difference between levels asked for and read back that float32 explains."""

ROUNDING = 1e-3
"""Relative error of levels rounded to a table that is worth a warning."""

Device = torch.device | str | None


def set_levels(
    scheduler: Any, sigmas: Tensor | list[float], *, device: Device = None
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


def _table(scheduler: Any) -> Tensor:
    """Return the levels that a discrete model was trained on, cleanest first."""
    kept = scheduler.alphas_cumprod.double()
    return ((1 - kept) / kept).sqrt()


def _told_log_sigma(scheduler: Any) -> bool:
    """Whether the model is told log sigma, and so knows no table."""
    config = scheduler.config
    return config.timestep_type == "continuous" and config.prediction_type == "v_prediction"


def _inside_table(scheduler: Any, grid: Tensor) -> Tensor:
    table = _table(scheduler)
    name = "a model of this scheduler"
    return within_range(grid, float(table.min()), float(table.max()), name=name)


def _hand_to_euler(scheduler: Any, grid: Tensor, device: Device) -> Tensor:
    if not _told_log_sigma(scheduler):
        grid = _inside_table(scheduler, grid)
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
    table = _table(scheduler)
    levels = _inside_table(scheduler, grid)[:-1]
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


# ---------------------------------------------------------------------------- one grid per sample


class PerSampleEulerScheduler(diffusers.EulerDiscreteScheduler):
    r"""Euler steps with noise levels of its own for each sample of a batch of pictures.

    With one grid for all, (n + 1,), it is diffusers' ``EulerDiscreteScheduler``. With a grid per
    sample ``sigmas`` is (batch, n + 1) and ``timesteps`` (n, batch), so the usual loop works:

    .. code-block:: python

        scheduler.set_timesteps(sigmas=grids)
        state = noise * scheduler.init_noise_sigma
        for t in scheduler.timesteps:
            output = model(scheduler.scale_model_input(state, t), t).sample
            state = scheduler.step(output, t, state).prev_sample

    One step is :math:`x' = \hat y + \tfrac{\sigma'}{\sigma} (x - \hat y)` with the prediction
    :math:`\hat y` of the data. A batch may be a multiple of the number of grids, as guidance makes
    it (all unconditional rows, then all conditional ones). Nothing is drawn: there is no churn with
    a grid per sample.
    """

    def set_timesteps(
        self,
        num_inference_steps: int | None = None,
        device: Device = None,
        timesteps: list[int] | None = None,
        sigmas: Any = None,
    ) -> None:
        """Set the levels of a walk, forgetting any walk before.

        Args:
            num_inference_steps: See ``EulerDiscreteScheduler``; not with explicit levels.
            device: Where the levels shall be.
            timesteps: See ``EulerDiscreteScheduler``.
            sigmas: Levels with a final 0: (n + 1,) for all samples, or (batch, n + 1).

        Raises:
            InputError: If a grid per sample does not fall to 0, or more is given beside it.
        """
        if sigmas is None or torch.as_tensor(sigmas).ndim < 2:
            shared = sigmas.tolist() if isinstance(sigmas, Tensor) else sigmas
            with numpy_conversions_silenced():
                super().set_timesteps(num_inference_steps, device, timesteps, shared)  # pyright: ignore[reportArgumentType]
            return
        if num_inference_steps is not None or timesteps is not None:
            raise InputError("give sigmas alone: they say how many steps there are")
        grids = checked_grid(sigmas)
        if not len(grids):
            raise InputError("sigmas has no rows; give one grid per sample")
        if not _told_log_sigma(self):
            grids = _inside_table(self, grids)
        rows, steps = len(grids), grids.shape[1] - 1
        flat = [*grids[:, :-1].flatten().tolist(), 0.0]
        with numpy_conversions_silenced():
            super().set_timesteps(sigmas=flat, device=device)  # pyright: ignore[reportArgumentType]
        self.num_inference_steps = steps
        self.timesteps = self.timesteps.reshape(rows, steps).T.contiguous()
        levels = self.sigmas[:-1].reshape(rows, steps)
        self.sigmas = torch.cat([levels, levels.new_zeros(rows, 1)], dim=1).to(device)

    @property
    def per_sample(self) -> bool:
        """Whether each sample has a grid of its own."""
        return self.sigmas.ndim == 2

    @property
    def init_noise_sigma(self) -> Any:
        """What unit noise is multiplied with at the start: a number, or (batch, 1, 1, 1)."""
        if not self.per_sample:
            return super().init_noise_sigma
        first = self.sigmas[:, 0].reshape(-1, 1, 1, 1)
        at_most = self.config.timestep_spacing in ("linspace", "trailing")  # pyright: ignore[reportAttributeAccessIssue]
        return first if at_most else (first**2 + 1).sqrt()

    def index_for_timestep(self, timestep: Any, schedule_timesteps: Tensor | None = None) -> int:
        """Return the step that starts at a row of ``timesteps``.

        Raises:
            InputError: If there is no such row (half-precision timesteps, say).
        """
        table = self.timesteps if schedule_timesteps is None else schedule_timesteps
        if table.ndim == 1:
            return super().index_for_timestep(timestep, schedule_timesteps)
        wanted = torch.as_tensor(timestep).reshape(-1).to(table.device)
        if wanted.numel() % table.shape[1] == 0:
            same = (table == wanted[: table.shape[1]]).all(dim=1).nonzero()
            if len(same):
                return int(same[0])
        raise InputError(
            "timestep is not a row of scheduler.timesteps; pass the rows as they are, in float32"
        )

    def scale_model_input(
        self, sample: Float[Tensor, "rows channels height width"], timestep: Any
    ) -> Float[Tensor, "rows channels height width"]:
        """Return what the model is shown: x / sqrt(sigma^2 + 1)."""
        if not self.per_sample:
            return super().scale_model_input(sample, timestep)
        if self.step_index is None:
            self._init_step_index(timestep)
        sigma = self._level(self.step_index, sample)
        self.is_scale_input_called = True
        return (sample / (sigma**2 + 1).sqrt()).to(sample.dtype)

    def step(
        self,
        model_output: Float[Tensor, "rows channels height width"],
        timestep: Any,
        sample: Float[Tensor, "rows channels height width"],
        s_churn: float = 0.0,
        s_tmin: float = 0.0,
        s_tmax: float = float("inf"),
        s_noise: float = 1.0,
        generator: Any = None,
        return_dict: bool = True,
    ) -> Any:
        """Return the state at the next level, in the dtype of ``model_output``.

        Args:
            model_output: What the model answered.
            timestep: A row of ``timesteps``.
            sample: State at this level.
            s_churn: See ``EulerDiscreteScheduler``; 0 with a grid per sample.
            s_tmin: As above.
            s_tmax: As above.
            s_noise: As above.
            generator: As above; nothing is drawn without churn.
            return_dict: Whether to return a record or a pair (state, prediction of the data).

        Raises:
            InputError: If there is churn with a grid per sample, or rows do not match the grids.
        """
        if not self.per_sample:
            return super().step(
                model_output,
                timestep,
                sample,
                s_churn,
                s_tmin,
                s_tmax,
                s_noise,
                generator,
                return_dict,
            )
        if s_churn != 0:
            raise InputError(f"s_churn={s_churn}: a grid per sample is walked without churn")
        if self.step_index is None:
            self._init_step_index(timestep)
        sigma, following = (self._level(self.step_index + i, sample) for i in (0, 1))
        state = sample.float()
        data = self._data(model_output.float(), state, sigma)
        moved = (data + following / sigma * (state - data)).to(model_output.dtype)
        self._step_index += 1  # pyright: ignore[reportOperatorIssue]
        record = diffusers.schedulers.scheduling_euler_discrete.EulerDiscreteSchedulerOutput
        return record(moved, data) if return_dict else (moved, data)  # pyright: ignore[reportArgumentType, reportCallIssue]

    def add_noise(self, original_samples: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        """Return data with noise of each sample's own level.

        Args:
            original_samples: Data.
            noise: Unit noise.
            timesteps: One entry of ``timesteps`` per sample, each from its own column.

        Raises:
            InputError: If an entry is not in its column.
        """
        if not self.per_sample:
            return super().add_noise(original_samples, noise, timesteps)
        wanted = timesteps.reshape(1, -1).to(self.timesteps.device)
        if wanted.shape[1] != self.timesteps.shape[1]:
            raise InputError(
                f"{wanted.shape[1]} timesteps for {self.timesteps.shape[1]} grids; give one each"
            )
        same = self.timesteps == wanted
        if not bool(same.any(dim=0).all()):
            raise InputError("timesteps are not entries of their columns of scheduler.timesteps")
        sigma = self.sigmas.gather(1, same.int().argmax(dim=0)[:, None])
        sigma = sigma.reshape(-1, *(1,) * (original_samples.ndim - 1)).to(original_samples.device)
        return (original_samples + sigma * noise).to(original_samples.dtype)

    def _level(self, index: int, sample: Tensor) -> Tensor:
        """Return a level of each row of a batch, ready to meet it."""
        grids = len(self.sigmas)
        if not len(sample) or len(sample) % grids:
            raise InputError(f"a batch of {len(sample)} does not fit {grids} grids")
        level = self.sigmas[:, index].to(sample.device).repeat(len(sample) // grids)
        return level.reshape(-1, *(1,) * (sample.ndim - 1))

    def _data(self, output: Tensor, state: Tensor, sigma: Tensor) -> Tensor:
        """Return the prediction of the data; the model saw x / sqrt(sigma^2 + 1)."""
        kind = self.config.prediction_type  # pyright: ignore[reportAttributeAccessIssue]
        if kind == "epsilon":
            return state - sigma * output
        if kind == "sample":
            return output
        if kind == "v_prediction":
            power = sigma**2 + 1
            return state / power - sigma / power.sqrt() * output
        raise InputError(
            f"prediction_type={kind!r} is unknown; give epsilon, v_prediction or sample"
        )


HANDLERS: dict[type, Callable[[Any, Tensor, Device], Tensor]] = {
    PerSampleEulerScheduler: _hand_to_euler,
    diffusers.EulerDiscreteScheduler: _hand_to_euler,
    diffusers.EDMEulerScheduler: _hand_to_edm,
    diffusers.FlowMatchEulerDiscreteScheduler: _hand_to_flow,
    diffusers.DPMSolverMultistepScheduler: _hand_to_multistep,
}

SUPPORTED: tuple[type, ...] = tuple(HANDLERS)
"""Scheduler classes that :func:`set_levels` knows."""
