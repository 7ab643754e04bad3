"""Keeping the weights that were best on samples the training never sees."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from noisewright.training import Average, fit, train_to_best
from noisewright.types import InputError


class Number(nn.Module):
    """One weight, drawn to 10 by its training."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(()))
        self.dropout = nn.Dropout(0.5)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return (self.dropout(self.value.expand(len(rows))) - 10).square()


def training(steps: int = 100, **options):
    net = Number()
    average = options.pop("average", Average(net, 0.0))
    begun = fit(
        net, torch.zeros(4, 1), lambda net, rows, draws: net(rows), steps=steps, batch=4, seed=0,
        rate=0.2, average=average, **options,
    )  # fmt: skip
    return net, begun


def near(target: float):
    return lambda net: abs(net.value.item() - target)


def test_weights_of_the_best_look_are_kept_and_the_net_is_ready_for_use():
    net, begun = training()
    best = train_to_best(begun, near(4.0), looks=50)
    assert best.score == min(score for _, score in best.seen)
    assert (best.step, best.score) in best.seen
    assert abs(net.value.item() - 4.0) == pytest.approx(best.score)
    assert abs(float(begun.average.values["value"]) - 4.0) == pytest.approx(best.score)
    assert not net.training
    assert len(best.seen) == 50


def test_patience_stops_early_and_its_absence_does_not():
    _, begun = training()
    best = train_to_best(begun, near(2.0), looks=50, patience=3)
    assert begun.step < 100
    assert len(best.seen) - 3 == [step for step, _ in best.seen].index(best.step) + 1
    _, begun = training()
    train_to_best(begun, near(2.0), looks=50)
    assert begun.step == 100


def test_start_stands_for_choice_if_asked():
    net, begun = training()
    best = train_to_best(begun, near(0.0), start=True)
    assert best.step == 0
    assert net.value.item() == 0.0


def test_looks_are_without_dropout_and_without_gradients_and_do_not_disturb_the_training():
    modes = []

    def score(net):
        modes.append((net.training, torch.is_grad_enabled()))
        return net.value.item()

    _, watched = training(20)
    train_to_best(watched, score, looks=20)
    assert set(modes) == {(False, False)}
    _, plain = training(20)
    plain.finish()
    assert watched.losses == plain.losses


def test_steps_are_watched():
    seen = []
    _, begun = training(10)
    train_to_best(begun, near(1.0), looks=2, watch=lambda done: seen.append(done.step))
    assert seen == list(range(1, 11))


def test_a_score_that_is_never_a_number_keeps_the_start():
    net, begun = training(10)
    best = train_to_best(begun, lambda net: float("nan"))
    assert net.value.item() == 0.0
    assert best.score == float("inf")
    assert best.step == 0


def test_without_a_score_the_end_is_kept():
    net, begun = training(10)
    best = train_to_best(begun, None)
    assert (best.step, best.score, best.seen) == (10, None, ())
    assert net.value.item() == begun.average.values["value"].item() > 0
    assert not net.training


def test_average_is_needed_and_checkpoints_are_refused(tmp_path):
    _, begun = training(average=None)
    with pytest.raises(InputError, match="average="):
        train_to_best(begun, near(0.0))
    _, begun = training(checkpoint=tmp_path)
    with pytest.raises(InputError, match="checkpoint="):
        train_to_best(begun, near(0.0))
