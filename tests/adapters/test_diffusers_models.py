"""Models of diffusers under our denoisers and solvers."""

from __future__ import annotations

import pytest
import torch
from diffusers import (
    DDIMScheduler,
    DDPMScheduler,
    DiTTransformer2DModel,
    EDMEulerScheduler,
    UNet2DModel,
)

from noisewright.adapters import diffusers_denoiser, wrap_unet
from noisewright.paths import Denoiser, GaussianPath, RectifiedSchedule
from noisewright.random import isolated
from noisewright.solvers import DDIM, Euler, table_times
from noisewright.types import InputError


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
            down_block_types=("DownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "UpBlock2D"),
        ).eval()


def noise(batch, seed=0):
    return torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
@pytest.mark.parametrize("kind", ["epsilon", "v_prediction", "sample"])
def test_our_ddim_equals_diffusers_ddim_on_a_pretrained_table(kind):
    model = unet()
    settings = {"prediction_type": kind, "clip_sample": False, "set_alpha_to_one": True}
    theirs = DDIMScheduler(timestep_spacing="trailing", **settings)
    theirs.set_timesteps(5)
    denoiser = diffusers_denoiser(model, theirs)
    times = torch.cat([(theirs.timesteps.double() + 1) / 1000, torch.zeros(1)])
    start = noise(2)
    ours = DDIM()(denoiser, start, times=times).state
    state = start
    for t in theirs.timesteps:
        state = theirs.step(model(state, t).sample, t, state).prev_sample
    assert torch.allclose(ours, state, rtol=1e-4, atol=1e-4 * float(state.abs().max()))


def test_discrete_models_are_told_whole_indices():
    told = []

    class Spy(torch.nn.Module):
        dtype = torch.float32

        def forward(self, state, timestep, class_labels=None):
            told.append(timestep)
            return UNet2DOutput(state)

    class UNet2DOutput:
        def __init__(self, sample):
            self.sample = sample

    denoiser = diffusers_denoiser(Spy(), DDPMScheduler())
    DDIM()(denoiser, noise(1), times=table_times(denoiser.path, 1000))
    seen = torch.cat(told)
    assert torch.equal(seen, torch.arange(999, -1, -1).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch", [1, 2])
def test_unet_as_a_network_of_ours(batch, dtype):
    model = unet().to(dtype)
    denoiser = Denoiser(wrap_unet(model), GaussianPath(RectifiedSchedule()))
    state = Euler()(denoiser, noise(batch), steps=2).state
    assert state.dtype == torch.float32
    assert bool(state.isfinite().all())
    clock = torch.full((batch,), 0.5)
    with torch.no_grad():
        direct = model(noise(batch).to(dtype), clock).sample.float()
        assert torch.equal(denoiser.net(noise(batch), clock), direct)


@torch.no_grad()
def test_learned_variances_of_a_dit_are_left_out():
    with isolated(0):
        model = DiTTransformer2DModel(
            num_attention_heads=2,
            attention_head_dim=4,
            in_channels=3,
            out_channels=6,
            num_layers=1,
            sample_size=8,
            patch_size=4,
            norm_num_groups=1,
            num_embeds_ada_norm=10,
        ).eval()
    denoiser = diffusers_denoiser(model, DDPMScheduler())
    label = torch.tensor([1, 2])
    state = DDIM()(denoiser, noise(2), times=table_times(denoiser.path, 3), label=label).state
    assert state.shape == (2, 3, 8, 8)


def test_schedulers_without_a_table_are_refused():
    with pytest.raises(InputError, match="alphas_cumprod"):
        diffusers_denoiser(unet(), EDMEulerScheduler())
    scheduler = DDPMScheduler(prediction_type="epsilon")
    scheduler.register_to_config(prediction_type="flow")
    with pytest.raises(InputError, match="prediction_type='flow'"):
        diffusers_denoiser(unet(), scheduler)
