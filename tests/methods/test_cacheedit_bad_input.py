"""Every row of bad input is refused, with the field, the value and the remedy."""

from __future__ import annotations

import math

import diffusers
import pytest
import torch
from PIL import Image

from noisewright.methods.cacheedit import CacheEditConfig, CacheEditSession, apply_cacheedit
from noisewright.methods.cacheedit import session as session_module
from noisewright.methods.cacheedit.editor import SmallEditor, kontext_pipeline
from noisewright.random import isolated
from noisewright.types import InputError

PICTURE = Image.new("RGB", (16, 16), (90, 120, 30))


@pytest.fixture
def editor():
    return SmallEditor(heads=2, seed=1)


@pytest.fixture
def pipe(editor):
    return kontext_pipeline(editor.transformer)


@torch.no_grad()
def asked(editor, **more):
    sizes = {"height": 16, "width": 16, "num_inference_steps": 3}
    return editor.prompt(torch.tensor([[0, 1, 2]])) | sizes | more


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"threshold": 0.0}, r"threshold=0.0 must be in \(0, 2\]"),
        ({"threshold": -1.0}, "threshold=-1.0"),
        ({"threshold": 2.5}, "threshold=2.5"),
        ({"threshold": math.nan}, "threshold=nan"),
        ({"threshold": math.inf}, "threshold=inf"),
        ({"cache_interval": 0}, "cache_interval=0 must be at least 1"),
        ({"cache_steps": ()}, "cache_steps="),
        ({"cache_steps": (1, 5)}, "must hold 0"),
        ({"cache_steps": (0, -5)}, "no negative"),
        ({"mode": "kvs"}, "mode='kvs' is unknown; did you mean 'kv'"),
        ({"mode": "x"}, "known: hidden, kv"),
        ({"replay": "never"}, "known: group, step"),
        ({"source": "next"}, "known: current, previous"),
        ({"dilate": -1}, "dilate=-1"),
        ({"cache_dtype": torch.int8}, "cache_dtype=torch.int8"),
    ],
)
def test_setting_that_cannot_work_is_refused(fields, words):
    with pytest.raises(InputError, match=words):
        CacheEditConfig(**fields)


@pytest.mark.parametrize("block", [4, -5])
def test_reference_block_that_is_not_there_is_refused_and_nothing_stays(pipe, block):
    with pytest.raises(InputError, match=f"reference_block={block}: there are 4 blocks"):
        CacheEditSession(pipe, CacheEditConfig(reference_block=block))
    assert "forward" not in vars(pipe.transformer)


def test_first_round_needs_a_picture(pipe, editor):
    with (
        CacheEditSession(pipe) as session,
        pytest.raises(InputError, match="no previous output; pass an image"),
    ):
        session.edit(None, **asked(editor))


@pytest.mark.parametrize("name", ["generator", "latents"])
def test_noise_of_ones_own_is_refused(pipe, editor, name):
    with (
        CacheEditSession(pipe) as session,
        pytest.raises(InputError, match=f"{name}= cannot be given: rounds must share the noise"),
    ):
        session.edit(PICTURE, **asked(editor), **{name: torch.zeros(1)})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"height": 17}, "multiples of 4"),
        ({"height": None}, "give both or none"),
    ],
)
def test_size_that_cannot_work_is_refused(pipe, editor, more, words):
    with CacheEditSession(pipe) as session, pytest.raises(InputError, match=words):
        session.edit(PICTURE, **asked(editor) | more)


def test_picture_that_is_none_is_refused(pipe, editor):
    with CacheEditSession(pipe) as session, pytest.raises(InputError, match="give a PIL image"):
        session.edit("in.png", **asked(editor))


def test_other_pipelines_and_transformers_get_the_list_of_supported_ones():
    with isolated(0):
        unet = diffusers.UNet1DModel(block_out_channels=(8, 8, 8))
    pipe = diffusers.DDPMPipeline(unet, diffusers.DDPMScheduler())
    with pytest.raises(TypeError, match="DDPMPipeline is not supported; supported are FluxKontext"):
        CacheEditSession(pipe)
    with pytest.raises(TypeError, match="UNet1DModel is not supported; supported are FluxTrans"):
        apply_cacheedit(unet)


def test_second_cache_on_one_transformer_is_refused(pipe):
    with CacheEditSession(pipe), pytest.raises(InputError, match="remove the other one first"):
        CacheEditSession(pipe)


def test_controlnet_residuals_are_refused(pipe, editor):
    handle = apply_cacheedit(pipe.transformer)
    handle.begin_round()
    call = asked(editor)
    with pytest.raises(InputError, match="leave them out"), torch.no_grad():
        pipe.transformer(
            hidden_states=torch.zeros(1, 32, 48),
            encoder_hidden_states=call["prompt_embeds"],
            pooled_projections=call["pooled_prompt_embeds"],
            timestep=torch.ones(1),
            img_ids=torch.zeros(32, 3),
            txt_ids=torch.zeros(3, 3),
            controlnet_block_samples=[torch.zeros(1, 32, 64)],
        )
    handle.remove()


def test_cache_that_does_not_fit_is_refused_with_its_numbers(pipe, editor, monkeypatch):
    monkeypatch.setattr(session_module, "_free_bytes", lambda devices: 1000)
    with (
        CacheEditSession(pipe) as session,
        pytest.raises(InputError, match=r"GB at the peak .* only 0.00 GB are free; use mode="),
    ):
        session.edit(PICTURE, **asked(editor))


def test_free_memory_of_this_machine_is_known():
    assert session_module._free_bytes((torch.device("cpu"),)) > 1e6
    assert session_module._free_bytes((torch.device("meta"),)) is None


def test_nan_activations_are_recomputed_and_told_of(pipe, editor):
    def spoiled(pipe, step, time, tensors):
        tensors["latents"][0, 0] = float("nan")
        return tensors

    with CacheEditSession(pipe, CacheEditConfig(cache_interval=2)) as session:
        session.edit(PICTURE, **asked(editor, output_type="latent"))
        with pytest.warns(UserWarning, match="activations are NaN"):
            session.edit(
                PICTURE, **asked(editor, output_type="latent", callback_on_step_end=spoiled)
            )
    assert session.rounds[1].key_ratio[1] == 1.0
