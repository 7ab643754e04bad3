"""Tight schedules beside the noise levels that people use: error after a walk, and what they cost.

Errors are closed forms on held-out photographs at 64 px, so they need no network: the exact
denoiser of a Gaussian law with the picture's spectrum, walked by DDIM. Levels of diffusers come
from its own schedulers with the table of Stable Diffusion; Align Your Steps has 10 steps only::

    python benchmarks/spectral_schedule.py --json --out docs/benchmarks/spectral_schedule.json
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from noisewright.data import photos
from noisewright.methods.spectral_schedule import (
    CosineRegime,
    EDMRegime,
    ShiftedCosineRegime,
    Spectrum,
    SpectrumPrior,
    TightRegime,
    TightSchedule,
    rapsd,
    transfer_error,
    work,
)
from noisewright.reports.stages import Stage
from timing import Row, interleaved, main, quartiles

SIZES = (32, 64, 128, 256)
TABLE = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}


def diffusers_levels(steps: int) -> dict[str, Tensor]:
    """Return levels of diffusers' schedulers, each ending in 0."""
    from diffusers import EulerDiscreteScheduler
    from diffusers.schedulers import AysSchedules

    levels = {}
    for name in ("karras", "exponential", "beta"):
        flag = {f"use_{name}_sigmas": True}
        scheduler = EulerDiscreteScheduler(**TABLE, **flag)
        scheduler.set_timesteps(steps)
        levels[f"diffusers {name}"] = scheduler.sigmas.double()
    if steps == 10:
        listed = AysSchedules["StableDiffusionXLSigmas"]
        levels["Align Your Steps (SDXL)"] = torch.tensor(listed, dtype=torch.float64)
    return levels


def errors(spectrum: Spectrum, measure: str) -> list[Row]:
    """Return our error over each peer's, quartiles over pictures."""
    rows = []
    regimes = {
        "EDM": EDMRegime(),
        "cosine": CosineRegime(),
        "shifted cosine": ShiftedCosineRegime(),
        "log-linear, tight range": TightRegime(beta=1.0),
        "EDM spacing, tight range": TightRegime(spacing="edm"),
    }
    for steps in (5, 10):
        ours = transfer_error(work.walk_ratios(TightRegime(), spectrum, steps), spectrum)[measure]
        peers = {n: work.walk_ratios(r, spectrum, steps) for n, r in regimes.items()}
        for name, levels in (peers | diffusers_levels(steps)).items():
            theirs = transfer_error(levels, spectrum)[measure]
            middle, low, high = _middle((ours / theirs).tolist())
            rows.append(
                Row(
                    *(f"{measure.replace('_', ' ')} error, ours over peer", f"{steps} steps"),
                    *(name, middle, low, high, len(spectrum)),
                    goal=1.0,
                    ours=float(ours.median()),
                    theirs=float(theirs.median()),
                    side_unit="",
                )
            )
    return rows


def _middle(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = sorted(quartiles(values))
    return middle, low, high


def cost(rounds: int) -> list[Row]:
    """Return processor milliseconds per image for spectrum, bounds and schedule, against size."""
    rows = []
    for side in SIZES:
        generator = torch.Generator().manual_seed(side)
        images = torch.rand(32, 3, side, side, generator=generator) * 2 - 1
        turns = interleaved({"ours": lambda images=images: TightSchedule(rapsd(images))}, rounds)
        each = [seconds / len(images) * 1000 for seconds in turns["ours"]]
        middle, low, high = _middle(each)
        what = f"spectrum and schedule, {side} px"
        rows.append(Row("cost of a schedule", what, "", middle, low, high, rounds, unit="ms/image"))
    return rows


def training(rounds: int) -> list[Row]:
    """Return seconds of a training step over those with the cosine schedule."""
    crops = photos(16, per_photo=40)
    spectrum = rapsd(crops.images)
    prior = SpectrumPrior(features=work.FEATURES).fit(spectrum)
    net = {
        "name": "unet",
        "channels": 3,
        "classes": 0,
        "patch": 2,
        "widths": [32, 64, 64],
        "blocks": 1,
    }
    stage = Stage("time a step", Path())
    spent = work.time_one_step(stage, crops.images, spectrum, prior, net, 32, {}, rounds)
    middle, low, high = _middle((spent["tight"] / spent["cosine"]).tolist())
    return [Row("training step", "UNet, 16 px", "cosine", middle, low, high, rounds, goal=1.1)]


def measure(quick: bool) -> list[Row]:
    """Measure everything."""
    torch.set_num_threads(1)
    spectrum = work.held_out_spectra(None, 64)
    found = [row for name in ("log_spectrum", "power") for row in errors(spectrum, name)]
    return found + cost(3 if quick else 15) + training(2 if quick else 9)


if __name__ == "__main__":
    main(
        "spectral_schedule",
        measure,
        title="Tight schedules beside other noise levels",
        packages=("diffusers",),
    )
