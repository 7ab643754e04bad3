"""What goes wrong in other people's hands: interruptions, errors, threads, LoRA, offloading."""

from __future__ import annotations

import threading

import diffusers
import pytest
import torch
from peft import LoraConfig

from noisewright.methods.cacheedit import CacheEditConfig, CacheEditSession, apply_cacheedit
from noisewright.methods.cacheedit.editor import SmallEditor, kontext_pipeline
from noisewright.random import isolated
from noisewright.types import InputError

STEPS = 6
FIRST, SECOND = [0, 1, 2], [3, 0, 1]
PICTURE = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def editor():
    return SmallEditor(heads=2, seed=1)


@pytest.fixture
def pipe(editor):
    return kontext_pipeline(editor.transformer)


@torch.no_grad()
def asked(editor, instruction, **more):
    sizes = {"height": 16, "width": 16, "num_inference_steps": STEPS, "output_type": "pt"}
    return editor.prompt(torch.tensor([instruction])) | sizes | more


def stock(pipe, image, arguments):
    noise = torch.Generator().manual_seed(0)
    return pipe(image, **arguments, max_area=256, _auto_resize=False, generator=noise).images


def half(step, now, before):
    mask = now.new_zeros(now.shape[:2], dtype=torch.bool)
    mask[:, ::2] = True
    return mask


def two_rounds(pipe, editor, **config):
    with CacheEditSession(pipe, CacheEditConfig(**config), choose=half) as session:
        first = session.edit(PICTURE, **asked(editor, FIRST)).images
        second = session.edit(None, **asked(editor, SECOND)).images
    return first, second


# ---------------------------------------------------------------------------- removal


@pytest.mark.parametrize("mode", ["kv", "hidden"])
def test_pipeline_is_given_back_to_the_bit(pipe, editor, mode):
    model = pipe.transformer
    blocks = [*model.transformer_blocks, *model.single_transformer_blocks]
    processors = [block.attn.processor for block in blocks]
    before, names = stock(pipe, PICTURE, asked(editor, FIRST)), set(vars(model))
    two_rounds(pipe, editor, mode=mode)
    assert torch.equal(stock(pipe, PICTURE, asked(editor, FIRST)), before)
    assert [block.attn.processor for block in blocks] == processors
    assert all(not block._forward_hooks for block in blocks)
    assert set(vars(model)) <= names | {"_diffusers_hook"}
    assert model.forward.__func__ is diffusers.FluxTransformer2DModel.forward


def test_closed_session_says_so(pipe, editor):
    session = CacheEditSession(pipe)
    session.close()
    session.close()
    with pytest.raises(InputError, match="was removed"):
        session.edit(PICTURE, **asked(editor, FIRST))


def test_reset_forgets_everything(pipe, editor):
    with CacheEditSession(pipe) as session:
        first = session.edit(PICTURE, **asked(editor, FIRST)).images
        session.reset()
        assert session.rounds == []
        with pytest.raises(InputError, match="no previous output"):
            session.edit(None, **asked(editor, FIRST))
        assert torch.equal(session.edit(PICTURE, **asked(editor, FIRST)).images, first)


# ---------------------------------------------------------------------------- rounds that end early


def raising(at):
    def callback(pipe, step, time, tensors):
        if step == at:
            raise KeyboardInterrupt
        return tensors

    return callback


def interrupting(at):
    def callback(pipe, step, time, tensors):
        pipe._interrupt = step >= at
        return tensors

    return callback


@pytest.mark.parametrize("mode", ["kv", "hidden"])
@pytest.mark.parametrize("at", [0, 2, 5])
@pytest.mark.parametrize("how", [raising, interrupting])
def test_round_cut_short_leaves_the_one_before_as_it_was(pipe, editor, mode, at, how):
    expected = two_rounds(pipe, editor, mode=mode)[1]
    with CacheEditSession(pipe, CacheEditConfig(mode=mode), choose=half) as session:
        session.edit(PICTURE, **asked(editor, FIRST))
        kept = session.handle.previous
        try:
            session.edit(None, **asked(editor, [1, 1, 1], callback_on_step_end=how(at)))
        except KeyboardInterrupt:
            assert how is raising
        assert session.handle.previous is kept
        assert len(session.rounds) == 1
        assert torch.equal(session.edit(None, **asked(editor, SECOND)).images, expected)


