"""Seconds and peak memory of sampling, in a process of its own.

``python -m noisewright.methods.kineflow.footprint`` prints one line of JSON. The network is
untrained; that costs as much.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Any

from noisewright.parallel import peak_mb
from noisewright.types import InputError

__all__ = ["footprint", "measure"]

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
COUNTS = (50, 100, 200, 400)
REPEATS = 3


def footprint() -> dict[str, Any]:
    """Return what :func:`measure` finds in a fresh process on one thread.

    Raises:
        InputError: If the process fails; the message holds its last line.
    """
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | ONE_THREAD,
    )
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise InputError(f"sampling failed (exit {done.returncode}): {last}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(windows: int = 1000) -> dict[str, Any]:
    """Return seconds of one window by samples, and peak memory of many windows.

    Args:
        windows: Windows of one channel and 96 leads that memory is measured on.
    """
    import torch

    from noisewright.methods.kineflow.flow import KineFlow
    from noisewright.methods.kineflow.scaling import Layout
    from noisewright.methods.kineflow.windows import Windows
    from noisewright.random import isolated

    def drawn(layout: Layout, count: int) -> Windows:
        stream = torch.Generator().manual_seed(0)
        context = torch.randn(count, layout.context, layout.channels, generator=stream)
        length = layout.context + layout.horizon
        return Windows(
            context,
            torch.empty(count, length, 0),
            torch.empty(count, layout.context, 0),
            torch.empty(count, 0),
        )

    torch.set_num_threads(1)
    layout = Layout(96, 24, 7)
    with isolated(0):
        model, window = KineFlow(asdict(layout)).eval(), drawn(layout, 1)
    seconds = {}
    for count in COUNTS:
        model.sample(window, count)
        times = []
        for _ in range(REPEATS):
            # One thread, so processor time is what a wall clock shows on an idle machine.
            started = time.process_time()
            model.sample(window, count)
            times.append(time.process_time() - started)
        seconds[str(count)] = min(times)
    long = Layout(96, 96, 1)
    before = peak_mb()
    with isolated(0):
        large = KineFlow(asdict(long)).eval()
    large.sample(drawn(long, windows), 100, steps=2)
    return {"seconds": seconds, "libraries_mb": before, "peak_mb": peak_mb()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure()) + "\n")
