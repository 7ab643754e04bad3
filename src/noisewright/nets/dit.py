r"""A transformer over tokens whose blocks are steered by the conditioning vector.

Each block reads from the vector a shift :math:`b`, a scale :math:`a` and a gate :math:`g` for its
attention and for its feed-forward part (adaLN-zero; Peebles & Xie 2023, section 3.2):

.. math:: h \leftarrow h + g(c) \, F\big((1 + a(c)) \, \mathrm{norm}(h) + b(c)\big)

All three start at zero, so an untrained trunk passes its tokens on as they are. :class:`DiTBlocks`
is the trunk alone, for any sequence of tokens; :class:`DiT` cuts pictures into patches around it.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from noisewright.nets.embed import Conditioning, TimeReading, grid_positions
from noisewright.nets.pretrained import Pretrained
from noisewright.types import InputError

__all__ = ["DiT", "DiTBlocks"]


def _zeroed(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class DiTBlock(nn.Module):
    """Attention and a feed-forward layer, each between a modulated norm and a gate."""

    def __init__(self, width: int, heads: int, *, ratio: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.modulation = _zeroed(nn.Linear(width, 6 * width))
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, ratio * width),
            nn.GELU(approximate="tanh"),
            nn.Dropout(dropout),
            nn.Linear(ratio * width, width),
        )

    def forward(self, tokens: Tensor, vector: Tensor, bias: Tensor | None) -> Tensor:
        first, second = self.modulation(functional.silu(vector))[:, None].chunk(2, dim=-1)
        shift, scale, gate = first.chunk(3, dim=-1)
        tokens = tokens + gate * self._attend(self.norm(tokens) * (1 + scale) + shift, bias)
        shift, scale, gate = second.chunk(3, dim=-1)
        return tokens + gate * self.feed(self.norm(tokens) * (1 + scale) + shift)

    def _attend(self, tokens: Tensor, bias: Tensor | None) -> Tensor:
        qkv = self.qkv(tokens).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)
        query, key, value = qkv.unbind(2)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.out(mixed.transpose(1, 2).flatten(2))


class DiTBlocks(nn.Module):
    """The trunk: a stack of modulated transformer blocks over a padded sequence of tokens.

    Args:
        width: Length of a token and of the conditioning vector.
        depth: Number of blocks.
        heads: Attention heads; divides ``width``.
        ratio: Width of the feed-forward layer over ``width``.
        dropout: Probability inside the feed-forward layers.
        checkpointing: Recompute blocks in the backward pass instead of storing them.

    Example:
        >>> trunk = DiTBlocks(8, depth=2, heads=2)
        >>> tokens, vector = torch.ones(2, 5, 8), torch.ones(2, 8)
        >>> torch.equal(trunk(tokens, vector), tokens)
        True
    """

    def __init__(
        self,
        width: int,
        *,
        depth: int,
        heads: int,
        ratio: int = 4,
        dropout: float = 0.0,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        if width % heads:
            raise InputError(f"heads={heads} must divide width={width}")
        self.checkpointing = checkpointing
        self.blocks = nn.ModuleList(
            DiTBlock(width, heads, ratio=ratio, dropout=dropout) for _ in range(depth)
        )

    def forward(
        self,
        tokens: Float[Tensor, "batch count width"],
        vector: Float[Tensor, "batch width"],
        *,
        mask: Bool[Tensor, "batch count"] | None = None,
    ) -> Float[Tensor, "batch count width"]:
        """Return the tokens after all blocks.

        Args:
            tokens: The sequence, positions already added.
            vector: From :class:`~noisewright.nets.embed.Conditioning`.
            mask: True for real tokens; the others are seen by nobody and come back as zeros.
        """
        # The one place where attention is biased: a term per key or per pair of tokens joins here.
        bias = None if mask is None else mask[:, None, None, :]
        for block in self.blocks:
            if self.checkpointing and torch.is_grad_enabled():
                tokens = checkpoint(block, tokens, vector, bias, use_reentrant=False)
            else:
                tokens = block(tokens, vector, bias)
        return tokens if mask is None else tokens.masked_fill(~mask[..., None], 0)


class DiT(Pretrained):
    """A diffusion transformer over the patches of a picture, any height and width.

    Args:
        channels: Channels of the state.
        width: Length of a token, a multiple of four.
        depth: Number of blocks.
        heads: Attention heads; divides ``width``.
        patch: Side of a patch; a picture that is no multiple of it is padded inside.
        dropout: Probability inside the feed-forward layers.
        time: Whether ``t`` is noise time or log-SNR.
        classes: Number of labels; 0 for none.
        features: Length of the feature vector; 0 for none.
        checkpointing: Recompute blocks in the backward pass instead of storing them.

    Example:
        >>> net = DiT(3, width=16, depth=1, heads=2, patch=4, classes=10)
        >>> state = torch.zeros(2, 3, 8, 12)
        >>> net(state, torch.tensor([0.1, 0.9]), label=torch.tensor([3, -1])).shape
        torch.Size([2, 3, 8, 12])
    """

    def __init__(
        self,
        channels: int = 3,
        *,
        width: int = 128,
        depth: int = 6,
        heads: int = 4,
        patch: int = 4,
        dropout: float = 0.0,
        time: TimeReading = "time",
        classes: int = 0,
        features: int = 0,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        if width % 4:
            raise InputError(f"width={width} must be a multiple of 4 (sine and cosine, two axes)")
        self.patch = patch
        self.width = width
        self.conditioning = Conditioning(width, time=time, classes=classes, features=features)
        self.stem = nn.Linear(channels * patch**2, width)
        self.trunk = DiTBlocks(
            width, depth=depth, heads=heads, dropout=dropout, checkpointing=checkpointing
        )
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.modulation = _zeroed(nn.Linear(width, 2 * width))
        self.head = _zeroed(nn.Linear(width, channels * patch**2))

    def forward(
        self,
        state: Float[Tensor, "batch channels height width"],
        t: Float[Tensor, "*batch"],
        *,
        label: Int[Tensor, " batch"] | None = None,
        features: Float[Tensor, "batch features"] | None = None,
        present: Bool[Tensor, " batch"] | None = None,
        mask: Bool[Tensor, "batch tokens"] | None = None,
    ) -> Float[Tensor, "batch channels height width"]:
        """Return a prediction shaped like ``state``, in its dtype.

        Args:
            state: Pictures, any height and width.
            t: Noise time or log-SNR as ``time`` says, float32, one per row or one for all.
            label: Class index per row; below 0 for none.
            features: Numbers per row.
            present: True where the row's ``features`` count.
            mask: True for real patches, rows of patches first; the others come back as zeros.
        """
        vector = self.conditioning(
            t.expand(len(state)), label=label, features=features, present=present
        )
        height, width = state.shape[-2:]
        padded = functional.pad(state, (0, -width % self.patch, 0, -height % self.patch))
        folded = functional.pixel_unshuffle(padded.to(self.stem.weight.dtype), self.patch)
        grid = (folded.shape[-2], folded.shape[-1])
        positions = grid_positions(*grid, self.width, state.device)
        tokens = self.stem(folded.flatten(2).transpose(1, 2)) + positions.to(folded.dtype)
        tokens = self.trunk(tokens, vector, mask=mask)
        shift, scale = self.modulation(functional.silu(vector))[:, None].chunk(2, dim=-1)
        tokens = self.head(self.norm(tokens) * (1 + scale) + shift)
        if mask is not None:
            tokens = tokens.masked_fill(~mask[..., None], 0)
        folded = tokens.transpose(1, 2).unflatten(2, grid)
        return functional.pixel_shuffle(folded, self.patch)[..., :height, :width].to(state.dtype)