def test_first_round_cut_short_leaves_nothing(pipe, editor):
    with CacheEditSession(pipe) as session:
        session.edit(PICTURE, **asked(editor, FIRST, callback_on_step_end=interrupting(2)))
        assert session.handle.previous is None
        with pytest.raises(InputError, match="no previous output"):
            session.edit(None, **asked(editor, SECOND))


def test_short_round_without_a_session_is_thrown_away(pipe, editor):
    handle = apply_cacheedit(pipe.transformer)
    handle.begin_round()
    stock(pipe, PICTURE, asked(editor, FIRST))
    handle.end_round()
    kept = handle.previous
    handle.begin_round()
    stock(pipe, PICTURE, asked(editor, FIRST, callback_on_step_end=interrupting(1)))
    handle.end_round()
    assert handle.previous is kept
    handle.remove()


# ---------------------------------------------------------------------------- chains that break


def changed_steps(editor):
    return asked(editor, SECOND) | {"num_inference_steps": 4}


def changed_sigmas(editor):
    return asked(editor, SECOND) | {"sigmas": [1.0, 0.8, 0.7, 0.6, 0.4, 0.2]}


def changed_size(editor):
    return asked(editor, SECOND) | {"height": 16, "width": 20}


@pytest.mark.parametrize("change", [changed_steps, changed_sigmas, changed_size])
def test_changed_round_reuses_nothing_and_says_so(pipe, editor, change):
    arguments = change(editor)
    with CacheEditSession(pipe, CacheEditConfig(freeze_nonkey=True), choose=half) as session:
        session.edit(PICTURE, **asked(editor, FIRST))
        image = session._last
        with pytest.warns(UserWarning, match="computes everything"):
            found = session.edit(None, **arguments).images
    assert session.rounds[1].flops_ratio == 1.0
    if change is not changed_size:
        assert torch.equal(found, stock(pipe, image, arguments))


def test_fewer_or_more_steps_are_noticed_without_tags_too(pipe, editor):
    for count in (4, 9):
        handle = apply_cacheedit(pipe.transformer, choose=half)
        handle.begin_round()
        stock(pipe, PICTURE, asked(editor, FIRST))
        handle.end_round()
        handle.begin_round()
        with pytest.warns(UserWarning, match="number of steps"):
            stock(pipe, PICTURE, asked(editor, SECOND) | {"num_inference_steps": count})
        handle.end_round()
        assert len(handle.previous.times) == count
        handle.remove()


def test_guidance_switched_on_is_noticed(pipe, editor):
    other = {f"negative_{k}": v for k, v in asked(editor, [5, 3, 3]).items() if "embeds" in k}
    guided = asked(editor, SECOND, true_cfg_scale=2.0) | other
    with CacheEditSession(pipe, choose=half) as session:
        session.edit(PICTURE, **asked(editor, FIRST))
        with pytest.warns(UserWarning, match="number of calls per step"):
            session.edit(None, **guided)


def test_length_of_the_text_may_change(pipe, editor):
    short, long = asked(editor, FIRST), asked(editor, SECOND)
    long["prompt_embeds"] = torch.cat([long["prompt_embeds"]] * 2, dim=1)
    for mode in ("kv", "hidden"):
        with CacheEditSession(pipe, CacheEditConfig(mode=mode), choose=half) as session:
            for arguments in (short, long, short):
                session.edit(PICTURE, **arguments)
        assert [one.flops_ratio < 1 for one in session.rounds] == [False, True, True]


# ---------------------------------------------------------------------------- others at work


def test_two_sessions_do_not_share_state(editor):
    other = SmallEditor(heads=2, seed=2)
    pipes = [kontext_pipeline(one.transformer) for one in (editor, other)]
    alone = [two_rounds(pipe, one)[1] for pipe, one in zip(pipes, (editor, other), strict=True)]
    with (
        CacheEditSession(pipes[0], choose=half) as first,
        CacheEditSession(pipes[1], choose=half) as second,
    ):
        for instruction, picture in ((FIRST, PICTURE), (SECOND, None)):
            found = [
                session.edit(picture, **asked(one, instruction)).images
                for session, one in ((first, editor), (second, other))
            ]
    assert torch.equal(found[0], alone[0])
    assert torch.equal(found[1], alone[1])


