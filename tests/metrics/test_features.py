from __future__ import annotations

import pytest
import torch

from noisewright.data import photos
from noisewright.metrics import (
    CallableFeatures,
    PCAFeatures,
    RandomConvFeatures,
    frechet_distance,
)
from noisewright.types import InputError


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_random_features_are_the_same_each_time_and_differ_by_seed():
    images = normal(4, 3, 16, 16).clamp(-1, 1)
    assert torch.equal(RandomConvFeatures(3)(images), RandomConvFeatures(3)(images))
    assert not torch.equal(RandomConvFeatures(3, seed=1)(images), RandomConvFeatures(3)(images))


def test_random_kernels_are_pinned():
    # A change of these numbers changes every distance that was ever reported.
    kernel = RandomConvFeatures(3).get_buffer("kernel0")
    assert kernel.shape == (16, 3, 3, 3)
    expected = torch.randn(16, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(kernel[0], expected[0] * (2 / 27) ** 0.5)
    assert float(kernel[1::2].sum((2, 3)).abs().max()) < 1e-6


def test_rows_do_not_depend_on_their_neighbours_or_the_chunk():
    features, images = RandomConvFeatures(3), normal(10, 3, 16, 16)
    whole = features(images)
    assert torch.allclose(features(images[7:8]), whole[7:8], atol=1e-6)
    assert torch.allclose(features(images, chunk=3), whole, atol=1e-6)


def test_bytes_and_their_floats_have_the_same_features():
    crops = photos(16, per_photo=2)
    features = RandomConvFeatures(3)
    assert torch.allclose(features(crops.images), features(crops.floats()), atol=1e-6)


def test_random_features_tell_sharp_from_blurred_and_more_from_less():
    crops = photos(32, per_photo=30).floats()
    features = RandomConvFeatures(3)
    sharp, other = features(crops[::2]), features(crops[1::2])
    same = frechet_distance(sharp, other)
    blurred = [torch.nn.functional.avg_pool2d(crops[1::2], side, 1, side // 2) for side in (3, 7)]
    a_little, a_lot = (frechet_distance(sharp, features(images)) for images in blurred)
    assert same < a_little < a_lot


@pytest.mark.parametrize("shape", [(2, 1, 16, 16), (2, 3, 4, 16), (2, 3, 16, 4)])
def test_images_that_do_not_fit_the_network_are_refused(shape):
    with pytest.raises(InputError, match="images must have shape"):
        RandomConvFeatures(3)(torch.zeros(shape))


def test_state_dict_carries_the_kernels():
    net = RandomConvFeatures(1)
    net.load_state_dict(RandomConvFeatures(1, seed=5).state_dict())
    assert torch.equal(
        net.get_buffer("kernel3"), RandomConvFeatures(1, seed=5).get_buffer("kernel3")
    )


def test_pca_of_a_plane_reconstructs_it():
    basis = torch.linalg.qr(normal(64, 2)).Q
    images = (normal(30, 2, seed=1) @ basis.T).view(30, 1, 8, 8)
    features = PCAFeatures(2).fit(images)
    rows = features(images)
    again = rows @ features.components + features.mean
    assert torch.allclose(again, images.double().flatten(1), atol=1e-6)
    assert float(rows[:, 0].var() / rows[:, 1].var()) >= 1
    assert abs(float(torch.corrcoef(rows.T)[0, 1])) < 1e-6


def test_iterated_components_span_the_exact_ones(monkeypatch):
    images = photos(16, per_photo=60).images
    exact = PCAFeatures(16).fit(images)
    monkeypatch.setattr(PCAFeatures, "exact_up_to", 0)
    iterated = PCAFeatures(16).fit(images)
    overlap = torch.linalg.svdvals(exact.components @ iterated.components.T)
    assert float(overlap.min()) > 1 - 1e-6
    assert torch.equal(iterated.components, PCAFeatures(16).fit(images).components)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: PCAFeatures(0), "at least 1"),
        (lambda: PCAFeatures(8).fit(torch.zeros(8, 1, 8, 8)), "lower n"),
        (lambda: PCAFeatures(8).fit(torch.zeros(20, 1, 2, 2)), "lower n"),
        (lambda: PCAFeatures(2)(torch.zeros(8, 1, 8, 8)), "not fitted"),
        (lambda: PCAFeatures(2).fit(normal(9, 1, 8, 8))(torch.zeros(1, 1, 4, 4)), "fitted on 64"),
    ],
)
def test_pca_that_cannot_work_is_refused(use, message):
    with pytest.raises(InputError, match=message):
        use()


def test_own_features_get_floats_in_chunks_and_are_checked():
    seen = []

    def extract(images):
        seen.append((len(images), images.dtype))
        return images.mean((2, 3))

    features = CallableFeatures(extract, name="means", chunk=4)
    rows = features(torch.full((6, 3, 8, 8), 255, dtype=torch.uint8))
    assert rows.tolist() == [[1.0] * 3] * 6
    assert seen == [(4, torch.float32), (2, torch.float32)]
    with pytest.raises(InputError, match="broken: 1 rows for 4 images"):
        CallableFeatures(lambda images: images[:1], name="broken", chunk=4)(torch.zeros(4, 1, 8, 8))
