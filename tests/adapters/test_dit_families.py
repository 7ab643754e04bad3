"""Transformers as tokens, rotations and keys; and the grip on them, given back exactly."""

from __future__ import annotations

import diffusers
import pytest
import torch
from tiny_editors import qwen_transformer

from noisewright.adapters.dit import TokenGrid, dit_family
from noisewright.adapters.dit_attachment import Attachment
from noisewright.methods.cacheedit.editor import small_transformer
from noisewright.types import InputError

ROWS, TEXT = 2, 5


class Looking:
    """Passes everything on and remembers it."""

    def __init__(self):
        self.keys, self.states, self.calls = {}, {}, []

    def on_call(self, inner, call):
        self.calls.append(call)
        return inner(**call)

    def on_keys(self, layer, key, value):
        self.keys[layer] = (key, value)
        return key, value

    def on_block(self, layer, states):
        self.states[layer] = states


def flux_call(seed=0, height=4, width=3, shown=12):
    stream = torch.Generator().manual_seed(seed)
    place = torch.cartesian_prod(torch.arange(height), torch.arange(width))
    ids = torch.cat([torch.zeros(height * width, 1), place], dim=1)
    more = torch.cat([torch.ones(shown, 1), ids[:shown, 1:]], dim=1)
    return {
        "hidden_states": torch.randn(ROWS, height * width + shown, 48, generator=stream),
        "encoder_hidden_states": torch.randn(ROWS, TEXT, 64, generator=stream),
        "pooled_projections": torch.randn(ROWS, 32, generator=stream),
        "timestep": torch.tensor([0.7, 0.7]),
        "img_ids": torch.cat([ids, more]),
        "txt_ids": torch.zeros(TEXT, 3),
    }


def qwen_call(seed=0, height=4, width=3, shown=(3, 4)):
    stream = torch.Generator().manual_seed(seed)
    tokens = height * width + shown[0] * shown[1]
    mask = torch.ones(ROWS, TEXT, dtype=torch.bool)
    mask[1, -2:] = False
    return {
        "hidden_states": torch.randn(ROWS, tokens, 48, generator=stream),
        "encoder_hidden_states": torch.randn(ROWS, TEXT, 24, generator=stream),
        "encoder_hidden_states_mask": mask,
        "timestep": torch.tensor([0.7, 0.7]),
        "img_shapes": [[(1, height, width), (1, *shown)]] * ROWS,
    }


def models():
    guided = small_transformer(heads=2, guidance_embeds=True)
    return {
        "flux": (small_transformer(heads=2), flux_call()),
        "flux guided": (guided, flux_call() | {"guidance": torch.tensor([2.5, 2.5])}),
        "qwen": (qwen_transformer(), qwen_call()),
        "qwen zero time": (qwen_transformer(zero_cond_t=True), qwen_call()),
    }


NAMES = ("flux", "flux guided", "qwen", "qwen zero time")


@pytest.fixture(params=NAMES)
def case(request):
    with torch.no_grad():
        yield models()[request.param]


def test_attached_output_has_the_bits_of_the_stock_one_and_is_given_back(case):
    model, call = case
    stock = [block.attn.processor for block in dit_family(model).blocks(model)]
    before = model(**call).sample
    grip = Attachment(model, Looking())
    assert torch.equal(model(**call).sample, before)
    assert torch.equal(model(**call, return_dict=False)[0], before)
    grip.detach()
    grip.detach()
    assert torch.equal(model(**call).sample, before)
    assert [block.attn.processor for block in dit_family(model).blocks(model)] == stock
    assert not {"forward", "cache_context"} & set(vars(model))


def test_positional_arguments_and_names_of_contexts_are_understood(case):
    model, call = case
    looking = Looking()
    grip = Attachment(model, looking)
    with model.cache_context("uncond"):
        model(call.pop("hidden_states"), call.pop("encoder_hidden_states"), **call)
        assert grip.context == "uncond"
    assert grip.context is None
    assert "hidden_states" in looking.calls[0]
    grip.detach()


def test_grid_counts_latents_and_pictures_shown(case):
    model, call = case
    assert dit_family(model).grid(call) == TokenGrid(4, 3, 12)
    assert dit_family(model).grid(call).tokens == 24
    assert dit_family(model).text_tokens(call) == TEXT


def test_keys_and_values_are_those_that_the_blocks_make(case):
    model, call = case
    family, looking = dit_family(model), Looking()
    grip = Attachment(model, looking)
    model(**call)
    grip.detach()
    time, rotary = family.time_embedding(model, call), family.rotary(model, call)
    condition = torch.arange(24) >= 12
    inputs = family.embedded(model, call["hidden_states"])
    for layer, block in enumerate(family.blocks(model)):
        key, value = family.keys_and_values(block, inputs, time, rotary, condition)
        torch.testing.assert_close(key, looking.keys[layer][0][:, TEXT:])
        torch.testing.assert_close(value, looking.keys[layer][1][:, TEXT:])
        inputs = looking.states[layer]
    torch.testing.assert_close(family.velocity(model, inputs, time), model(**call).sample)


