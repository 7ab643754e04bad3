"""Cost of log ratios beside peers, against the number of features and of samples.

    python benchmarks/density_ratio.py --json --out docs/benchmarks/density_ratio.json
    python benchmarks/density_ratio.py --quick

One table compares scoring alone: one walk for both conditions against two log densities of the
same network at equal steps. The next compares the whole work, fit and 500 queries, with
``densratio``, nearest neighbours, kernel densities and MELD where it is installed, and gives the
squared error each reaches. The last holds slopes against samples and features, and peak memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from timing import Row, interleaved, main, quartiles, ratio_row

SAMPLES = 4000
QUERIES = 500
STEPS = 400
WALK = 20


def _model(size: int, *, steps: int = 1) -> Any:
    from noisewright.methods.density_ratio import DensityRatioFlow
    from noisewright.methods.density_ratio.cases import gaussian_case

    case = gaussian_case(size, 1.0, SAMPLES if steps > 1 else 100, QUERIES, 0)
    model = DensityRatioFlow(hidden=(64, 64, 64), steps=steps, lr=2e-3, random_state=0)
    return model.fit(case.X, case.y), case


def scoring(quick: bool) -> list[Row]:
    """Compare one walk with two, at equal steps."""
    from noisewright.methods.density_ratio.baselines import naive_log_ratio

    rows = []
    for size in (2, 10) if quick else (2, 10, 50, 200):
        model, case = _model(size)
        times = interleaved(
            {
                "one walk": lambda m=model, c=case: m.log_ratio(c.queries, 1, 0, n_steps=WALK),
                "two likelihoods": lambda m=model, c=case: naive_log_ratio(
                    m, c.queries, 1, 0, n_steps=WALK
                ),
            },
            rounds=3 if quick else 9,
        )
        what = f"{QUERIES} samples, {size} features, {WALK} steps"
        rows.append(
            ratio_row(times, "one walk", "two likelihoods", section="Scoring", what=what, goal=0.75)
        )
    return rows


def whole(quick: bool) -> list[Row]:
    """Compare fit and queries with peers; and their errors."""
    from noisewright.methods.density_ratio import baselines
    from noisewright.methods.density_ratio.cases import gaussian_case

    rows = []
    for size in (10,) if quick else (2, 10):
        case = gaussian_case(size, 1.0, SAMPLES, QUERIES, 0)
        over, under = case.X[case.y == 1], case.X[case.y == 0]
        found: dict[str, np.ndarray] = {}

        def ours(size: int = size, found: dict[str, np.ndarray] = found) -> None:
            model, case = _model(size, steps=100 if quick else STEPS)
            found["ode"] = model.log_ratio(case.queries, 1, 0, n_steps=WALK)

        contenders: dict[str, Callable[[], object]] = {"ode": ours}
        for name in baselines.available_methods():

            def peer(name: str = name, found: dict[str, np.ndarray] = found) -> None:
                found[name] = baselines.sample_log_ratio(name, over, under, case.queries, 0)  # noqa: B023 - called in this turn

            contenders[name] = peer
        times = interleaved(contenders, rounds=1 if quick else 3)
        what = f"{SAMPLES} samples, {size} features"
        rows += [
            ratio_row(times, "ode", name, section="Fit and score", what=what)
            for name in contenders
            if name != "ode"
        ]
        for name, r in found.items():
            error = float(np.mean((r - case.truth) ** 2))
            label = "ratio ODE" if name == "ode" else name
            rows.append(
                Row(
                    "Squared error",
                    f"{label}, {size} features",
                    "",
                    error,
                    error,
                    error,
                    1,
                    "nats^2",
                )
            )
    return rows


def scaling(quick: bool) -> list[Row]:
    """Return slopes of log seconds against log size, and peak memory."""
    from noisewright.methods.density_ratio.footprint import footprint

    counts = (500, 1000, 2000) if quick else (500, 1000, 2000, 4000, 8000)
    by_count = footprint(10, 4, counts)
    sizes = (4, 8, 16) if quick else (4, 8, 16, 32, 64)
    by_size = [footprint(size, 4, (500,))["500"]["seconds"] for size in sizes]
    seconds = [by_count[str(n)]["seconds"] for n in counts]
    large = footprint(512, 1, (10_000,))["10000"]["peak_mb"]
    found = (
        ("exponent of seconds against samples, 10 features", _slope(counts, seconds), "", 1.15),
        ("exponent of seconds against features, exact divergence", _slope(sizes, by_size), "", 2.0),
        ("peak of 10,000 samples x 512 features, one probe", large, "MB", 1000.0),
    )
    return [Row("Size", what, "", v, v, v, 1, unit, goal) for what, v, unit, goal in found]


def _slope(sizes: tuple[int, ...], seconds: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def measure(quick: bool) -> list[Row]:
    """Return all rows."""
    torch.set_num_threads(1)
    rows = [*scoring(quick), *whole(quick), *scaling(quick)]
    assert all(np.isfinite(quartiles([row.value])[1]) for row in rows)
    return rows


if __name__ == "__main__":
    main(
        "density_ratio",
        measure,
        title="Density ratios",
        packages=("densratio", "meld", "scikit-learn"),
    )
