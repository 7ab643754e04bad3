"""The report of the experiment: pictures, tables and the finding, from what was measured."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from noisewright.methods.cacheedit import pictures, work
from noisewright.methods.cacheedit.cost import MemoryEstimate, memory_needed
from noisewright.methods.cacheedit.schedule import cache_steps
from noisewright.methods.cacheedit.settings import Settings
from noisewright.reports.run import Run

__all__ = ["Data", "Records", "Speed", "finding", "show", "show_why"]

Data = dict[tuple[str, int], Tensor]
"""Pictures by (part, seed)."""

Records = dict[tuple[str, int], dict[str, Any]]
"""What an arm did, by (arm, seed)."""

Speed = dict[str, dict[float, tuple[float, float]]]
"""Measured and expected speed of a round, by mode and share of key tokens."""


def arms_of(edited: Records) -> list[str]:
    """Return the arms in the order in which they ran."""
    return list(dict.fromkeys(arm for arm, _ in edited))


def show(settings: Settings, run: Run, data: Data, edited: Records) -> None:
    """Draw what came out of each arm."""
    seed, ours = run.seeds[0], settings.mode
    arms = arms_of(edited)
    talk = work.talk_about(
        data["test", seed], settings.rounds, steps=settings.steps, seed=seed, part="test"
    )
    row = _telling(edited, seed, ours, talk.pictures)
    shown = [
        "full",
        ours,
        *[name for name in ("taylorseer", "cache_dit", "mag") if name in arms][:2],
    ]
    rows = {"asked for": list(talk.states[row])}
    for arm in shown:
        name = pictures.NAMES[arm].replace(" ", "\n", 1)
        rows[name] = [talk.pictures[row], *edited[arm, seed]["images"][:, row]]
    name = pictures.NAMES[ours].replace(" ", "\n", 1)
    run.figure(
        "strip",
        pictures.strip(
            rows,
            talk.instructions[row],
            list(edited[ours, seed]["masks"][row, :, 0]),
            outlined=name,
            ours=name,
        ),
        caption="One test picture through the rounds, all from the same noise. Outlined: tokens "
        "that the first step of the round found to have moved; the others replay the round before.",
        alt="Rows of small pictures, one a method, columns are rounds; in the row of cacheedit the "
        "recomputed squares are outlined, mostly the cell that was edited and the one before.",
    )
    curves = {}
    for arm in arms:
        found = pictures.as_arrays([edited[arm, s] for s in run.seeds], "background").mean(axis=2)
        curves[arm] = found.mean(axis=0), found.std(axis=0)
    curves = {arm: curve for arm, curve in curves.items() if arm != "current"}
    run.figure(
        "drift",
        pictures.drift(curves, ours),
        caption="Untouched cells against the picture before the first round: what drifts when "
        "everything is recomputed stays where it was when it is replayed.",
        alt="Curves of PSNR falling over rounds; those of cacheedit fall least.",
    )
    points = {
        arm: (
            1.0 if arm == "full" else run.spread(f"arithmetic_share.{arm}")[0],
            run.spread(f"bg_psnr.{arm}")[0],
        )
        for arm in arms
        if settings.counted and arm != "current"
    }
    if points:
        run.figure(
            "trade",
            pictures.trade(points, ours),
            caption="What later rounds cost and what is left of cells that nobody mentioned: up "
            "and to the left is better. Arithmetic is counted while it runs.",
            alt="A scatter plot of PSNR against the share of the arithmetic, a dot an arm; those "
            "of cacheedit stand alone at the upper left.",
        )
    run.figure(
        "edits",
        pictures.edit_bars({arm: run.spread(f"edit_psnr.{arm}") for arm in arms}, ours),
        caption="Edited cells against the exact answer, mean over rounds and pictures.",
        alt="Bars of PSNR, one an arm; random tokens are far below the others.",
    )
    _table(run, arms, ours)


def _telling(edited: Records, seed: int, ours: str, shown: Tensor) -> int:
    """Return the picture in the middle by our gain, among the half with the most contrast."""
    contrast = shown.mean(dim=1).flatten(1).std(dim=1)
    busy = contrast.argsort(descending=True)[: max(1, len(shown) // 2)]
    gain = edited[ours, seed]["background"][-1] - edited["full", seed]["background"][-1]
    return int(busy[gain[busy].argsort()[len(busy) // 2]])


def _table(run: Run, arms: list[str], ours: str) -> None:
    keys = run.values.means()

    def cell(key: str) -> Any:
        return run.spread(key) if key in keys else None

    run.table(
        "Every arm on the same pictures, instructions and noise: later rounds against full "
        "recomputation (arithmetic counted; processor time of this small editor, where Python "
        "counts for more than arithmetic), and PSNR",
        ["arm", "arithmetic", "time", "untouched cells, dB", "edited cells, dB", "key tokens"],
        [
            [
                pictures.NAMES[arm],
                1.0 if arm == "full" else cell(f"arithmetic_share.{arm}"),
                1.0 if arm == "full" else cell(f"time_share.{arm}"),
                cell(f"bg_psnr.{arm}"),
                cell(f"edit_psnr.{arm}"),
                cell(f"key_ratio.{arm}"),
            ]
            for arm in arms
        ],
        ours=pictures.NAMES[ours],
    )


def show_why(
    settings: Settings,
    run: Run,
    edited: Records,
    inside: dict[int, dict[str, Any]],
    chosen: dict[int, Any],
    speed: Speed,
) -> None:
    """Draw time, what is found when, and what it takes."""
    run.figure(
        "time",
        pictures.seconds(speed),
        caption=f"A later round of {settings.steps} steps on "
        f"{2 * settings.speed_side**2} image tokens of width 256: measured (dots) and by the "
        "cost model (dashed). Put together from single steps, each timed against a stock one.",
        alt="Speedup falling with the share of key tokens, dots on dashed lines for two modes.",
    )
    ratios = pictures.as_arrays([edited[settings.mode, s] for s in run.seeds], "key_ratio")
    run.figure(
        "keys",
        pictures.key_map(
            ratios[:, :, 1:].mean(axis=(0, 1)), cache_steps(settings.steps, settings.interval)
        ),
        caption="Share of tokens found to have moved at each step that compares, by round. A cell "
        "is 3 % of the tokens; the cell of the round before moved too, in the picture shown.",
        alt="A table of percentages, rounds by steps.",
    )
    names = [f"{kind}_{place}" for kind in ("latent", "deep") for place in ("inside", "outside")]
    means = {n: pictures.as_arrays([inside[s] for s in run.seeds], n).mean(axis=0) for n in names}
    run.figure(
        "emergence",
        pictures.emergence(means),
        caption="How far apart two successive rounds are, nothing reused: latents part late, deep "
        "activations inside the edited cell from the first step on.",
        alt="Two panels of curves over steps on a logarithmic axis, inside above outside.",
    )
    found = [chosen[seed] for seed in run.seeds]
    run.figure(
        "threshold",
        pictures.threshold(
            settings.thresholds,
            pictures.as_arrays(found, "recall"),
            pictures.as_arrays(found, "share"),
            [record["threshold"] for record in found],
        ),
        caption="Validation pictures: edited tokens that the first step finds, and tokens that it "
        "names, by threshold; the vertical line is what was chosen.",
        alt="Two rising curves of percentages against the threshold.",
    )
    run.table(
        "Memory of a cache, GB: FLUX.1 Kontext at 1024 x 1024, 28 steps, bfloat16, by counting "
        "(in tests measured bytes agree within a tenth)",
        ["mode", "interval", "one round", "peak in a later round"],
        [
            [mode, interval, needed.first_round / 1e9, needed.total / 1e9]
            for mode in ("kv", "hidden")
            for interval in (5, 10)
            for needed in (_kontext_memory(mode, interval),)
        ],
    )


def _kontext_memory(mode: str, interval: int) -> MemoryEstimate:
    return memory_needed(
        tokens=8192,
        latents=4096,
        width=3072,
        channels=64,
        layers=57,
        steps=28,
        full_steps=len(cache_steps(28, interval)),
        mode=mode,
        replay="step",
        item=2,
        computed_item=2,
    )


def finding(settings: Settings, run: Run) -> str:
    """Return the title of the report, with its numbers, good or bad."""
    ours = settings.mode
    gain = run.spread(f"bg_psnr.{ours}")[0] - run.spread("bg_psnr.full")[0]
    delta = run.spread(f"edit_psnr.{ours}")[0] - run.spread("edit_psnr.full")[0]
    tail = "" if ours == "kv" else "_hidden"
    key = f"speed_ratio_k10{tail}"
    keys = run.values.means()
    fast = (
        f"{run.spread(key)[0]:.1f} times as fast with a tenth of the tokens, "
        if key in keys
        else ""
    )
    word = "better" if gain >= 0 else "worse"
    return (
        f"Later rounds are {fast}{abs(gain):.1f} dB {word} where nothing was asked for, and "
        f"{delta:+.1f} dB in edited cells"
    )
