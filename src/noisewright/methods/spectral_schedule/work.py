"""The expensive steps of the experiment, each a stage that is computed once and kept."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from noisewright.data import photographs
from noisewright.methods.spectral_schedule.baselines import CosineRegime, EDMRegime
from noisewright.methods.spectral_schedule.model import (
    MeanColor,
    SpectralModel,
    regime_named,
    train,
)
from noisewright.methods.spectral_schedule.prior import SpectrumPrior
from noisewright.methods.spectral_schedule.regimes import Regime, TightRegime
from noisewright.methods.spectral_schedule.spectrum import Spectrum, rapsd
from noisewright.methods.spectral_schedule.tight import TightSchedule
from noisewright.methods.spectral_schedule.transfer import transfer_error
from noisewright.metrics import PCAFeatures, frechet_distance, radial_power
from noisewright.nets import DiT, UNet
from noisewright.parallel import limited_threads
from noisewright.paths import GaussianPath
from noisewright.random import derive_seed, isolated
from noisewright.reports.stages import Stage
from noisewright.training import TrainStep
from noisewright.types import InputError

__all__ = [
    "Ruler",
    "closed_forms",
    "draw_images",
    "make_net",
    "resolution_growth",
    "time_one_step",
    "train_schedule",
]

FEATURES = 8
RESOLUTIONS = (32, 64, 128, 256)


def make_net(
    name: str, channels: int, classes: int, patch: int, widths: list[int], blocks: int
) -> nn.Module:
    """Return the network that all schedules share.

    Args:
        name: ``"unet"`` or ``"dit"``.
        channels: Channels of the images.
        classes: Number of classes, 0 without.
        patch: Pixels a side that are folded into one.
        widths: Widths of the UNet's resolutions; the last one is the DiT's.
        blocks: Residual blocks per resolution of the UNet.

    Raises:
        InputError: If the name is unknown.
    """
    shared: dict[str, Any] = {"time": "logsnr", "classes": classes, "features": FEATURES}
    if name == "unet":
        return UNet(channels, widths, patch=patch, blocks=blocks, **shared)
    if name == "dit":
        return DiT(channels, width=widths[-1], patch=max(patch, 2), **shared)
    raise InputError(f"net={name!r} is unknown; choose 'unet' or 'dit'")


# --- closed forms ------------------------------------------------------------------------------


def resolution_growth() -> float:
    """Return by how much sqrt S(1) grows per doubled side, 32 to 256 px, over test photographs."""
    growth = []
    for photo in photographs("test"):
        square = _centre_square(photo.image)
        roots = [rapsd(_resized(square, side)).power[0, 1].sqrt() for side in RESOLUTIONS]
        growth.append((roots[-1] / roots[0]).log() / (len(roots) - 1))
    return float(torch.stack(growth).mean().exp())


def _centre_square(image: Tensor | None) -> Tensor:
    assert image is not None
    height, width = image.shape[1:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return image[None, :, top : top + side, left : left + side].float() / 127.5 - 1


def _resized(image: Tensor, side: int) -> Tensor:
    small = nn.functional.interpolate(image, size=(side, side), mode="bilinear", antialias=True)
    return small.clamp(-1, 1)


def held_out_spectra(images: Tensor | None, size: int) -> Spectrum:
    """Return the spectra that transfer errors are measured on.

    Args:
        images: Held-out images; None takes the whole held-out photographs at ``size`` pixels.
        size: Side in pixels.
    """
    if images is not None:
        return rapsd(images[:64])
    whole = [_resized(_centre_square(photo.image), size) for photo in photographs("test")]
    return rapsd(torch.cat(whole))


def walk_ratios(regime: Regime, spectrum: Spectrum, steps: int) -> Tensor:
    """Return the noise-to-signal ratios of a regime's walk, from its first finite one to 0."""
    path = GaussianPath(regime.schedule(spectrum))
    times = regime.times(path, steps)
    alpha, sigma = (path.columns() if path.batch else path).levels(times)
    ratios = sigma / alpha
    ratios[..., -1] = 0
    finite = ratios.isfinite().all(0) if ratios.ndim == 2 else ratios.isfinite()
    return ratios[..., finite]


