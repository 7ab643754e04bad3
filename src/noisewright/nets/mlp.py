"""A residual network for vectors: tables, latent codes, coordinates, single series."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from noisewright.nets.embed import Conditioning, TimeReading
from noisewright.nets.pretrained import Pretrained
from noisewright.types import InputError

__all__ = ["MLP"]


class MLPBlock(nn.Module):
    """Two layers around a FiLM, added to the input."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.film = nn.Linear(width, 2 * width)
        self.layer_in = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.layer_out = nn.Linear(width, width)

    def forward(self, hidden: Tensor, vector: Tensor) -> Tensor:
        scale, shift = self.film(functional.silu(vector)).chunk(2, dim=1)
        inner = functional.silu(self.layer_in(self.norm(hidden) * (1 + scale) + shift))
        return hidden + self.layer_out(self.dropout(inner))


class MLP(Pretrained):
    """Residual layers with FiLM conditioning; the last one starts at zero.

    Args:
        size: Length of a state vector.
        width: Length of the hidden vectors.
        depth: Number of residual blocks, two layers each.
        dropout: Probability in every block.
        time: Whether ``t`` is noise time or log-SNR.
        classes: Number of labels; 0 for none.
        features: Length of the feature vector; 0 for none.
        checkpointing: Recompute blocks in the backward pass instead of storing them.

    Example:
        >>> net = MLP(5, width=16, depth=2)
        >>> net(torch.ones(3, 5), torch.tensor([0.0, 0.5, 1.0])).shape
        torch.Size([3, 5])
    """

    def __init__(
        self,
        size: int,
        *,
        width: int = 256,
        depth: int = 3,
        dropout: float = 0.0,
        time: TimeReading = "time",
        classes: int = 0,
        features: int = 0,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.checkpointing = checkpointing
        self.conditioning = Conditioning(width, time=time, classes=classes, features=features)
        self.stem = nn.Linear(size, width)
        self.blocks = nn.ModuleList(MLPBlock(width, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, size)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(
        self,
        state: Float[Tensor, "batch size"],
        t: Float[Tensor, "*batch"],
        *,
        label: Int[Tensor, " batch"] | None = None,
        features: Float[Tensor, "batch features"] | None = None,
        present: Bool[Tensor, " batch"] | None = None,
        mask: None = None,
    ) -> Float[Tensor, "batch size"]:
        """Return a prediction shaped like ``state``, in its dtype.

        Args:
            state: Vectors, each coordinate of order one.
            t: Noise time or log-SNR as ``time`` says, float32, one per row or one for all.
            label: Class index per row; below 0 for none.
            features: Numbers per row.
            present: True where the row's ``features`` count.
            mask: Not taken; a vector is whole.
        """
        if mask is not None:
            raise InputError("MLP takes no mask: its vectors are whole; DiTBlocks takes one")
        vector = self.conditioning(
            t.expand(len(state)), label=label, features=features, present=present
        )
        hidden = self.stem(state.to(self.stem.weight.dtype))
        for block in self.blocks:
            if self.checkpointing and torch.is_grad_enabled():
                hidden = checkpoint(block, hidden, vector, use_reentrant=False)
            else:
                hidden = block(hidden, vector)
        return self.head(functional.silu(self.norm(hidden))).to(state.dtype)
