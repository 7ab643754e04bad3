from __future__ import annotations

import itertools
import math
import random
from functools import partial

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from noisewright.random import StepDraws, isolated
from noisewright.training import Average, Plan, fit, latest_checkpoint
from noisewright.types import InputError, NonFiniteError

DATA = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))


class Items(Dataset):
    """The same examples, not in memory."""

    def __len__(self):
        return len(DATA)

    def __getitem__(self, row):
        return DATA[row]


class Noisy(Items):
    """Examples with noise from every global stream."""

    def __getitem__(self, row):
        return DATA[row] + torch.rand(4) + random.random() + np.random.rand()  # noqa: NPY002


def network(dropout: float = 0.0) -> nn.Module:
    with isolated(1):
        return nn.Sequential(nn.Linear(4, 16), nn.SiLU(), nn.Dropout(dropout), nn.Linear(16, 4))


def loss(net, data: Tensor, draws) -> Tensor:
    t = draws.uniform(stratified=True)[:, None]
    noise = draws.normal_like(data)
    return (net((1 - t) * data + t * noise) - noise).square().mean(dim=1)


def trained(dataset=DATA, *, net=None, loss=loss, **changes):
    settings = {"steps": 6, "batch": 8, "seed": 0} | changes
    return fit(net or network(), dataset, loss, **settings).finish()


def weights(training) -> Tensor:
    return torch.cat([value.flatten() for value in training.module.state_dict().values()])


def test_loop_is_the_hand_written_loop():
    training = trained(optimizer=torch.optim.SGD, rate=0.1, warmup=0, clip=None)
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    seen = []
    fit_again = fit(network(), DATA, loss, steps=6, batch=8, seed=0)
    for step in range(6):
        rows = fit_again.order.rows(step)
        seen += rows.tolist()
        optimizer.param_groups[0]["lr"] = 0.1 * 0.5 * (1 + math.cos(math.pi * step / 6))
        optimizer.zero_grad()
        loss(net, DATA[rows], StepDraws(0, step, 8, slice(0, 8))).mean().backward()
        optimizer.step()
    assert sorted(seen) == sorted(2 * list(range(24)))
    for trained_value, value in zip(training.module.parameters(), net.parameters(), strict=True):
        assert torch.equal(trained_value, value)


@pytest.mark.parametrize("accumulate", [2, 4])
def test_accumulation_equals_the_big_batch(accumulate):
    whole, cut = trained(), trained(accumulate=accumulate)
    torch.testing.assert_close(weights(whole), weights(cut), rtol=1e-5, atol=1e-5)
    assert whole.losses == pytest.approx(cut.losses, rel=1e-5)


@pytest.mark.parametrize("dataset", [Items(), TensorDataset(DATA), {"rows": DATA}], ids=type)
def test_data_in_memory_and_item_by_item_train_alike(dataset):
    def unpacked(net, batch, draws):
        if isinstance(batch, dict):
            batch = batch["rows"]
        elif isinstance(batch, (list, tuple)):
            (batch,) = batch
        return loss(net, batch, draws)

    assert torch.equal(weights(trained(dataset, loss=unpacked)), weights(trained()))


def test_workers_read_the_same_random_items():
    alone = trained(Noisy(), steps=3)
    helped = trained(Noisy(), steps=3, workers=2)
    assert torch.equal(weights(alone), weights(helped))