def closed_forms(
    stage: Stage,
    seen: Spectrum,
    unseen: Spectrum,
    pictures: Tensor | None,
    beta: float,
    eps_max: float,
    eps_min: float,
    size: int,
) -> dict[str, Any]:
    """Return everything that needs no training: transfer errors, bounds, law of spectra, cost.

    Args:
        stage: Of the run.
        seen: Spectra of the training images.
        unseen: Spectra of images that the law of spectra has not seen.
        pictures: See :func:`held_out_spectra`.
        beta: Of the mixed schedule.
        eps_max: Of the bounds.
        eps_min: Of the bounds.
        size: Side at which whole photographs are measured.
    """
    del stage
    spectrum = held_out_spectra(pictures, size)
    bounds: dict[str, Any] = {"eps_max": eps_max, "eps_min": eps_min}
    regimes: dict[str, Regime] = {
        "tight": TightRegime(beta=beta, **bounds),
        "loglinear_tight": TightRegime(beta=1.0, **bounds),
        "edm_tight_range": TightRegime(spacing="edm", **bounds),
        "edm": EDMRegime(),
        "cosine": CosineRegime(),
    }
    errors = {
        name: {
            str(steps): {
                k: v.mean().item()
                for k, v in transfer_error(walk_ratios(r, spectrum, steps), spectrum).items()
            }
            for steps in (5, 10)
        }
        for name, r in regimes.items()
    }
    mixture = SpectrumPrior(features=FEATURES).fit(seen)
    single = SpectrumPrior(1, features=FEATURES).fit(seen)
    theta = unseen.features(FEATURES)
    gain = (mixture.log_prob(theta) - single.log_prob(theta)).mean().item()
    tight = TightRegime(beta=beta, **bounds).schedule(seen)
    left_over = seen.power[:, 1] / tight.sigma(torch.ones(len(seen))) ** 2
    return {
        "errors": errors,
        "residual_snr": left_over.median().item(),
        "growth": resolution_growth(),
        "gain": gain,
        "components": len(mixture.mixtures["all"]["weights"]),
        "ms_per_image": _schedule_milliseconds(),
    }


def _schedule_milliseconds() -> float:
    """Return processor milliseconds per image for spectrum, bounds and schedule at 64 px."""
    stream = torch.Generator().manual_seed(0)
    images = torch.rand(64, 3, 64, 64, generator=stream) * 2 - 1
    spent = []
    with limited_threads(1):
        for _ in range(5):
            began = time.process_time()
            TightSchedule(rapsd(images))
            spent.append(time.process_time() - began)
    return min(spent) / len(images) * 1000


# --- training and drawing ----------------------------------------------------------------------


def train_schedule(
    stage: Stage,
    schedule: str,
    seed: int,
    images: Tensor,
    labels: Tensor | None,
    spectrum: Spectrum,
    prior: SpectrumPrior,
    net: dict[str, Any],
    plan: dict[str, Any],
    tight: dict[str, Any],
) -> dict[str, Any]:
    """Train one network along one schedule; return its weights and losses.

    Args:
        stage: Of the run; checkpoints go into its folder.
        schedule: Name of the regime.
        seed: Of weights, order, times and noise.
        images: Training images, uint8.
        labels: Class of each image, or None.
        spectrum: Spectra of the images.
        prior: Law of spectra.
        net: Arguments of :func:`make_net`.
        plan: ``steps``, ``batch`` and ``rate``.
        tight: Fields of the tight regime.
    """

    def watch(step: TrainStep) -> None:
        stage.progress(step.step, plan["steps"], loss=step.loss)

    settings = tight if schedule.startswith("tight") else {}
    model = train(
        images,
        lambda: make_net(**net),
        schedule=schedule,  # pyright: ignore[reportArgumentType]
        seed=seed,
        labels=labels,
        spectrum=spectrum,
        prior=prior,
        checkpoint=stage.folder / "checkpoints",
        device=stage.device,
        watch=watch,
        **plan,
        **settings,
    )
    return {
        "weights": model.net.state_dict(),
        "center": model.center,
        "spread": model.spread,
        "color": {"mean": model.color.mean, "root": model.color.root},
        "losses": torch.tensor(list(model.losses)),
    }


