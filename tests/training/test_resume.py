from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from noisewright.random import isolated
from noisewright.storage import load_record, save_record
from noisewright.training import Average, fit, latest_checkpoint, read_checkpoint
from noisewright.types import InputError

STEPS, BATCH, SEED = 20, 8, 0


class Flipped(Dataset):
    """Items with a random transform that draws from the global streams."""

    def __len__(self):
        return 30

    def __getitem__(self, row):
        return torch.full((4,), row / 30) * (1 if torch.rand(()) < 0.5 else -1)


def noisy_loss(net, data: Tensor, draws) -> Tensor:
    t = draws.uniform(stratified=True)[:, None]
    noise = draws.normal_like(data)
    return (net((1 - t) * data + t * noise) - noise).square().mean(dim=1)


def network() -> nn.Module:
    with isolated(1):
        return nn.Sequential(
            nn.Linear(4, 16), nn.SiLU(), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 4)
        )


def begin(folder: Path | None, **changes):
    net = network()
    settings = {"steps": STEPS, "batch": BATCH, "seed": SEED, "every": 5} | changes
    average = Average(net, decay=0.9)
    return fit(net, Flipped(), noisy_loss, average=average, checkpoint=folder, **settings)


def run_to(folder: Path, last: int, pause: float = 0.0) -> None:
    for done in begin(folder):
        time.sleep(pause)
        if done.step == last:
            return


def straight(folder: Path) -> dict:
    begin(folder).finish()
    return read_checkpoint(folder / f"step-{STEPS:08d}")


def in_new_process(call: str) -> list[str]:
    here = Path(__file__)
    code = f"import sys; sys.path.insert(0, {str(here.parent)!r}); import {here.stem} as m; {call}"
    return [sys.executable, "-W", "ignore", "-c", code]


def assert_bit_equal(left: object, right: object, place: str = "") -> None:
    if isinstance(left, dict):
        assert left.keys() == right.keys(), place
        for key in left:
            assert_bit_equal(left[key], right[key], f"{place}.{key}")
    elif isinstance(left, list):
        assert len(left) == len(right), place
        for number, pair in enumerate(zip(left, right, strict=True)):
            assert_bit_equal(*pair, f"{place}.{number}")
    elif isinstance(left, Tensor):
        assert torch.equal(left, right), place
    else:
        assert left == right, place


def test_resumed_run_is_the_run_that_would_have_been(tmp_path):
    whole = straight(tmp_path / "straight")
    folder = tmp_path / "resumed"
    subprocess.run(in_new_process(f"m.run_to(m.Path({str(folder)!r}), 10)"), check=True)
    assert latest_checkpoint(folder).name == "step-00000010"
    subprocess.run(in_new_process(f"m.run_to(m.Path({str(folder)!r}), 20)"), check=True)
    assert_bit_equal(whole, read_checkpoint(latest_checkpoint(folder)))
    assert len(whole["losses"]) == STEPS


def test_killed_run_ends_with_the_same_bits(tmp_path):
    whole = straight(tmp_path / "straight")
    folder = tmp_path / "killed"
    call = f"m.run_to(m.Path({str(folder)!r}), 20, pause=0.2)"
    with subprocess.Popen(in_new_process(call)) as process:
        while latest_checkpoint(folder) is None and process.poll() is None:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert latest_checkpoint(folder).name != f"step-{STEPS:08d}"
    begin(folder).finish()
    assert_bit_equal(whole, read_checkpoint(latest_checkpoint(folder)))


def test_finished_run_started_again_trains_no_further(tmp_path):
    first = begin(tmp_path).finish()
    again = begin(tmp_path)
    assert list(again) == []
    assert again.losses == first.losses
    assert_bit_equal(again.module.state_dict(), first.module.state_dict())


def test_only_the_last_two_checkpoints_are_kept(tmp_path):
    leftover = tmp_path / ".step-00000005.abc.part"
    leftover.mkdir()
    begin(tmp_path).finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000015", "step-00000020"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 5}, "seed was 0, is 5"),
        ({"batch": 6}, "batch was 8, is 6"),
        ({"steps": 30}, "steps was 20, is 30"),
        ({"optimizer": torch.optim.SGD}, "optimizer was AdamW, is SGD"),
    ],
)
def test_checkpoint_of_other_settings_is_refused(tmp_path, changes, words):
    begin(tmp_path).finish()
    with pytest.raises(InputError, match=words):
        begin(tmp_path, **changes)


def test_checkpoint_of_another_network_is_refused(tmp_path):
    begin(tmp_path).finish()
    with isolated(0):
        net = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(InputError, match=r"0.weight was \[16, 4\], is \[4, 4\]"):
        fit(
            net,
            Flipped(),
            noisy_loss,
            average=Average(net, decay=0.9),
            checkpoint=tmp_path,
            steps=STEPS,
            batch=BATCH,
            seed=SEED,
        )


def test_run_at_constant_rate_can_be_made_longer(tmp_path):
    plan = {"decay": "constant", "warmup": 2}
    begin(tmp_path / "a", **plan).finish()
    longer = begin(tmp_path / "a", steps=25, **plan).finish()
    straight = begin(None, steps=25, **plan).finish()
    assert longer.losses == straight.losses


@pytest.mark.parametrize("damage", ["cut", "flip", "remove"])
def test_damaged_checkpoint_names_file_remedy_and_the_one_before(tmp_path, damage):
    begin(tmp_path).finish()
    file = tmp_path / "step-00000020" / "arrays.safetensors"
    blob = bytearray(file.read_bytes())
    if damage == "remove":
        file.unlink()
    else:
        blob[-3] ^= 1
        file.write_bytes(blob[:-10] if damage == "cut" else blob)
    with pytest.raises(OSError, match=r"step-00000020.*remove.*step-00000015") as caught:
        begin(tmp_path)
    assert type(caught.value).__name__ == "DamagedRecordError"


def test_missing_piece_is_an_error(tmp_path):
    begin(tmp_path).finish()
    path = latest_checkpoint(tmp_path)
    record = load_record(path)
    del record["optimizer"]
    save_record(path, record)
    with pytest.raises(OSError, match="lacks optimizer"):
        begin(tmp_path)


def test_full_disk_leaves_the_older_checkpoint(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    training = begin(tmp_path)
    for done in training:
        if done.step == 9:
            break
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        next(training)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]
    assert_bit_equal(
        straight(tmp_path / "straight")["module"], begin(tmp_path).finish().module.state_dict()
    )
