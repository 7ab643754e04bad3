"""How much of a later round can be skipped without changing what must not change?

A small Kontext editor, stock classes, is trained to follow a language of edits whose right answer
is known. Then the same pictures are edited round after round by every arm, from the same noise:
full recomputation, this method, caches that skip steps. Time is measured on a larger transformer
with random weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisewright.data import ImageSet, open_images
from noisewright.methods.cacheedit import pictures, work
from noisewright.methods.cacheedit.baselines import available_baselines
from noisewright.methods.cacheedit.cost import memory_needed, speedup
from noisewright.methods.cacheedit.schedule import cache_steps
from noisewright.methods.cacheedit.settings import Settings
from noisewright.methods.cacheedit.speed import round_ratio
from noisewright.random import derive_seed
from noisewright.reports.run import Run
from noisewright.types import InputError

__all__ = ["Settings", "run"]

SIZE = 32

Records = dict[tuple[str, int], dict[str, Any]]


def run(settings: Settings, run: Run) -> None:
    """Measure everything that the claims ask for and draw the report."""
    settings = settings.checked()
    data = _read(settings, run)
    trained = _train(settings, run, data)
    chosen = _calibrate(settings, run, data, trained)
    edited = _edit(settings, run, data, trained, chosen)
    inside = _look_inside(settings, run, data, trained, chosen)
    speed = _speed(settings, run)
    _record(settings, run, edited, chosen)
    _show(settings, run, data, edited, chosen)
    _show_why(settings, run, edited, inside, chosen, speed)
    run.finding(_finding(settings, run))


# ---------------------------------------------------------------------------- measurements


Data = dict[tuple[str, int], Tensor]


def _read(settings: Settings, run: Run) -> Data:
    """Return training pictures, and validation and test pictures of each seed."""
    source = run.data or "photos"
    train, test = (open_images(source, size=SIZE, split=part) for part in ("train", "test"))
    for part in (train, test):
        if part.channels != 3:
            raise InputError(
                f"{source} is grey; instructions speak of colours, give colour pictures"
            )
        run.data_note(part.provenance.describe())
    kept, held = train.split(0.1, by="image")
    data = {("train", seed): kept.images for seed in run.seeds}
    for seed in run.seeds:
        data["validation", seed] = _some(held, settings.validation, seed)
        data["test", seed] = _some(test, settings.pictures, seed)
    run.data_note(
        f"The editor is trained on {len(kept)} crops; thresholds are chosen on "
        f"{settings.validation} others of the same photographs, results are of "
        f"{settings.pictures} crops of other photographs, each edited {settings.rounds} times."
    )
    return data


def _some(images: ImageSet, count: int, seed: int) -> Tensor:
    if len(images) < count:
        raise InputError(f"{count} pictures are wanted, the data has {len(images)}; ask for fewer")
    stream = torch.Generator().manual_seed(derive_seed(seed, "pictures"))
    return images.images[torch.randperm(len(images), generator=stream)[:count]]


def _train(settings: Settings, run: Run, data: Data) -> dict[int, Any]:
    plan = {"steps": settings.train_steps, "batch": settings.batch, "rate": settings.rate}
    tasks = [
        {
            "seed": seed,
            "pictures": data["train", seed],
            "pairs": settings.pairs,
            "heads": settings.heads,
            "plan": plan,
        }
        for seed in run.seeds
    ]
    records = run.stages("train", work.train, tasks)
    for seed, record in zip(run.seeds, records, strict=True):
        run.record("train_loss", float(record["losses"][-50:].mean()), seed=seed)
    return {seed: record["weights"] for seed, record in zip(run.seeds, records, strict=True)}


def _common(settings: Settings, seed: int, trained: dict[int, Any], pictures: Tensor) -> Any:
    return {
        "seed": seed,
        "weights": trained[seed],
        "heads": settings.heads,
        "pictures": pictures,
        "steps": settings.steps,
    }


def _baselines(settings: Settings) -> list[str]:
    return list(available_baselines()) if settings.baselines else []


def _calibrate(
    settings: Settings, run: Run, data: Data, trained: dict[int, Any]
) -> dict[int, dict[str, Any]]:
    """Choose thresholds and settings on validation pictures."""
    tasks = [
        _common(settings, seed, trained, data["validation", seed])
        | {"thresholds": list(settings.thresholds), "baselines": _baselines(settings)}
        for seed in run.seeds
    ]
    records = run.stages("calibrate", work.calibrate, tasks)
    for record in records:
        if settings.threshold is not None:
            record["threshold"] = settings.threshold
    for seed, record in zip(run.seeds, records, strict=True):
        run.record("threshold", record["threshold"], seed=seed)
    return dict(zip(run.seeds, records, strict=True))


def _edit(
    settings: Settings, run: Run, data: Data, trained: dict[int, Any], chosen: dict[int, Any]
) -> Records:
    """Hold the same conversations by every arm; random tokens need the numbers of ours first."""
    arms = ["full", "kv", "hidden", "current", *_baselines(settings)]
    edited: Records = {}
    for some in (arms, ["random"]):
        tasks = []
        for seed in run.seeds:
            base = {"threshold": chosen[seed]["threshold"], "interval": settings.interval}
            for arm in some:
                options: dict[str, Any] = dict(base)
                if arm in chosen[seed]["settings"]:
                    options["setting"] = chosen[seed]["settings"][arm]
                    options["ratios"] = chosen[seed]["ratios"] if arm == "mag" else None
                if arm == "random":
                    tokens = 2 * (SIZE // 4) ** 2
                    options["counts"] = (edited["kv", seed]["key_ratio"] * tokens).round().int()
                tasks.append(
                    _common(settings, seed, trained, data["test", seed])
                    | {"arm": arm, "rounds": settings.rounds, "options": options}
                    | {"counted": settings.counted}
                )
        for task, record in zip(tasks, run.stages("edit", work.edit, tasks), strict=True):
            edited[task["arm"], task["seed"]] = record
    return edited


def _look_inside(
    settings: Settings, run: Run, data: Data, trained: dict[int, Any], chosen: dict[int, Any]
) -> dict[int, dict[str, Any]]:
    tasks = [
        _common(settings, seed, trained, data["test", seed])
        | {"rounds": settings.rounds, "threshold": chosen[seed]["threshold"]}
        for seed in run.seeds
    ]
    records = run.stages("look inside", work.look_inside, tasks)
    for seed, record in zip(run.seeds, records, strict=True):
        for name in ("deep", "latent"):
            run.record(f"key_auc_step0_{name}", record[f"auc_{name}"], seed=seed)
            run.record(f"key_auc_step0_fresh_{name}", record[f"auc_fresh_{name}"], seed=seed)
        for name in ("round0", "all_key", "identical_round"):
            run.record(f"{name}_max_abs_diff", record[name], seed=seed)
    return dict(zip(run.seeds, records, strict=True))


def _speed(settings: Settings, run: Run) -> dict[str, dict[float, tuple[float, float]]]:
    """Return measured and expected speed of a round by mode and share of key tokens."""
    double, single = settings.speed_blocks
    found = run.stage(
        "speed",
        work.measure_speed,
        heads=8,
        double=double,
        single=single,
        side=settings.speed_side,
        text=settings.speed_text,
        shares=settings.speed_shares,
        modes=("kv", "hidden"),
        repeats=settings.speed_repeats,
    )
    speed: dict[str, dict[float, tuple[float, float]]] = {"kv": {}, "hidden": {}}
    errors = []
    for mode, points in speed.items():
        for share in settings.speed_shares:
            spent = found[f"{mode} {share:g}"]
            measured = round_ratio(spent, settings.steps, settings.interval)
            expected = speedup(settings.steps, settings.interval, spent["model"])
            points[share] = measured, expected
            errors.append(abs(expected / measured - 1))
            tail = "" if mode == "kv" else "_hidden"
            run.record(f"speed_ratio_k{100 * share:g}{tail}", measured)
    run.record("model_time_error", float(np.mean(errors)))
    return speed


def _arms(edited: Records) -> list[str]:
    return list(dict.fromkeys(arm for arm, _ in edited))


def _record(settings: Settings, run: Run, edited: Records, chosen: dict[int, Any]) -> None:
    for (arm, seed), record in edited.items():
        run.record(f"edit_psnr.{arm}", float(record["edit"].mean()), seed=seed)
        run.record(f"bg_psnr.{arm}", float(record["background"][-1].mean()), seed=seed)
        spent = record["seconds"][:, 1:].sum() / edited["full", seed]["seconds"][:, 1:].sum()
        run.record(f"time_share.{arm}", float(spent), seed=seed)
        if "counted_share" in record:
            run.record(f"arithmetic_share.{arm}", record["counted_share"], seed=seed)
        if "key_ratio" in record:
            run.record(f"key_ratio.{arm}", float(record["key_ratio"][:, 1:].mean()), seed=seed)
            run.record(f"key_recall.{arm}", record["recall"], seed=seed)
    for seed in run.seeds:
        ours, full = edited["kv", seed], edited["full", seed]
        gain = (ours["background"][-1] - full["background"][-1]).mean()
        run.record("bg_psnr_gain_db", float(gain), seed=seed)
        run.record("edit_psnr_delta_db", float((ours["edit"] - full["edit"]).mean()), seed=seed)
        run.record("key_recall", ours["recall"], seed=seed)
        run.record("edit_psnr_kv", float(ours["edit"].mean()), seed=seed)
        run.record("edit_psnr_random_keys", float(edited["random", seed]["edit"].mean()), seed=seed)
        for name, value in chosen[seed]["settings"].items():
            run.record(f"setting.{name}", float(value), seed=seed)


# ---------------------------------------------------------------------------- the report


def _show(
    settings: Settings, run: Run, data: Data, edited: Records, chosen: dict[int, Any]
) -> None:
    """Draw what came out of each arm."""
    seed, ours = run.seeds[0], settings.mode
    arms = _arms(edited)
    talk = work.talk_about(
        data["test", seed], settings.rounds, steps=settings.steps, seed=seed, part="test"
    )
    row = _telling(edited, seed, ours)
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
            run.spread(f"edit_psnr.{arm}")[0],
            run.spread(f"bg_psnr.{arm}")[0],
        )
        for arm in arms
        if settings.counted and arm not in ("current",)
    }
    if points:
        run.figure(
            "trade",
            pictures.trade(points, ours),
            caption="What later rounds cost and what they give: up and to the left is better. "
            "Arithmetic is counted while it runs.",
            alt="Two scatter plots of PSNR against the share of the arithmetic, a dot an arm.",
        )
    run.figure(
        "edits",
        pictures.edit_bars({arm: run.spread(f"edit_psnr.{arm}") for arm in arms}, ours),
        caption="Edited cells against the exact answer, mean over rounds and pictures.",
        alt="Bars of PSNR, one an arm; random tokens are far below the others.",
    )
    _table(run, arms, ours)


def _telling(edited: Records, seed: int, ours: str) -> int:
    """Return the picture in the middle by what the method gains on it: neither best nor worst."""
    gain = edited[ours, seed]["background"][-1] - edited["full", seed]["background"][-1]
    return int(gain.argsort()[len(gain) // 2])


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


def _show_why(
    settings: Settings,
    run: Run,
    edited: Records,
    inside: dict[int, dict[str, Any]],
    chosen: dict[int, Any],
    speed: dict[str, dict[float, tuple[float, float]]],
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


def _kontext_memory(mode: str, interval: int) -> Any:
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


def _finding(settings: Settings, run: Run) -> str:
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
