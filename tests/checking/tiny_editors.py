"""The editors of diffusers, real classes with tiny random weights, for tests of hooks."""

from __future__ import annotations

from types import SimpleNamespace

import diffusers
import torch
from diffusers.configuration_utils import register_to_config
from torch import nn
from torch.nn import functional

from noisewright.random import isolated

SIZE = {"height": 32, "width": 32, "output_type": "pt"}


class Unshuffle(diffusers.ModelMixin, diffusers.ConfigMixin):
    """Squares of 2 x 2 pixels as channels, with one frame, as Qwen's autoencoder has it."""

    temperal_downsample = (True,)

    @register_to_config
    def __init__(self, z_dim=12, latents_mean=(0.0,) * 12, latents_std=(1.0,) * 12):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def encode(self, pictures):
        return SimpleNamespace(latents=functional.pixel_unshuffle(pictures[:, :, 0], 2)[:, :, None])

    def decode(self, latents, return_dict=False):
        return (functional.pixel_shuffle(latents[:, :, 0], 2)[:, :, None],)


def qwen_transformer(seed=0, **config):
    given = {
        "in_channels": 48,
        "out_channels": 12,
        "num_layers": 3,
        "attention_head_dim": 16,
        "num_attention_heads": 2,
        "joint_attention_dim": 24,
        "axes_dims_rope": (4, 6, 6),
    }
    with isolated(seed):
        return diffusers.QwenImageTransformer2DModel(**given | config).eval()


def qwen_pipeline(monkeypatch, *, plus=False, side=32, **config):
    """Return a Qwen editor that shows itself pictures of ``side`` pixels instead of a megapixel."""
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit as one
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_plus as several

    monkeypatch.setattr(one, "calculate_dimensions", lambda area, ratio: (side, side, None))
    monkeypatch.setattr(several, "calculate_dimensions", lambda area, ratio: (side, side))
    kind = diffusers.QwenImageEditPlusPipeline if plus else diffusers.QwenImageEditPipeline
    pipe = kind(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=Unshuffle(),
        text_encoder=None,
        tokenizer=None,
        processor=None,
        transformer=qwen_transformer(**config),
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe


def qwen_prompt(seed, *, rows=1, words=5, name="prompt_embeds"):
    stream = torch.Generator().manual_seed(seed)
    embeds = torch.randn(rows, words, 24, generator=stream)
    mask = torch.ones(rows, words, dtype=torch.long)
    mask[:, -1] = 0  # one word of padding, so that the joint mask is used
    return {name: embeds, f"{name}_mask": mask}


def saved_kontext(folder):
    """Save a whole FLUX.1 Kontext pipeline with tiny text encoders, and return the folder."""
    from transformers import (
        CLIPTextConfig,
        CLIPTextModel,
        CLIPTokenizer,
        T5Config,
        T5EncoderModel,
        T5TokenizerFast,
    )

    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces = [*letters, *(f"{c}</w>" for c in letters), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    scored = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -9.0), ("▁", -2.0)]
    with isolated(0):
        clip = CLIPTextModel(
            CLIPTextConfig(
                vocab_size=len(pieces),
                hidden_size=32,
                intermediate_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                max_position_embeddings=16,
                bos_token_id=len(pieces) - 2,
                eos_token_id=len(pieces) - 1,
            )
        )
        t5 = T5EncoderModel(
            T5Config(vocab_size=32, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
        )
        transformer = diffusers.FluxTransformer2DModel(
            in_channels=16,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            axes_dims_rope=(4, 6, 6),
        )
        vae = diffusers.AutoencoderKL(
            block_out_channels=(4, 4),
            down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
            up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
            latent_channels=4,
            layers_per_block=1,
            norm_num_groups=2,
            shift_factor=0.0,
            scaling_factor=1.0,
            use_quant_conv=False,
            use_post_quant_conv=False,
        )
    diffusers.FluxKontextPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=vae,
        text_encoder=clip,
        tokenizer=CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=16),
        text_encoder_2=t5,
        tokenizer_2=T5TokenizerFast(vocab=[*scored, *((c, -3.0) for c in letters)], extra_ids=0),
        transformer=transformer,
    ).save_pretrained(folder)
    return folder
