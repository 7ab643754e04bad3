"""Tight noise levels on the schedulers of diffusers: per sample, or one grid for all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.adapters.per_sample import PerSampleEulerScheduler
from noisewright.methods.spectral_schedule.prior import SpectrumPrior
from noisewright.methods.spectral_schedule.spectrum import Spectrum
from noisewright.methods.spectral_schedule.tight import TightSchedule
from noisewright.types import InputError

__all__ = ["TightScheduler", "shared_levels"]


def shared_levels(spectrum: Spectrum, n_steps: int, **settings: Any) -> Float[Tensor, " knots"]:
    """Return one tight grid for all images, for :func:`noisewright.adapters.set_levels`.

    Args:
        spectrum: Spectra of the images.
        n_steps: Number of steps.
        settings: As for :class:`TightSchedule`.

    Returns:
        Noise-to-signal ratios, falling to a final 0: the geometric mean over the images.
    """
    return TightSchedule(spectrum, **settings).mean().sigmas(n_steps)


@dataclass(frozen=True)
class SpectrumSource:
    """Where a scheduler draws spectrum parameters when a walk is given none.

    Attributes:
        prior: The law they come from.
        size: Height and width of the samples.
        batch: Samples per walk.
        seed: Same seed, same parameters, walk after walk.
        label: Class of the samples; None draws from all.
        temperature: Of the prior.
        settings: Of :class:`TightSchedule`.
    """

    prior: SpectrumPrior
    size: tuple[int, int]
    batch: int = 1
    seed: int = 0
    label: int | None = None
    temperature: float = 1.0
    settings: dict[str, Any] = field(default_factory=dict)

    def draw(self) -> Tensor:
        """Return parameters, (batch, j)."""
        return self.prior.sample(self.batch, self.label, self.temperature, self.seed)


class TightScheduler(PerSampleEulerScheduler):
    """Euler steps along a tight noise schedule of each sample's own.

    The levels come from spectrum parameters, from the spectra of images, or, where a pipeline calls
    ``set_timesteps(n)`` and knows nothing of spectra, from a prior attached by :meth:`with_prior`.
    The prior is no part of the scheduler's config: save it by itself and attach it again.

    Attributes:
        theta: Spectrum parameters of the walk that is set, for a model that is told them; None if
            it was set from spectra or explicit levels.

    Example:
        >>> from noisewright.methods.spectral_schedule import rapsd
        >>> images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1
        >>> scheduler = TightScheduler(prediction_type="v_prediction", timestep_type="continuous")
        >>> scheduler.set_timesteps(4, spectrum=rapsd(images))
        >>> scheduler.sigmas.shape, scheduler.timesteps.shape
        (torch.Size([2, 5]), torch.Size([4, 2]))
    """

    theta: Tensor | None = None
    source: SpectrumSource | None = None

    @classmethod
    def with_prior(
        cls,
        prior: SpectrumPrior,
        *,
        size: int | tuple[int, int],
        batch: int = 1,
        seed: int = 0,
        label: int | None = None,
        temperature: float = 1.0,
        config: Any = None,
        **settings: Any,
    ) -> Self:
        """Return a scheduler that draws the spectra of its samples.

        Args:
            prior: A fitted law of spectrum parameters.
            size: Side, or height and width, of the samples.
            batch: Samples per walk.
            seed: Same seed, same spectra, walk after walk.
            label: Class of the samples.
            temperature: Of the prior.
            config: Config of the scheduler it replaces: ``pipeline.scheduler.config``.
            settings: As for :class:`TightSchedule`.

        Raises:
            InputError: If the batch is empty; from the prior, if the label is unknown.
        """
        if batch < 1:
            raise InputError(f"batch={batch} must be at least 1")
        source = SpectrumSource(prior, _pair(size), batch, seed, label, temperature, settings)
        source.draw()  # what cannot be drawn is refused here, not inside a pipeline
        scheduler: Any = cls.from_config(dict(config or {}))
        scheduler.source = source
        return scheduler

    def set_timesteps(
        self,
        num_inference_steps: int | None = None,
        device: torch.device | str | None = None,
        timesteps: list[int] | None = None,
        sigmas: Any = None,
        *,
        theta: Float[Tensor, "batch j"] | None = None,
        spectrum: Spectrum | None = None,
        size: int | tuple[int, int] | None = None,
        **settings: Any,
    ) -> None:
        """Set the levels of a walk, forgetting any walk before.

        Args:
            num_inference_steps: Number of steps.
            device: Where the levels shall be.
            timesteps: Explicit levels instead, as ``EulerDiscreteScheduler`` takes them.
            sigmas: Explicit levels instead, (n + 1,) or (batch, n + 1).
            theta: Spectrum parameters of each sample.
            spectrum: Spectra instead of ``theta``.
            size: Side, or height and width, of the samples; with ``theta``.
            settings: As for :class:`TightSchedule`.

        Raises:
            InputError: If there is nothing to take levels from, or more than one thing.
        """
        given = [v is not None for v in (theta, spectrum, timesteps, sigmas)]
        if sum(given) > 1:
            raise InputError("give one of theta, spectrum, timesteps and sigmas, not several")
        self.theta = None
        if timesteps is not None or sigmas is not None:
            super().set_timesteps(num_inference_steps, device, timesteps, sigmas)
            return
        if num_inference_steps is None:
            raise InputError("num_inference_steps is missing: how many steps?")
        if spectrum is None:
            theta, schedule = self._from_theta(theta, size, settings)
        else:
            schedule = TightSchedule(spectrum, **settings)
        super().set_timesteps(sigmas=schedule.sigmas(num_inference_steps), device=device)
        self.theta = theta

    def _from_theta(
        self, theta: Tensor | None, size: int | tuple[int, int] | None, settings: dict[str, Any]
    ) -> tuple[Tensor, TightSchedule]:
        """Return spectrum parameters, drawn if need be, and their schedules."""
        if theta is not None:
            if size is None:
                raise InputError("theta needs size=, the height and width of the samples")
            return theta, TightSchedule.from_features(theta, _pair(size), **settings)
        if self.source is None:
            raise InputError(
                "no spectrum to take levels from: give theta= or spectrum=, or make the scheduler "
                "by TightScheduler.with_prior(prior, size=...)"
            )
        settings = self.source.settings | settings
        wanted = self.source.size if size is None else _pair(size)
        theta = self.source.draw()
        schedule = TightSchedule.from_features(
            theta, wanted, trained_size=self.source.prior.size, **settings
        )
        return theta, schedule


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
