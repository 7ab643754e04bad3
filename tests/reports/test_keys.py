from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from noisewright.reports.keys import content_key, source_fingerprint
from noisewright.types import InputError


@dataclass(frozen=True)
class Settings:
    size: int = 3
    rates: tuple[float, ...] = (0.1, 0.2)


def _different(*values):
    keys = [content_key(x=value) for value in values]
    assert len(set(keys)) == len(keys)


def test_values_that_look_alike_have_keys_of_their_own():
    _different(1, 1.0, True, "1", None, [1], {"1": 1}, b"1", Path("1"), [[1]], [1, 1])
    _different({"a": 1, "b": 2}, {"a": 2, "b": 1}, {"ab": 12})
    _different(["ab", "c"], ["a", "bc"], ["abc"])


def test_arrays_count_by_kind_shape_and_bytes():
    x = np.arange(6.0)
    _different(x, x.reshape(2, 3), x.astype(np.float32), x + 1, x.tolist(), torch.from_numpy(x))
    half = torch.ones(3, dtype=torch.bfloat16)
    _different(half, half.float(), half * 2, half.reshape(3, 1), torch.zeros(0), torch.zeros(0, 1))


def test_equal_content_has_one_key_whatever_its_layout_or_order():
    x = np.arange(6.0).reshape(2, 3)
    assert content_key(x=x) == content_key(x=np.asfortranarray(x))
    assert content_key(x={"a": 1, "b": 2}) == content_key(x={"b": 2, "a": 1})
    assert content_key(x=(1, 2)) == content_key(x=[1, 2])
    assert content_key(x={1, 2, 3}) == content_key(x={3, 2, 1})
    assert content_key(x=Settings()) == content_key(x=Settings())
    sparse = scipy.sparse.csr_array(x)
    assert content_key(x=sparse) == content_key(x=sparse.tocoo())


def test_a_module_counts_by_structure_and_weights():
    def net(width, bias=True):
        layer = torch.nn.Linear(2, width, bias=bias)
        for p in layer.parameters():
            torch.nn.init.constant_(p, 0.5)
        return layer

    from noisewright.random import isolated

    with isolated(0):
        assert content_key(x=net(3)) == content_key(x=net(3))
        moved = net(3)
        moved.weight.data[0, 0] = 0.25
        _different(net(3), net(4), net(3, bias=False), moved)


def test_a_key_does_not_change_with_the_process():
    code = (
        "from noisewright.reports.keys import content_key, source_fingerprint\n"
        "print(content_key('n', a=[1.5, 'é'], b={'x', 'y'}), source_fingerprint())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert seen == {f"{content_key('n', a=[1.5, 'é'], b={'x', 'y'})} {source_fingerprint()}\n"}


def test_an_input_without_content_is_refused_by_name():
    with pytest.raises(InputError, match=r"stage input net\['f'\] is a function"):
        content_key(net={"f": lambda: 0})
    with pytest.raises(InputError, match="stage input it is a generator"):
        content_key(it=(i for i in range(2)))


def test_the_source_of_the_room_counts_and_that_of_other_rooms_does_not(tmp_path, monkeypatch):
    for name in ("mine", "other"):
        (tmp_path / f"{name}_room").mkdir()
        (tmp_path / f"{name}_room" / "__init__.py").write_text("A = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = source_fingerprint("mine_room")
    source_fingerprint.cache_clear()
    (tmp_path / "other_room" / "__init__.py").write_text("A = 2\n")
    assert source_fingerprint("mine_room") == before
    source_fingerprint.cache_clear()
    (tmp_path / "mine_room" / "__init__.py").write_text("A = 2\n")
    assert source_fingerprint("mine_room") != before
