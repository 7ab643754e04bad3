r"""A convolutional network for pictures: small, fast on a processor, any height and width.

The state goes down through ``len(widths)`` resolutions, each half of the one before, and up again;
every block on the way up also sees its partner from the way down. The conditioning vector enters
each block as a scale and a shift of its normalised activations (FiLM; Perez et al. 2018):
:math:`h \leftarrow (1 + a(c)) \, \mathrm{norm}(h) + b(c)`. Attention acts at the coarsest
resolution, where it is cheap. The last layer starts at zero, so an untrained network returns zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from noisewright.nets.embed import Conditioning, TimeReading
from noisewright.nets.pretrained import Pretrained
from noisewright.types import InputError

__all__ = ["UNet"]


class Norm(nn.GroupNorm):
    """Group normalisation that also takes a single row of a single pixel, which torch refuses."""

    def __init__(self, channels: int) -> None:
        super().__init__(math.gcd(8, channels), channels)

    def forward(self, input: Tensor) -> Tensor:
        return torch.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


def _zeroed(layer: nn.Conv2d) -> nn.Conv2d:
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


class ResidualBlock(nn.Module):
    """Two convolutions around a FiLM, added to the input; starts as (a projection of) its input."""

    def __init__(self, inputs: int, outputs: int, vector: int, dropout: float) -> None:
        super().__init__()
        self.norm_in = Norm(inputs)
        self.conv_in = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.film = nn.Linear(vector, 2 * outputs)
        self.norm_out = Norm(outputs)
        self.dropout = nn.Dropout(dropout)
        self.conv_out = _zeroed(nn.Conv2d(outputs, outputs, 3, padding=1))
        self.skip = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, state: Tensor, vector: Tensor) -> Tensor:
        hidden = self.conv_in(functional.silu(self.norm_in(state)))
        scale, shift = self.film(functional.silu(vector))[:, :, None, None].chunk(2, dim=1)
        hidden = self.norm_out(hidden) * (1 + scale) + shift
        return self.skip(state) + self.conv_out(self.dropout(functional.silu(hidden)))


class PixelAttention(nn.Module):
    """Self-attention among all pixels, added to the input."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = Norm(channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.out = _zeroed(nn.Conv2d(channels, channels, 1))

    def forward(self, state: Tensor) -> Tensor:
        height, width = state.shape[-2:]
        qkv = self.qkv(self.norm(state)).flatten(2).unflatten(1, (3, self.heads, -1))
        query, key, value = qkv.transpose(-1, -2).unbind(1)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return state + self.out(mixed.transpose(-1, -2).flatten(1, 2).unflatten(2, (height, width)))


