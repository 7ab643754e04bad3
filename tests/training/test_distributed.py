"""Two processes that talk over gloo train the network that one process trains."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from noisewright.random import isolated
from noisewright.storage import load_record, save_record
from noisewright.training import Average, fit, latest_checkpoint, read_checkpoint
from noisewright.types import NonFiniteError


class Jittered(Dataset):
    """Examples with a random transform, read item by item."""

    def __len__(self):
        return 30

    def __getitem__(self, row):
        return torch.full((4,), row / 30) + 0.1 * torch.randn(4)


def denoising_loss(net, data: Tensor, draws) -> Tensor:
    t = draws.uniform(stratified=True)[:, None]
    noise = draws.normal_like(data)
    return (net.predict((1 - t) * data + t * noise) - noise).square().mean(dim=1)


def nan_on_last_rows(net, data: Tensor, draws) -> Tensor:
    value = denoising_loss(net, data, draws)
    return value * float("nan") if draws.rows.stop == draws.total and draws.step == 3 else value


class Net(nn.Module):
    """Its loss calls a method other than forward, as the losses of rooms do."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.SiLU(), nn.Linear(16, 4))

    def predict(self, state):
        return self.layers(state)


def train(folder: Path | None, *, steps: int = 12, stop: int = 12, accumulate: int = 1):
    with isolated(1):
        net = Net()
    training = fit(
        net,
        Jittered(),
        denoising_loss,
        steps=steps,
        batch=8,
        seed=0,
        average=Average(net, decay=0.9),
        checkpoint=folder,
        every=4,
        accumulate=accumulate,
        optimizer=torch.optim.SGD,
        rate=0.1,
    )
    while training.step < stop:
        next(training)
    return training


def finish(folder: Path, **options) -> None:
    """Train to the end in one of several processes; each writes what it ended with."""
    training = train(folder / "run", **options)
    record = training.module.state_dict() | {"losses": training.losses}
    save_record(folder / f"rank-{training.accelerator.process_index}", record)
    torch.distributed.destroy_process_group()


def stumble(folder: Path) -> None:
    with isolated(1):
        net = Net()
    try:
        fit(net, Jittered(), nan_on_last_rows, steps=12, batch=8, seed=0).finish()
    except NonFiniteError as error:
        rank = os.environ["RANK"]
        save_record(folder / f"rank-{rank}", {"error": str(error)} | net.state_dict())
    torch.distributed.destroy_process_group()


def code(call: str) -> str:
    here = Path(__file__)
    return f"import sys; sys.path.insert(0, {str(here.parent)!r}); import {here.stem} as m; {call}"


def launch(call: str, processes: int = 2) -> None:
    """Run ``call`` in processes with the environment that launchers set up."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
    }
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code(call)],
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(processes)
    ]
    try:
        assert [process.wait(timeout=300) for process in running] == [0] * processes
    finally:
        for process in running:
            process.kill()


def assert_close_to(training, record) -> None:
    for name, value in training.module.state_dict().items():
        torch.testing.assert_close(record[name], value, rtol=1e-5, atol=1e-5)
    assert record["losses"] == pytest.approx(training.losses, rel=1e-5)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_two_processes_train_as_one_with_the_same_global_batch(tmp_path, accumulate):
    launch(f"m.finish(m.Path({str(tmp_path)!r}), accumulate={accumulate})")
    alone = train(None)
    for rank in range(2):
        assert_close_to(alone, load_record(tmp_path / f"rank-{rank}"))
    stored = read_checkpoint(latest_checkpoint(tmp_path / "run"))
    for name, value in alone.average.values.items():
        torch.testing.assert_close(stored["average"]["values"][name], value, rtol=1e-5, atol=1e-5)


def test_all_processes_resume_from_the_checkpoint_of_one(tmp_path):
    train(tmp_path / "run", stop=4)
    assert latest_checkpoint(tmp_path / "run").name == "step-00000004"
    launch(f"m.finish(m.Path({str(tmp_path)!r}))")
    alone = train(None)
    for rank in range(2):
        assert_close_to(alone, load_record(tmp_path / f"rank-{rank}"))


def test_bad_value_in_one_process_stops_all_with_equal_weights(tmp_path):
    launch(f"m.stumble(m.Path({str(tmp_path)!r}))")
    first, second = (load_record(tmp_path / f"rank-{rank}") for rank in range(2))
    assert first["error"] == second["error"]
    assert "step 4 of 12" in first["error"]
    assert all(torch.equal(first[name], second[name]) for name in first if name != "error")


@pytest.mark.slow
def test_torchrun_gives_the_same(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(code(f"m.finish(m.Path({str(tmp_path)!r}))"))
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone"]
    subprocess.run([*command, "--nproc_per_node", "2", str(script)], check=True, timeout=300)
    for rank in range(2):
        assert_close_to(train(None), load_record(tmp_path / f"rank-{rank}"))
