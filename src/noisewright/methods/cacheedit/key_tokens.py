r"""Key tokens: those whose deep activation moved since the round before.

With :math:`a_i, b_i` the activation of token i after the last block, now and at the same step of
the round before,

.. math:: s_i = \tfrac12 (\cos(a_i, b_i) + 1) \in [0, 1], \qquad \text{key} \iff s_i < \tau .

Latents of two rounds differ only late in a walk, deep activations already at its first step; so
one full step finds what the rest of the round must recompute.
"""

from __future__ import annotations

import warnings

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

__all__ = ["dilated", "key_tokens", "permutation", "similarity"]


def similarity(
    cur: Float[Tensor, "batch tokens width"], ref: Float[Tensor, "batch tokens width"]
) -> Float[Tensor, "batch tokens"]:
    """Return the similarity of each token to its reference, in [0, 1], computed in float32.

    A zero vector has cosine 0 with anything, and so similarity one half; NaN stays NaN.

    Args:
        cur: Activations now.
        ref: Activations of the round before.

    Example:
        >>> similarity(torch.eye(2)[None], torch.tensor([[[2.0, 0.0], [1.0, 0.0]]]))
        tensor([[1.0000, 0.5000]])
    """
    now, before = (functional.normalize(part.float(), dim=-1) for part in (cur, ref))
    return ((now * before).sum(dim=-1) + 1).div(2).clamp(0, 1)


def key_tokens(
    cur: Float[Tensor, "batch tokens width"],
    ref: Float[Tensor, "batch tokens width"],
    threshold: float,
) -> Bool[Tensor, "batch tokens"]:
    """Return which tokens must be recomputed.

    Args:
        cur: Activations now.
        ref: Activations of the same step in the round before.
        threshold: Key tokens are less similar than this; above 1 all are.

    Returns:
        True for key tokens. A token whose similarity is NaN is one, with a warning.

    Example:
        >>> cur, ref = torch.eye(2)[None], torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
        >>> key_tokens(cur, ref, 0.97)
        tensor([[False,  True]])
    """
    alike = similarity(cur, ref)
    broken = alike.isnan()
    if bool(broken.any()):
        warnings.warn(
            f"{int(broken.sum())} of {alike.numel()} activations are NaN; their tokens are "
            "recomputed",
            stacklevel=2,
        )
    return (alike < threshold) | broken


def dilated(
    mask: Bool[Tensor, " tokens"], height: int, width: int, times: int
) -> Bool[Tensor, " tokens"]:
    """Return a mask whose latent part has grown by its four neighbours.

    Args:
        mask: Latent tokens row by row, then others, which stay as they are.
        height: Rows of latent tokens.
        width: Latent tokens in a row.
        times: How often.

    Example:
        >>> mask = torch.tensor([0, 0, 0, 0, 1, 0, 0, 0, 0, 0], dtype=torch.bool)
        >>> dilated(mask, 3, 3, 1).int().tolist()
        [0, 1, 0, 1, 1, 1, 0, 1, 0, 0]
    """
    if times == 0 or not bool(mask.any()):
        return mask
    area = mask[: height * width].reshape(height, width).clone()
    for _ in range(times):
        grown = area.clone()
        grown[1:] |= area[:-1]
        grown[:-1] |= area[1:]
        grown[:, 1:] |= area[:, :-1]
        grown[:, :-1] |= area[:, 1:]
        area = grown
    return torch.cat([area.flatten(), mask[height * width :]])


def permutation(
    mask: Bool[Tensor, " tokens"],
) -> tuple[Int[Tensor, " kept"], Int[Tensor, " rest"]]:
    """Return the places of key tokens and of the others, each rising.

    Written one after the other they are an order with the key tokens first; ``argsort`` of that
    order undoes it.

    Example:
        >>> permutation(torch.tensor([False, True, False]))
        (tensor([1]), tensor([0, 2]))
    """
    return mask.nonzero()[:, 0], (~mask).nonzero()[:, 0]
