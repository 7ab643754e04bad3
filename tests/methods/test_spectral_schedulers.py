"""Tight levels on diffusers' schedulers, in real loops and a real pipeline."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from diffusers import (
    AutoencoderKL,
    DiTPipeline,
    DiTTransformer2DModel,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    UNet2DModel,
)

from noisewright.adapters import set_levels
from noisewright.methods.spectral_schedule import (
    SpectrumPrior,
    TightSchedule,
    TightScheduler,
    rapsd,
    shared_levels,
)
from noisewright.random import isolated
from noisewright.types import InputError

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

TOLD = {"prediction_type": "v_prediction", "timestep_type": "continuous"}


def clouds(count, side=16, seed=0, slope=2.0):
    """Pictures with a power-law spectrum, in [-1, 1]."""
    generator = torch.Generator().manual_seed(seed)
    white = torch.randn(count, 3, side, side, generator=generator, dtype=torch.float64)
    away = torch.hypot(*torch.meshgrid(*[torch.fft.fftfreq(side) * side] * 2, indexing="ij"))
    shaped = torch.fft.ifft2(torch.fft.fft2(white) * away.clamp(min=1) ** (-slope / 2)).real
    return shaped / shaped.abs().amax(dim=(1, 2, 3), keepdim=True)


@pytest.fixture(scope="module")
def spectrum():
    return rapsd(clouds(30))


@pytest.fixture(scope="module")
def prior(spectrum):
    return SpectrumPrior().fit(spectrum)


def noise(batch):
    return torch.randn(batch, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def unet():
    with isolated(0):
        return UNet2DModel(
            sample_size=16,
            layers_per_block=1,
            block_out_channels=(8, 8),
            norm_num_groups=4,
            down_block_types=("DownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "UpBlock2D"),
        ).eval()


def dit(channels=3):
    with isolated(0):
        return DiTTransformer2DModel(
            num_attention_heads=2,
            attention_head_dim=4,
            in_channels=channels,
            out_channels=channels,
            num_layers=1,
            sample_size=16,
            patch_size=8,
            norm_num_groups=1,
            num_embeds_ada_norm=1001,
        ).eval()


@torch.no_grad()
def walk(scheduler, model, start, **condition):
    state = (start * scheduler.init_noise_sigma).to(start.dtype)
    for t in scheduler.timesteps:
        output = model(scheduler.scale_model_input(state, t), t, **condition).sample
        state = scheduler.step(output, t, state).prev_sample
    return state


def test_spectra_give_each_sample_its_own_levels(spectrum):
    scheduler = TightScheduler(**TOLD)
    scheduler.set_timesteps(6, spectrum=spectrum.select(slice(0, 3)))
    wanted = TightSchedule(spectrum.select(slice(0, 3))).sigmas(6)
    assert torch.allclose(scheduler.sigmas.double(), wanted, rtol=1e-6)
    assert torch.allclose(scheduler.timesteps.T, 0.25 * scheduler.sigmas[:, :-1].log())
    assert torch.equal(scheduler.init_noise_sigma.flatten(), scheduler.sigmas[:, 0])
    assert scheduler.theta is None


def test_parameters_give_the_levels_of_their_schedules(spectrum):
    theta = spectrum.features()[:2]
    scheduler = TightScheduler(**TOLD)
    scheduler.set_timesteps(5, theta=theta, size=16, beta=1.0)
    wanted = TightSchedule.from_features(theta, (16, 16), beta=1.0).sigmas(5)
    assert torch.allclose(scheduler.sigmas.double(), wanted, rtol=1e-6)
    assert scheduler.theta is theta


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ["unet", "dit"])
def test_whole_loop_with_a_prior_on_real_models(prior, name, batch, dtype):
    model = {"unet": unet, "dit": dit}[name]().to(dtype)
    condition = {"class_labels": torch.tensor([1, 2][:batch])} if name == "dit" else {}
    scheduler = TightScheduler.with_prior(prior, size=16, batch=batch, config=TOLD)
    scheduler.set_timesteps(4)
    first = walk(scheduler, model, noise(batch).to(dtype), **condition)
    assert first.dtype == dtype
    assert bool(first.isfinite().all())
    scheduler.set_timesteps(7)  # another walk between leaves no trace
    scheduler.set_timesteps(4)
    assert torch.equal(walk(scheduler, model, noise(batch).to(dtype), **condition), first)


def test_rows_of_a_batch_equal_walks_alone(spectrum):
    scheduler, model = TightScheduler(**TOLD), unet()
    scheduler.set_timesteps(4, spectrum=spectrum.select(slice(0, 2)))
    together = walk(scheduler, model, noise(2))
    for row in range(2):
        scheduler.set_timesteps(4, spectrum=spectrum.select(slice(row, row + 1)))
        alone = walk(scheduler, model, noise(2)[row : row + 1])
        assert torch.allclose(alone[0], together[row], rtol=1e-4, atol=1e-4)


def test_prior_draws_by_its_seed(prior):
    grids = []
    for seed in (0, 0, 1):
        scheduler = TightScheduler.with_prior(prior, size=16, batch=3, seed=seed, config=TOLD)
        scheduler.set_timesteps(4)
        grids.append(scheduler.sigmas)
        assert torch.equal(scheduler.theta, prior.sample(3, seed=seed))
    assert torch.equal(grids[0], grids[1])
    assert not torch.equal(grids[0], grids[2])


@torch.no_grad()
def test_a_real_pipeline_walks_the_levels_of_the_prior(prior):
    with isolated(0):
        vae = AutoencoderKL(
            block_out_channels=(4,), latent_channels=4, norm_num_groups=1, sample_size=16
        )
    stock = EulerDiscreteScheduler(**TOLD)
    scheduler = TightScheduler.with_prior(prior, size=16, batch=2, config=stock.config)
    pipeline = DiTPipeline(transformer=dit(channels=4), vae=vae.eval(), scheduler=scheduler)
    pipeline.set_progress_bar_config(disable=True)

    def draw():
        generator = torch.Generator().manual_seed(0)
        return pipeline(
            [1, 2],
            guidance_scale=1.0,
            num_inference_steps=3,
            generator=generator,
            output_type="pt",
        ).images

    images = draw()
    assert images.shape == (2, 3, 16, 16)
    assert pipeline.scheduler.sigmas.shape == (2, 4)
    assert torch.equal(draw(), images)


@pytest.mark.parametrize("kind", [EulerDiscreteScheduler, FlowMatchEulerDiscreteScheduler])
def test_shared_levels_go_on_stock_schedulers(spectrum, kind):
    levels = shared_levels(spectrum, 6, beta=0.5)
    assert levels.shape == (7,)
    each = TightSchedule(spectrum, beta=0.5).sigmas(6)[:, :-1]
    assert torch.allclose(levels[:-1], each.log().mean(0).exp())
    scheduler = kind(**TOLD) if kind is EulerDiscreteScheduler else kind()
    found = set_levels(scheduler, levels).double()
    ratio = found if kind is EulerDiscreteScheduler else found / (1 - found)
    assert torch.allclose(ratio, levels, rtol=1e-4)


def test_discrete_models_are_kept_inside_their_table(spectrum):
    scheduler = TightScheduler()
    quiet = spectrum.select(slice(0, 2))
    faint = type(quiet)(
        quiet.power / 100,
        quiet.count,
        quiet.corner_power / 100,
        quiet.freq,
        quiet.corner_count,
        quiet.size,
    )
    with pytest.warns(UserWarning, match=r"outside the range .* \(0\.01 to 157"):
        scheduler.set_timesteps(5, spectrum=faint)
    assert float(scheduler.sigmas[:, -2].min()) >= 0.00999
    assert bool((scheduler.timesteps.diff(dim=0) < 0).all())


def test_prior_of_another_size_is_rescaled_with_a_warning(prior):
    scheduler = TightScheduler.with_prior(prior, size=32, config=TOLD)
    with pytest.warns(UserWarning, match="16 x 16 pixels and are rescaled to 32 x 32"):
        scheduler.set_timesteps(4)
    theta = prior.sample(1)
    with pytest.warns(UserWarning, match="rescaled"):
        wanted = TightSchedule.from_features(theta, (32, 32), trained_size=(16, 16)).sigmas(4)
    assert torch.allclose(scheduler.sigmas.double(), wanted, rtol=1e-6)
    assert float(scheduler.sigmas[0, 0]) > 1.5 * float(
        TightSchedule.from_features(theta, (16, 16)).sigmas(4)[0, 0]
    )


def test_config_survives_and_the_prior_does_not(prior, tmp_path):
    scheduler = TightScheduler.with_prior(prior, size=16, config={**TOLD, "beta_end": 0.03})
    assert scheduler.config.beta_end == 0.03
    scheduler.save_config(tmp_path)
    back = TightScheduler.from_pretrained(tmp_path)
    assert back.config.prediction_type == "v_prediction"
    with pytest.raises(InputError, match="with_prior"):
        back.set_timesteps(4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"num_inference_steps": 4}, "no spectrum"),
        ({"num_inference_steps": 4, "theta": torch.zeros(1, 8)}, "size="),
        ({"spectrum": "here"}, "num_inference_steps is missing"),
        ({"num_inference_steps": 0, "spectrum": "here"}, "n_steps=0"),
        ({"num_inference_steps": 4, "spectrum": "here", "sigmas": [1.0, 0.0]}, "not several"),
        ({"num_inference_steps": 4, "spectrum": "here", "beta": 2.0}, "beta=2"),
    ],
)
def test_calls_that_cannot_work_are_refused(spectrum, call, words):
    if "spectrum" in call:
        call = call | {"spectrum": spectrum}
    with pytest.raises(InputError, match=words):
        TightScheduler(**TOLD).set_timesteps(**call)


def test_unknown_labels_are_refused_when_the_prior_is_attached(prior):
    with pytest.raises(InputError, match="label 3 was not seen"):
        TightScheduler.with_prior(prior, size=16, label=3)


def test_explicit_levels_still_work(prior):
    scheduler = TightScheduler.with_prior(prior, size=16, config=TOLD)
    scheduler.set_timesteps(sigmas=[2.0, 1.0, 0.0])
    assert scheduler.sigmas.tolist() == [2.0, 1.0, 0.0]
    assert scheduler.theta is None


def test_importing_the_room_loads_nothing_heavy():
    code = "import sys, noisewright.methods.spectral_schedule as r; assert 'TightScheduler' in "
    code += "r.__all__; print([m for m in ('torch', 'numpy', 'diffusers') if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
