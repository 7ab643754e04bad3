"""The expensive steps of the experiment, each a stage that is computed once and kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from noisewright.methods.cacheedit import probe
from noisewright.methods.cacheedit.arms import Arm, Conversation, converse, counted_share, scores
from noisewright.methods.cacheedit.baselines import GRIDS, magnitude_ratios
from noisewright.methods.cacheedit.editor import SmallEditor, kontext_pipeline, train_editor
from noisewright.methods.cacheedit.edits import Pairs, conversations
from noisewright.methods.cacheedit.speed import time_steps
from noisewright.random import derive_seed
from noisewright.reports.stages import Stage
from noisewright.training import TrainStep

__all__ = ["calibrate", "edit", "look_inside", "measure_speed", "talk_about", "train"]

EDIT_LOSS, DRIFT = 1.5, 0.5
"""What a baseline's setting may lose on validation pictures, dB: in edited cells, elsewhere."""


def talk_about(pictures: Tensor, rounds: int, *, steps: int, seed: int, part: str) -> Conversation:
    """Return a conversation about pictures.

    Args:
        pictures: uint8.
        rounds: Instructions about each.
        steps: Of a walk.
        seed: Of instructions and noise.
        part: ``"test"`` or ``"validation"``.
    """
    floats = pictures.float() / 127.5 - 1
    asked, states = conversations(floats, rounds, seed=derive_seed(seed, part))
    return Conversation(floats, asked, states, seed, steps)


def train(
    stage: Stage, seed: int, pictures: Tensor, pairs: int, heads: int, plan: dict[str, Any]
) -> dict[str, Any]:
    """Train an editor; return its weights and losses.

    Args:
        stage: Of the run; checkpoints go into its folder.
        seed: Of everything.
        pictures: Training pictures, uint8.
        pairs: Examples drawn from them.
        heads: Of the transformer.
        plan: ``steps``, ``batch``, ``rate``.
    """

    def watch(step: TrainStep) -> None:
        stage.progress(step.step, plan["steps"], loss=step.loss)

    editor, losses = train_editor(
        Pairs.draw(pictures, pairs, seed=seed),
        heads=heads,
        seed=seed,
        checkpoint=stage.folder / "checkpoints",
        watch=watch,
        **plan,
    )
    return {"weights": editor.state_dict(), "losses": torch.tensor(losses)}


def restored(weights: dict[str, Tensor], heads: int) -> SmallEditor:
    """Return a trained editor."""
    editor = SmallEditor(heads)
    editor.load_state_dict(weights)
    return editor.eval().requires_grad_(requires_grad=False)


def calibrate(
    stage: Stage,
    seed: int,
    weights: dict[str, Tensor],
    heads: int,
    pictures: Tensor,
    steps: int,
    thresholds: list[float],
    baselines: list[str],
) -> dict[str, Any]:
    """Choose the threshold and the settings of baselines on validation pictures.

    Args:
        stage: Of the run.
        seed: Of instructions and noise.
        weights: Of the editor.
        heads: Of the editor.
        pictures: Validation pictures, uint8.
        steps: Of a walk.
        thresholds: To choose from.
        baselines: To choose settings for.
    """
    editor = restored(weights, heads)
    talk = talk_about(pictures, 3, steps=steps, seed=seed, part="validation")
    apart = probe.emergence(editor, talk)
    found = probe.first_step_recall(apart["deep"][:, 0], apart["inside"], tuple(thresholds))
    record: dict[str, Any] = {
        "threshold": probe.calibrated_threshold(found, tuple(thresholds)),
        "recall": [recall for recall, _ in found],
        "share": [share for _, share in found],
        "settings": {},
    }
    few = talk.some(min(4, len(pictures)), 2)
    if not baselines:
        return record
    pipe = kontext_pipeline(editor.transformer)
    asked = talk.asked(editor, 0, slice(0, 1)) | {"max_area": pictures.shape[-1] ** 2}
    image = (talk.pictures[:1] + 1) / 2
    noise = torch.Generator().manual_seed(seed)
    ratios = magnitude_ratios(
        pipe, lambda: pipe(image, **asked, _auto_resize=False, generator=noise), steps=steps
    )
    whole = _means(converse(editor, few, Arm("full"))["images"], few)
    for number, name in enumerate(baselines):
        stage.progress(number + 1, len(baselines))
        record["settings"][name] = _strongest(editor, few, name, ratios, whole)
    return record | {"ratios": ratios}


