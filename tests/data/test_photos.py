from __future__ import annotations

import pytest
import torch

from noisewright.data import PHOTOGRAPHS, open_images, photographs, photos
from noisewright.types import InputError


def test_split_is_by_photograph_and_holds_out_the_three():
    train = {photo.name for photo in photographs("train")}
    test = [photo.name for photo in photographs("test")]
    assert test == ["chelsea", "rocket", "china"]
    assert not train & set(test)
    assert len(train) == 11
    assert len(photographs("all")) == 14


def test_every_photograph_has_author_licence_and_colour_pixels():
    for photo in photographs():
        assert photo.author
        assert photo.licence
        assert photo.image.dtype == torch.uint8
        assert photo.image.shape[0] == 3
        assert min(photo.image.shape[1:]) >= 300


def test_pixels_are_those_of_scikit_image():
    import skimage.data

    (chelsea,) = photographs(names=["chelsea"])
    assert torch.equal(chelsea.image.permute(1, 2, 0), torch.from_numpy(skimage.data.chelsea()))


def test_same_seed_same_crops_and_another_seed_others():
    first, again = photos(per_photo=8, seed=0), photos(per_photo=8, seed=0)
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, photos(per_photo=8, seed=1).images)


def test_crops_of_a_photograph_do_not_depend_on_the_others():
    together = photos(32, "all", per_photo=8)
    alone = photos(32, "all", per_photo=8, names=["coffee"])
    rows = together.groups == together.group_names.index("coffee")
    assert torch.equal(together.images[rows], alone.images)


@pytest.mark.parametrize("size", [8, 32, 64, 100])
def test_each_photograph_gives_its_share_at_any_size(size):
    crops = photos(size, "train", per_photo=9)
    assert crops.images.shape == (99, 3, size, size)
    assert crops.groups.bincount().tolist() == [9] * 11


def test_scale_one_crops_are_windows_of_the_photograph():
    (rocket,) = photographs(names=["rocket"])
    crops = photos(16, "test", per_photo=3, scales=(1,), names=["rocket"])
    windows = rocket.image.unfold(1, 16, 1).unfold(2, 16, 1)
    for crop in crops.images:
        corner = (windows[:, :, :, 0, 0] == crop[:, :1, :1]).all(0).nonzero()
        assert any(torch.equal(windows[:, y, x], crop) for y, x in corner.tolist())


def test_scaled_crops_keep_the_mean_of_the_photograph():
    (grass,) = photographs(names=["grass"])
    crops = photos(32, per_photo=200, scales=(8,), names=["grass"])
    assert abs(crops.images.float().mean() - grass.image.float().mean()) < 3


def test_no_crop_is_flat_and_flat_ones_are_counted():
    crops = photos(8, per_photo=60, scales=(1,))
    spread = crops.images.float().flatten(1).std(1, correction=0)
    assert float(spread.min()) >= 2
    assert crops.provenance.dropped["nearly constant crops (redrawn)"] > 0


def test_provenance_names_each_author_and_licence():
    text = photos(per_photo=1).provenance.describe()
    for photo in PHOTOGRAPHS:
        assert (f"{photo.name}: {photo.author}, {photo.licence}" in text) == (
            photo.split == "train"
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 2}, "size must be at least 4"),
        ({"size": 5000}, "fits none"),
        ({"per_photo": 0}, "per_photo"),
        ({"scales": ()}, "scales"),
        ({"scales": (0,)}, "scales"),
        ({"names": ["chelsae"]}, "did you mean 'chelsea'"),
    ],
)
def test_arguments_that_cannot_work_are_refused(arguments, message, refuses):
    with refuses(message):
        photos(**arguments)


def test_a_package_without_its_pictures_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="reinstall scikit-image"):
        photos()


def test_open_images_offers_the_nearest_name():
    with pytest.raises(InputError, match="did you mean 'photos'"):
        open_images("photo")


def test_open_images_seed_moves_the_crops():
    first, second = (open_images("photos", size=8, seed=seed).images for seed in (0, 1))
    assert first.shape == second.shape
    assert not torch.equal(first, second)
