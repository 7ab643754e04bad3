from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from noisewright.data import photos
from noisewright.metrics import psnr, ssim


def uniform(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def skimage_ssim(image, reference, data_range):
    return structural_similarity(
        image.numpy(),
        reference.numpy(),
        data_range=data_range,
        channel_axis=0,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
    )


@given(st.integers(11, 30), st.integers(11, 30), st.integers(1, 3), st.integers(0, 99))
def test_ssim_is_that_of_scikit_image(height, width, channels, seed):
    image = uniform(2, channels, height, width, seed=seed).double()
    other = (image + 0.3 * uniform(2, channels, height, width, seed=seed + 1)).clamp(-1, 1)
    for row, value in enumerate(ssim(image, other).tolist()):
        assert math.isclose(value, skimage_ssim(image[row], other[row], 2.0), abs_tol=1e-6)


def test_ssim_and_psnr_of_real_crops_as_bytes_and_floats():
    crops = photos(32, "test", per_photo=2)
    noise = (20 * uniform(6, 3, 32, 32)).round().int()
    noisy = (crops.images.int() + noise).clamp(0, 255).to(torch.uint8)
    similarity, decibels = ssim(noisy, crops.images), psnr(noisy, crops.images)
    for row in range(6):
        image, reference = noisy[row].double(), crops.images[row].double()
        assert math.isclose(
            float(similarity[row]), skimage_ssim(image, reference, 255), abs_tol=1e-6
        )
        expected = peak_signal_noise_ratio(reference.numpy(), image.numpy(), data_range=255)
        assert math.isclose(float(decibels[row]), expected, abs_tol=1e-9)
    floats = noisy.double() / 127.5 - 1, crops.images.double() / 127.5 - 1
    assert torch.allclose(psnr(*floats), decibels)


def test_equal_images_reach_the_ends_of_the_scales():
    image = uniform(2, 3, 16, 16)
    assert torch.allclose(ssim(image, image), torch.ones(2, dtype=torch.float64))
    assert psnr(image, image).tolist() == [math.inf, math.inf]
    constant = torch.zeros(1, 1, 16, 16)
    assert ssim(constant, constant).tolist() == [1.0]


def test_a_known_error_gives_known_decibels():
    image = uniform(1, 1, 8, 8) / 2
    assert float(psnr(image, image + 0.02)) == pytest.approx(40, abs=1e-4)
    assert float(psnr(image, image + 0.02, data_range=0.2)) == pytest.approx(20, abs=1e-4)


def test_order_of_the_pair_and_neighbours_in_the_batch_do_not_matter():
    image, other = uniform(3, 1, 12, 14), uniform(3, 1, 12, 14, seed=1)
    assert torch.allclose(ssim(image, other), ssim(other, image))
    assert torch.allclose(ssim(image, other)[1:2], ssim(image[1:2], other[1:2]))


@pytest.mark.parametrize(
    ("image", "reference", "options", "message"),
    [
        (torch.zeros(1, 1, 10, 20), torch.zeros(1, 1, 10, 20), {}, "at least 11 pixels"),
        (torch.zeros(1, 1, 12, 12), torch.zeros(2, 1, 12, 12), {}, "one shape"),
        (torch.zeros(1, 1, 12, 12).byte(), torch.zeros(1, 1, 12, 12), {}, "in one range"),
        (torch.zeros(1, 1, 12, 12), torch.zeros(1, 1, 12, 12), {"data_range": 0}, "positive"),
    ],
)
def test_pairs_that_cannot_be_compared_are_refused(image, reference, options, message, refuses):
    with refuses(message):
        ssim(image, reference, **options)