def draw_images(
    stage: Stage,
    arm: str,
    trained: dict[str, Any],
    seed: int,
    steps: int,
    count: int,
    prior: SpectrumPrior,
    net: dict[str, Any],
    size: tuple[int, int],
    tight: dict[str, Any],
) -> dict[str, Any]:
    """Draw images from one trained network along one schedule.

    Args:
        stage: Of the run.
        arm: Name of the regime to walk along.
        trained: What :func:`train_schedule` returned.
        seed: Of spectra and noise.
        steps: Steps of the walk.
        count: Number of images.
        prior: Law of spectra.
        net: Arguments of :func:`make_net`.
        size: Height and width.
        tight: Fields of the tight regime.
    """
    with isolated(seed):
        module = make_net(**net)
    module.load_state_dict(trained["weights"])
    settings = tight if arm.startswith("tight") else {}
    regime = regime_named(arm, trained["center"], **settings)
    model = SpectralModel(
        module.to(stage.device).eval(),
        regime,
        prior,
        trained["center"],
        trained["spread"],
        net["channels"],
        size,
        MeanColor(**trained["color"]),
        net["classes"],
    )
    labels = torch.arange(count) % net["classes"] if net["classes"] else None
    seed = derive_seed(seed, "draw")
    images = model.sample(count, steps=steps, labels=labels, seed=seed)
    return {"images": ((images + 1) * 127.5).round().to(torch.uint8)}


class Ruler:
    """Distances of drawn images from the data.

    Args:
        images: The data, uint8.
        spectrum: Their spectra.
        components: Principal components of the features.
    """

    def __init__(self, images: Tensor, spectrum: Spectrum, components: int) -> None:
        self.spectrum = spectrum
        self.plain = PCAFeatures(components).fit(images)
        self.centered = PCAFeatures(components).fit(without_mean_color(images))
        self.reference = self.plain(images)
        self.centered_reference = self.centered(without_mean_color(images))

    def measure(self, images: Tensor) -> dict[str, float]:
        """Return Fréchet distances, with and without mean colours, and the spectrum's error."""
        centered = self.centered(without_mean_color(images))
        return {
            "fd": frechet_distance(self.plain(images), self.reference),
            "fd_centered": frechet_distance(centered, self.centered_reference),
            "spectrum_rmse": spectrum_error(images, self.spectrum),
        }


def without_mean_color(images: Tensor) -> Tensor:
    """Return uint8 images as floats, each channel moved to mean 0; within [-2, 2]."""
    floats = images.float() / 127.5 - 1
    return floats - floats.mean((2, 3), keepdim=True)


def spectrum_error(images: Tensor, data: Spectrum) -> float:
    """Return the root mean square error of the mean log spectrum over rings 1 to K."""
    found = radial_power(images).power[:, 1:].clamp(min=1e-9).log().mean(0)
    wanted = data.power[:, 1:].clamp(min=1e-9).log().mean(0)
    return (found - wanted).square().mean().sqrt().item()


def time_one_step(
    stage: Stage,
    images: Tensor,
    spectrum: Spectrum,
    prior: SpectrumPrior,
    net: dict[str, Any],
    batch: int,
    tight: dict[str, Any],
    rounds: int,
) -> dict[str, Any]:
    """Return seconds of a training step, tight and cosine in turn on one machine.

    Args:
        stage: Of the run.
        images: Training images.
        spectrum: Spectra of the images.
        prior: Law of spectra.
        net: Arguments of :func:`make_net`.
        batch: Images per step.
        tight: Fields of the tight regime.
        rounds: Pairs of short runs.
    """
    spent: dict[str, list[float]] = {"tight": [], "cosine": []}
    for pair in range(rounds):
        for name in spent:
            settings = tight if name == "tight" else {}
            model = train(
                images,
                lambda: make_net(**net),
                spectrum=spectrum,
                schedule=name,  # pyright: ignore[reportArgumentType]
                steps=6,
                batch=batch,
                prior=prior,
                seed=pair,
                device=stage.device,
                **settings,
            )
            spent[name].append(model.seconds)
    return {name: torch.tensor(values) for name, values in spent.items()}
