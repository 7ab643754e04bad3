"""Sample a Gaussian mixture with its exact denoiser through several solvers, and plot them.

The denoiser is known in closed form, so what differs between the panels is the solver alone:

    python examples/gaussian_mixture.py --out mixture.png
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from torch import Tensor

from noisewright import DDIM, Denoiser, DPMSolverPP, Euler, GaussianPath, Heun, RectifiedSchedule
from noisewright.metrics import mmd
from noisewright.paths import expand_to
from noisewright.reports.figures import BASELINES, OURS, canvas, style

SPREAD = 0.1
ANGLES = torch.arange(8) * (2 * math.pi / 8)
CENTRES = torch.stack([ANGLES.cos(), ANGLES.sin()], dim=1)  # eight points on a circle
SOLVERS = {
    "Euler": (Euler(), 9),
    "Heun": (Heun(), 5),
    "DPM-Solver++": (DPMSolverPP(), 9),
    "ancestral": (DDIM(eta=1.0), 9),
}  # nine network calls each


def exact_denoiser(path: GaussianPath) -> Denoiser:
    """Return E[data | state] of the mixture: a softmax over centres of what each would answer."""

    def net(state: Tensor, t: Tensor) -> Tensor:
        a, s = (expand_to(level, state) for level in path.levels(t))
        variance = (a * SPREAD) ** 2 + s**2
        away = state[:, None, :] - a[..., None] * CENTRES
        share = torch.softmax(-away.square().sum(-1) / (2 * variance), dim=1)
        answers = CENTRES + (a * SPREAD**2 / variance)[..., None] * away
        return (share[..., None] * answers).sum(1)

    return Denoiser(net, path, kind="data")


def draw_data(count: int) -> Tensor:
    """Return samples of the mixture itself."""
    stream = torch.Generator().manual_seed(0)
    which = torch.randint(len(CENTRES), (count,), generator=stream)
    return CENTRES[which] + SPREAD * torch.randn(count, 2, generator=stream)


def main() -> None:
    """Walk the same noise with each solver, print the distance to the data, draw the points."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("gaussian_mixture.png"))
    parser.add_argument("--count", type=int, default=1000)
    args = parser.parse_args()

    path = GaussianPath(RectifiedSchedule())
    denoiser, data = exact_denoiser(path), draw_data(args.count)
    noise = path.prior(data, seed=1)
    with style():
        figure, axes = canvas(1, len(SOLVERS) + 1, height=1.9, sharex=True, sharey=True)
        shown = {"data": data}
        for name, (solver, steps) in SOLVERS.items():
            solution = solver(denoiser, noise, steps=steps, seed=2)
            distance = float(mmd(solution.state, data))
            print(f"{name:>14}  {solution.calls} calls  MMD {distance:.4f}")
            shown[name] = solution.state
        for place, (name, points) in zip(axes.flat, shown.items(), strict=True):
            place.scatter(*points.T, s=2, color=BASELINES[0] if name == "data" else OURS)
            place.set(xlabel=name, aspect="equal", xlim=(-1.6, 1.6), ylim=(-1.6, 1.6))
        figure.savefig(args.out)
    print(args.out)


if __name__ == "__main__":
    main()