class Stage(nn.Module):
    """A residual block and, where asked, attention after it."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        vector: int,
        *,
        dropout: float,
        heads: int,
        checkpointing: bool,
    ) -> None:
        super().__init__()
        self.checkpointing = checkpointing
        self.block = ResidualBlock(inputs, outputs, vector, dropout)
        self.attention = PixelAttention(outputs, heads) if heads else nn.Identity()

    def forward(self, state: Tensor, vector: Tensor) -> Tensor:
        if self.checkpointing and torch.is_grad_enabled():
            return checkpoint(self._mix, state, vector, use_reentrant=False)
        return self._mix(state, vector)

    def _mix(self, state: Tensor, vector: Tensor) -> Tensor:
        return self.attention(self.block(state, vector))


class Down(nn.Module):
    """One resolution on the way down; returns what its partner on the way up will see."""

    def __init__(self, shrink: nn.Conv2d | None, stages: Sequence[Stage]) -> None:
        super().__init__()
        self.shrink = shrink
        self.stages = nn.ModuleList(stages)

    def forward(self, state: Tensor, vector: Tensor) -> list[Tensor]:
        kept = [] if self.shrink is None else [self.shrink(state)]
        for stage in self.stages:
            kept.append(stage(kept[-1] if kept else state, vector))
        return kept


class Up(nn.Module):
    """One resolution on the way up; takes the newest of what was kept and returns the rest."""

    def __init__(self, grow: nn.Conv2d | None, stages: Sequence[Stage]) -> None:
        super().__init__()
        self.grow = grow
        self.stages = nn.ModuleList(stages)

    def forward(
        self, state: Tensor, kept: list[Tensor], vector: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        if self.grow is not None:
            state = functional.interpolate(state, size=kept[-1].shape[-2:], mode="nearest")
            state = self.grow(state)
        for number, stage in enumerate(self.stages, start=1):
            state = stage(torch.cat([state, kept[-number]], dim=1), vector)
        return state, kept[: -len(self.stages)]


class UNet(Pretrained):
    """A UNet with FiLM conditioning, attention at the coarsest level, skips, any picture size.

    Args:
        channels: Channels of the state.
        widths: Channels of the layers at each resolution, finest first.
        blocks: Residual blocks per resolution on the way down, one number or one per resolution
            (one more each on the way up).
        vector: Length of the conditioning vector.
        heads: Attention heads at the coarsest resolution; 0 for no attention.
        patch: Fold squares of this side into channels before the first layer; 2 makes a picture
            about four times cheaper at the same number of weights.
        dropout: Probability in every block.
        time: Whether ``t`` is noise time or log-SNR.
        classes: Number of labels; 0 for none.
        features: Length of the feature vector; 0 for none.
        checkpointing: Recompute blocks in the backward pass instead of storing them.

    Example:
        >>> net = UNet(3, (8, 16), blocks=1, features=2)
        >>> state = torch.randn(2, 3, 9, 7, generator=torch.Generator().manual_seed(0))
        >>> net(state, torch.tensor([0.1, 0.9]), features=torch.zeros(2, 2)).shape
        torch.Size([2, 3, 9, 7])
    """

    def __init__(
        self,
        channels: int = 3,
        widths: Sequence[int] = (32, 64, 64),
        *,
        blocks: int | Sequence[int] = 2,
        vector: int = 96,
        heads: int = 4,
        patch: int = 1,
        dropout: float = 0.0,
        time: TimeReading = "time",
        classes: int = 0,
        features: int = 0,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        counts = [blocks] * len(widths) if isinstance(blocks, int) else list(blocks)
        if len(counts) != len(widths):
            raise InputError(f"blocks={blocks} and widths={widths} differ in length")
        if min(counts) < 1:
            raise InputError(f"blocks={blocks} must be at least 1 at each resolution")
        if heads and widths[-1] % heads:
            raise InputError(f"heads={heads} must divide the coarsest width, {widths[-1]}")
        self.patch = patch
        self.conditioning = Conditioning(vector, time=time, classes=classes, features=features)
        folded = channels * patch**2
        self.stem = nn.Conv2d(folded, widths[0], 3, padding=1)
        coarsest = len(widths) - 1

        def stage(inputs: int, level: int) -> Stage:
            return Stage(
                inputs,
                widths[level],
                vector,
                dropout=dropout,
                heads=heads if level == coarsest else 0,
                checkpointing=checkpointing,
            )

        self.down = nn.ModuleList()
        kept, width = [widths[0]], widths[0]
        for level, count in enumerate(counts):
            shrink = nn.Conv2d(width, width, 3, stride=2, padding=1) if level else None
            kept += ([width] if level else []) + [widths[level]] * count
            inputs = [width] + [widths[level]] * (count - 1)
            self.down.append(Down(shrink, [stage(i, level) for i in inputs]))
            width = widths[level]
        self.middle = stage(width, coarsest)
        self.up = nn.ModuleList()
        for level in reversed(range(len(widths))):
            grow = nn.Conv2d(width, width, 3, padding=1) if level < coarsest else None
            stages = []
            for _ in range(counts[level] + 1):
                stages.append(stage(width + kept.pop(), level))
                width = widths[level]
            self.up.append(Up(grow, stages))
        self.norm = Norm(width)
        self.head = _zeroed(nn.Conv2d(width, folded, 3, padding=1))

    def forward(
        self,
        state: Float[Tensor, "batch channels height width"],
        t: Float[Tensor, "*batch"],
        *,
        label: Int[Tensor, " batch"] | None = None,
        features: Float[Tensor, "batch features"] | None = None,
        present: Bool[Tensor, " batch"] | None = None,
        mask: None = None,
    ) -> Float[Tensor, "batch channels height width"]:
        """Return a prediction shaped like ``state``, in its dtype.

        Args:
            state: Pictures, any height and width.
            t: Noise time or log-SNR as ``time`` says, float32, one per row or one for all.
            label: Class index per row; below 0 for none.
            features: Numbers per row.
            present: True where the row's ``features`` count.
            mask: Not taken; a picture is whole.
        """
        if mask is not None:
            raise InputError("UNet takes no mask: its pictures are whole; DiT takes one")
        vector = self.conditioning(
            t.expand(len(state)), label=label, features=features, present=present
        )
        hidden = self.stem(self._fold(state.to(self.stem.weight.dtype)))
        kept = [hidden]
        for down in self.down:
            kept += down(kept[-1], vector)
        hidden = self.middle(kept[-1], vector)
        for up in self.up:
            hidden, kept = up(hidden, kept, vector)
        return self._unfold(self.head(functional.silu(self.norm(hidden))), state)

    def _fold(self, state: Tensor) -> Tensor:
        if self.patch == 1:
            return state
        height, width = state.shape[-2:]
        margin = (0, -width % self.patch, 0, -height % self.patch)
        return functional.pixel_unshuffle(functional.pad(state, margin), self.patch)

    def _unfold(self, folded: Tensor, state: Tensor) -> Tensor:
        if self.patch > 1:
            folded = functional.pixel_shuffle(folded, self.patch)
        return folded[..., : state.shape[-2], : state.shape[-1]].to(state.dtype)
