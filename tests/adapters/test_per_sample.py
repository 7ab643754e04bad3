"""Euler steps with a grid per sample, against diffusers' own scheduler and in real loops."""

from __future__ import annotations

import pytest
import torch
from diffusers import DiTTransformer2DModel, EulerDiscreteScheduler, UNet2DModel

from noisewright.adapters import PerSampleEulerScheduler
from noisewright.random import isolated
from noisewright.types import InputError

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

GRID = [20.0, 5.0, 1.0, 0.2, 0.03, 0.0]
OTHER = [60.0, 9.0, 2.0, 0.5, 0.1, 0.0]
KINDS = ["epsilon", "v_prediction", "sample"]


def unet(seed=0):
    with isolated(seed):
        return UNet2DModel(
            sample_size=8,
            in_channels=3,
            out_channels=3,
            layers_per_block=1,
            block_out_channels=(8, 8),
            norm_num_groups=4,
            attention_head_dim=4,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        ).eval()


def dit(seed=0):
    with isolated(seed):
        return DiTTransformer2DModel(
            num_attention_heads=2,
            attention_head_dim=4,
            in_channels=3,
            out_channels=3,
            num_layers=1,
            sample_size=8,
            patch_size=4,
            norm_num_groups=1,
            num_embeds_ada_norm=10,
        ).eval()


def noise(batch, seed=0):
    return torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def walk(scheduler, model, start, **condition):
    state = start * scheduler.init_noise_sigma
    state = state.to(start.dtype)
    for t in scheduler.timesteps:
        shown = scheduler.scale_model_input(state, t)
        output = model(shown, t, **condition).sample
        state = scheduler.step(output, t, state).prev_sample
    return state


def curved(state, t):
    """A cheap model that depends on its input and, row by row, on the timestep."""

    class Answer:
        sample = torch.tanh(state.float()) * (1 + t.reshape(-1, 1, 1, 1) / 1000).cos()

    return Answer


