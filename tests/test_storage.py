from __future__ import annotations

import errno
import json
import os
import stat

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from noisewright.storage import (
    DamagedRecordError,
    atomic_folder,
    load_record,
    save_record,
    write_atomic,
)

plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.text()
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def _fill_disk(file):
    file.write(b"half")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@given(st.dictionaries(st.text(min_size=1), plain_values, max_size=4))
def test_plain_records_come_back_as_they_were(tmp_path_factory, record):
    folder = tmp_path_factory.mktemp("record") / "one"
    assert load_record(save_record(folder, record)) == record


def test_arrays_of_every_kind_come_back_bit_equal(tmp_path):
    generator = torch.Generator().manual_seed(0)
    record = {
        "half": torch.randn(3, 2, generator=generator).to(torch.bfloat16),
        "mask": torch.tensor([True, False]),
        "empty": torch.zeros(0, 4),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "turned": torch.randn(3, 2, generator=generator).T,
        "nested": [
            {"numbers": np.arange(6, dtype=np.int32).reshape(2, 3)[:, ::2]},
            np.float32(0.1),
        ],
        "strange.name/é": torch.ones(1),
    }
    back = load_record(save_record(tmp_path / "r", record))
    for name in ("half", "mask", "empty", "scalar", "turned", "strange.name/é"):
        assert back[name].dtype == record[name].dtype
        assert torch.equal(back[name], record[name])
    np.testing.assert_array_equal(back["nested"][0]["numbers"], [[0, 2], [3, 5]])
    assert back["nested"][1] == float(np.float32(0.1))


def test_what_is_neither_plain_nor_an_array_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"\.a\.1: cannot store a set"):
        save_record(tmp_path / "r", {"a": [1, {2}]})
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_keeps_the_old_file_and_is_reported_with_the_name(tmp_path):
    path = write_atomic(tmp_path / "metrics.json", "old")
    with pytest.raises(OSError, match=r"metrics\.json") as caught:
        write_atomic(path, _fill_disk)
    assert caught.value.errno == errno.ENOSPC
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_no_half_record(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_record(tmp_path / "r", {"a": torch.ones(2)})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path):
    with atomic_folder(tmp_path / "f") as part:
        (part / "one").write_text("1")

    def fail_half_way():
        with atomic_folder(tmp_path / "f") as part:
            (part / "two").write_text("2")
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        fail_half_way()
    assert [p.name for p in tmp_path.rglob("*")] == ["f", "one"]


@pytest.mark.parametrize("victim", ["arrays.safetensors", "record.json"])
@pytest.mark.parametrize("harm", ["cut", "flip", "remove"])
def test_a_damaged_record_is_told_apart_and_names_the_remedy(tmp_path, victim, harm):
    folder = save_record(tmp_path / "r", {"a": torch.arange(50.0), "b": "text"})
    path = folder / victim
    content = bytearray(path.read_bytes())
    if harm == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif harm == "remove":
        path.unlink()
    else:
        place = content.index(b'"arrays"') + 12 if victim == "record.json" else len(content) - 3
        content[place] ^= 1
        path.write_bytes(content)
    with pytest.raises(DamagedRecordError, match="--fresh"):
        load_record(folder)


def test_a_missing_record_is_not_a_damaged_one(tmp_path):
    with pytest.raises(FileNotFoundError, match="no record"):
        load_record(tmp_path / "absent")


def test_a_later_format_is_refused_with_both_numbers(tmp_path):
    folder = save_record(tmp_path / "r", {})
    head = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps(head | {"format": 7}))
    with pytest.raises(DamagedRecordError, match="format 7, this version reads 1"):
        load_record(folder)


def test_files_are_as_readable_as_the_umask_says(tmp_path):
    mask = os.umask(0o022)
    os.umask(mask)
    path = write_atomic(tmp_path / "report.html", "x")
    folder = save_record(tmp_path / "r", {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777 & ~mask
