"""Forecast a driven oscillator under two scenarios of its force, and plot them beside the truth.

The force of the next day is known; what if it had the opposite sign? The oscillator's exact law
says what the answer should be:

    python examples/scenarios_with_a_driver.py --out scenarios.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from noisewright.data import DrivenOscillator
from noisewright.methods.kineflow import KineFlowForecaster
from noisewright.reports.figures import BASELINES, OURS, band, canvas, line, style

CONTEXT, HORIZON, HOURS = 96, 24, 3000


def main() -> None:
    parser = argparse.ArgumentParser(description="Forecast under two scenarios of a driver.")
    parser.add_argument("--out", type=Path, default=Path("scenarios.png"))
    parser.add_argument("--steps", type=int, default=100)
    flags = parser.parse_args()

    series = DrivenOscillator.simulate(HOURS, seed=0)
    now = HOURS - HORIZON
    model = KineFlowForecaster(
        CONTEXT, HORIZON, hidden=64, steps=flags.steps, batch_size=128, scaling="global",
        random_state=0,
    )  # fmt: skip
    model.fit(series.y[:now], series.force[:now])

    figure, axes = canvas(1, 2, height=3.4, sharey=True)
    for place, (name, sign) in enumerate((("as it came", 1.0), ("flipped", -1.0))):
        force = sign * series.force[now:]
        futures = model.predict_samples(None, force, n_samples=200, seed=0)[0, :, :, 0]
        law = series.predict(np.array([now]), HORIZON, force=force[None])
        error = np.abs(futures.mean(axis=0) - law.mean[0]).mean() / law.spread.mean()
        inside = np.abs(futures - law.mean[0]) < 1.645 * law.spread
        print(
            f"force {name}: mean off by {error:.2f} spreads; {inside.mean():.2f} of futures in 90 %"
        )
        hours = np.arange(1, HORIZON + 1)
        band(axes[place], hours, *np.quantile(futures, [0.05, 0.95], axis=0))
        line(axes[place], hours, futures.mean(axis=0), ours=True)
        for edge in (-1.645, 1.645):
            line(axes[place], hours, law.mean[0] + edge * law.spread, color=BASELINES[0])
        axes[place].set_xlabel(f"hours ahead, force {name}")
    axes[0].set_ylabel("position; blue: forecast, grey: exact 90 %", color=OURS)
    with style():
        figure.savefig(flags.out)
    print(flags.out)


if __name__ == "__main__":
    main()
