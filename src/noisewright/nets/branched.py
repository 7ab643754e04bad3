r"""A residual network for vectors whose labels enter late: many labels at one state are cheap.

.. math:: h = \text{trunk}(x, t), \qquad y_c = \text{branch}(h, t, c)

Only the branch knows the label. Whoever needs the outputs of K labels at the same state (ratios of
densities, guidance, classification by a generative model) computes the trunk, and the derivatives
of the trunk, once instead of K times.

Derivatives along given directions go forward with the values (:meth:`BranchedMLP.push_trunk`,
:meth:`BranchedMLP.push_branch`), written out by hand: a layer norm, its FiLM and the matrix that
follows are linear in the direction up to one rank, so they cost one product of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from noisewright.nets.embed import fourier_features
from noisewright.nets.mlp import MLPBlock
from noisewright.nets.pretrained import Pretrained
from noisewright.types import InputError

__all__ = ["BranchedMLP"]

FREQUENCIES = 32

SLOWED = 8.0
"""Time features are slowed down by this, to a finest period of 1/16: the fields of densities are
smooth in time, and faster features only add ripples that a solver with few steps steps over."""


class BranchedMLP(Pretrained):
    """Residual layers with FiLM; the last ``branch`` of them see the labels too.

    Args:
        size: Length of a state vector.
        out: Length of the output; None means ``size``.
        width: Length of the hidden vectors.
        depth: Number of residual blocks, two layers each, those of the branch included.
        branch: How many of them see the labels, at least 1.
        classes: Number of values of each label; every label can also be absent (below 0).
        dropout: Probability in every block.

    Raises:
        InputError: If ``branch`` is not in [1, depth], or there is no label.

    Example:
        >>> net = BranchedMLP(5, width=16, classes=(2, 3))
        >>> hidden = net.trunk(torch.ones(4, 5), torch.tensor([0.5]))
        >>> net.branch(hidden, torch.tensor([0.5]), torch.tensor([[1, -1]])).shape
        torch.Size([4, 5])
    """

    def __init__(
        self,
        size: int,
        *,
        out: int | None = None,
        width: int = 256,
        depth: int = 3,
        branch: int = 1,
        classes: Sequence[int] = (2,),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not 1 <= branch <= depth:
            raise InputError(f"branch={branch} must lie in [1, depth={depth}]")
        if not classes or min(classes) < 1:
            raise InputError(f"classes={tuple(classes)}: give at least one label with one value")
        self.classes = tuple(classes)
        self.time_in = nn.Linear(FREQUENCIES, width)
        self.time_out = nn.Linear(width, width)
        self.labels = nn.ModuleList(nn.Embedding(count + 1, width) for count in self.classes)
        self.label_out = nn.Linear(width, width)
        self.stem = nn.Linear(size, width)
        self.lower = nn.ModuleList(MLPBlock(width, dropout) for _ in range(depth - branch))
        self.upper = nn.ModuleList(MLPBlock(width, dropout) for _ in range(branch))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, size if out is None else out)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def trunk(
        self, state: Float[Tensor, "batch size"], t: Float[Tensor, " times"]
    ) -> Float[Tensor, "batch width"]:
        """Return what all labels share.

        Args:
            state: Vectors, each coordinate of order one.
            t: Noise time in [0, 1], float32, one per row or a single one for all.
        """
        vector = self._time(t)
        hidden = self.stem(state.to(self.stem.weight.dtype))
        for block in self.lower:
            hidden = block(hidden, vector)
        return hidden

    def branch(
        self,
        hidden: Float[Tensor, "batch width"],
        t: Float[Tensor, " times"],
        label: Int[Tensor, "rows labels"],
    ) -> Float[Tensor, "batch out"]:
        """Return the output for a label.

        Args:
            hidden: From :meth:`trunk`.
            t: As there.
            label: Index of each label, below 0 for none; one row per state or a single one.
        """
        vector = self._vector(t, label)
        for block in self.upper:
            hidden = block(hidden, vector)
        return self.head(functional.silu(self.norm(hidden)))

    def push_trunk(
        self,
        state: Float[Tensor, "batch size"],
        t: Float[Tensor, "1"],
        directions: Float[Tensor, "count rows size"],
    ) -> tuple[Float[Tensor, "batch width"], Float[Tensor, "count batch width"]]:
        """Return :meth:`trunk` and its derivatives along directions; in evaluation mode.

        Args:
            state: Vectors.
            t: One noise time for all.
            directions: ``count`` directions for each row, or (count, 1, size) for all rows alike.
        """
        vector = self._time(t)
        hidden = self.stem(state)
        pushed = (directions @ self.stem.weight.T).expand(-1, len(state), -1)
        for block in self.lower:
            hidden, pushed = _push_block(block, hidden, pushed, vector)
        return hidden, pushed

    def push_branch(
        self,
        hidden: Float[Tensor, "batch width"],
        pushed: Float[Tensor, "count batch width"],
        t: Float[Tensor, "1"],
        label: Int[Tensor, "1 labels"],
        probes: Float[Tensor, "count rows probed"],
    ) -> tuple[Float[Tensor, "batch out"], Float[Tensor, "count batch"]]:
        """Return :meth:`branch` and products of its derivatives with probes; in evaluation mode.

        Args:
            hidden: From :meth:`push_trunk`.
            pushed: Likewise.
            t: One noise time for all.
            label: One label for all.
            probes: What the derivative of the first ``probed`` outputs is multiplied with, for each
                direction and row, or (count, 1, probed). With the unit vectors as directions and
                probes the products are the diagonal of the Jacobian.
        """
        vector = self._vector(t, label)
        for block in self.upper:
            hidden, pushed = _push_block(block, hidden, pushed, vector)
        mean, scale = hidden.mean(1, keepdim=True), _inverse_spread(hidden, self.norm.eps)
        plain = (hidden - mean) * scale
        inner = plain * self.norm.weight + self.norm.bias
        output = self.head(functional.silu(inner))
        slope = scale * self.norm.weight * _silu_slope(inner)
        weights = (probes @ self.head.weight[: probes.shape[2]]) * slope
        along = (pushed * plain).mean(2)
        products = (pushed * weights).sum(2) - pushed.mean(2) * weights.sum(2)
        return output, products - along * (weights * plain).sum(2)

    def forward(
        self,
        state: Float[Tensor, "batch size"],
        t: Float[Tensor, "*times"],
        *,
        label: Int[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch out"]:
        """Return an output per row, in the dtype of ``state``.

        Args:
            state: Vectors, each coordinate of order one.
            t: Noise time in [0, 1], float32, one per row or one for all.
            label: Indices (batch, labels), or (batch,) if there is one label; below 0 for none.
        """
        t = t.reshape(-1)
        if label is None:
            label = torch.full((1, len(self.classes)), -1, device=state.device)
        label = label[:, None] if label.ndim == 1 else label
        if label.shape[1:] != (len(self.classes),):
            raise InputError(
                f"label has shape {tuple(label.shape)}; this network has {len(self.classes)} labels"
            )
        return self.branch(self.trunk(state, t), t, label).to(state.dtype)

    def _time(self, t: Tensor) -> Tensor:
        features = fourier_features(t / SLOWED, FREQUENCIES).to(self.time_in.weight.dtype)
        return self.time_out(functional.silu(self.time_in(features)))

    def _vector(self, t: Tensor, label: Tensor) -> Tensor:
        vector = self._time(t)
        for column, table in enumerate(self.labels):
            index = label[:, column]
            vector = vector + table(torch.where(index < 0, self.classes[column], index))
        return self.label_out(functional.silu(vector))


def _inverse_spread(hidden: Tensor, eps: float) -> Tensor:
    return torch.rsqrt(hidden.var(1, keepdim=True, unbiased=False) + eps)


def _silu_slope(value: Tensor) -> Tensor:
    gate = value.sigmoid()
    return gate * (1 + value * (1 - gate))


def _push_block(
    block: Any, hidden: Tensor, pushed: Tensor, vector: Tensor
) -> tuple[Tensor, Tensor]:
    """Return a block's output and its derivatives, for a conditioning vector (1, width)."""
    scale, shift = block.film(functional.silu(vector)).chunk(2, dim=1)
    spread = _inverse_spread(hidden, block.norm.eps)
    plain = (hidden - hidden.mean(1, keepdim=True)) * spread
    matrix = (1 + scale).T * block.layer_in.weight.T
    turned = plain @ matrix
    inner = turned + (shift @ block.layer_in.weight.T + block.layer_in.bias)
    slope = _silu_slope(inner) * spread
    # d norm(h) = (dh - mean(dh) - norm(h) mean(norm(h) dh)) / spread: centre the matrix instead
    # of dh, and take off the last term as a product of rank one.
    along = (pushed * plain).mean(2, keepdim=True)
    change = (pushed @ (matrix - matrix.mean(0))) * slope
    change.addcmul_(along, turned * slope, value=-1)
    out = block.layer_out(functional.silu(inner))
    return hidden + out, pushed + change @ block.layer_out.weight.T
