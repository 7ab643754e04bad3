"""Train a small flow-matching model on handwritten digits and sample with guidance.

python examples/train_digits.py --out digits.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

from noisewright import Denoiser, GaussianPath, Heun, RectifiedSchedule
from noisewright.data import digits
from noisewright.metrics import PCAFeatures, frechet_distance
from noisewright.nets import UNet
from noisewright.random import StepDraws, isolated
from noisewright.reports.figures import image_grid
from noisewright.steering import ClassifierFree
from noisewright.training import Average, fit

DROPPED = 0.1  # share of rows trained without their label, for guidance
PATH = GaussianPath(RectifiedSchedule())


def flow_matching(net: nn.Module, batch: dict[str, Tensor], draws: StepDraws) -> Tensor:
    """Return the squared error of the predicted velocity, one number per row."""
    data, t = batch["data"], draws.uniform(stratified=True)
    noise = draws.normal_like(data)
    label = torch.where(draws.uniform() < DROPPED, -1, batch["label"])  # below 0: no label
    found = net(PATH.state(data, noise, t), t, label=label)
    return (found - PATH.target(data, noise, t, "velocity")).square().flatten(1).mean(1)


def main() -> None:
    """Train, then draw twenty of each digit with three guidance weights."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("digits.png"))
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()

    train, test = digits(), digits("test")
    with isolated(0):
        net = UNet(1, (16, 32), blocks=1, vector=48, heads=2, classes=10)
    average = Average(net, decay=0.99)
    rows = {"data": train.floats(), "label": train.labels}
    for step in fit(
        net, rows, flow_matching, steps=args.steps, batch=64, seed=0, rate=3e-3, average=average
    ):
        if step.step % 100 == 0:
            print(f"step {step.step}  loss {step.loss:.3f}")

    denoiser = Denoiser(average.averaged(), PATH, kind="velocity")
    labels = torch.arange(10).repeat_interleave(20)
    noise = PATH.prior(torch.empty(len(labels), 1, 8, 8), seed=1)
    features = PCAFeatures(16).fit(train.images)
    reference, shown = features(test.images), {}
    for weight in (0.0, 1.0, 2.0):
        guided = ClassifierFree(denoiser, weight=weight)
        solution = Heun()(guided, noise, steps=8, label=labels)
        pictures = solution.state.clamp(-1, 1)
        distance = frechet_distance(features(pictures), reference)
        print(f"weight {weight}  {solution.calls} calls  Fréchet {distance:.2f} ({features.name})")
        shown[f"weight {weight:g}"] = pictures[::20]
    shown["data"] = torch.stack([train.select(train.labels == d).floats()[0] for d in range(10)])
    figure = image_grid(list(shown.values()), rows=list(shown), columns=list("0123456789"))
    figure.savefig(args.out)
    print(args.out)


if __name__ == "__main__":
    main()