def test_keys_and_values_of_some_tokens_are_rows_of_those_of_all(case):
    model, call = case
    family = dit_family(model)
    some = torch.tensor([1, 11, 12, 20])
    time, rotary = family.time_embedding(model, call), family.rotary(model, call)
    inputs, condition = family.embedded(model, call["hidden_states"]), torch.arange(24) >= 12
    block = family.blocks(model)[0]
    whole = family.keys_and_values(block, inputs, time, rotary, condition)
    part = family.keys_and_values(
        block, inputs[:, some], time, family.rows(rotary, some), condition[some]
    )
    for one, all_of_them in zip(part, whole, strict=True):
        torch.testing.assert_close(one, all_of_them[:, some])


def test_fewer_tokens_with_the_other_keys_added_give_the_rows_of_the_whole(case):
    """With everybody else's keys a token cannot tell that it is computed alone."""
    model, call = case
    family, looking = dit_family(model), Looking()
    grip = Attachment(model, looking)
    whole = model(**call).sample
    kept = torch.tensor([0, 5, 13])
    rest = torch.tensor([i for i in range(24) if i not in kept])
    seen = dict(looking.keys)

    def added(layer, key, value):
        return tuple(
            torch.cat([fresh, all_of_them[:, TEXT:][:, rest]], dim=1)
            for fresh, all_of_them in zip((key, value), seen[layer], strict=True)
        )

    looking.on_keys = added
    for block in family.blocks(model):
        block.attn.processor.hook = added
    with family.fewer_tokens(model, call, kept) as fewer:
        part = model(**fewer).sample
    grip.detach()
    torch.testing.assert_close(part, whole[:, kept], rtol=1e-4, atol=1e-5)
    assert not model.pos_embed._forward_hooks
    assert not model.pos_embed._forward_pre_hooks


@pytest.mark.parametrize("kept", [[3], [12, 23], list(range(24))])
def test_fewer_tokens_may_be_latents_only_or_pictures_shown_only(case, kept):
    model, call = case
    family = dit_family(model)
    with family.fewer_tokens(model, call, torch.tensor(kept)) as fewer:
        assert model(**fewer).sample.shape == (ROWS, len(kept), 48)


def test_output_is_restored_after_an_error_inside_a_call(case):
    model, call = case
    before = model(**call).sample
    looking = Looking()
    grip = Attachment(model, looking)

    def broken(layer, key, value):
        raise RuntimeError("stop")

    for block in dit_family(model).blocks(model):
        block.attn.processor.hook = broken
    with pytest.raises(RuntimeError, match="stop"):
        model(**call)
    grip.detach()
    assert torch.equal(model(**call).sample, before)


def test_unsupported_class_gets_the_list_of_supported_ones():
    with pytest.raises(TypeError, match="QwenImageTransformer2DModel"):
        dit_family(torch.nn.Identity())


def _cached(model):
    model.enable_cache(diffusers.FirstBlockCacheConfig())


def _fused(model):
    for block in model.transformer_blocks:
        block.attn.fused_projections = True


def _other_processor(model):
    model.transformer_blocks[0].attn.set_processor(object())


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_cached, "disable_cache"),
        (_fused, "unfuse_qkv_projections"),
        (_other_processor, "block 0 has a object"),
        (lambda m: m.enable_gradient_checkpointing(), "gradient checkpointing"),
        (lambda m: m.compile(backend="eager"), "attach before compile"),
        (lambda m: m.transformer_blocks[0].compile(backend="eager"), "attach before compile"),
    ],
)
@pytest.mark.parametrize("make", [lambda: small_transformer(heads=2), qwen_transformer])
def test_transformer_that_something_else_holds_is_refused(spoil, words, make):
    model = make()
    spoil(model)
    with pytest.raises(InputError, match=words):
        Attachment(model, Looking())


def test_compiled_module_is_refused():
    with pytest.raises(InputError, match=r"before torch\.compile"):
        Attachment(torch.compile(small_transformer(heads=2), backend="eager"), Looking())


def test_two_grips_do_not_stack():
    model = small_transformer(heads=2)
    grip = Attachment(model, Looking())
    with pytest.raises(InputError, match="FluxJointAttention"):
        Attachment(model, Looking())
    grip.detach()


def test_forward_that_others_wrapped_meanwhile_is_left_to_them():
    import functools

    model, call = small_transformer(heads=2), flux_call()
    with torch.no_grad():
        before = model(**call).sample
        looking = Looking()
        grip = Attachment(model, looking)
        ours = model.forward
        model.forward = functools.update_wrapper(lambda *a, **k: ours(*a, **k), ours)
        theirs = model.forward
        grip.ensure()
        assert model.forward is theirs
        model(**call)
        assert len(looking.calls) == 1
        grip.detach()
        assert model.forward is theirs
        assert torch.equal(model(**call).sample, before)
        assert len(looking.calls) == 1
