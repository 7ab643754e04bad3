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
from noisewright.methods.cacheedit import findings, work
from noisewright.methods.cacheedit.baselines import available_baselines
from noisewright.methods.cacheedit.cost import speedup
from noisewright.methods.cacheedit.findings import Data, Records, Speed
from noisewright.methods.cacheedit.settings import Settings
from noisewright.methods.cacheedit.speed import round_ratio
from noisewright.random import derive_seed
from noisewright.reports.run import Run
from noisewright.types import InputError

__all__ = ["Settings", "run"]


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
    findings.show(settings, run, data, edited)
    findings.show_why(settings, run, edited, inside, chosen, speed)
    run.finding(findings.finding(settings, run))


# ---------------------------------------------------------------------------- measurements


def _read(settings: Settings, run: Run) -> Data:
    """Return training pictures, and validation and test pictures of each seed."""
    source = run.data or "photos"
    train, test = (
        open_images(source, size=settings.size, split=part) for part in ("train", "test")
    )
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
                    tokens = 2 * (settings.size // 4) ** 2
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


def _speed(settings: Settings, run: Run) -> Speed:
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
    speed: Speed = {"kv": {}, "hidden": {}}
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


def _record(settings: Settings, run: Run, edited: Records, chosen: dict[int, Any]) -> None:
    for (arm, seed), record in edited.items():
        run.record(f"edit_psnr.{arm}", float(_later(record)), seed=seed)
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
        run.record("edit_psnr_delta_db", float(_later(ours) - _later(full)), seed=seed)
        run.record("key_recall", ours["recall"], seed=seed)
        run.record("edit_psnr_kv", float(_later(ours)), seed=seed)
        drawn = edited["random", seed]
        run.record("edit_psnr_random_keys", float(_later(drawn)), seed=seed)
        for name, value in chosen[seed]["settings"].items():
            run.record(f"setting.{name}", float(value), seed=seed)


def _later(record: dict[str, Any]) -> Tensor:
    """Return decibels of edited cells, mean over pictures and the rounds after the first."""
    return record["edit"][1:].mean()  # in the first round all arms do the same