def _means(images: Tensor, talk: Conversation) -> tuple[float, float]:
    """Return decibels of edited cells in later rounds, and of untouched ones after the last."""
    found = scores(images, talk)
    return float(found["edit"][1:].mean()), float(found["background"][-1].mean())


def _strongest(
    editor: SmallEditor,
    talk: Conversation,
    name: str,
    ratios: list[float],
    whole: tuple[float, float],
) -> float:
    """Return the strongest setting of a baseline that loses little, or its mildest one."""
    chosen = GRIDS[name][0]
    for setting in GRIDS[name]:
        arm = Arm(name, setting=setting, ratios=ratios)
        edit, background = _means(converse(editor, talk, arm)["images"], talk)
        if edit >= whole[0] - EDIT_LOSS and background >= whole[1] - DRIFT:
            chosen = setting
    return chosen


def edit(
    stage: Stage,
    arm: str,
    seed: int,
    weights: dict[str, Tensor],
    heads: int,
    pictures: Tensor,
    rounds: int,
    steps: int,
    options: dict[str, Any],
    counted: int,
) -> dict[str, Any]:
    """Hold the conversations of one arm; return pictures, scores and costs.

    Args:
        stage: Of the run.
        arm: Name of the arm.
        seed: Of instructions and noise.
        weights: Of the editor.
        heads: Of the editor.
        pictures: Test pictures, uint8.
        rounds: Instructions about each.
        steps: Of a walk.
        options: Other fields of the arm.
        counted: Pictures whose arithmetic is counted.
    """
    editor = restored(weights, heads)
    talk = talk_about(pictures, rounds, steps=steps, seed=seed, part="test")
    one = Arm(arm, **options)
    record = converse(editor, talk, one)
    found = scores(record["images"], talk)
    if counted and arm != "full":
        record["counted_share"] = counted_share(editor, talk.some(counted, min(3, rounds)), one)
    return record | {"edit": found["edit"], "background": found["background"]}


def look_inside(
    stage: Stage,
    seed: int,
    weights: dict[str, Tensor],
    heads: int,
    pictures: Tensor,
    rounds: int,
    steps: int,
    threshold: float,
) -> dict[str, Any]:
    """Measure where rounds differ at each step, and what must be exact.

    Args:
        stage: Of the run.
        seed: Of instructions and noise.
        weights: Of the editor.
        heads: Of the editor.
        pictures: Test pictures, uint8.
        rounds: Instructions about each; four are looked at.
        steps: Of a walk.
        threshold: Of key tokens.
    """
    editor = restored(weights, heads)
    talk = talk_about(pictures, rounds, steps=steps, seed=seed, part="test")
    apart = probe.emergence(editor, talk.some(len(pictures), min(4, rounds)))
    inside, before = apart["inside"], apart["before"]
    record: dict[str, Any] = {}
    for name in ("deep", "latent"):
        first = apart[name][:, 0]
        record[f"auc_{name}"] = probe.area_under_curve(first, inside)
        record[f"auc_fresh_{name}"] = probe.area_under_curve(first[~before], inside[~before])
        by_step = apart[name].transpose(1, 0)
        record[f"{name}_inside"] = torch.stack([step[inside].mean() for step in by_step])
        record[f"{name}_outside"] = torch.stack([step[~inside].mean() for step in by_step])
    return record | probe.exactness(editor, talk.some(min(2, len(pictures))), threshold)


def measure_speed(stage: Stage, **settings: Any) -> dict[str, Any]:
    """Return what :func:`time_steps` measures."""
    return time_steps(**settings)
