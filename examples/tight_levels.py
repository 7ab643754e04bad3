"""Read the spectrum of photographs, build tight noise levels, and use them in diffusers' Euler.

The denoiser is the exact one of a Gaussian law with that spectrum (a Wiener filter), so an error
that is left is that of the levels alone. With your own pictures:

    python examples/tight_levels.py --data my_pictures/
"""

from __future__ import annotations

import argparse

import torch
from diffusers import EulerDiscreteScheduler
from torch import Tensor

from noisewright.adapters import set_levels
from noisewright.data import open_images
from noisewright.methods.spectral_schedule import Spectrum, TightSchedule, rapsd
from noisewright.metrics import radial_power

SIZE = 64


def edm_levels(steps: int, low: float = 0.002, high: float = 80.0, rho: float = 7.0) -> Tensor:
    """Return the usual levels of Karras et al. 2022, eq. 5, with the final 0."""
    place = torch.linspace(0, 1, steps, dtype=torch.float64)
    levels = (high ** (1 / rho) + place * (low ** (1 / rho) - high ** (1 / rho))) ** rho
    return torch.cat([levels, torch.zeros(1, dtype=torch.float64)])


def power_map(spectrum: Spectrum) -> Tensor:
    """Return the power of each frequency of a picture, read off the rings."""
    cycles = torch.fft.fftfreq(SIZE, 1 / SIZE)
    ring = torch.hypot(cycles[:, None], cycles[None, :]).round().long()
    return spectrum.power[0][ring.clamp(max=len(spectrum.freq) - 1)]


def walk(levels: Tensor, power: Tensor, noise: Tensor) -> Tensor:
    """Return what diffusers' Euler draws along the levels."""
    scheduler = EulerDiscreteScheduler(prediction_type="v_prediction", timestep_type="continuous")
    set_levels(scheduler, levels)
    state = levels[0] * noise
    for index, time in enumerate(scheduler.timesteps):
        scheduler.scale_model_input(state, time)
        state = scheduler.step(network(state, levels[index], power), time, state).prev_sample
    return state


def network(state: Tensor, level: Tensor, power: Tensor) -> Tensor:
    """Return the v-prediction; here that of the Wiener filter, with your own model its output."""
    gain = power / (power + level**2)
    data = torch.fft.ifft2(gain * torch.fft.fft2(state)).real
    norm = 1 + level**2
    return (state / norm - data) * norm.sqrt() / level


def main() -> None:
    """Print the range of noise that matters and what its levels gain at equal steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="photos")
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()

    spectrum = rapsd(open_images(args.data, size=SIZE, split="test").images)
    low, high = spectrum.noise_bounds()
    print(f"{len(spectrum)} pictures; power falls as k^-{float(spectrum.slope.median()):.2f}")
    print(f"noise that matters: {float(low.median()):.4f} to {float(high.median()):.1f} (medians)")

    typical = spectrum.select(high.argsort()[len(high) // 2][None])
    noise = torch.randn(
        32, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    wanted = typical.power[0, 1:].log()
    for name, levels in (
        ("EDM", edm_levels(args.steps)),
        ("tight", TightSchedule(typical).sigmas(args.steps)[0]),
    ):
        drawn = walk(levels, power_map(typical), noise)
        error = (radial_power(drawn).power.mean(0)[1:].log() - wanted).square().mean().sqrt()
        print(f"{name:>6}  {', '.join(f'{level:.3g}' for level in levels.tolist())}")
        print(f"{'':>6}  error of the log spectrum after {args.steps} steps: {float(error):.3f}")


if __name__ == "__main__":
    main()
