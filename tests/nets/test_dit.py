from __future__ import annotations

import pytest
import torch
from torch import nn

from noisewright.nets import DiT, DiTBlocks, grid_positions
from noisewright.random import isolated
from noisewright.types import InputError


def awake(make: type[nn.Module], *args, **options) -> nn.Module:
    """A module without the zeros it starts with."""
    with isolated(0):
        module = make(*args, **options)
        for parameter in module.parameters():
            nn.init.normal_(parameter, std=0.2)
    return module


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_padding_does_not_change_real_tokens():
    trunk = awake(DiTBlocks, 8, depth=3, heads=2)
    tokens, vector = normal(2, 5, 8), normal(2, 8)
    mask = torch.ones(2, 5, dtype=torch.bool)
    padded = torch.cat([tokens, 100 * normal(2, 3, 8, seed=1)], dim=1)
    padded_mask = torch.cat([mask, torch.zeros(2, 3, dtype=torch.bool)], dim=1)
    out = trunk(padded, vector, mask=padded_mask)
    torch.testing.assert_close(out[:, :5], trunk(tokens, vector), rtol=1e-5, atol=1e-5)
    assert not out[:, 5:].any()


def test_row_without_real_tokens_is_zero_and_finite():
    trunk = awake(DiTBlocks, 8, depth=2, heads=2)
    mask = torch.tensor([[False] * 4, [True] * 4])
    tokens = normal(2, 4, 8).requires_grad_()
    out = trunk(tokens, normal(2, 8), mask=mask)
    out.square().sum().backward()
    assert not out[0].any()
    assert out.isfinite().all()
    assert tokens.grad.isfinite().all()


def test_trunk_commutes_with_permutation_of_tokens():
    trunk = awake(DiTBlocks, 8, depth=2, heads=4)
    tokens, vector = normal(2, 6, 8), normal(2, 8)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    torch.testing.assert_close(
        trunk(tokens[:, order], vector), trunk(tokens, vector)[:, order], rtol=1e-5, atol=1e-5
    )


def test_masked_patches_do_not_change_real_ones():
    net = awake(DiT, 1, width=16, depth=2, heads=2, patch=4)
    state, t = normal(1, 1, 8, 8), torch.tensor([0.4])
    other = state.clone()
    other[..., 4:, 4:] += 5.0
    mask = torch.tensor([[True, True, True, False]])
    first, second = net(state, t, mask=mask), net(other, t, mask=mask)
    assert torch.equal(first, second)
    assert not first[..., 4:, 4:].any()
    assert first[..., :4, :4].any()


def test_positions_of_a_wide_grid_agree_with_those_of_a_narrow_one():
    wide = grid_positions(3, 7, 16, torch.device("cpu")).view(3, 7, 16)
    narrow = grid_positions(3, 4, 16, torch.device("cpu")).view(3, 4, 16)
    assert torch.equal(wide[:, :4], narrow)
    assert len(wide.view(21, 16).unique(dim=0)) == 21


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(InputError, match="heads=3 must divide width=8"):
        DiTBlocks(8, depth=1, heads=3)
