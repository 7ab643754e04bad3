"""Seconds and peak memory of scoring, in a process of its own.

``python -m noisewright.methods.density_ratio.footprint SIZE STEPS COUNT...`` scores COUNT samples
of SIZE features and prints one line of JSON. The network is untrained; that costs
as much.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np

from noisewright.parallel import peak_mb
from noisewright.types import InputError

__all__ = ["footprint", "measure"]

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
REPEATS = 2


def footprint(size: int, steps: int, counts: Sequence[int]) -> dict[str, dict[str, float]]:
    """Return ``seconds`` on one core and ``peak_mb`` of the process for numbers of samples.

    Args:
        size: Features; above 64 the divergence is estimated with one probe.
        steps: Steps of the solver.
        counts: Numbers of samples, rising: the peak of a later one counts those before.

    Raises:
        InputError: If the process fails; the message holds its last line.
    """
    command = [sys.executable, "-m", __name__, *map(str, (size, steps, *counts))]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | ONE_THREAD
    )
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise InputError(f"scoring {counts} samples failed (exit {done.returncode}): {last}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(size: int, steps: int, counts: Sequence[int]) -> dict[str, dict[str, float]]:
    """Do what :func:`footprint` says, in this process."""
    from noisewright.methods.density_ratio.estimator import DensityRatioFlow

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((64, size)), np.arange(64) % 2
    model = DensityRatioFlow(hidden=(128, 128, 128), steps=1, validation_fraction=0, random_state=0)
    model.fit(X, y).log_ratio(X, 1, 0, n_steps=1)  # imports and first calls, not measured
    found = {}
    for count in counts:
        queries = rng.standard_normal((count, size))
        seconds = []
        for _ in range(REPEATS):
            # One thread, so processor time is what a wall clock shows on an idle machine.
            started = time.process_time()
            model.log_ratio(queries, 1, 0, n_steps=steps)
            seconds.append(time.process_time() - started)
        found[str(count)] = {"seconds": min(seconds), "peak_mb": peak_mb()}
    return found


if __name__ == "__main__":
    features, walk_steps, *numbers = map(int, sys.argv[1:])
    sys.stdout.write(json.dumps(measure(features, walk_steps, numbers)) + "\n")
