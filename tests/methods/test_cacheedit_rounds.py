"""Rounds on the real FLUX.1 Kontext classes: what must be exact is, and nothing else is touched."""

from __future__ import annotations

import pytest
import torch

from noisewright.methods.cacheedit import (
    CacheEditConfig,
    CacheEditSession,
    apply_cacheedit,
    remove_cacheedit,
)
from noisewright.methods.cacheedit.editor import SmallEditor, kontext_pipeline
from noisewright.types import InputError

STEPS = 7
FIRST, SECOND = [0, 1, 2], [3, 0, 1]
MODES = [(m, r) for m in ("kv", "hidden") for r in ("step", "group")]
LOW = 0.9999
"""A threshold at which a net with random weights recomputes a part of the tokens."""


@pytest.fixture(scope="module")
def editor():
    return SmallEditor(heads=2, seed=1)


@pytest.fixture
def pipe(editor):
    return kontext_pipeline(editor.transformer)


def picture(rows=1, size=(32, 32), seed=0):
    return torch.rand(rows, 3, *size, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def asked(editor, *instructions, size=(32, 32), guided=False, **more):
    prompt = editor.prompt(torch.tensor(instructions))
    if guided:
        other = editor.prompt(torch.tensor([[5, 3, 3]] * len(instructions)))
        prompt |= {f"negative_{name}": value for name, value in other.items()}
        prompt["true_cfg_scale"] = 3.0
    sizes = {"height": size[0], "width": size[1]}
    return prompt | sizes | {"num_inference_steps": STEPS, "output_type": "pt"} | more


def stock(pipe, image, arguments, seed=0):
    area = arguments["height"] * arguments["width"]
    noise = torch.Generator().manual_seed(seed)
    return pipe(image, **arguments, max_area=area, _auto_resize=False, generator=noise).images


def both_rounds(pipe, editor, config, **how):
    with CacheEditSession(pipe, config) as session:
        first = session.edit(picture(), **asked(editor, FIRST, **how)).images
        second = session.edit(None, **asked(editor, SECOND, **how)).images
    return first, second, session.rounds


def chosen(*places):
    """Key tokens by decree."""

    def choose(step, now, before):
        mask = now.new_zeros(now.shape[:2], dtype=torch.bool)
        mask[:, list(places)] = True
        return mask

    return choose


# ---------------------------------------------------------------------------- exactness


@pytest.mark.parametrize(("mode", "replay"), MODES)
@pytest.mark.parametrize("guided", [False, True])
def test_first_round_has_the_bits_of_the_stock_pipeline(pipe, editor, mode, replay, guided):
    arguments = asked(editor, FIRST, guided=guided)
    expected = stock(pipe, picture(), arguments)
    with CacheEditSession(pipe, CacheEditConfig(mode=mode, replay=replay)) as session:
        assert torch.equal(session.edit(picture(), **arguments).images, expected)
    assert session.rounds[0].key_ratio == [1.0, 1.0]
    assert session.rounds[0].flops_ratio == 1.0


@pytest.mark.parametrize(("mode", "replay"), MODES)
def test_when_every_token_is_key_a_later_round_is_the_stock_one(pipe, editor, mode, replay):
    config = CacheEditConfig(mode=mode, replay=replay, threshold=1.5)
    first, second, rounds = both_rounds(pipe, editor, config)
    assert torch.equal(second, stock(pipe, first, asked(editor, SECOND)))
    assert rounds[1].flops_ratio == 1.0


@pytest.mark.parametrize(("mode", "replay"), MODES)
def test_with_interval_one_nothing_is_reused(pipe, editor, mode, replay):
    config = CacheEditConfig(mode=mode, replay=replay, cache_interval=1, threshold=LOW)
    first, second, rounds = both_rounds(pipe, editor, config)
    assert torch.equal(second, stock(pipe, first, asked(editor, SECOND)))
    assert len(rounds[1].key_ratio) == STEPS


@pytest.mark.parametrize("mode", ["kv", "hidden"])
@pytest.mark.parametrize("frozen", [False, True])
def test_the_same_round_again_is_the_same_picture(pipe, editor, mode, frozen):
    config = CacheEditConfig(mode=mode, freeze_nonkey=frozen)
    with CacheEditSession(pipe, config) as session:
        first = session.edit(picture(), **asked(editor, FIRST)).images
        with pytest.warns(UserWarning, match="0% of the tokens"):
            again = session.edit(picture(), **asked(editor, FIRST)).images
    assert torch.equal(again, first)
    assert session.rounds[1].key_ratio == [0.0, 0.0]
    assert session.rounds[1].flops_ratio == pytest.approx(2 / STEPS)


@pytest.mark.parametrize("mode", ["kv", "hidden"])
def test_frozen_tokens_do_not_move_by_a_bit(pipe, editor, mode):
    """Latent token 9 is row 1, column 1 of 8 x 8: pixels 4 to 7 of both axes."""
    config = CacheEditConfig(mode=mode, freeze_nonkey=True)
    with CacheEditSession(pipe, config, choose=chosen(9)) as session:
        first = session.edit(picture(), **asked(editor, FIRST)).images
        second = session.edit(None, **asked(editor, SECOND)).images
    moved = (first != second).any(dim=1)[0]
    assert moved[4:8, 4:8].any()
    moved[4:8, 4:8] = False
    assert not moved.any()
    assert session.rounds[1].masks[0].nonzero().tolist() == [[1, 1]]


@pytest.mark.parametrize("mode", ["kv", "hidden"])
def test_all_tokens_but_one_recomputed_is_close_to_the_stock_round(pipe, editor, mode):
    """The one left out is of the picture shown and unchanged: its keys are nearly right."""
    places = [i for i in range(128) if i != 127]
    with CacheEditSession(pipe, CacheEditConfig(mode=mode), choose=chosen(*places)) as session:
        first = session.edit(picture(), **asked(editor, FIRST)).images
        with pytest.warns(UserWarning, match="nothing is gained"):
            second = session.edit(picture(), **asked(editor, SECOND)).images
    expected = stock(pipe, picture(), asked(editor, SECOND))
    assert not torch.equal(second, expected)
    assert (second - expected).abs().max() < 0.02 * (first - expected).abs().max() + 1e-3


@pytest.mark.parametrize("source", ["previous", "current"])
def test_recomputing_a_part_changes_the_part_and_costs_less(pipe, editor, source):
    half = chosen(*range(64))
    with CacheEditSession(pipe, CacheEditConfig(source=source), choose=half) as session:
        first = session.edit(picture(), **asked(editor, FIRST)).images
        second = session.edit(picture(), **asked(editor, SECOND)).images
    expected = stock(pipe, picture(), asked(editor, SECOND))
    assert (second - expected).abs().mean() < (first - expected).abs().mean()
    assert 2 / STEPS < session.rounds[1].flops_ratio < 0.75
    assert session.rounds[1].key_ratio == [0.5, 0.5]


def test_dilation_reaches_the_masks(pipe, editor):
    with CacheEditSession(pipe, CacheEditConfig(dilate=1), choose=chosen(9)) as session:
        session.edit(picture(), **asked(editor, FIRST))
        session.edit(None, **asked(editor, SECOND))
    assert int(session.rounds[1].masks[0].sum()) == 5


def test_explicit_steps_decide_when_everything_is_computed(pipe, editor):
    config = CacheEditConfig(cache_steps=(0, 2), threshold=LOW)
    _, _, rounds = both_rounds(pipe, editor, config)
    assert len(rounds[1].key_ratio) == 2


@pytest.mark.parametrize("block", [0, 1, -1])
def test_reference_block_decides_what_is_compared(pipe, editor, block):
    seen = []

    def remembering(step, now, before):
        seen.append(now)
        return now.new_zeros(now.shape[:2], dtype=torch.bool)

    config = CacheEditConfig(mode="hidden", reference_block=block)
    with CacheEditSession(pipe, config, choose=remembering) as session:
        session.edit(picture(), **asked(editor, FIRST))
        with pytest.warns(UserWarning, match="0% of the tokens"):
            session.edit(None, **asked(editor, SECOND))
        kept = session.handle.previous.get("state", "call 0", 0, block % 4)
    assert torch.equal(seen[0], kept)


# ---------------------------------------------------------------------------- shapes and dtypes


@pytest.mark.parametrize("mode", ["kv", "hidden"])
@pytest.mark.parametrize("size", [(4, 4), (12, 20), (32, 36)])
def test_single_tokens_and_odd_grids_work(pipe, editor, mode, size):
    config = CacheEditConfig(mode=mode, threshold=LOW)
    count = (size[0] // 4) * (size[1] // 4)
    with CacheEditSession(pipe, config, choose=chosen(0)) as session:
        first = session.edit(picture(size=size), **asked(editor, FIRST, size=size)).images
        second = session.edit(None, **asked(editor, SECOND, size=size)).images
    assert first.shape == second.shape == (1, 3, *size)
    assert session.rounds[1].masks[0].shape == (size[0] // 4, size[1] // 4)
    assert session.rounds[1].key_ratio[0] == pytest.approx(1 / (2 * count))


@pytest.mark.parametrize("mode", ["kv", "hidden"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_works_and_the_first_round_is_exact(mode, dtype):
    editor = SmallEditor(heads=2, seed=1).to(dtype)
    pipe = kontext_pipeline(editor.transformer).to(dtype)
    arguments = asked(editor, FIRST)
    expected = stock(pipe, picture().to(dtype), arguments)
    config = CacheEditConfig(mode=mode, replay="group")
    with CacheEditSession(pipe, config, choose=chosen(1, 2, 3)) as session:
        assert torch.equal(session.edit(picture().to(dtype), **arguments).images, expected)
        again = session.edit(None, **asked(editor, SECOND)).images
    assert again.isfinite().all()


@pytest.mark.parametrize("mode", ["kv", "hidden"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_cache_of_fewer_bits_is_smaller_and_close(pipe, editor, mode, dtype):
    pictures, sizes = [], []
    for cache_dtype in (None, dtype):
        config = CacheEditConfig(mode=mode, cache_dtype=cache_dtype, cache_device="cpu")
        with CacheEditSession(pipe, config, choose=chosen(*range(30))) as session:
            session.edit(picture(), **asked(editor, FIRST))
            pictures.append(session.edit(None, **asked(editor, SECOND)).images)
            sizes.append(session.handle.previous.nbytes)
    assert sizes[1] < 0.8 * sizes[0]
    assert not torch.equal(*pictures)
    assert (pictures[0] - pictures[1]).abs().max() < 0.02


def test_a_batch_shares_the_union_or_has_sets_of_its_own(pipe, editor):
    pictures = picture(2)

    def uneven(step, now, before):
        mask = now.new_zeros(now.shape[:2], dtype=torch.bool)
        for row in range(len(mask)):
            mask[row, : 8 + 8 * row] = True
        return mask

    both = [FIRST, SECOND], [SECOND, FIRST]
    with CacheEditSession(pipe, CacheEditConfig(), choose=uneven) as session:
        first = session.edit(pictures, **asked(editor, *both[0])).images
        session.edit(None, **asked(editor, *both[1]))
    assert session.rounds[1].key_ratio == [16 / 128] * 2
    assert torch.equal(first, stock(pipe, pictures, asked(editor, *both[0])))
    config = CacheEditConfig(threshold=LOW, per_sample=True)
    with CacheEditSession(pipe, config) as session:
        start = session.edit(pictures, **asked(editor, *both[0])).images
        together = session.edit(None, **asked(editor, *both[1])).images
    torch.testing.assert_close(start, first, atol=1e-5, rtol=0)
    for row in range(2):
        handle = apply_cacheedit(pipe.transformer, CacheEditConfig(threshold=LOW))
        noise = torch.randn(2, 12, 16, 16, generator=torch.Generator().manual_seed(0))[row, None]
        latents = pipe._pack_latents(noise, 1, 12, 16, 16)
        for image, asking in ((pictures, both[0]), (start, both[1])):
            handle.begin_round()
            arguments = asked(editor, asking[row]) | {"latents": latents}
            alone = stock(pipe, image[row : row + 1], arguments)
            handle.end_round()
        handle.remove()
        torch.testing.assert_close(together[row : row + 1], alone, atol=1e-4, rtol=0)


# ---------------------------------------------------------------------------- guidance


def test_branches_of_true_guidance_are_kept_apart(pipe, editor):
    with CacheEditSession(pipe, CacheEditConfig(), choose=chosen(3)) as session:
        session.edit(picture(), **asked(editor, FIRST, guided=True))
        store = session.handle.previous
        names = {branch for branch, _ in store.velocity}
        assert names == {"call 0", "call 1"}
        assert not torch.equal(store.velocity["call 0", 0], store.velocity["call 1", 0])
        assert {key[1] for key in store.kept} == names


def test_key_tokens_are_the_union_of_both_branches(pipe, editor):
    calls = []

    def alternating(step, now, before):
        mask = now.new_zeros(now.shape[:2], dtype=torch.bool)
        mask[:, len(calls) % 2] = True
        calls.append(step)
        return mask

    with CacheEditSession(pipe, CacheEditConfig(), choose=alternating) as session:
        session.edit(picture(), **asked(editor, FIRST, guided=True))
        session.edit(None, **asked(editor, SECOND, guided=True))
    assert session.rounds[1].key_ratio == [2 / 128] * 2


def test_guided_round_with_every_token_key_is_the_stock_one(pipe, editor):
    config = CacheEditConfig(threshold=1.5)
    first, second, _ = both_rounds(pipe, editor, config, guided=True)
    assert torch.equal(second, stock(pipe, first, asked(editor, SECOND, guided=True)))


# ---------------------------------------------------------------------------- the low level


def test_calls_outside_of_a_round_are_stock(pipe, editor):
    arguments = asked(editor, FIRST)
    expected = stock(pipe, picture(), arguments)
    handle = apply_cacheedit(pipe.transformer)
    assert torch.equal(stock(pipe, picture(), arguments), expected)
    assert handle.previous is None
    remove_cacheedit(pipe.transformer)
    remove_cacheedit(pipe.transformer)
    assert "_noisewright_cacheedit" not in vars(pipe.transformer)
    assert torch.equal(stock(pipe, picture(), arguments), expected)


def test_rounds_must_end_before_the_next_begins(pipe):
    handle = apply_cacheedit(pipe.transformer)
    handle.begin_round()
    with pytest.raises(InputError, match="a round is under way"):
        handle.begin_round()
    handle.remove()
    with pytest.raises(InputError, match="was removed"):
        handle.begin_round()


def test_another_seed_tag_starts_a_new_chain(pipe, editor):
    handle = apply_cacheedit(pipe.transformer)
    for tag in ("one", "one"):
        handle.begin_round(tag)
        stock(pipe, picture(), asked(editor, FIRST))
        handle.end_round()
    assert not handle.report.first
    with pytest.warns(UserWarning, match="changed from one to two"):
        handle.begin_round("two")
    assert handle.report.first
    handle.remove()


def test_what_a_cache_takes_is_what_was_estimated(pipe, editor):
    for mode in ("kv", "hidden"):
        for replay in ("step", "group"):
            most = 0
            config = CacheEditConfig(mode=mode, replay=replay)
            session = CacheEditSession(pipe, config, choose=chosen(*range(6)))

            def watch(pipe, step, time, tensors, session=session):
                nonlocal most
                most = max(most, session.handle.cache_bytes)
                return tensors

            with session:
                session.edit(picture(), **asked(editor, FIRST))
                arguments = asked(editor, SECOND, callback_on_step_end=watch)
                session.edit(None, **arguments)
                estimate = session.memory_estimate(32, 32, STEPS)
                assert session.rounds[0].cache_bytes == estimate.first_round
            assert estimate.total == pytest.approx(most, rel=0.1)