def test_second_thread_is_refused(pipe, editor):
    inside, go = threading.Event(), threading.Event()

    def waiting(pipe, step, time, tensors):
        inside.set()
        assert go.wait(60)
        return tensors

    with CacheEditSession(pipe) as session:
        arguments = asked(editor, FIRST, callback_on_step_end=waiting)
        thread = threading.Thread(target=session.edit, args=(PICTURE,), kwargs=arguments)
        thread.start()
        assert inside.wait(60)
        with pytest.raises(RuntimeError, match="another thread"):
            session.edit(PICTURE, **asked(editor, FIRST))
        go.set()
        thread.join()
        assert len(session.rounds) == 1


def test_lora_layers_take_part(pipe, editor):
    plain = two_rounds(pipe, editor)
    with isolated(3):
        pipe.transformer.add_adapter(
            LoraConfig(r=2, target_modules=["to_k", "to_q", "to_v"], init_lora_weights=False)
        )
    expected = stock(pipe, PICTURE, asked(editor, FIRST))
    for mode in ("kv", "hidden"):
        tuned = two_rounds(pipe, editor, mode=mode)
        assert torch.equal(tuned[0], expected)
        assert not torch.equal(tuned[0], plain[0])
        full = stock(pipe, tuned[0], asked(editor, SECOND))
        assert (tuned[1] - full).abs().mean() < (tuned[0] - full).abs().mean()


@pytest.mark.parametrize("mode", ["kv", "hidden"])
def test_offloading_switched_on_before_is_kept_up(pipe, editor, mode):
    """Offloading replaces forward after every call of the pipeline."""
    expected = two_rounds(pipe, editor, mode=mode)
    pipe.enable_model_cpu_offload(device="cpu")
    found = two_rounds(pipe, editor, mode=mode)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    assert hasattr(pipe.transformer, "_hf_hook")
    assert torch.equal(stock(pipe, PICTURE, asked(editor, FIRST)), expected[0])


@pytest.mark.parametrize("kind", ["leaf_level", "block_level"])
def test_group_offloading_is_kept_up(pipe, editor, kind):
    expected = two_rounds(pipe, editor)
    cpu = torch.device("cpu")
    blocks = {"num_blocks_per_group": 1} if kind == "block_level" else {}
    pipe.transformer.enable_group_offload(cpu, cpu, offload_type=kind, **blocks)
    found = two_rounds(pipe, editor)
    assert torch.equal(found[1], expected[1])


@pytest.mark.slow
def test_model_compiled_after_gives_the_same_pictures(pipe, editor, request):
    if request.config.getoption("jaxtyping_packages", default=None):
        pytest.skip("torch.compile cannot trace run-time checks of annotations")
    expected = two_rounds(pipe, editor)
    with CacheEditSession(pipe, choose=half) as session:
        pipe.transformer.compile(backend="eager")
        session.edit(PICTURE, **asked(editor, FIRST))
        found = session.edit(None, **asked(editor, SECOND)).images
    torch.testing.assert_close(found, expected[1])


def test_own_cache_of_diffusers_is_refused_and_works_again_afterwards(pipe, editor):
    pipe.transformer.enable_cache(diffusers.FirstBlockCacheConfig())
    with pytest.raises(InputError, match="disable_cache"):
        CacheEditSession(pipe)
    pipe.transformer.disable_cache()
    two_rounds(pipe, editor)
    pipe.transformer.enable_cache(diffusers.FirstBlockCacheConfig(threshold=1e-9))
    with pipe.transformer.cache_context("cond"):
        stock(pipe, PICTURE, asked(editor, FIRST))


def test_gradients_inside_a_round_are_refused(pipe, editor):
    handle = apply_cacheedit(pipe.transformer)
    handle.begin_round()
    call = asked(editor, FIRST)
    with pytest.raises(InputError, match="gradients are on"), torch.enable_grad():
        pipe.transformer(
            hidden_states=torch.zeros(1, 32, 48),
            encoder_hidden_states=call["prompt_embeds"],
            pooled_projections=call["pooled_prompt_embeds"],
            timestep=torch.ones(1),
            img_ids=torch.zeros(32, 3),
            txt_ids=torch.zeros(3, 3),
        )
    handle.remove()
