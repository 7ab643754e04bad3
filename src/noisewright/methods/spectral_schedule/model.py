"""Training a pixel-space diffusion model along a regime, and drawing from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from noisewright.methods.spectral_schedule.baselines import (
    CosineRegime,
    EDMRegime,
    ShiftedCosineRegime,
    SigmoidRegime,
)
from noisewright.methods.spectral_schedule.prior import SpectrumPrior
from noisewright.methods.spectral_schedule.regimes import Regime, TightRegime
from noisewright.methods.spectral_schedule.spectrum import Spectrum, rapsd
from noisewright.methods.spectral_schedule.tight import spectrum_of_features
from noisewright.paths import Denoiser, GaussianPath, expand_to
from noisewright.random import StepDraws, derive_seed, isolated
from noisewright.solvers import DDIM, Solver
from noisewright.steering import ClassifierFree
from noisewright.training import Average, TrainStep, fit
from noisewright.types import InputError, nearest_name

__all__ = ["REGIMES", "MeanColor", "SpectralModel", "regime_named", "spectral_loss", "train"]

ScheduleName = Literal[
    "tight",
    "tight_shared",
    "tight_unconditioned",
    "tight_edm",
    "cosine",
    "shifted_cosine",
    "edm",
    "sigmoid",
]

REGIMES: dict[str, Callable[..., Regime]] = {
    "tight": TightRegime,
    "tight_shared": TightRegime,
    "tight_unconditioned": TightRegime,
    "tight_edm": TightRegime,
    "cosine": CosineRegime,
    "shifted_cosine": ShiftedCosineRegime,
    "edm": EDMRegime,
    "sigmoid": SigmoidRegime,
}


def regime_named(name: str, mean_theta: Tensor, **settings: Any) -> Regime:
    """Return a regime by name.

    Args:
        name: A key of ``REGIMES``.
        mean_theta: Mean spectrum parameters of the training images, for ``tight_shared``.
        settings: Fields of the tight regime (``beta``, ``eps_max``, ...); others ignore them.

    Raises:
        InputError: If the name is unknown.
    """
    if name not in REGIMES:
        raise InputError(f"schedule {name!r} is unknown{nearest_name(name, REGIMES)}")
    if not name.startswith("tight"):
        return REGIMES[name]()
    if name == "tight_shared":
        settings["shared"] = tuple(mean_theta.tolist())
    if name == "tight_edm":
        settings["spacing"] = "edm"
    return TightRegime(told=name != "tight_unconditioned", **settings)


def spectral_loss(
    net: nn.Module,
    batch: dict[str, Tensor],
    draws: StepDraws,
    *,
    regime: Regime,
    path: GaussianPath,
    normal: Callable[[Tensor], Tensor],
    dropout: float = 0.1,
) -> Float[Tensor, " rows"]:
    """Return the weighted squared v error of each row.

    Args:
        net: Told the log-SNR and, where the regime says so, normalised spectrum parameters.
        batch: ``data`` in [-1, 1], ``theta``, ``row`` (place in the training set), and ``label``
            where there are classes.
        draws: Times, noise and dropout.
        regime: Levels and weights.
        path: Path of all training images; rows of the batch are looked up in it.
        normal: Normalises theta for the network.
        dropout: Share of rows whose theta and label are withheld.
    """
    data, theta = batch["data"], batch["theta"]
    path = path.select(batch["row"])
    t = regime.draw_times(draws.uniform(stratified=True))
    noise = draws.normal_like(data)
    present = draws.uniform() >= dropout
    condition: dict[str, Any] = {}
    if regime.conditioned:
        condition |= {"features": normal(theta), "present": present}
    if "label" in batch:
        condition["label"] = torch.where(present, batch["label"], -1)
    told = Denoiser(net, path, "v", clock="logsnr")
    guess = told.predict(path.state(data, noise, t), t, **condition)
    error = (guess - path.target(data, noise, t, "v")).square().flatten(1).mean(1)
    return regime.weight(path, t).to(error.dtype) * error


@dataclass(frozen=True)
class MeanColor:
    r"""Gaussian law of an image's mean colour.

    The bounds leave out the mean (one number per channel), so at sigma_max it is not yet drowned
    in noise: a walk that started from noise alone would make every picture equally bright. A walk
    therefore starts from :math:`\alpha(1)\, m + \sigma(1)\, \varepsilon` with m drawn from this
    law; for schedules that end without signal this changes nothing.

    Attributes:
        mean: (channels,).
        root: Square root of the covariance, (channels, channels).
    """

    mean: Tensor
    root: Tensor

    @classmethod
    def of(cls, images: Tensor) -> MeanColor:
        """Return the law of the mean colours of images, uint8 or float in [-1, 1]."""
        means = images.double().mean((2, 3))
        means = means if images.is_floating_point() else means / 127.5 - 1
        away = means - means.mean(0)
        values, vectors = torch.linalg.eigh(away.T @ away / len(means))
        return cls(means.mean(0), vectors * values.clamp(min=0).sqrt())

    def sample(self, n: int, seed: int) -> Float[Tensor, "n channels 1 1"]:
        """Draw mean colours; more draws with one seed only add rows."""
        stream = torch.Generator().manual_seed(seed)
        unit = torch.randn(n, len(self.mean), generator=stream, dtype=torch.float64)
        return (self.mean + unit @ self.root.T).float()[..., None, None]


@dataclass
class SpectralModel:
    """A trained network with the regime that it was trained along.

    Attributes:
        net: The network (averaged weights).
        regime: Levels.
        prior: Law of spectrum parameters.
        center: Mean of theta over the training images.
        spread: Standard deviation of theta.
        channels: Channels of the images.
        size: Height and width.
        color: Law of the mean colour, for the start of a walk.
        classes: Number of classes, 0 without.
        losses: Loss of each training step.
        seconds: Median seconds of a training step.
    """

    net: nn.Module
    regime: Regime
    prior: SpectrumPrior
    center: Tensor
    spread: Tensor
    channels: int
    size: tuple[int, int]
    color: MeanColor
    classes: int = 0
    losses: Sequence[float] = ()
    seconds: float = 0.0

    def normal(self, theta: Tensor) -> Tensor:
        """Return spectrum parameters as the network is told them."""
        return ((theta - self.center) / self.spread).float()

    @torch.no_grad()
    def sample(
        self,
        n: int,
        *,
        steps: int,
        theta: Float[Tensor, "n j"] | None = None,
        labels: Int[Tensor, " n"] | None = None,
        seed: int = 0,
        temperature: float = 1.0,
        guidance: float = 1.0,
        interval: tuple[float, float] = (0.2, 0.8),
        solver: Solver | None = None,
        regime: Regime | None = None,
        chunk: int = 128,
    ) -> Float[Tensor, "n channels height width"]:
        """Draw images in [-1, 1].

        Each sample has streams of its own, so neither ``n`` nor ``chunk`` changes a sample.

        Args:
            n: How many.
            steps: Steps of the walk.
            theta: Spectrum parameters per sample; None draws them from the prior.
            labels: Class per sample.
            seed: Same seed, same images.
            temperature: Of the prior.
            guidance: Weight of classifier-free guidance; 1 means none.
            interval: Noise times between which guidance acts.
            solver: DDIM unless given.
            regime: Other levels to walk along (a spacing, say); None means those of training.
            chunk: Samples walked at once.

        Raises:
            InputError: If theta or labels do not fit.
        """
        theta = self._theta(n, theta, labels, temperature, seed)
        colors = self.color.sample(n, derive_seed(seed, "color"))
        seeds = [derive_seed(seed, "sample", i) for i in range(n)]
        regime, solver = regime or self.regime, solver or DDIM()
        images = torch.empty(n, self.channels, *self.size)
        for start in range(0, n, chunk):
            rows = slice(start, min(start + chunk, n))
            path = regime.path(spectrum_of_features(theta[rows], self.size))
            denoiser = Denoiser(self.net, path, "v", clock="logsnr")
            guided = ClassifierFree(
                denoiser,
                guidance,
                unconditional={"label": None, "features": None},
                interval=interval,
            )
            condition: dict[str, Any] = {}
            if self.regime.conditioned:
                condition["features"] = self.normal(theta[rows])
            if labels is not None:
                condition["label"] = labels[rows]
            times = regime.times(path, steps)
            start = times[..., 0]
            noise = path.prior(images[rows], t=start, seed=seeds[rows])
            noise += expand_to(path.alpha(start), noise) * colors[rows]
            walker = denoiser if guidance == 1 else guided
            images[rows] = solver(walker, noise, times=times, seed=seeds[rows], **condition).state
        return images.clamp(-1, 1)

    def _theta(
        self,
        n: int,
        theta: Tensor | None,
        labels: Tensor | None,
        temperature: float,
        seed: int,
    ) -> Tensor:
        if labels is not None and (not self.classes or len(labels) != n):
            raise InputError(f"{len(labels)} labels for {n} samples of {self.classes} classes")
        if theta is not None:
            if theta.shape != (n, len(self.center)):
                raise InputError(
                    f"theta has shape {tuple(theta.shape)}, not {(n, len(self.center))}"
                )
            return theta.double()
        if labels is None:
            return self.prior.sample(n, temperature=temperature, seed=seed)
        drawn = torch.empty(n, len(self.center), dtype=torch.float64)
        for label in labels.unique().tolist():
            mine = labels == label
            one = derive_seed(seed, "label", label)
            drawn[mine] = self.prior.sample(int(mine.sum()), label, temperature, one)
        return drawn


def train(
    images: Shaped[Tensor, "count channels height width"],
    net: Callable[[], nn.Module] | nn.Module,
    *,
    schedule: ScheduleName | Regime = "tight",
    steps: int,
    batch: int = 64,
    seed: int = 0,
    labels: Int[Tensor, " count"] | None = None,
    prior: SpectrumPrior | None = None,
    spectrum: Spectrum | None = None,
    dropout: float = 0.1,
    decay: float = 0.99,
    rate: float = 2e-3,
    checkpoint: Path | None = None,
    every: int = 100,
    device: str = "cpu",
    watch: Callable[[TrainStep], object] | None = None,
    **settings: Any,
) -> SpectralModel:
    """Train a network on images along a schedule.

    Args:
        images: uint8, or float in [-1, 1].
        net: The network, or a function that makes it (called with a seeded stream). It takes
            ``(state, logsnr, *, features, present, label)`` like :class:`noisewright.nets.UNet`.
        schedule: A regime, or its name.
        steps: Optimizer steps.
        batch: Images per step.
        seed: Of weights, order, times and noise.
        labels: Class of each image.
        prior: A fitted law of spectrum parameters; None fits one here.
        spectrum: Spectra of the images, if they are known already.
        dropout: Share of rows trained without theta and label.
        decay: Of the averaged weights.
        rate: Peak learning rate.
        checkpoint: Folder to save to and to resume from.
        every: Steps between checkpoints.
        device: Where to train.
        watch: Called after every step.
        settings: Fields of the tight regime.

    Raises:
        InputError: If the images cannot be read or the schedule is unknown.
    """
    spectrum = spectrum or rapsd(images)
    prior = prior or SpectrumPrior().fit(spectrum, labels)
    theta = spectrum.features(prior.features)
    center, spread = theta.mean(0), theta.std(0).clamp(min=1e-3)
    regime = (
        schedule if isinstance(schedule, Regime) else regime_named(schedule, center, **settings)
    )
    if not isinstance(net, nn.Module):
        with isolated(derive_seed(seed, "weights")):
            net = net()
    channels = int(images.shape[1])
    color = MeanColor.of(images)
    model = SpectralModel(
        net, regime, prior, center, spread, channels, spectrum.size, color, _classes(labels)
    )
    path = regime.path(spectrum)
    data = images if images.is_floating_point() else images.float() / 127.5 - 1
    rows = {"data": data, "theta": theta, "row": torch.arange(len(data))}
    if labels is not None:
        rows["label"] = labels

    def loss(net: nn.Module, batch: dict[str, Tensor], draws: StepDraws) -> Tensor:
        return spectral_loss(
            net, batch, draws, regime=regime, path=path, normal=model.normal, dropout=dropout
        )

    average = Average(net, decay=decay)
    training = fit(
        net,
        rows,
        loss,
        steps=steps,
        batch=batch,
        seed=derive_seed(seed, "training"),
        rate=rate,
        average=average,
        checkpoint=checkpoint,
        every=every,
        device=device,
    )
    seconds: list[float] = []
    for step in training:
        seconds.append(step.seconds)
        if watch is not None:
            watch(step)
    model.losses = training.losses
    model.seconds = float(torch.tensor(seconds).median()) if seconds else 0.0
    model.net = average.averaged()
    return model


def _classes(labels: Tensor | None) -> int:
    return 0 if labels is None else int(labels.max()) + 1
