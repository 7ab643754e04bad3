"""Seeds and streams: pure functions of what names them, split any way."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from noisewright.random import StepDraws, derive_seed, isolated, noise_stream
from noisewright.types import InputError

seeds = st.integers(0, 2**63 - 1)
names = st.lists(st.one_of(st.text(max_size=5), st.integers()), min_size=1, max_size=3)


@given(seeds, names)
def test_derived_seed_is_a_pure_function_in_range(seed, name):
    derived = derive_seed(seed, *name)
    assert derived == derive_seed(seed, *name)
    assert 0 <= derived < 2**63
    torch.Generator().manual_seed(derived)


@given(seeds, names, names)
def test_other_names_and_seeds_derive_other_seeds(seed, one, other):
    if [str(n) for n in one] != [str(n) for n in other]:
        assert derive_seed(seed, *one) != derive_seed(seed, *other)
    assert derive_seed(seed, *one) != derive_seed(seed + 1, *one)


def test_names_are_not_run_together():
    assert derive_seed(0, "ab", "c") != derive_seed(0, "a", "bc")
    assert derive_seed(1, "2") != derive_seed(12, "")


@given(st.integers(0, 100), st.integers(0, 50), st.integers(1, 12), st.data(), st.booleans())
def test_draws_of_a_part_are_the_rows_of_the_whole(seed, step, total, data, stratified):
    first = data.draw(st.integers(0, total))
    rows = slice(first, data.draw(st.integers(first, total)))
    batch = torch.empty(total, 2, 3)

    def draws(part):
        one = StepDraws(seed, step, total, part)
        return [
            one.normal_like(batch[part]),
            one.uniform(stratified=stratified),
            one.normal_like(batch[part]),
        ]

    for part, whole in zip(draws(rows), draws(slice(None)), strict=True):
        assert torch.equal(part, whole[rows])


@given(st.integers(0, 100), st.integers(0, 100))
def test_draws_of_a_step_are_a_pure_function_of_seed_and_step(seed, step):
    batch = torch.empty(4, 2)
    first = StepDraws(seed, step, 4, slice(None)).normal_like(batch)
    StepDraws(seed, step + 1, 4, slice(None)).normal_like(batch)
    assert torch.equal(first, StepDraws(seed, step, 4, slice(None)).normal_like(batch))
    for other in (
        StepDraws(seed, step + 1, 4, slice(None)),
        StepDraws(seed + 1, step, 4, slice(0, 4)),
    ):
        assert not torch.equal(first, other.normal_like(batch))


@given(st.integers(0, 100), st.integers(1, 64))
def test_stratified_draws_fill_each_cell_once(seed, total):
    draw = StepDraws(seed, 0, total, slice(None)).uniform(stratified=True)
    assert sorted((draw * total).long().tolist()) == list(range(total))
    assert float(draw.max()) < 1
    assert float(draw.min()) >= 0


def test_draws_take_dtype_and_device_of_the_batch():
    draws = StepDraws(0, 0, 2, slice(None))
    assert draws.normal_like(torch.empty(2, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert draws.uniform().dtype == torch.float32


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=6), st.data())
def test_row_depends_on_its_own_seed_only(row_seeds, data):
    order = data.draw(st.permutations(range(len(row_seeds))))
    together = noise_stream(len(row_seeds), seed=row_seeds).normal_like(
        torch.empty(len(row_seeds), 2, 2)
    )
    turned = noise_stream(len(order), seed=[row_seeds[i] for i in order]).normal_like(
        torch.empty(len(order), 2, 2)
    )
    assert torch.equal(turned, together[list(order)])


def test_half_precision_noise_is_rounded_float32_noise():
    full = noise_stream(2, seed=0).normal_like(torch.empty(2, 50))
    half = noise_stream(2, seed=0).normal_like(torch.empty(2, 50, dtype=torch.bfloat16))
    assert torch.equal(half, full.bfloat16())


def test_without_seed_each_stream_is_new():
    like = torch.empty(1, 8)
    assert not torch.equal(*(noise_stream(1).normal_like(like) for _ in range(2)))


def test_generator_goes_on_where_it_was():
    generator = torch.Generator().manual_seed(0)
    like = torch.empty(1, 8)
    two = [noise_stream(1, generator=generator).normal_like(like) for _ in range(2)]
    stream = noise_stream(1, seed=0)
    assert torch.equal(torch.cat(two), torch.cat([stream.normal_like(like) for _ in range(2)]))


def test_empty_batch_draws_nothing():
    assert noise_stream(0, seed=[]).normal_like(torch.empty(0, 3)).shape == (0, 3)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"seed": [1, 2]}, "2 entries for a batch of 3"),
        ({"seed": 0, "generator": torch.Generator()}, "not both"),
    ],
)
def test_contradictory_seeds_are_refused(how, words):
    with pytest.raises(InputError, match=words):
        noise_stream(3, **how)


@given(st.integers(0, 2**40))
def test_isolated_block_is_seeded_and_leaves_no_trace(seed):
    before = torch.get_rng_state()
    with isolated(seed):
        first = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    with isolated(seed):
        assert torch.equal(torch.rand(3), first)


def test_isolated_block_that_raises_leaves_no_trace():
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError), isolated(0):
        torch.rand(3).reshape(2, 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_isolated_blocks_nest():
    with isolated(1):
        straight = torch.rand(2)
    with isolated(1):
        first = torch.rand(1)
        with isolated(2):
            torch.rand(5)
        second = torch.rand(1)
    assert torch.equal(torch.cat([first, second]), straight)
