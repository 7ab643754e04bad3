"""Which step and which branch a call belongs to."""

from __future__ import annotations

import pytest
import torch
from PIL import Image
from tiny_editors import qwen_pipeline

from noisewright.adapters.dit_calls import CallTracker
from noisewright.adapters.editors import picture_size, size_arguments, token_counts
from noisewright.methods.cacheedit.editor import kontext_pipeline, small_transformer
from noisewright.types import InputError


def places(calls):
    tracker = CallTracker()
    return [(p.step, p.branch) for p in (tracker.see(*call) for call in calls)]


def test_one_call_a_time_is_one_branch():
    assert places([(1.0,), (0.5,), (0.25,)]) == [(0, "call 0"), (1, "call 0"), (2, "call 0")]


def test_named_contexts_are_branches():
    calls = [(1.0, "cond"), (1.0, "uncond"), (0.5, "cond"), (0.5, "uncond")]
    assert places(calls) == [(0, "cond"), (0, "uncond"), (1, "cond"), (1, "uncond")]


def test_a_name_that_comes_twice_in_a_step_is_two_branches():
    assert places([(1.0, "cond"), (1.0, "cond")]) == [(0, "cond"), (0, "cond 1")]


def test_a_new_walk_begins_anew():
    tracker = CallTracker()
    tracker.see(1.0)
    tracker.begin()
    assert tracker.times == []
    assert tracker.see(1.0).step == 0


@pytest.mark.parametrize(
    "picture",
    [
        Image.new("RGB", (30, 20)),
        [Image.new("RGB", (30, 20))],
        torch.zeros(2, 3, 20, 30),
        torch.zeros(20, 30, 3).numpy(),
    ],
)
def test_size_of_every_kind_of_picture(picture):
    assert picture_size(picture) == (20, 30)


def test_size_of_something_else_is_refused():
    with pytest.raises(InputError, match="give a PIL image"):
        picture_size("cat.png")


def test_kontext_takes_its_preferred_size_or_the_one_asked_for():
    pipe = kontext_pipeline(small_transformer(heads=2))
    wide = size_arguments(pipe, Image.new("RGB", (300, 200)))
    assert (wide["height"], wide["width"]) == (832, 1248)
    assert wide["max_area"] == 832 * 1248
    small = size_arguments(pipe, Image.new("RGB", (300, 200)), 32, 48)
    assert (small["height"], small["width"]) == (32, 48)
    assert token_counts(pipe, 32, 48) == (96, 96)
    with pytest.raises(InputError, match="multiples of 4"):
        size_arguments(pipe, Image.new("RGB", (300, 200)), 33, 48)
    with pytest.raises(InputError, match="give both or none"):
        size_arguments(pipe, Image.new("RGB", (300, 200)), 32)


def test_qwen_follows_the_picture_with_a_megapixel(monkeypatch):
    pipe = qwen_pipeline(monkeypatch)
    assert size_arguments(pipe, Image.new("RGB", (300, 200))) == {"height": 832, "width": 1248}
    latents, shown = token_counts(pipe, 64, 64)
    assert (latents, shown) == (256, 256 * 256)
