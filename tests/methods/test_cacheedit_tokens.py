"""The pure parts: key tokens, schedule, costs, memory, what is kept."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from noisewright.methods.cacheedit import (
    CacheEditConfig,
    block_cost,
    key_tokens,
    map_group,
    speedup,
)
from noisewright.methods.cacheedit.cost import memory_needed, reuse_share
from noisewright.methods.cacheedit.key_tokens import dilated, permutation, similarity
from noisewright.methods.cacheedit.schedule import cache_steps
from noisewright.methods.cacheedit.store import Kept, RoundStore, bytes_per_number


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------------------- key tokens


def test_similarity_of_equal_opposite_and_square_vectors():
    a = torch.tensor([[[3.0, 0.0], [3.0, 0.0], [3.0, 0.0]]])
    b = torch.tensor([[[1.0, 0.0], [-2.0, 0.0], [0.0, 5.0]]])
    torch.testing.assert_close(similarity(a, b), torch.tensor([[1.0, 0.0, 0.5]]))


def test_similarity_does_not_depend_on_lengths_or_halves():
    a, b = normal(2, 50, 16), normal(2, 50, 16, seed=1)
    torch.testing.assert_close(similarity(a, b), similarity(7 * a, 0.1 * b))
    torch.testing.assert_close(similarity(a.half(), b.half()), similarity(a, b), atol=2e-3, rtol=0)
    # Squares of numbers like these overflow in half precision.
    assert similarity(300 * a.half(), 300 * b.half()).isfinite().all()


@given(st.floats(0.01, 2), st.floats(0.01, 2), st.integers(0, 5))
def test_share_of_key_tokens_does_not_fall_with_the_threshold(one, other, seed):
    low, high = sorted((one, other))
    a, b = normal(1, 40, 3, seed=seed), normal(1, 40, 3, seed=seed + 100)
    assert not (key_tokens(a, b, low) & ~key_tokens(a, b, high)).any()


def test_above_one_all_tokens_are_key_even_those_that_did_not_move():
    a = normal(1, 9, 4)
    assert key_tokens(a, a, 1.0001).all()
    assert not key_tokens(a, a, 0.999).any()


def test_zero_vectors_are_key():
    zero = torch.zeros(1, 2, 4)
    assert similarity(zero, zero).eq(0.5).all()
    assert key_tokens(zero, zero, 0.97).all()


def test_nan_is_key_and_is_told_of_once():
    a, b = normal(1, 4, 3), normal(1, 4, 3)
    a[0, 1, 2] = float("nan")
    with pytest.warns(UserWarning, match="1 of 4 activations are NaN") as told:
        found = key_tokens(a, b, 0.97)
    assert len(told) == 1
    assert found.tolist() == [[False, True, False, False]]


def test_dilation_grows_by_neighbours_and_not_round_the_edge():
    mask = torch.zeros(5 * 3 + 2, dtype=torch.bool)
    mask[3 + 2] = True  # row 1, last column; the two last tokens are no latents
    grown = dilated(mask, 5, 3, 1)
    assert grown.nonzero()[:, 0].tolist() == [2, 4, 5, 8]
    assert torch.equal(dilated(mask, 5, 3, 0), mask)
    assert int(dilated(mask, 5, 3, 9).sum()) == 15


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_key_tokens_first_and_back_is_the_identity(flags):
    mask = torch.tensor(flags)
    kept, rest = permutation(mask)
    order = torch.cat([kept, rest])
    rows = torch.arange(len(mask))
    assert torch.equal(rows[order][order.argsort()], rows)
    assert mask[kept].all()
    assert not mask[rest].any()
    assert (kept.diff() > 0).all()


# ---------------------------------------------------------------------------- schedule


def test_groups_of_an_interval_of_five():
    expected = [5 * (step // 5) for step in range(28)]
    assert [map_group(step) for step in range(28)] == expected
    assert cache_steps(28) == sorted(set(expected))


def test_groups_of_an_explicit_schedule():
    steps = (7, 0, 3)
    assert [map_group(step, steps=steps) for step in range(9)] == [0, 0, 0, 3, 3, 3, 3, 7, 7]
    assert cache_steps(5, steps=steps) == [0, 3]
    assert cache_steps(4, interval=1) == [0, 1, 2, 3]


# ---------------------------------------------------------------------------- costs


@pytest.mark.parametrize("mode", ["kv", "hidden"])
def test_reuse_of_everything_costs_a_full_step_and_of_nothing_nothing(mode):
    assert reuse_share(7, 50, 50, 16, mode) == pytest.approx(1)
    assert reuse_share(7, 50, 0, 16, mode) == 0
    shares = [reuse_share(7, 50, keys, 16, mode) for keys in range(51)]
    assert shares == sorted(shares)


def test_cost_of_a_block_by_hand():
    assert block_cost(2, 8, 8, 4) == 10 * 12 * 16 + 2 * 100 * 4
    assert block_cost(2, 8, 1, 4, "kv") == 3 * 12 * 16 + 2 * 3 * 10 * 4
    assert block_cost(2, 8, 1, 4, "hidden") == (10 * 3 + 2 * 10) * 16 + 2 * 3 * 10 * 4


def test_speedup_is_bounded_by_the_full_steps():
    assert speedup(28, 5, 0.0) == pytest.approx(28 / 6)
    assert speedup(28, 5, 1.0) == 1


def test_memory_of_kontext_is_that_of_the_paper():
    kontext = {
        "tokens": 8192,
        "latents": 4096,
        "width": 3072,
        "channels": 64,
        "layers": 57,
        "steps": 28,
        "full_steps": 6,
        "replay": "step",
        "item": 2,
        "computed_item": 2,
    }
    hidden = memory_needed(mode="hidden", **kontext)
    assert hidden.store / 1e9 == pytest.approx(17.2, abs=0.1)
    both = memory_needed(mode="kv", **kontext)
    assert both.store / 1e9 == pytest.approx(34.4, abs=0.1)
    assert both.total == 2 * both.first_round + both.working


# ---------------------------------------------------------------------------- what is kept


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.bfloat16, torch.float16])
def test_what_is_put_away_comes_back_in_the_dtype_it_had(dtype):
    tensor = normal(2, 6, 3, 8)
    kept = Kept.put(tensor, None, dtype)
    index = torch.tensor([4, 1])
    assert kept.get().dtype == torch.float32
    torch.testing.assert_close(kept.get(), tensor, rtol=1e-2, atol=1e-3)
    assert torch.equal(kept.get(index), kept.get()[:, index])
    if dtype in (None, torch.float32):
        assert torch.equal(kept.get(), tensor)
        assert kept.get().data_ptr() != tensor.data_ptr()


def test_eight_bits_keep_small_tokens_beside_large_ones():
    tensor = normal(1, 5, 2, 16) * torch.tensor([1e-4, 1.0, 1e3, 1e6, 0.0]).view(1, 5, 1, 1)
    kept = Kept.put(tensor, None, torch.float8_e4m3fn)
    error = (kept.get() - tensor).norm(dim=-1)
    assert (error <= 0.05 * tensor.norm(dim=-1)).all()
    assert torch.equal(kept.get(torch.tensor([2, 0])), kept.get()[:, [2, 0]])
    config = CacheEditConfig(cache_dtype=torch.float8_e4m3fn)
    assert kept.nbytes == tensor.numel() * bytes_per_number(config, torch.float32, 16)


def test_blocks_are_dealt_to_devices_in_runs():
    store = RoundStore(4, (torch.device("cpu"), torch.device("meta")))
    for layer in range(4):
        store.put("key", "cond", 0, layer, normal(1, 2, 1, 4))
    placed = [store.kept["key", "cond", 0, layer].data.device.type for layer in range(4)]
    assert placed == ["cpu", "cpu", "meta", "meta"]
    assert store.nbytes == 4 * 8 * 4
