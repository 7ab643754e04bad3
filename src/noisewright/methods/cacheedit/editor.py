"""A small FLUX.1 Kontext that follows the language of edits: stock classes, trained here.

Transformer and pipeline are those of diffusers; a lossless rearrangement of pixels stands for the
autoencoder and an embedding of 16 words for the text encoders.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from noisewright.adapters.requirement import diffusers
from noisewright.methods.cacheedit.edits import CELLS, OPERATIONS, VOCABULARY, Pairs
from noisewright.random import StepDraws, derive_seed, isolated
from noisewright.training import TrainStep, fit

__all__ = [
    "SmallEditor",
    "SpaceToDepth",
    "editing_loss",
    "kontext_pipeline",
    "small_transformer",
    "train_editor",
    "words",
]

TEXT_WIDTH, POOLED_WIDTH = 64, 32
HEAD = 32


class SpaceToDepth(diffusers.ModelMixin, diffusers.ConfigMixin):
    """Squares of 2 x 2 pixels as channels: an autoencoder that loses nothing.

    Args:
        latent_channels: Four times the channels of a picture.
        block_out_channels: Its length says the factor to pipelines: two entries, factor 2.
        scaling_factor: 1.
        shift_factor: 0.
    """

    @diffusers.configuration_utils.register_to_config
    def __init__(
        self,
        latent_channels: int = 12,
        block_out_channels: tuple[int, ...] = (1, 1),
        scaling_factor: float = 1.0,
        shift_factor: float = 0.0,
    ) -> None:
        super().__init__()
        self.register_buffer("where", torch.zeros(1), persistent=False)

    def encode(self, pictures: Float[Tensor, "batch 3 height width"]) -> SimpleNamespace:
        """Return an object whose ``latents`` are the pictures rearranged."""
        return SimpleNamespace(latents=functional.pixel_unshuffle(pictures, 2))

    def decode(
        self, latents: Float[Tensor, "batch 12 rows columns"], return_dict: bool = True
    ) -> tuple[Tensor]:
        """Return the pictures."""
        return (functional.pixel_shuffle(latents, 2),)


def small_transformer(
    *, heads: int = 3, double: int = 1, single: int = 3, seed: int = 0, **config: Any
) -> Any:
    """Return a ``FluxTransformer2DModel`` with random weights.

    Args:
        heads: Of 32 channels each.
        double: Double-stream blocks.
        single: Single-stream blocks.
        seed: Of the weights.
        config: Other arguments of the class.
    """
    given = {
        "in_channels": 48,
        "num_layers": double,
        "num_single_layers": single,
        "attention_head_dim": HEAD,
        "num_attention_heads": heads,
        "joint_attention_dim": TEXT_WIDTH,
        "pooled_projection_dim": POOLED_WIDTH,
        "axes_dims_rope": (8, 12, 12),
    }
    with isolated(seed):
        return diffusers.FluxTransformer2DModel(**given | config).eval()


def kontext_pipeline(transformer: Any) -> Any:
    """Return a ``FluxKontextPipeline`` around a transformer; prompts are given as embeddings."""
    pipe = diffusers.FluxKontextPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=SpaceToDepth(),  # pyright: ignore[reportArgumentType]
        text_encoder=None,  # pyright: ignore[reportArgumentType]
        tokenizer=None,  # pyright: ignore[reportArgumentType]
        text_encoder_2=None,  # pyright: ignore[reportArgumentType]
        tokenizer_2=None,  # pyright: ignore[reportArgumentType]
        transformer=transformer,
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe


def words(instructions: Int[Tensor, "batch 3"]) -> Int[Tensor, "batch 3"]:
    """Return the three words of instructions, each of its own part of the vocabulary.

    Example:
        >>> words(torch.tensor([[5, 0, 3]]))
        tensor([[ 5,  6, 13]])
    """
    first = torch.tensor([0, len(OPERATIONS), len(OPERATIONS) + CELLS])
    return instructions + first.to(instructions.device)


class SmallEditor(nn.Module):
    """A transformer and the embedding of its words.

    Args:
        heads: Of the transformer; 3 is about a million weights.
        seed: Of the weights.
    """

    def __init__(self, heads: int = 3, seed: int = 0) -> None:
        super().__init__()
        self.transformer = small_transformer(heads=heads, seed=seed)
        with isolated(derive_seed(seed, "words")):
            self.words = nn.Embedding(VOCABULARY, TEXT_WIDTH)

    def prompt(self, instructions: Int[Tensor, "batch 3"]) -> dict[str, Tensor]:
        """Return instructions as the pipeline takes them."""
        embedded = self.words(words(instructions))
        pooled = embedded.new_zeros(len(instructions), POOLED_WIDTH)
        return {"prompt_embeds": embedded, "pooled_prompt_embeds": pooled}

    def forward(
        self,
        states: Float[Tensor, "batch tokens channels"],
        shown: Float[Tensor, "batch tokens channels"],
        time: Float[Tensor, " batch"],
        instructions: Int[Tensor, "batch 3"],
        side: int,
    ) -> Float[Tensor, "batch tokens channels"]:
        """Return the velocity of latent tokens.

        Args:
            states: Noisy latents, packed.
            shown: The picture to edit, packed.
            time: Noise time in [0, 1].
            instructions: What is asked.
            side: Latent tokens along a side.
        """
        prompt = self.prompt(instructions)
        ids = _positions(side)
        output = self.transformer(
            hidden_states=torch.cat([states, shown], dim=1),
            timestep=time,
            pooled_projections=prompt["pooled_prompt_embeds"],
            encoder_hidden_states=prompt["prompt_embeds"],
            txt_ids=torch.zeros(instructions.shape[1], 3),
            img_ids=ids,
            return_dict=False,
        )[0]
        return output[:, : states.shape[1]]


def _positions(side: int) -> Float[Tensor, "tokens 3"]:
    """Return the rows of ``img_ids``: latents are picture 0, what is shown is picture 1."""
    parts = []
    for number in (0, 1):
        place = torch.cartesian_prod(torch.arange(side), torch.arange(side)).float()
        parts.append(torch.cat([torch.full((side**2, 1), float(number)), place], dim=1))
    return torch.cat(parts)


def packed(pictures: Tensor) -> Float[Tensor, "batch tokens channels"]:
    """Return uint8 pictures as packed latents in [-1, 1]."""
    latents = functional.pixel_unshuffle(pictures.float() / 127.5 - 1, 2)
    rows, channels, height, width = latents.shape
    pack = diffusers.FluxKontextPipeline._pack_latents
    return pack(latents, rows, channels, height, width)


def editing_loss(
    editor: SmallEditor, batch: dict[str, Tensor], draws: StepDraws
) -> Float[Tensor, " batch"]:
    """Return the squared error of the velocity noise - data.

    Times are sigmoid(1 + 1.5 N(0, 1)): a walk begins at time 1, where edits are decided, and the
    usual sigmoid(N(0, 1)) would hardly ever train there.
    """
    data, shown = packed(batch["target"]), packed(batch["source"])
    noise = draws.normal_like(data)
    time = torch.sigmoid(1 + 1.5 * draws.normal_like(data[:, 0, 0]))
    states = (1 - time[:, None, None]) * data + time[:, None, None] * noise
    side = int(data.shape[1] ** 0.5)
    found = editor(states, shown, time, batch["instructions"], side)
    return (found - (noise - data)).square().mean(dim=(1, 2))


def train_editor(
    pairs: Pairs,
    *,
    heads: int,
    steps: int,
    batch: int,
    rate: float,
    seed: int,
    checkpoint: Path | None = None,
    watch: Callable[[TrainStep], object] | None = None,
) -> tuple[SmallEditor, list[float]]:
    """Train a small editor; return it with its losses.

    Args:
        pairs: Examples.
        heads: Of the transformer.
        steps: Optimizer steps.
        batch: Pairs per step.
        rate: Peak learning rate.
        seed: Of weights, order, times and noise.
        checkpoint: Folder to go on from.
        watch: Called with every step.
    """
    editor = SmallEditor(heads, derive_seed(seed, "weights") % 2**31)
    rows = {
        "source": pairs.source,
        "target": pairs.target,
        "instructions": pairs.instructions,
    }
    training = fit(
        editor,
        rows,
        editing_loss,
        steps=steps,
        batch=batch,
        seed=derive_seed(seed, "training"),
        rate=rate,
        checkpoint=checkpoint,
    ).finish(watch)
    return editor.eval(), training.losses
