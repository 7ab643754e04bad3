"""What all benchmarks share: interleaved timing on one thread, ratios with spread, one file format.

Contenders take turns inside one process; each round gives one ratio per pair, so a busy machine
slows both sides of a ratio alike. Time is CPU time of the process, which on one thread is the time
the work takes on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}
__all__ = ["Row", "Times", "child_seconds", "interleaved", "main", "peak_memory", "ratio_row"]

Times = dict[str, list[float]]
"""CPU seconds of each contender, one per round."""


@dataclass(frozen=True)
class Row:
    """One line of a table: a ratio ours / peer, or a value of ours alone.

    Attributes:
        section: Which table it belongs to.
        what: What was measured.
        peer: What it is compared with; empty for a value alone.
        value: Median over rounds of the ratio (or the value).
        low: Lower quartile.
        high: Upper quartile.
        rounds: Number of rounds.
        unit: Unit of the value; empty for a ratio.
        goal: The largest value that is wanted, or None.
        ours: Median of our side, in ``side_unit``.
        theirs: Median of the peer's side.
        side_unit: Unit of the two sides.
    """

    section: str
    what: str
    peer: str
    value: float
    low: float
    high: float
    rounds: int
    unit: str = ""
    goal: float | None = None
    ours: float | None = None
    theirs: float | None = None
    side_unit: str = "ms"


def interleaved(contenders: Mapping[str, Callable[[], object]], rounds: int) -> Times:
    """Time contenders in turns, after one untimed call each; who begins changes every round."""
    for work in contenders.values():
        work()
    names, times = list(contenders), {name: [] for name in contenders}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            began = time.process_time()
            contenders[name]()
            times[name].append(time.process_time() - began)
    return times


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return lower quartile, median and upper quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def ratio_row(
    times: Times, ours: str, peer: str, *, section: str, what: str, goal: float | None = None
) -> Row:
    """Return the ratio ours / peer, paired by round."""
    ratios = [a / b for a, b in zip(times[ours], times[peer], strict=True)]
    low, middle, high = quartiles(ratios)
    mine, theirs = (1e3 * statistics.median(times[name]) for name in (ours, peer))
    return Row(section, what, peer, middle, low, high, len(ratios), "", goal, mine, theirs)


def child_seconds(arguments: Sequence[str]) -> float:
    """Return the CPU seconds of a Python child process; its output is dropped."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=ONE_THREAD
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def peak_memory(code: str) -> float:
    """Return the peak resident memory in MiB of a Python child process that runs ``code``."""
    tail = "\nimport resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    command = [sys.executable, "-W", "ignore", "-c", code + tail]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=ONE_THREAD)
    size = float(done.stdout.split()[-1])
    return size / (1024**2 if sys.platform == "darwin" else 1024)


def environment(packages: Sequence[str]) -> dict[str, Any]:
    """Return what the numbers depend on: processor, threads, versions."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":")[1] for line in cpuinfo.read_text().splitlines() if "model n" in line
        ]
        model = names[0].strip() if names else model
    versions = {}
    for package in ("noisewright", "torch", *packages):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {"processor": model, "threads": 1, "python": platform.python_version()} | versions


def main(
    name: str, measure: Callable[[bool], list[Row]], *, title: str, packages: Sequence[str] = ()
) -> None:
    """Run a benchmark from the command line: ``--json``, ``--out FILE``, ``--quick``.

    Args:
        name: File name without its ending.
        measure: Called with whether to be quick; returns the rows.
        title: Heading of the section in ``docs/performance.md``.
        packages: Distributions whose versions matter.
    """
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--out", type=Path, help="write the result there as well")
    parser.add_argument("--quick", action="store_true", help="a few rounds only")
    flags = parser.parse_args()
    rows = measure(flags.quick)
    result = {
        "benchmark": name,
        "title": title,
        "command": f"python benchmarks/{name}.py --json --out docs/benchmarks/{name}.json",
        "quick": flags.quick,
        "environment": environment(packages),
        "rows": [asdict(row) for row in rows],
    }
    text = json.dumps(result, indent=1) + "\n"
    if flags.out is not None:
        flags.out.parent.mkdir(parents=True, exist_ok=True)
        flags.out.write_text(text)
    if flags.json:
        print(text, end="")
        return
    for row in rows:
        beside = f" / {row.peer}" if row.peer else ""
        spread = f"{row.low:.4g} .. {row.high:.4g}"
        print(f"{row.section}: {row.what}{beside}: {row.value:.4g} {row.unit} ({spread})")
