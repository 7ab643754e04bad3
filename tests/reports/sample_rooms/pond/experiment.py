"""Small honest work in stages: a survey, then one listening stage per arm and seed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewright.reports import figures
from noisewright.types import InputError


@dataclass(frozen=True)
class Settings:
    """Settings of the pond."""

    size: int = 16
    """Side of the pond in pixels."""
    steps: int = 20
    """Listening steps of each arm."""
    steps_list: tuple[int, ...] = (2, 4)
    """Numbers of steps that are compared."""
    nap: float = 0.0
    """Seconds between steps."""
    limit: float | None = None
    """Stop below this error."""
    deep: bool = False
    """Whether frogs dive."""

    @classmethod
    def quick(cls) -> Settings:
        """Return a small pond."""
        return cls(size=8, steps=5)


def survey(stage, *, size: int, nap: float) -> dict[str, Any]:
    for step in range(5):
        time.sleep(nap)
        stage.progress(step + 1, 5)
    return {"growth": 2.01, "size": (size, size)}


def listen(stage, *, arm: str, seed: int, size: int, steps: int, nap: float) -> dict[str, Any]:
    """Relax a noisy state, with a checkpoint after every step."""
    start, state = 0, np.random.default_rng([seed, len(arm)]).standard_normal((size, size))
    mark = stage.folder / "at.npz"
    if mark.exists():
        with np.load(mark) as kept:
            start, state = int(kept["step"]), kept["state"]
    for step in range(start, steps):
        noise = np.random.default_rng([seed, step, len(arm)]).standard_normal((size, size))
        state = (0.8 if arm == "ours" else 0.99) * state + 0.02 * noise
        time.sleep(nap)
        if stage.main:
            part = mark.with_name("part.npz")
            np.savez(part, step=step + 1, state=state)
            part.rename(mark)
        stage.progress(step + 1, steps, loss=float(np.abs(state).mean()))
    return {"state": state, "error": float(np.sqrt((state**2).mean()))}


def run(settings: Settings, run) -> None:
    if settings.size < 4:
        raise InputError(f"size={settings.size} must be at least 4")
    growth = run.stage("survey", survey, size=settings.size, nap=settings.nap)["growth"]
    tasks = [
        {"arm": a, "seed": s, "size": settings.size, "steps": settings.steps, "nap": settings.nap}
        for a in ("ours", "plain")
        for s in run.seeds
    ]
    done = run.stages("listen", listen, tasks)
    for task, record in zip(tasks, done, strict=True):
        run.record(f"error.{task['arm']}", record["error"], seed=task["seed"])
    run.record("growth", growth)
    run.unmeasured("lake.error", "no lake is at hand: noisewright data fetch lake")
    ours, plain = run.spread("error.ours"), run.spread("error.plain")
    run.finding(f"Without the echo {ours[0] / plain[0]:.2f} times as many frogs are miscounted")
    run.data_note("Made ripples, values in [-1, 1] <b>unitless</b>.")
    picture = figures.image_grid([[done[0]["state"]]], rows=["ours"], ours="ours")
    run.figure("pond", picture, caption="The pond <after>.", alt='One grey picture, "calm".')
    run.table(
        "Error & spread", ["method", "error"], [["ours", ours], ["plain", plain]], ours="ours"
    )
