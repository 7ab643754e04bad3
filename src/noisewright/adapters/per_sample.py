"""A grid of noise levels for each sample, on a scheduler that pipelines of diffusers accept."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.adapters.levels import checked_grid, inside_table, told_log_sigma
from noisewright.adapters.requirement import diffusers, numpy_conversions_silenced
from noisewright.types import InputError

__all__ = ["PerSampleEulerScheduler"]

Device = torch.device | str | None


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

    One step is :math:`x' = x + \tfrac{x - \hat y}{\sigma} (\sigma' - \sigma)` with the prediction
    :math:`\hat y` of the data; where rows share a grid it has the bits of diffusers' own step. A
    batch may be a multiple of the number of grids, as guidance makes it (all unconditional rows,
    then all conditional ones). Nothing is drawn: there is no churn with a grid per sample.
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
        if not told_log_sigma(self):
            grids = inside_table(self, grids)
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
        return first if at_most else (first**2 + 1) ** 0.5

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
        return (sample / (sigma**2 + 1) ** 0.5).to(sample.dtype)

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
        slope = (state - data) / sigma
        moved = (state + slope * (following - sigma)).to(model_output.dtype)
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
            return output * (-sigma / power**0.5) + state / power
        raise InputError(
            f"prediction_type={kind!r} is unknown; give epsilon, v_prediction or sample"
        )