@pytest.mark.parametrize("spacing", ["linspace", "leading"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_share_a_grid_equal_the_stock_scheduler_bit_for_bit(kind, spacing):
    stock = EulerDiscreteScheduler(prediction_type=kind, timestep_spacing=spacing)
    ours = PerSampleEulerScheduler(prediction_type=kind, timestep_spacing=spacing)
    stock.set_timesteps(sigmas=GRID)
    ours.set_timesteps(sigmas=[GRID, GRID])
    assert torch.equal(ours.timesteps, stock.timesteps[:, None].expand(5, 2))
    assert torch.equal(ours.sigmas, stock.sigmas.expand(2, 6))
    assert torch.equal(ours.init_noise_sigma.flatten(), stock.init_noise_sigma.expand(2))
    model = unet()
    assert torch.equal(walk(ours, model, noise(2)), walk(stock, model, noise(2)))


@pytest.mark.parametrize("kind", KINDS)
def test_each_step_equals_the_stock_step_bit_for_bit(kind):
    stock = EulerDiscreteScheduler(prediction_type=kind)
    ours = PerSampleEulerScheduler(prediction_type=kind)
    stock.set_timesteps(sigmas=GRID)
    ours.set_timesteps(sigmas=[GRID])
    state = noise(1)
    for t, s in zip(ours.timesteps, stock.timesteps, strict=True):
        assert torch.equal(ours.scale_model_input(state, t), stock.scale_model_input(state, s))
        mine = ours.step(noise(1, 7), t, state)
        theirs = stock.step(noise(1, 7), s, state)
        assert torch.equal(mine.prev_sample, theirs.prev_sample)
        assert torch.equal(mine.pred_original_sample, theirs.pred_original_sample)
        state = theirs.prev_sample


def test_one_grid_for_all_is_the_stock_scheduler_bit_for_bit():
    stock, ours = EulerDiscreteScheduler(), PerSampleEulerScheduler()
    for wanted in ({"sigmas": GRID}, {"num_inference_steps": 7}, {"timesteps": [900, 400, 10]}):
        stock.set_timesteps(**wanted)
        ours.set_timesteps(**wanted)
        assert torch.equal(walk(ours, curved, noise(3)), walk(stock, curved, noise(3)))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_do_not_change_with_their_neighbours(kind):
    scheduler = PerSampleEulerScheduler(prediction_type=kind)
    scheduler.set_timesteps(sigmas=[GRID, OTHER])
    together = walk(scheduler, unet(), noise(2))
    for row, grid in enumerate([GRID, OTHER]):
        scheduler.set_timesteps(sigmas=[grid])
        alone = walk(scheduler, unet(), noise(2)[row : row + 1])
        assert torch.allclose(alone[0], together[row], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ["unet", "dit"])
def test_whole_loop_on_real_models(name, batch, dtype):
    model = {"unet": unet, "dit": dit}[name]().to(dtype)
    condition = {"class_labels": torch.tensor([1, 2][:batch])} if name == "dit" else {}
    scheduler = PerSampleEulerScheduler()
    scheduler.set_timesteps(sigmas=[GRID, OTHER][:batch])
    state = walk(scheduler, model, noise(batch).to(dtype), **condition)
    assert state.dtype == dtype
    assert state.shape == (batch, 3, 8, 8)
    assert bool(state.isfinite().all())
    scheduler.set_timesteps(sigmas=[GRID, OTHER][:batch])  # no trace of the walk before
    again = walk(scheduler, model, noise(batch).to(dtype), **condition)
    assert torch.equal(again, state)


def test_half_precision_states_are_stepped_in_float32():
    exact, half = PerSampleEulerScheduler(), PerSampleEulerScheduler()
    for scheduler in (exact, half):
        scheduler.set_timesteps(sigmas=[GRID, OTHER])
    t = exact.timesteps[0]
    state, output = (v.to(torch.bfloat16) for v in (20 * noise(2), noise(2, 1)))
    for scheduler in (exact, half):
        scheduler.scale_model_input(state, t)
    fine = exact.step(output.float(), t, state.float())
    coarse = half.step(output, t, state)
    assert torch.equal(coarse.prev_sample, fine.prev_sample.to(torch.bfloat16))
    assert torch.equal(coarse.pred_original_sample, fine.pred_original_sample)


def test_last_step_lands_on_the_prediction_of_the_data():
    scheduler = PerSampleEulerScheduler(prediction_type="sample")
    scheduler.set_timesteps(sigmas=[GRID, OTHER])
    scheduler.set_begin_index(4)
    scheduler.scale_model_input(noise(2), scheduler.timesteps[4])
    ended = scheduler.step(noise(2, 3), scheduler.timesteps[4], noise(2), return_dict=False)
    assert torch.allclose(ended[0], noise(2, 3), atol=1e-6)
    assert torch.equal(ended[1], noise(2, 3))


def test_guided_batches_of_twice_the_rows_use_each_grid_twice():
    scheduler = PerSampleEulerScheduler()
    scheduler.set_timesteps(sigmas=[GRID, OTHER])
    t, state = scheduler.timesteps[0], noise(2)
    once = scheduler.scale_model_input(state, t)
    twice = scheduler.scale_model_input(torch.cat([state, state]), t)
    assert torch.equal(twice, torch.cat([once, once]))
    with pytest.raises(InputError, match="batch of 3 does not fit 2 grids"):
        scheduler.scale_model_input(noise(3), t)


def test_walk_can_start_in_the_middle():
    scheduler = PerSampleEulerScheduler(prediction_type="sample")
    scheduler.set_timesteps(sigmas=[GRID, OTHER])
    t = scheduler.timesteps[2]
    start = scheduler.add_noise(torch.zeros(2, 3, 8, 8), torch.ones(2, 3, 8, 8), t)
    assert start[:, 0, 0, 0].tolist() == [1.0, 2.0]
    scheduler.scale_model_input(start, t)
    moved = scheduler.step(torch.zeros_like(start), t, start).prev_sample
    assert torch.allclose(moved[:, 0, 0, 0], torch.tensor([0.2, 0.5]))


def test_noise_is_added_at_each_samples_own_level():
    scheduler = PerSampleEulerScheduler()
    scheduler.set_timesteps(sigmas=[GRID, OTHER])
    t = torch.stack([scheduler.timesteps[4, 0], scheduler.timesteps[1, 1]])
    noisy = scheduler.add_noise(torch.zeros(2, 3, 8, 8), torch.ones(2, 3, 8, 8), t)
    assert torch.allclose(noisy[:, 0, 0, 0], torch.tensor([0.03, 9.0]))
    with pytest.raises(InputError, match="entries of their columns"):
        scheduler.add_noise(noise(2), noise(2), t.flip(0))
    with pytest.raises(InputError, match="1 timesteps for 2 grids"):
        scheduler.add_noise(noise(2), noise(2), t[:1])


def test_timesteps_rounded_to_half_precision_are_refused():
    scheduler = PerSampleEulerScheduler()
    scheduler.set_timesteps(sigmas=[GRID, OTHER])
    with pytest.raises(InputError, match="float32"):
        scheduler.scale_model_input(noise(2), scheduler.timesteps[0].to(torch.bfloat16))


def test_config_survives_saving_and_swapping(tmp_path):
    scheduler = PerSampleEulerScheduler(prediction_type="v_prediction", beta_end=0.03)
    scheduler.save_config(tmp_path)
    back = PerSampleEulerScheduler.from_pretrained(tmp_path)
    assert back.config.prediction_type == "v_prediction"
    for one in (scheduler, back):
        one.set_timesteps(sigmas=[GRID, OTHER])
    assert torch.equal(back.timesteps, scheduler.timesteps)
    stock = EulerDiscreteScheduler.from_config(scheduler.config)
    assert stock.config.beta_end == 0.03
    assert PerSampleEulerScheduler.from_config(stock.config).config.beta_end == 0.03


def test_levels_beyond_the_table_are_moved_in_row_by_row():
    scheduler = PerSampleEulerScheduler()
    with pytest.warns(UserWarning, match="1 of 4 levels"):
        scheduler.set_timesteps(sigmas=[[900.0, 1.0, 0.0], [50.0, 1.0, 0.0]])
    assert float(scheduler.sigmas[0, 0]) < 200
    assert scheduler.sigmas[1].tolist() == [50.0, 1.0, 0.0]
    told = PerSampleEulerScheduler(prediction_type="v_prediction", timestep_type="continuous")
    told.set_timesteps(sigmas=[[900.0, 1.0, 0.0], [50.0, 1.0, 0.0]])
    assert told.sigmas[0].tolist() == [900.0, 1.0, 0.0]
    assert torch.allclose(told.timesteps[:, 0], 0.25 * torch.tensor([900.0, 1.0]).log())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"sigmas": [[1.0, 0.5], [2.0, 0.0]]}, "end with 0"),
        ({"sigmas": torch.zeros(0, 3)}, "no rows"),
        ({"sigmas": [GRID, OTHER], "num_inference_steps": 5}, "sigmas alone"),
    ],
)
def test_grids_that_do_not_fit_are_refused(call, words):
    with pytest.raises(InputError, match=words):
        PerSampleEulerScheduler().set_timesteps(**call)


def test_churn_is_refused_with_a_grid_per_sample():
    scheduler = PerSampleEulerScheduler()
    scheduler.set_timesteps(sigmas=[GRID])
    t = scheduler.timesteps[0]
    scheduler.scale_model_input(noise(1), t)
    with pytest.raises(InputError, match=r"s_churn=1\.0"):
        scheduler.step(noise(1), t, noise(1), s_churn=1.0)
