"""Rounds on the real Qwen-Image-Edit classes, with padding in the text and two branches a step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_editors import qwen_pipeline, qwen_prompt

from noisewright.methods.cacheedit import CacheEditConfig, CacheEditSession
from noisewright.methods.cacheedit.store import RoundStore

STEPS = 6
PICTURE = Image.effect_noise((32, 32), 60).convert("RGB")
VARIANTS = [{}, {"zero_cond_t": True}, {"plus": True}]


@pytest.fixture(params=VARIANTS, ids=["edit", "edit zero time", "edit plus"])
def pipe(request, monkeypatch):
    return qwen_pipeline(monkeypatch, side=24, **request.param)


def asked(seed, **more):
    negative = qwen_prompt(9, words=4, name="negative_prompt_embeds")
    sizes = {"height": 32, "width": 32, "num_inference_steps": STEPS}
    return qwen_prompt(seed) | negative | sizes | {"true_cfg_scale": 2.0} | more


def stock(pipe, image, arguments):
    noise = torch.Generator().manual_seed(0)
    return pipe(image, **arguments, output_type="np", generator=noise).images


def some(step, now, before):
    mask = now.new_zeros(now.shape[:2], dtype=torch.bool)
    mask[:, [0, 7, 63, 70]] = True  # 64 latents, then pictures shown
    return mask


@pytest.mark.parametrize("mode", ["kv", "hidden"])
def test_first_round_and_one_in_which_all_is_key_have_the_stock_bits(pipe, mode):
    config = CacheEditConfig(mode=mode, threshold=1.5)
    first = stock(pipe, PICTURE, asked(1))
    second = stock(pipe, PICTURE, asked(2))
    with CacheEditSession(pipe, config) as session:
        assert (session.edit(PICTURE, **asked(1, output_type="np")).images == first).all()
        assert (session.edit(PICTURE, **asked(2, output_type="np")).images == second).all()
    assert (stock(pipe, PICTURE, asked(1)) == first).all()


@pytest.mark.parametrize("mode", ["kv", "hidden"])
@pytest.mark.parametrize("replay", ["step", "group"])
def test_later_round_reuses_and_continues_from_its_own_picture(pipe, mode, replay):
    config = CacheEditConfig(mode=mode, replay=replay, freeze_nonkey=replay == "step")
    with CacheEditSession(pipe, config, choose=some) as session:
        before = session.edit(PICTURE, **asked(1)).images[0]
        after = session.edit(None, **asked(2)).images[0]
    assert before.size == after.size == (32, 32)
    assert session.rounds[1].flops_ratio < 0.7
    tokens = 64 + 36
    assert session.rounds[1].key_ratio == [4 / tokens] * 2
    moved = torch.from_numpy((np.asarray(before) != np.asarray(after)).any(axis=2))
    moved = moved.reshape(8, 4, 8, 4).any(dim=3).any(dim=1).flatten()
    assert moved[[0, 7, 63]].all()
    if replay == "step":
        assert int(moved.sum()) == 3


def test_branches_carry_the_names_that_the_pipeline_gives(pipe):
    with CacheEditSession(pipe) as session:
        session.edit(PICTURE, **asked(1))
        store = session.handle.previous
        assert isinstance(store, RoundStore)
        assert {branch for branch, _ in store.velocity} == {"cond", "uncond"}
        assert store.layout[1].condition == 36


@pytest.mark.parametrize("mode", ["kv", "hidden"])
def test_all_but_few_tokens_recomputed_is_close_to_the_stock_round(pipe, mode):
    """Tokens left out: two of the unchanged picture shown, whose keys are nearly right."""

    def nearly_all(step, now, before):
        mask = now.new_ones(now.shape[:2], dtype=torch.bool)
        mask[:, 80:82] = False
        return mask

    expected = torch.tensor(stock(pipe, PICTURE, asked(2)))
    other = torch.tensor(stock(pipe, PICTURE, asked(1)))
    with CacheEditSession(pipe, CacheEditConfig(mode=mode), choose=nearly_all) as session:
        session.edit(PICTURE, **asked(1, output_type="np"))
        with pytest.warns(UserWarning, match="nothing is gained"):
            found = torch.tensor(session.edit(PICTURE, **asked(2, output_type="np")).images)
    assert not torch.equal(found, expected)
    assert (found - expected).abs().mean() < 0.05 * (other - expected).abs().mean()


def test_batch_of_two_shares_its_key_tokens(monkeypatch):
    pipe = qwen_pipeline(monkeypatch, side=24)
    arguments = [
        qwen_prompt(seed, rows=2)
        | {"height": 32, "width": 32, "num_inference_steps": STEPS, "output_type": "np"}
        for seed in (1, 2)
    ]
    expected = stock(pipe, PICTURE, {k: v for k, v in arguments[0].items() if k != "output_type"})
    with CacheEditSession(pipe, choose=some) as session:
        assert (session.edit(PICTURE, **arguments[0]).images == expected).all()
        assert session.edit(PICTURE, **arguments[1]).images.shape == (2, 32, 32, 3)
    assert session.rounds[1].key_ratio == [4 / 100] * 2
