from __future__ import annotations

import importlib
import io
import tarfile
import zipfile

import pytest
import torch
from PIL import Image

from noisewright.data import cifar10, open_images
from noisewright.data.cifar10 import CLASSES
from noisewright.types import InputError

TRAIN = [f"data_batch_{number}.bin" for number in range(1, 6)]


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    """Files of two images in place of 10,000."""
    monkeypatch.setattr(importlib.import_module("noisewright.data.cifar10"), "ROWS", 2)


def rows(label, value, count=2):
    """Rows of the binary format: a label byte, then red, green and blue planes."""
    planes = bytes([value]) * 1024 + bytes([value + 1]) * 1024 + bytes([value + 2]) * 1024
    return (bytes([label]) + planes) * count


def write_binary(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(TRAIN):
        (folder / name).write_bytes(rows(number, 10 * number))
    (folder / "test_batch.bin").write_bytes(rows(9, 100))


def write_archive(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as tar:
        for number, name in enumerate([*TRAIN, "test_batch.bin"]):
            content = rows(9, 100) if name == "test_batch.bin" else rows(number, 10 * number)
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def jpeg(value, size=(32, 32)):
    out = io.BytesIO()
    Image.new("RGB", size, (value, value, value)).save(out, "JPEG", quality=95)
    return out.getvalue()


def write_zips(folder, extra=None):
    folder.mkdir(parents=True, exist_ok=True)
    for label, kind in enumerate(CLASSES):
        with zipfile.ZipFile(folder / f"train-{kind}.zip", "w") as pack:
            for number in range(3):
                pack.writestr(f"{number}.jpg", jpeg(20 * label))
            for name, content in (extra or {}).get(kind, {}).items():
                pack.writestr(name, content)


@pytest.mark.parametrize(
    ("write", "inner", "word"),
    [
        (write_binary, "", "binary files"),
        (write_binary, "cifar-10-batches-bin", "binary files"),
        (write_archive, "", "official archive"),
    ],
)
def test_official_files_are_read_wherever_they_lie(tmp_path, write, inner, word):
    write(tmp_path / inner)
    train, test = cifar10(folder=tmp_path), cifar10("test", folder=tmp_path)
    assert train.images.shape == (10, 3, 32, 32)
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert train.images[2, :, 5, 7].tolist() == [10, 11, 12]
    assert test.labels.tolist() == [9, 9]
    assert len(cifar10("all", folder=tmp_path)) == 12
    assert word in train.provenance.describe()


def test_zips_of_jpeg_copies_are_read_and_named(tmp_path):
    write_zips(tmp_path)
    train = cifar10(folder=tmp_path)
    assert train.labels.tolist() == [label for label in range(10) for _ in range(3)]
    assert torch.equal(train.images[:, 0, 0, 0].long() // 20, train.labels)
    assert "JPEG copies" in train.provenance.describe()


def test_one_damaged_member_is_counted(tmp_path):
    write_zips(tmp_path, {"cat": {"9.jpg": b"rubbish"}, "dog": {"9.jpg": jpeg(0, (16, 16))}})
    train = cifar10(folder=tmp_path)
    assert len(train) == 30
    assert train.provenance.dropped == {"unreadable pictures": 2}


@pytest.mark.parametrize("name", ["train-cat.zip", "data_batch_2.bin", "cifar-10-binary.tar.gz"])
def test_a_file_cut_short_is_an_input_error(tmp_path, name):
    (write_zips if "zip" in name else write_archive if "tar" in name else write_binary)(tmp_path)
    content = (tmp_path / name).read_bytes()
    for keep in (0, 1, len(content) // 2, len(content) - 1):
        (tmp_path / name).write_bytes(content[:keep])
        with pytest.raises(InputError, match=name.split(".")[0]):
            cifar10(folder=tmp_path)


@pytest.mark.parametrize("name", ["train-cat.zip", "data_batch_2.bin"])
def test_a_missing_file_is_named(tmp_path, name):
    (write_zips if "zip" in name else write_binary)(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match=f"lacks {name}"):
        cifar10(folder=tmp_path)


def test_an_impossible_label_and_an_empty_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match="holds neither"):
        cifar10(folder=tmp_path)
    write_binary(tmp_path)
    (tmp_path / "test_batch.bin").write_bytes(rows(10, 0))
    with pytest.raises(InputError, match="label 10"):
        cifar10("test", folder=tmp_path)


def test_smaller_images_are_area_means(tmp_path):
    write_binary(tmp_path)
    small = cifar10(folder=tmp_path, size=16)
    assert small.images.shape == (10, 3, 16, 16)
    assert small.images[4, :, 3, 3].tolist() == [20, 21, 22]
    with pytest.raises(InputError, match="from 4 to 32"):
        cifar10(folder=tmp_path, size=64)


def test_the_mirror_holds_real_pictures(mirror):
    folder = mirror("cifar10_subset")
    test = open_images("cifar10", split="test")
    assert test.images.shape == (2000, 3, 32, 32)
    assert test.labels.bincount().tolist() == [200] * 10
    assert str(folder) in test.provenance.describe()
    spread = test.floats().std()
    assert 0.4 < float(spread) < 0.6  # CIFAR-10's is about 0.5 in [-1, 1]
