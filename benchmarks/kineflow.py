"""kineflow beside forecasters of neuralforecast and GluonTS: score, seconds, peak memory.

Each method trains on the same series for the same number of optimizer steps, in a process of its
own on one core, and forecasts the same windows: ETTh1, each channel a series, the last windows of
the test part. If the set is not at hand, the driven oscillator without its force::

    python benchmarks/kineflow.py --json --out docs/benchmarks/kineflow.json

The score is the ranked probability score from 19 quantiles, in units standardised on the training
part. Ratios are kineflow's over a peer's: below 1, kineflow is better. A peer that is not installed
is left out and named.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from timing import Row, main

METHODS = ("kineflow", "nhits", "nbeatsx", "dlinear", "deepar")
NEURALFORECAST = {"nhits": "NHITS", "nbeatsx": "NBEATSx", "dlinear": "DLinear"}
LEVELS = np.arange(1, 20) / 20
CONTEXT, HORIZON, STEP = 96, 24, 25
LIMIT = 1500
"""Seconds that one measurement may take."""
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def series() -> Any:
    """Return the long frame ``unique_id, ds, y``, standardised on its training part."""
    import pandas as pd

    from noisewright.data import DrivenOscillator, NotAtHandError, ett

    try:
        frame = ett("ETTh1")[0].iloc[:14_400]
    except NotAtHandError:
        y = DrivenOscillator.simulate(14_400, 0).y
        frame = pd.DataFrame({"osc": y}, index=pd.date_range("2026", periods=len(y), freq="h"))
    frame = (frame - frame.iloc[:8640].mean()) / frame.iloc[:8640].std()
    long = frame.rename_axis("ds").reset_index().melt("ds", var_name="unique_id", value_name="y")
    return long[["unique_id", "ds", "y"]]


def kineflow(long: Any, windows: int, steps: int) -> Any:
    """Forecast with the long-frame front end."""
    from noisewright.methods.kineflow import LongForecaster

    model = LongForecaster(
        HORIZON, CONTEXT, n_samples=100, steps=steps, batch_size=280, n_sampling_steps=8,
        random_state=0,
    )  # fmt: skip
    percents = [round(100 * (1 - 2 * level)) for level in LEVELS[:9]]
    found = model.cross_validation(long, n_windows=windows, step_size=STEP, level=percents)
    names = [f"KineFlow-lo-{p}" for p in percents] + ["KineFlow-median"]
    return found, [*names, *(f"KineFlow-hi-{p}" for p in reversed(percents))]


def neuralforecast(method: str, long: Any, windows: int, steps: int) -> Any:
    """Forecast with a model of neuralforecast, quantile loss."""
    import neuralforecast.models as models
    from neuralforecast import NeuralForecast
    from neuralforecast.losses.pytorch import MQLoss

    percents = [round(100 * (1 - 2 * level)) for level in LEVELS[:9]]
    name = NEURALFORECAST[method]
    model = getattr(models, name)(
        h=HORIZON,
        input_size=CONTEXT,
        max_steps=steps,
        loss=MQLoss(level=percents),
        random_seed=1,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
    )
    forecaster = NeuralForecast([model], freq="h")
    found = forecaster.cross_validation(long, n_windows=windows, step_size=STEP, refit=False)
    names = [f"{name}-lo-{p}" for p in percents] + [f"{name}-median"]
    names += [f"{name}-hi-{p}" for p in reversed(percents)]
    columns = {str(c).replace(".0", ""): c for c in found.columns}
    return found, [columns[n] for n in names]


def deepar(long: Any, windows: int, steps: int) -> Any:
    """Forecast with DeepAR of GluonTS: samples."""
    import pandas as pd
    from gluonts.dataset.common import ListDataset
    from gluonts.torch import DeepAREstimator

    back = HORIZON + (windows - 1) * STEP
    parts = {name: part.reset_index(drop=True) for name, part in long.groupby("unique_id")}
    start = long["ds"].iloc[0]

    def entries(cut: int) -> Any:
        rows = [{"start": start, "target": p["y"].to_numpy()[:cut]} for p in parts.values()]
        return ListDataset(rows, freq="h")

    length = len(next(iter(parts.values())))
    estimator = DeepAREstimator(
        freq="h", prediction_length=HORIZON, context_length=CONTEXT, num_batches_per_epoch=steps,
        trainer_kwargs={
            "max_epochs": 1, "accelerator": "cpu", "logger": False, "enable_progress_bar": False,
            "enable_checkpointing": True, "default_root_dir": os.environ["SCRATCH"],
        },
    )  # fmt: skip
    predictor = estimator.train(entries(length - back))
    rows = []
    for window in range(windows):
        cut = length - back + window * STEP
        forecasts = predictor.predict(entries(cut), num_samples=100)
        for (name, part), forecast in zip(parts.items(), forecasts, strict=True):
            ahead = part.iloc[cut : cut + HORIZON]
            quantiles = np.quantile(forecast.samples, LEVELS, axis=0).T
            table = pd.DataFrame(quantiles, columns=[f"q{i}" for i in range(len(LEVELS))])
            rows.append(table.assign(unique_id=name, y=ahead["y"].to_numpy()))
    return pd.concat(rows), [f"q{i}" for i in range(len(LEVELS))]


def one(method: str, windows: int, steps: int) -> dict[str, float]:
    """Measure one method in this process."""
    from noisewright.metrics import crps_quantiles
    from noisewright.parallel import peak_mb

    warnings.simplefilter("ignore")
    long = series()
    started = time.process_time()
    if method == "kineflow":
        found, names = kineflow(long, windows, steps)
    elif method == "deepar":
        found, names = deepar(long, windows, steps)
    else:
        found, names = neuralforecast(method, long, windows, steps)
    seconds = time.process_time() - started
    values = np.sort(found[names].to_numpy(np.float64), axis=1)
    crps = crps_quantiles(values, LEVELS, found["y"].to_numpy(np.float64)).mean()
    inside = (values[:, 0] <= found["y"]) & (found["y"] <= values[:, -1])
    return {
        "crps": float(crps),
        "coverage90": float(inside.mean()),
        "seconds": seconds,
        "peak_mb": peak_mb(),
    }


def measured(method: str, windows: int, steps: int) -> dict[str, Any]:
    """Measure one method in a process of its own; say why if it cannot be."""
    import tempfile

    command = [sys.executable, str(Path(__file__)), "--one", method, str(windows), str(steps)]
    with tempfile.TemporaryDirectory() as scratch:
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=LIMIT, cwd=scratch,
                env=os.environ | THREADS | {"SCRATCH": scratch},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"method": method, "error": f"over {LIMIT} s"}
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        return {"method": method, "error": last}
    return {"method": method} | json.loads(done.stdout.splitlines()[-1])


UNITS = {"crps": "", "seconds": "s", "peak_mb": "MB"}


def rows_of(found: list[dict[str, Any]]) -> list[Row]:
    """Return ratios of score, seconds and memory, and each method's own values."""
    rows, ours = [], next(r for r in found if r["method"] == "kineflow")
    for r in found:
        if "error" in r:
            continue
        if r is not ours:
            for key, unit in UNITS.items():
                ratio = ours[key] / r[key]
                rows.append(
                    Row(
                        *("kineflow over its peers", key, r["method"], ratio, ratio, ratio, 1),
                        ours=ours[key],
                        theirs=r[key],
                        side_unit=unit,
                    )
                )
        value = r["coverage90"]
        rows.append(
            Row("90 % interval holds", r["method"], "", value, value, value, 1, unit="share")
        )
    return rows


def measure(quick: bool) -> list[Row]:
    """Measure all methods in turn."""
    found = []
    for method in METHODS:
        found.append(measured(method, *((3, 20) if quick else (60, 500))))
        print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    return rows_of(found)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
    else:
        main(
            "kineflow",
            measure,
            title="kineflow beside forecasters of neuralforecast and GluonTS",
            packages=("neuralforecast", "gluonts", "lightning"),
        )
