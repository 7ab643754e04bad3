"""The idea: spectra, bounds, schedules, the closed form and the loss, against known answers."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from noisewright.methods.spectral_schedule import (
    CosineRegime,
    Spectrum,
    TightRegime,
    TightSchedule,
    invariant_weight,
    rapsd,
    spectrum_of_features,
    transfer_error,
    transferred_power,
)
from noisewright.methods.spectral_schedule.spectrum import QUANTUM
from noisewright.metrics.spectra import radial_power
from noisewright.paths import Denoiser, GaussianPath, VariancePreserving, schedule_from_dict
from noisewright.solvers import DDIM, uniform_times
from noisewright.testing import GaussianOracle, path_checks
from noisewright.types import InputError


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def clouds(count, height=16, width=16, *, seed=0, slope=2.6, channels=3):
    """Pictures whose power falls like k^-slope, in [-1, 1]."""
    white = torch.randn(count, channels, height, width, generator=stream(seed), dtype=torch.float64)
    short = min(height, width)
    down, across = torch.fft.fftfreq(height) * short, torch.fft.fftfreq(width) * short
    away = torch.hypot(down[:, None], across[None]).clamp(min=1)
    shaped = torch.fft.ifft2(torch.fft.fft2(white) * away ** (-slope / 2)).real
    return shaped / shaped.abs().amax(dim=(1, 2, 3), keepdim=True)


def made(power, side=32):
    """A spectrum with given powers on the rings of a square picture; corners as the last ring."""
    layout = radial_power(torch.zeros(1, 1, side, side))
    power = torch.as_tensor(power, dtype=torch.float64).expand(-1, side // 2 + 1)
    return Spectrum(
        power, layout.count, power[:, -1], layout.freq, layout.corner_count, (side, side)
    )


def flat(level, side=32):
    return made(torch.full((1, side // 2 + 1), level**2), side)


def power_law(slope, intercept, side=32):
    k = torch.arange(side // 2 + 1, dtype=torch.float64).clamp(min=1)
    return made(torch.exp(intercept - slope * k.log())[None], side)


# ---------------------------------------------------------------------------- spectra


@pytest.mark.parametrize("shape", [(3, 16, 16), (1, 17, 23), (4, 40, 9)])
def test_power_of_all_rings_is_the_power_of_the_picture(shape):
    images = torch.rand(2, *shape, generator=stream(), dtype=torch.float64) * 2 - 1
    spectrum = rapsd(images)
    total = spectrum.power @ spectrum.count + spectrum.corner_count * spectrum.corner_power
    assert torch.allclose(total, images.square().mean(1).sum((1, 2)), rtol=1e-5)


def test_white_noise_has_a_flat_spectrum():
    images = 0.1 * torch.randn(64, 3, 32, 32, generator=stream(), dtype=torch.float64)
    spectrum = rapsd(images)
    assert bool(((spectrum.power / 0.01 - 1).abs() < 4 / spectrum.count.sqrt()).all())
    mean = spectrum.power.mean(0) / 0.01 - 1  # 64 pictures: an eighth of the spread
    assert bool((mean.abs() < 4 / spectrum.count.sqrt() / 8).all())


def test_scaling_a_picture_scales_power_and_both_bounds():
    images = clouds(3)
    one, half = rapsd(images), rapsd(images / 2)
    assert torch.allclose(half.power, one.power / 4)
    for a, b in zip(one.noise_bounds(), half.noise_bounds(), strict=True):
        assert torch.allclose(b, a / 2, rtol=1e-9)


@pytest.mark.parametrize("change", [lambda x: x.roll((3, 5), (2, 3)), lambda x: x.mT])
def test_shift_and_transposition_change_nothing(change):
    images = clouds(3)
    one, other = rapsd(images), rapsd(change(images))
    assert torch.allclose(one.power, other.power, rtol=1e-9)
    assert torch.allclose(TightSchedule(one).knots, TightSchedule(other).knots, rtol=1e-9)


def test_bytes_and_floats_of_one_picture_agree():
    pixels = torch.randint(0, 256, (2, 3, 16, 16), generator=stream(), dtype=torch.uint8)
    assert torch.allclose(rapsd(pixels).power, rapsd(pixels.double() / 127.5 - 1).power)


def test_power_law_is_read_back_through_its_parameters():
    spectrum = power_law(2.7, 1.3)
    assert float(spectrum.slope) == pytest.approx(2.7, abs=1e-6)
    assert float(spectrum.intercept) == pytest.approx(1.3, abs=1e-6)
    back = spectrum_of_features(spectrum.features(), (32, 32))
    assert torch.allclose(back.power[:, 1:], spectrum.power[:, 1:], rtol=1e-6)
    assert float(back.slope) == pytest.approx(2.7, abs=1e-6)
    assert float(back.intercept) == pytest.approx(1.3, abs=1e-6)


@pytest.mark.parametrize("side", [16, 64])
def test_power_law_of_another_size_keeps_its_slope_and_grows_with_the_pixels(side):
    theta = power_law(2.7, 1.3).features()
    with pytest.warns(UserWarning, match=f"32 x 32 pixels and are rescaled to {side} x {side}"):
        other = spectrum_of_features(theta, (side, side), trained_size=(32, 32))
    assert float(other.slope) == pytest.approx(2.7, abs=1e-6)
    assert float(other.intercept) == pytest.approx(1.3 + 2 * math.log(side / 32), abs=1e-6)
    assert other.size == (side, side)


def test_rescaled_parameters_match_the_picture_at_the_other_size():
    small = clouds(1, 32, 32, slope=3.0)
    zoomed = torch.nn.functional.interpolate(small, scale_factor=2, mode="bicubic")
    with pytest.warns(UserWarning, match="rescaled"):
        guess = spectrum_of_features(rapsd(small).features(), (64, 64), trained_size=(32, 32))
    found = rapsd(zoomed.clamp(-1, 1))
    assert torch.allclose(guess.power[0, 1:5].log(), found.power[0, 1:5].log(), atol=0.3)


# ---------------------------------------------------------------------------- bounds


@pytest.mark.parametrize("level", [0.1, 1.0, 5.0])
def test_flat_spectrum_has_bounds_in_closed_form(level):
    low, high = flat(level).noise_bounds(0.01, 0.001)
    assert float(high) == pytest.approx(level * math.sqrt(1 / 0.01 - 1), rel=1e-3)
    assert float(low) == pytest.approx(level * math.sqrt(0.001 / 0.999), rel=1e-3)


def test_bounds_recover_and_leave_the_shares_they_name():
    spectrum = rapsd(clouds(4))
    low, high = spectrum.noise_bounds(0.02, 0.004)
    power = torch.cat([spectrum.power[:, 1:], spectrum.corner_power[:, None]], 1)
    count = torch.cat([spectrum.count[1:], torch.tensor([float(spectrum.corner_count)])])
    for sigma, share in ((high, 0.02), (low, 0.996)):
        gain = power / (power + sigma[:, None] ** 2)
        assert torch.allclose(
            (power * gain) @ count / (power @ count), torch.full((4,), share).double(), rtol=1e-6
        )


def test_cleanest_level_is_never_below_the_rounding_of_eight_bits():
    low, _ = flat(0.01).noise_bounds()
    assert float(low) == pytest.approx(QUANTUM)


def test_mean_brightness_counts_only_when_asked_for():
    images = (clouds(1) * 0.3 + 0.6).clamp(-1, 1)
    spectrum = rapsd(images)
    assert float(spectrum.noise_bounds(include_dc=True)[1]) > 2 * float(spectrum.noise_bounds()[1])


# ---------------------------------------------------------------------------- schedules

SETTINGS = [{"beta": b} for b in (0.0, 0.25, 0.75, 1.0)] + [{"spacing": "edm"}]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_sigma_rises_with_noise_time_between_exact_ends(settings):
    spectrum = rapsd(clouds(3))
    schedule = TightSchedule(spectrum, **settings)
    sigma = torch.stack([schedule.sigma(t) for t in torch.linspace(0, 1, 301)])
    assert bool((sigma.diff(dim=0) > 0).all())
    low, high = spectrum.noise_bounds()
    assert torch.allclose(schedule.sigma(0.0), low, rtol=1e-12)
    assert torch.allclose(schedule.sigma(1.0), high, rtol=1e-12)
    grid = schedule.sigmas(7)
    assert torch.allclose(grid[:, 0], high, rtol=1e-12)
    assert torch.allclose(grid[:, -2], low, rtol=1e-12)
    assert bool((grid[:, -1] == 0).all())


@pytest.mark.parametrize("settings", SETTINGS[1:], ids=str)
def test_time_of_a_level_inverts_the_level(settings):
    schedule = TightSchedule(rapsd(clouds(3)), **settings)
    for t in (0.0, 0.013, 0.31, 0.5, 0.87, 1.0):
        back = schedule.t_of_sigma(schedule.sigma(t))
        assert torch.allclose(back, torch.tensor(t, dtype=torch.float64), atol=1e-5)
    assert schedule.t_of_sigma(torch.full((3,), 1e6)).tolist() == [1.0] * 3
    assert schedule.t_of_sigma(torch.full((3,), 1e-6)).tolist() == [0.0] * 3


@pytest.mark.parametrize("settings", SETTINGS[1:], ids=str)
def test_density_of_log_snr_integrates_to_one(settings):
    schedule = TightSchedule(rapsd(clouds(3)), **settings)
    count = 8000
    place = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    for row in range(3):
        copies = schedule.select(torch.full((count,), row))
        low, high = schedule.logsnr(1.0)[row], schedule.logsnr(0.0)[row]
        density = copies.density(low + place * (high - low))
        assert float(density.mean() * (high - low)) == pytest.approx(1, abs=1e-3)
    assert schedule.density(schedule.logsnr(1.0) - 1).tolist() == [0.0] * 3


def test_beta_one_is_linear_in_log_sigma():
    spectrum = rapsd(clouds(2))
    low, high = (bound.log() for bound in spectrum.noise_bounds())
    schedule = TightSchedule(spectrum, beta=1.0)
    for t in (0.2, 0.5, 0.9):
        assert torch.allclose(schedule.sigma(t).log(), low + t * (high - low), atol=1e-5)


def test_beta_zero_meets_each_ring_at_its_own_level():
    spectrum = power_law(2.0, 2.0)
    low, high = (float(b) for b in spectrum.noise_bounds())
    schedule = TightSchedule(spectrum, beta=0.0)
    for k in (3, 8, 13):
        wanted = min(max(float(spectrum.power[0, k].sqrt()), low), high)
        assert float(schedule.sigma(1 - k / 16)[0]) == pytest.approx(wanted, rel=1e-4)


def test_edm_spacing_is_edms_on_the_images_own_range():
    spectrum = rapsd(clouds(2))
    low, high = (b[:, None] ** (1 / 7) for b in spectrum.noise_bounds())
    place = torch.linspace(0, 1, 9, dtype=torch.float64)
    wanted = (high + place * (low - high)) ** 7
    found = TightSchedule(spectrum, spacing="edm").sigmas(9)[:, :-1]
    assert torch.allclose(found, wanted, rtol=1e-4)


def test_a_batch_is_a_loop_over_its_images():
    images, t = clouds(3), torch.tensor([0.2, 0.5, 0.9])
    together = TightSchedule(rapsd(images))
    for i in range(3):
        alone = TightSchedule(rapsd(images[i : i + 1]))
        assert torch.allclose(alone.knots[0], together.knots[i], rtol=1e-12)
        assert torch.allclose(alone.sigma(t[i]), together.sigma(t)[i], rtol=1e-12)
        assert torch.allclose(alone.sigmas(5)[0], together.sigmas(5)[i], rtol=1e-12)
        picked = together.select(slice(i, i + 1))
        assert torch.equal(picked.sigmas(5)[0], together.sigmas(5)[i])


def test_mean_schedule_is_the_geometric_mean():
    schedule = TightSchedule(rapsd(clouds(4)))
    shared = schedule.mean()
    assert shared.batch is None
    assert float(shared.sigma(0.4)) == pytest.approx(float(schedule.sigma(0.4).log().mean().exp()))
    assert shared.mean() is shared


def test_one_step_goes_from_the_noisiest_level_to_zero():
    spectrum = rapsd(clouds(2))
    grid = TightSchedule(spectrum).sigmas(1)
    assert torch.allclose(grid[:, 0], spectrum.noise_bounds()[1])
    assert grid[:, 1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("check", path_checks(), ids=lambda c: c.__name__)
@pytest.mark.parametrize("settings", [{}, {"spacing": "edm"}], ids=str)
@pytest.mark.parametrize("preserving", [False, True])
def test_path_contract(check, settings, preserving):
    schedule = TightSchedule(rapsd(clouds(3)), **settings)
    assert float(schedule.sigma(1.0).min()) > 1
    check(GaussianPath(VariancePreserving(schedule) if preserving else schedule))


def test_path_contract_holds_for_the_shared_schedule():
    for check in path_checks():
        check(GaussianPath(VariancePreserving(TightSchedule(rapsd(clouds(3))).mean())))


@pytest.mark.parametrize("shared", [False, True])
def test_schedule_survives_being_written_down(shared):
    schedule = TightSchedule(rapsd(clouds(2)))
    schedule = VariancePreserving(schedule.mean() if shared else schedule)
    back = schedule_from_dict(schedule.to_dict())
    for t in (0.0, 0.37, 1.0):
        assert torch.equal(back.sigma(t), schedule.sigma(t))
    assert back.batch == schedule.batch


# ---------------------------------------------------------------------------- closed form


def gaussian_ring_walk(spectrum, schedule, steps):
    """Spread per ring after the real DDIM with the exact denoiser, one axis a ring."""
    path = GaussianPath(schedule)
    variance = spectrum.power[0]
    oracle = GaussianOracle(path, torch.zeros_like(variance), variance)
    denoiser = Denoiser(oracle, path, kind="data")
    times = uniform_times(path, steps)
    unit = torch.ones(1, len(variance), dtype=torch.float64)
    start = unit * path.sigma(times[0]).reshape(-1, 1)
    return DDIM()(denoiser, start, times=times).state[0]


@pytest.mark.parametrize("preserving", [False, True])
def test_closed_form_is_what_the_solver_does(preserving):
    spectrum = rapsd(clouds(1))
    tight = TightSchedule(spectrum)
    schedule = VariancePreserving(tight) if preserving else tight
    steps = 9  # times are eighths: the clock in float32, which networks are told, is exact
    wanted = transferred_power(tight.sigmas(steps), spectrum)[0].sqrt()
    assert torch.allclose(gaussian_ring_walk(spectrum, schedule, steps), wanted, rtol=1e-12)


def test_ddim_converges_to_the_spectrum_at_first_order():
    spectrum = power_law(2.6, 3.0)
    tight = TightSchedule(spectrum, eps_max=1e-6, eps_min=1e-6, beta=1.0)
    errors = []
    for steps in (100, 200, 400):
        reached = transferred_power(tight.sigmas(steps), spectrum)[0, 1:]
        errors.append(float((reached.log() - spectrum.power[0, 1:].log()).square().mean().sqrt()))
    for coarse, fine in pairwise(errors):
        assert fine / coarse == pytest.approx(0.5, rel=0.2)


def test_transfer_error_is_zero_only_for_the_spectrum_itself():
    spectrum = rapsd(clouds(2))
    tight = TightSchedule(spectrum)
    few, many = (transfer_error(tight.sigmas(n), spectrum) for n in (5, 200))
    assert bool((many["log_spectrum"] < few["log_spectrum"]).all())
    assert bool((many["power"] < few["power"]).all())
    assert bool((few["power"] > 0).all())


def test_one_grid_for_all_equals_that_grid_in_each_row():
    spectrum = rapsd(clouds(3))
    grid = torch.tensor([20.0, 3.0, 0.1, 0.0])
    shared = transfer_error(grid, spectrum)["power"]
    assert torch.equal(shared, transfer_error(grid.expand(3, -1), spectrum)["power"])


@pytest.mark.parametrize("grid", [[1.0, 0.5], [0.5, 1.0, 0.0], [1.0, 1.0, 0.0]])
def test_transfer_refuses_grids_that_do_not_fall_to_zero(grid):
    with pytest.raises(InputError, match="fall strictly and end with 0"):
        transferred_power(torch.tensor(grid), rapsd(clouds(1)))


# ---------------------------------------------------------------------------- weight


def test_invariant_weight_makes_the_loss_independent_of_the_schedule():
    """A fixed error curve in log-SNR, integrated along schedules that share one range."""
    spectrum = rapsd(clouds(1))
    draws, means, errors = 100_000, [], []
    for number, settings in enumerate([{"beta": 1.0}, {"beta": 0.6}, {"spacing": "edm"}]):
        schedule = VariancePreserving(TightSchedule(spectrum, **settings).mean())
        t = torch.rand(draws, generator=stream(number), dtype=torch.float64)
        loss = invariant_weight(schedule, t, 0.0) * (1 + torch.cos(schedule.logsnr(t)))
        means.append(float(loss.mean()))
        errors.append(float(loss.std()) / draws**0.5)
    for i in (1, 2):
        assert abs(means[i] - means[0]) < 3 * math.hypot(errors[i], errors[0])


def test_invariant_weight_is_the_sigmoid_weight_over_the_density():
    spectrum = rapsd(clouds(3))
    regime = TightRegime(bias=-1.0)
    path = regime.path(spectrum)
    t = torch.tensor([0.21, 0.52, 0.77], dtype=torch.float64)
    logsnr, tight = path.logsnr(t), TightSchedule(spectrum)
    wanted = torch.sigmoid(-1.0 - logsnr) * torch.sigmoid(logsnr) / tight.density(logsnr)
    assert torch.allclose(regime.weight(path, t), wanted, rtol=1e-9)


def test_weight_stays_finite_where_the_cosine_is_infinitely_fast():
    regime = CosineRegime()
    path = regime.path(rapsd(clouds(1)))
    t = torch.tensor([0.0, 1e-9, 0.5, 1 - 1e-9, 1.0], dtype=torch.float64)
    assert bool(regime.weight(path, t).isfinite().all())


# ---------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (torch.zeros(1, 3, 7, 16), "at least 8"),
        (torch.zeros(3, 16, 16), r"\(3, 16, 16\)"),
        (torch.full((1, 1, 8, 8), 1.5), r"got 1\.5 to 1\.5.*x / 127\.5"),
        (torch.zeros(1, 1, 8, 8, dtype=torch.int64), "int64"),
        (torch.zeros(2, 1, 8, 8), "all images are constant"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*constant rows")
def test_images_that_cannot_be_read_are_refused(refuses, images, words):
    with refuses(words):
        rapsd(images)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_image_that_is_not_finite_is_named(bad):
    images = clouds(4)
    images[2, 0, 3, 3] = bad
    with pytest.raises(InputError, match="image 2"):
        rapsd(images)


def test_a_constant_image_gets_the_median_spectrum_with_a_warning():
    images = clouds(3)
    images[1] = 0.25
    with pytest.warns(UserWarning, match="1 of 3 images are constant"):
        spectrum = rapsd(images)
    others = rapsd(images[[0, 2]])
    assert torch.equal(spectrum.power[1], others.power.median(0).values)
    assert torch.equal(spectrum.power[[0, 2]], others.power)


def test_black_padding_is_warned_about():
    images = clouds(2)
    images[0, :, :6] = -1
    with pytest.warns(UserWarning, match="1 of 2 images have more than 30 % constant rows"):
        rapsd(images)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_an_empty_batch_has_an_empty_spectrum(dtype):
    spectrum = rapsd(torch.zeros(0, 3, 16, 16, dtype=dtype))
    assert len(spectrum) == 0
    assert spectrum.features().shape == (0, 8)
    assert [len(bound) for bound in spectrum.noise_bounds()] == [0, 0]
    schedule = TightSchedule(spectrum)
    assert schedule.sigmas(4).shape == (0, 5)
    assert schedule.select(slice(0, 0)).batch == 0


@pytest.mark.parametrize(("channels", "height", "width"), [(1, 15, 21), (5, 9, 32), (3, 8, 8)])
def test_any_channels_and_odd_or_oblong_sizes_work(channels, height, width):
    spectrum = rapsd(clouds(2, height, width, channels=channels))
    assert spectrum.power.shape == (2, min(height, width) // 2 + 1)
    back = TightSchedule.from_features(spectrum.features(), (height, width))
    assert bool((back.sigmas(4).diff(dim=1) < 0).all())


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 2.0])
@pytest.mark.parametrize("name", ["eps_max", "eps_min"])
def test_shares_outside_the_unit_interval_are_refused(name, share):
    with pytest.raises(InputError, match=f"{name}={share}"):
        TightSchedule(rapsd(clouds(1)), **{name: share})


def test_bounds_that_cross_name_both_numbers():
    with pytest.raises(InputError, match=r"sigma_min=\S+ is not below sigma_max=\S+"):
        TightSchedule(rapsd(clouds(1)), eps_max=0.9, eps_min=0.9)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"beta": -0.1}, r"beta=-0\.1"), ({"beta": 1.5}, "beta"), ({"spacing": "edn"}, "'edm'")],
)
def test_schedule_settings_out_of_range_are_refused(refuses, settings, words):
    with refuses(words):
        TightSchedule(rapsd(clouds(1)), **settings)


def test_schedules_need_steps_and_one_source():
    spectrum = rapsd(clouds(1))
    with pytest.raises(InputError, match="n_steps=0"):
        TightSchedule(spectrum).sigmas(0)
    with pytest.raises(InputError, match="give a spectrum, or the knots"):
        TightSchedule()
    with pytest.raises(InputError, match="j=1"):
        spectrum.features(1)
    with pytest.raises(InputError, match="theta must be finite"):
        spectrum_of_features(torch.full((1, 8), float("nan")), (16, 16))
