"""Weights that a preview overwrites, and runs that do not resume where they stopped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from noisewright.random import isolated
from noisewright.storage import load_record, save_record
from noisewright.training import Average, fit, latest_checkpoint, read_checkpoint


def network() -> nn.Module:
    with isolated(0):
        return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))


def noisy_loss(net, data, draws):
    t = draws.uniform(stratified=True)[:, None]
    noise = draws.normal_like(data)
    return (net((1 - t) * data + t * noise) - noise).square().mean(dim=1)


def begin(folder: Path | None = None, steps: int = 20):
    net = network()
    data = torch.linspace(-1, 1, 33)[:, None].repeat(1, 3)
    average = Average(net, decay=0.9)
    return fit(
        net,
        data,
        noisy_loss,
        steps=steps,
        batch=8,
        seed=0,
        average=average,
        checkpoint=folder,
        every=10,
    )


def test_evaluating_the_averaged_weights_overwrites_the_live_ones(tmp_path):
    """huggingface/diffusers#2321: a preview replaced the weights that were being trained."""
    training = begin(steps=3).finish()
    net, average = training.module, training.average
    live = {name: value.clone() for name, value in net.state_dict().items()}

    def unchanged():
        return all(torch.equal(value, live[name]) for name, value in net.state_dict().items())

    with average.applied():
        assert not unchanged()
        assert torch.equal(net[0].weight, average.values["0.weight"])
        assert torch.equal(net[1].running_mean, average.values["1.running_mean"])
    assert unchanged()
    with pytest.raises(RuntimeError, match="preview"), average.applied():
        raise RuntimeError("preview")
    assert unchanged()
    with average.applied(), isolated(1):
        net.train()(torch.ones(4, 3))  # moves the running statistics
    assert unchanged()
    save_record(tmp_path / "average", average.state_dict())
    again = Average(net, decay=0.9)
    again.load_state_dict(load_record(tmp_path / "average"))
    assert again.updates == average.updates == 3


def ten_steps(folder: str) -> None:
    for done in begin(Path(folder)):
        if done.step == 10:
            return


def test_resumed_run_is_not_the_run_that_would_have_been(tmp_path):
    """unit8co/darts#2463: streams and the place in the data were not restored."""
    whole = begin(tmp_path / "whole").finish()
    call = f"import runpy; runpy.run_path({__file__!r})['ten_steps']({str(tmp_path / 'half')!r})"
    subprocess.run([sys.executable, "-W", "ignore", "-c", call], check=True)
    assert read_checkpoint(latest_checkpoint(tmp_path / "half"))["step"] == 10
    resumed = begin(tmp_path / "half").finish()
    assert resumed.losses == whole.losses
    for ours, theirs in (
        (resumed.module.state_dict(), whole.module.state_dict()),
        (resumed.average.values, whole.average.values),
    ):
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert len(set(whole.losses)) == 20


@pytest.mark.parametrize("piece", ["module", "average", "optimizer", "step", "losses"])
def test_checkpoint_without_a_piece_is_an_error(tmp_path, piece):
    begin(tmp_path, steps=2).finish()
    path = latest_checkpoint(tmp_path)
    record = load_record(path)
    del record[piece]
    save_record(path, record)
    with pytest.raises(OSError, match=f"lacks {piece}"):
        begin(tmp_path, steps=2)
