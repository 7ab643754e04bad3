from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from noisewright.data import photographs
from noisewright.metrics import radial_power
from noisewright.types import InputError


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 4), st.booleans(), st.integers(0, 99))
def test_parseval_at_any_size(height, width, channels, single, seed):
    images = normal(2, channels, height, width, seed=seed)
    images = images.float() if single else images
    spectrum = radial_power(images)
    energy = images.double().square().sum((1, 2, 3)) / channels
    assert torch.allclose(spectrum.total(), energy, rtol=1e-5)
    assert int(spectrum.count.sum()) + spectrum.corner_count == height * width


def test_parseval_in_single_precision():
    images = normal(3, 3, 64, 48, dtype=torch.float32)
    spectrum = radial_power(images, dtype=torch.float32)
    assert spectrum.power.dtype == torch.float32
    assert torch.allclose(spectrum.total(), images.square().sum((1, 2, 3)) / 3, rtol=1e-5)


def slow_rings(image):
    """Ring averages by the definition, one frequency at a time."""
    height, width = image.shape[1:]
    power = torch.fft.fft2(image, norm="ortho").abs().square().mean(0)
    short = min(height, width)
    edge = short // 2
    rings = [[] for _ in range(edge + 2)]
    for y in range(height):
        for x in range(width):
            fy, fx = (y if y <= height // 2 else y - height), (x if x <= width // 2 else x - width)
            ring = math.floor(math.hypot(fy / height, fx / width) * short + 0.5)
            rings[min(ring, edge + 1)].append(float(power[y, x]))
    return rings


@pytest.mark.parametrize(("height", "width"), [(8, 8), (9, 9), (16, 10), (7, 12), (11, 8)])
def test_rings_follow_the_definition(height, width):
    image = normal(2, height, width, seed=height * width)
    rings = slow_rings(image)
    spectrum = radial_power(image[None])
    assert spectrum.count.tolist() == [len(ring) for ring in rings[:-1]]
    assert spectrum.corner_count == len(rings[-1])
    expected = torch.tensor([sum(ring) / len(ring) for ring in rings[:-1]], dtype=torch.float64)
    assert torch.allclose(spectrum.power[0], expected)
    assert math.isclose(float(spectrum.corner_power[0]), sum(rings[-1]) / len(rings[-1]))


@pytest.mark.parametrize("window", [False, True])
@pytest.mark.parametrize("shape", [(32, 32), (24, 41)])
def test_white_noise_is_flat_at_its_variance(window, shape):
    spectrum = radial_power(0.3 * normal(400, 1, *shape), window=window)
    rings = slice(3, None) if window else slice(None)  # the window blurs the removed mean
    error = (spectrum.power.mean(0) / 0.09 - 1)[rings].abs() * spectrum.count[rings].sqrt()
    # A frequency and its mirror are one number, and a window ties neighbours together.
    assert float(error.max()) < 4 * math.sqrt((8 if window else 2) / 400)


def test_a_wave_fills_its_own_ring_whatever_the_shape():
    # 5 cycles along the width of 40, with a height of 20: 2.5 per shorter side, which rounds to 3.
    wave = torch.cos(2 * torch.pi * 5 * torch.arange(40) / 40).expand(1, 1, 20, 40)
    power = radial_power(wave).power[0]
    assert float(power[3] / power.sum()) == pytest.approx(1)


@given(st.floats(0.1, 10), st.integers(0, 15), st.integers(0, 15))
def test_scaling_shifts_and_transposition(scale, down, across):
    images = normal(2, 3, 16, 16)
    power = radial_power(images).power
    assert torch.allclose(radial_power(scale * images).power, scale**2 * power)
    assert torch.allclose(radial_power(images.roll((down, across), (2, 3))).power, power)
    assert torch.allclose(radial_power(images.transpose(2, 3)).power, power)


def test_a_batch_is_its_images_one_by_one_beyond_one_part():
    images = normal(70, 3, 16, 20)
    together = radial_power(images)
    for row in (0, 31, 32, 69):
        alone = radial_power(images[row : row + 1])
        assert torch.allclose(alone.power[0], together.power[row], rtol=1e-12)
        assert torch.allclose(alone.corner_power[0], together.corner_power[row], rtol=1e-12)


def test_bytes_are_mapped_to_minus_one_and_one():
    images = torch.full((1, 1, 8, 8), 255, dtype=torch.uint8)
    assert float(radial_power(images).power[0, 0]) == pytest.approx(64)


def test_empty_batch_and_smallest_image():
    assert radial_power(torch.zeros(0, 3, 16, 16)).power.shape == (0, 9)
    one = radial_power(torch.full((2, 1, 1, 1), 3.0))
    assert one.power.tolist() == [[9.0], [9.0]]
    assert one.corner_power.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_pixels_are_refused_with_the_index_of_the_image(bad):
    images = torch.zeros(50, 1, 8, 8)
    images[41, 0, 3, 3] = bad
    with pytest.raises(InputError, match="image 41 holds NaN or infinite"):
        radial_power(images)


def test_finite_pixels_whose_sum_overflows_are_no_error():
    images = torch.full((1, 1, 8, 8), 3e38)
    assert bool(radial_power(images).power.isfinite().all())


def test_natural_photographs_fall_off_between_two_and_three_and_a_half():
    for photo in photographs(names=["astronaut", "coffee", "chelsea", "rocket", "china"]):
        side = min(photo.image.shape[1:]) // 64 * 64
        square = photo.image[None, :, :side, :side].float()
        small = torch.nn.functional.adaptive_avg_pool2d(square, 64) / 127.5 - 1
        spectrum = radial_power(small)
        x, y = spectrum.freq[1:].log(), spectrum.power[0, 1:].log()
        slope = -float(((x - x.mean()) * y).sum() / (x - x.mean()).square().sum())
        assert 2 < slope < 3.5


def test_first_ring_grows_with_the_side():
    (coffee,) = photographs(names=["coffee"])
    square = coffee.image[None, :, :384, :384].float() / 127.5 - 1
    powers = [
        radial_power(torch.nn.functional.adaptive_avg_pool2d(square, side)).power[0, 1].sqrt()
        for side in (24, 48, 96, 192)
    ]
    for small, large in itertools.pairwise(powers):
        assert float(large / small) == pytest.approx(2, rel=0.02)