@pytest.mark.parametrize("batch", [7, 50])
def test_epochs_follow_without_a_gap_whatever_the_batch(batch):
    training = fit(network(), DATA, loss, steps=9, batch=batch, seed=0)
    seen = torch.cat([training.order.rows(step) for step in range(9)])
    for epoch in seen[: len(seen) // 24 * 24].view(-1, 24):
        assert sorted(epoch.tolist()) == list(range(24))
    assert not torch.equal(seen[:24], seen[24:48])
    assert torch.equal(training.order.rows(3), seen[3 * batch : 4 * batch])


@pytest.mark.global_stream  # the test plays a caller who uses the global streams
def test_caller_and_loop_do_not_share_random_streams(stream_guard):
    quiet = trained(Noisy(), net=network(0.5))
    training = fit(network(0.5), Noisy(), loss, steps=6, batch=8, seed=0)
    for number in range(6):
        torch.manual_seed(number)  # the caller's own affairs
        random.seed(number)
        with stream_guard():
            next(training)
    assert torch.equal(weights(training), weights(quiet))


def test_seed_zero_is_a_seed_and_another_seed_is_another_run():
    assert torch.equal(weights(trained(seed=0)), weights(trained(seed=0)))
    assert not torch.equal(weights(trained(seed=0)), weights(trained(seed=1)))


def test_module_may_be_previewed_between_steps():
    net = network(0.5)
    average = Average(net)
    training = fit(net, DATA, loss, steps=6, batch=8, seed=0, average=average)
    for _ in training:
        net.eval()
        with average.applied():
            net(DATA)
    assert not net.training
    assert torch.equal(weights(training), weights(trained(net=network(0.5))))


def test_rate_rises_and_falls_as_a_function_of_the_step():
    plan = Plan(steps=100, batch=1, warmup=10)
    levels = [plan.level(step) for step in range(101)]
    assert levels[:11] == pytest.approx([(k + 1) / 10 for k in range(10)] + [1.0])
    assert all(a > b for a, b in itertools.pairwise(levels[10:]))
    assert levels[55] == pytest.approx(0.5)
    assert levels[100] == pytest.approx(0.0)
    constant = Plan(steps=100, batch=1, decay="constant")
    assert {constant.level(step) for step in range(100)} == {1.0}


def test_steps_report_what_happened():
    reports = []
    training = fit(network(), DATA, loss, steps=4, batch=8, seed=0, rate=0.5, warmup=4)
    training.finish(reports.append)
    assert [report.step for report in reports] == [1, 2, 3, 4]
    assert [report.rate for report in reports] == [0.125, 0.25, 0.375, 0.5]
    assert [report.loss for report in reports] == training.losses
    assert all(report.grad_norm > 0 < report.seconds for report in reports)


def test_groups_keep_the_proportion_of_their_rates():
    def grouped(parameters, lr):
        return torch.optim.SGD(
            [{"params": parameters[:2], "lr": 0.1 * lr}, {"params": parameters[2:]}], lr
        )

    training = fit(
        network(), DATA, loss, steps=4, batch=8, seed=0, rate=0.4, warmup=2, optimizer=grouped
    )
    next(training)
    assert [group["lr"] for group in training.inner.param_groups] == pytest.approx([0.02, 0.2])


def test_clipping_bounds_the_gradient():
    data = {"rate": 1.0, "optimizer": torch.optim.SGD, "steps": 1, "warmup": 0}
    start = torch.cat([value.flatten() for value in network().state_dict().values()])
    moved = weights(trained(clip=1e-3, **data)) - start
    assert moved.norm().item() == pytest.approx(1e-3, rel=1e-3)
    assert (weights(trained(clip=None, **data)) - start).norm() > 1e-2


def spoiled(net, batch, draws, *, at: int, gradient: bool) -> Tensor:
    value = loss(net, batch, draws)
    if draws.step < at:
        return value
    return value + (0 * value).sqrt() if gradient else value * math.nan


@pytest.mark.parametrize("gradient", [False, True], ids=["loss", "gradient"])
def test_non_finite_step_stops_the_run_and_leaves_the_weights(tmp_path, gradient):
    bad = partial(spoiled, at=4, gradient=gradient)
    net = network()
    average = Average(net)
    training = fit(
        net, DATA, bad, steps=6, batch=8, seed=0, average=average, checkpoint=tmp_path, every=2
    )
    for _ in range(4):
        next(training)
    before, averaged = weights(training).clone(), average.state_dict()["values"]
    words = rf"{'gradient norm' if gradient else 'loss'} is nan at step 5 of 6.*step-00000004"
    with pytest.raises(NonFiniteError, match=words):
        next(training)
    assert torch.equal(weights(training), before)
    assert all(torch.equal(average.values[name], averaged[name]) for name in averaged)
    assert latest_checkpoint(tmp_path).name == "step-00000004"
    assert {parameter.grad for parameter in net.parameters()} == {None}


def test_module_is_left_unwrapped_after_mixed_precision():
    net = network()
    before = set(vars(net))
    training = trained(net=net, mixed_precision="bf16")
    assert set(vars(net)) == before
    assert net(DATA).dtype == torch.float32
    torch.testing.assert_close(weights(training), weights(trained()), rtol=0.1, atol=0.01)
    assert not torch.equal(weights(training), weights(trained()))


def test_scalar_loss_is_the_mean_of_rows():
    def mean(net, batch, draws):
        return loss(net, batch, draws).mean()

    assert torch.equal(weights(trained(loss=mean)), weights(trained()))


class Endless(IterableDataset):
    def __iter__(self):
        yield DATA[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 0}, "steps=0"),
        ({"batch": 0}, "batch=0"),
        ({"batch": 9, "accumulate": 2}, r"batch=9 must be a multiple of .* 1 x 2"),
        ({"warmup": 7}, "warmup=7"),
        ({"decay": "linear"}, "decay='linear'"),
        ({"clip": 0.0}, "clip=0.0"),
        ({"rate": math.nan}, "rate=nan"),
        ({"every": 0}, "every=0"),
        ({"mixed_precision": "fp16"}, "accelerator="),
        ({"dataset": DATA[:0]}, "empty"),
        ({"dataset": {"a": DATA, "b": DATA[1:]}}, "differ in length"),
        ({"dataset": Endless()}, "Endless has no length"),
        ({"loss": lambda net, batch, draws: net(batch)}, r"shape \(8, 4\)"),
        ({"average": Average(nn.Identity())}, "another module"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_setting_that_cannot_work_is_refused(refuses, changes, words):
    with refuses(words):
        trained(**changes)


def test_accelerator_that_accumulates_itself_is_refused():
    accelerator = Accelerator(gradient_accumulation_steps=2)
    try:
        with pytest.raises(InputError, match="pass accumulate="):
            trained(accelerator=accelerator)
    finally:
        Accelerator(gradient_accumulation_steps=1)  # accelerate shares this number between objects


def test_launched_process_that_accelerate_takes_for_a_lone_one_is_refused(monkeypatch):
    accelerator = Accelerator(device_placement=False)
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match=r"2 processes were launched.*sees 1.*cpu=True"):
        trained(accelerator=accelerator)
