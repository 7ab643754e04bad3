"""The flow: windows and units, the linear head, the field at its limits, the two orders."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from noisewright.methods.kineflow import KineFlow, checks
from noisewright.methods.kineflow.apart import linear_part
from noisewright.methods.kineflow.baselines import (
    LEVELS,
    DLinear,
    DriverMLP,
    LinearLaw,
    PatchTransformer,
    SeasonalNaive,
    mean_forecast,
    quantile_forecast,
    train_mean,
    train_quantiles,
)
from noisewright.methods.kineflow.head import (
    RidgeHead,
    fit_head,
    linear_forecast,
    residual_factor,
)
from noisewright.methods.kineflow.scaling import Inputs, Layout, scaled
from noisewright.methods.kineflow.scores import score_line, score_quantiles, score_samples
from noisewright.methods.kineflow.training import FlowPlan, hold_out, linear_head, train_flow
from noisewright.methods.kineflow.windows import Table, Windows, carried
from noisewright.paths import kinetic_path
from noisewright.random import StepDraws, isolated
from noisewright.types import InputError

LAYOUT = Layout(12, 6, 2, future=1, past=1, calendar=2)
SMALL = Layout(8, 4, 1)


class Silent:
    def progress(self, done, total, **numbers):
        pass


def windows(layout=LAYOUT, count=3, seed=0, target=True):
    stream = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=stream)

    length, channels = layout.context + layout.horizon, layout.channels
    return Windows(
        draw(count, layout.context, channels),
        draw(count, length, layout.future),
        draw(count, layout.context, layout.past),
        draw(count, layout.calendar),
        draw(count, layout.horizon, channels) if target else None,
    )


def model(layout=LAYOUT, *, loud=True, **options):
    with isolated(0):
        made = KineFlow(asdict(layout), hidden=16, depth=1, **options).eval()
        if loud:  # leave the untrained state, where the networks are silent
            for layer in (made.field.head, getattr(made.field, "force", None)):
                if layer is not None:
                    torch.nn.init.normal_(layer.weight, std=0.2)
    return made


def waves(rows=600, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(rows)
    force = np.sign(np.sin(t / 9.0))
    y = np.sin(2 * np.pi * t / 12) + 0.3 * force + 0.1 * rng.standard_normal(rows)
    return Table.of(y[:, None], future=force[:, None])


# ---------------------------------------------------------------------------- windows and units


def test_windows_stay_inside_their_series_and_leave_out_gaps_ahead():
    values = np.arange(40.0)[:, None]
    table = Table.of(values, lengths=[25, 15])
    starts = table.starts(5, 3)
    assert starts.tolist() == [*range(18), *range(25, 33)]
    values[10] = np.nan
    starts = Table.of(values, lengths=[25, 15]).starts(5, 3)
    # the horizon of a start s is rows s + 5 .. s + 7
    assert set(range(18)) - set(starts.tolist()) == {3, 4, 5}


def test_window_holds_the_rows_after_its_start():
    table = Table.of(np.arange(30.0)[:, None], calendar=np.arange(30.0)[:, None])
    found = table.windows(torch.tensor([4]), 5, 3)
    assert found.context[0, :, 0].tolist() == [4, 5, 6, 7, 8]
    assert found.target[0, :, 0].tolist() == [9, 10, 11]
    assert found.calendar[0].tolist() == [9]


def test_gaps_carry_the_last_value_or_the_first_one_after():
    nan = float("nan")
    filled, seen = carried(torch.tensor([[nan, 2.0, nan, 4.0, nan]])[..., None])
    assert filled[0, :, 0].tolist() == [2, 2, 2, 4, 4]
    assert seen[0, :, 0].tolist() == [False, True, False, True, False]


def test_inputs_do_not_depend_on_level_and_unit_of_the_window():
    layout = Layout(12, 6, 2)
    plain = windows(layout)
    moved = Windows(5 + 3 * plain.context, plain.future, plain.past, plain.calendar)
    first, second = scaled(plain, layout), scaled(moved, layout)
    # equal but for the least spread, 1e-2
    torch.testing.assert_close(first.own, second.own, atol=0.05, rtol=0)
    torch.testing.assert_close(second.centre, 5 + 3 * first.centre)
    assert scaled(plain, Layout(12, 6, 2, instance=False)).spread.unique().tolist() == [1.0]


def test_constant_context_has_finite_units():
    flat = windows()
    flat = Windows(torch.ones_like(flat.context), flat.future, flat.past, flat.calendar)
    inputs = scaled(flat, LAYOUT)
    assert bool(inputs.drivers.isfinite().all())
    assert bool(model().sample(flat, 4).isfinite().all())


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("instance", [False, True])
def test_sizes_of_inputs_are_those_of_the_layout(masked, instance):
    layout = Layout(12, 6, 2, future=1, past=1, calendar=2, instance=instance, masked=masked)
    inputs = scaled(windows(layout), layout)
    assert inputs.own.shape == (6, layout.own_size)
    assert inputs.drivers.shape == (6, layout.driver_size)
    assert inputs.linear.shape == (6, layout.linear_size)
    assert inputs.target.shape == (6, 6)


# ---------------------------------------------------------------------------- the linear head


def rows(count, size, horizon=3, channels=1, seed=0, spread=None):
    """Random rows of a regression with nothing else in them."""
    stream = torch.Generator().manual_seed(seed)
    features = torch.randn(count, size, generator=stream)
    noise = torch.randn(count, horizon, generator=stream)
    blank = torch.zeros(count, 1)
    unit = torch.ones(count, 1) if spread is None else spread
    channel = torch.arange(channels).repeat(count // channels)
    return Inputs(blank, channel, blank, features, blank, blank, unit, noise)


def test_head_finds_a_linear_law_and_its_residuals():
    inputs = rows(4000, 5)
    weight = torch.arange(15.0).reshape(3, 5) / 5
    mix = torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]])
    noise = inputs.target @ mix
    target = inputs.linear @ weight.T + 2 + 0.1 * noise
    head = fit_head(replace(inputs, target=target), None, 1)
    torch.testing.assert_close(head.weight[0], weight, atol=0.02, rtol=0)
    torch.testing.assert_close(head.bias[0], torch.full((3,), 2.0), atol=0.02, rtol=0)
    exact = 0.01 * (noise.double().T @ noise.double()) / 4000
    torch.testing.assert_close(head.covariance[0], exact, atol=2e-4, rtol=0)
    forecast = linear_forecast(inputs, head.weight, head.bias)
    torch.testing.assert_close(forecast, target - 0.1 * noise, atol=0.05, rtol=0)


def test_penalty_is_chosen_on_held_out_rows():
    few, many = rows(30, 25, horizon=1), rows(500, 25, horizon=1, seed=1)
    assert fit_head(few, many, 1).penalty >= 1.0  # there is nothing to learn


def test_channels_deviate_from_the_common_map_only_where_held_out_rows_approve():
    made = []
    for seed, count in ((0, 3000), (1, 1500)):
        inputs = rows(count, 4, channels=3, seed=seed)
        slope = torch.where(inputs.channel == 2, -1.0, 1.0)[:, None]
        made.append(replace(inputs, target=slope * inputs.linear[:, :1] + 0.1 * inputs.target))
    common = fit_head(*made, 3)
    assert torch.equal(common.weight[0], common.weight[2])
    head = fit_head(*made, 3, by_channel=True)
    assert 2 in head.own
    assert head.weight[2, :, 0].tolist() == pytest.approx([-1.0] * 3, abs=0.05)
    assert head.weight[0, :, 0].tolist() == pytest.approx([1.0] * 3, abs=0.05)
    assert float(head.covariance[2].trace()) < 0.1 * float(common.covariance[2].trace())
    assert fit_head(made[0], None, 3, by_channel=True).own == ()


def test_flat_contexts_do_not_decide_the_covariance():
    spread = torch.ones(2000, 1)
    spread[:20] = 0.01
    inputs = rows(2000, 2, spread=spread)
    target = inputs.target / spread  # unit errors in the data's unit
    head = fit_head(replace(inputs, target=target), None, 1, by_channel=True)
    variance = head.covariance.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(variance, torch.ones_like(variance), atol=0.1, rtol=0)


def test_factor_gives_the_covariance_back_and_a_singular_one_gets_a_floor():
    root = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0)).double()
    cover = root @ root.mT
    factor, floored = residual_factor(cover, whiten=True)
    torch.testing.assert_close(factor.double() @ factor.double().mT, cover, rtol=1e-4, atol=1e-5)
    assert not floored
    factor, floored = residual_factor(torch.ones(1, 4, 4).double(), whiten=True)
    assert floored
    assert bool(torch.linalg.inv(factor).isfinite().all())
    plain, _ = residual_factor(cover, whiten=False)
    for ours, theirs in zip(plain, cover, strict=True):
        assert float(ours.square().sum()) == pytest.approx(float(theirs.trace()), rel=1e-5)


def test_whitening_and_colouring_undo_each_other():
    made, inputs = model(), scaled(windows(), LAYOUT)
    root = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(0)).double()
    head = RidgeHead(made.weight, made.bias, root @ root.mT, 0.0)
    made.set_head(head)
    back = made.coloured(made.whitened(inputs.target)[:, None])[:, 0]
    torch.testing.assert_close(back, inputs.target, atol=1e-3, rtol=1e-3)


# ---------------------------------------------------------------------------- the field


def test_facts_of_the_specification_hold():
    found = checks.check_trial(Silent(), seed=0)
    assert found["feedback"] <= 1e-6
    assert found["sufficiency"] <= 1e-8
    assert found["law_mean"] <= 0.02
    assert found["law_variance"] <= 0.03
    assert found["gaussian"] <= 1e-5
    assert found["reload"] == 0.0
    assert found["context_calls"] == 1.0
    assert abs(found["untrained"] - 1) <= 0.01


def test_force_does_not_see_the_state_and_the_inner_force_not_the_drivers():
    made, plain = model(), windows()
    pushed = Windows(plain.context, plain.future + 1, plain.past, plain.calendar + 1)
    first, second = (made.field.surroundings(scaled(w, LAYOUT)) for w in (plain, pushed))
    assert torch.equal(first.context, second.context)
    assert not torch.equal(first.force, second.force)
    concatenated = model(drivers="concatenated")
    first, second = (concatenated.field.surroundings(scaled(w, LAYOUT)) for w in (plain, pushed))
    assert not torch.equal(first.context, second.context)
    assert float(first.force.abs().max()) == 0.0


@pytest.mark.parametrize("drivers", ["forces", "concatenated", "state"])
def test_slip_is_the_error_of_the_end_point_over_the_noise_level(drivers):
    made = model(drivers=drivers)
    inputs = scaled(windows(), LAYOUT)
    around = made.field.surroundings(inputs)
    stream = torch.Generator().manual_seed(1)
    data, noise = (torch.randn(6, 2, 6, generator=stream) for _ in range(2))
    angle = torch.tensor([0.3, 1.2]).reshape(1, 2, 1)
    look = angle.cos() * data + angle.sin() * noise
    error = made.field.predict(look, angle, around) - data
    slip = made.field.slip(data, noise, angle, around)
    torch.testing.assert_close(slip * angle.sin(), error, atol=1e-5, rtol=0)


def test_loss_of_a_silent_field_is_the_known_one():
    # F = 0, m = 0, v = 1: the slip is cos(noise) - sin(data), unit variance for N(0, I) data
    made = model(SMALL, loud=False)
    batch = windows(SMALL, 4000)
    inputs = scaled(batch, SMALL)
    target = made.point(inputs) + torch.randn(4000, 4, generator=torch.Generator().manual_seed(2))
    horizon = (target * inputs.spread + inputs.centre)[..., None]
    batch = Windows(batch.context, batch.future, batch.past, batch.calendar, horizon)
    made.data_units = False
    loss = made.loss(batch, StepDraws(0, 0, 4000, slice(None))).mean().detach()
    assert float(loss) == pytest.approx(1.0 + 0.3 * 1.0, rel=0.03)


# ---------------------------------------------------------------------------- sampling


def test_untrained_flow_draws_the_linear_forecast_with_gaussian_errors():
    lags = (torch.arange(4)[:, None] - torch.arange(4)).abs()
    head = RidgeHead(torch.zeros(1, 4, 8), torch.zeros(1, 4), 0.7 ** lags.double()[None], 0.0)
    made = model(SMALL, loud=False)
    made.set_head(head)
    one = windows(SMALL, 1)
    unit = float(scaled(one, SMALL).spread)
    for order in (1, 2):
        drawn = made.sample(one, 20_000, order=order, antithetic=True)[0, :, :, 0] / unit
        torch.testing.assert_close(
            torch.cov(drawn.T).double(), head.covariance[0], atol=0.05, rtol=0
        )


def test_both_orders_draw_the_same_law():
    made, one = model(SMALL), windows(SMALL, 1)
    first, second = (
        made.sample(one, 8000, order=order, steps=40, seed=order, antithetic=True)[0, :, :, 0]
        for order in (1, 2)
    )
    spread = first.std(dim=0)
    gap = (first.mean(dim=0) - second.mean(dim=0)) / spread
    assert float(gap.abs().max()) < 0.05
    for level in (0.05, 0.5, 0.95):
        gap = (first.quantile(level, dim=0) - second.quantile(level, dim=0)) / spread
        assert float(gap.abs().max()) < 0.12


@pytest.mark.parametrize(
    "options",
    [
        {"sigma_p": 3.0},
        {"momentum": "context"},
        {"method": "midpoint", "grid": "uniform"},
        {"method": "rk4", "grid": "uniform"},
    ],
)
def test_other_starts_and_integrators_draw_the_same_law(options):
    made, one = model(SMALL), windows(SMALL, 1)
    first = made.sample(one, 6000, steps=40, seed=1, antithetic=True)[0, :, :, 0]
    second = made.sample(one, 6000, steps=40, seed=2, antithetic=True, **options)[0, :, :, 0]
    spread = first.std(dim=0)
    assert float(((first.mean(0) - second.mean(0)) / spread).abs().max()) < 0.06
    assert float((second.std(dim=0) / spread - 1).abs().max()) < 0.06


def test_multistep_needs_fewer_calls_than_bridge_steps_for_the_spread():
    made, one = model(SMALL, loud=False), windows(SMALL, 1)
    unit = float(scaled(one, SMALL).spread)
    lack = {}
    for method in ("multistep", "bridge"):
        drawn = made.sample(one, 40_000, method=method, antithetic=True)[0, :, :, 0] / unit
        lack[method] = abs(1 - float(drawn.var()))  # the law is N(0, I) in these units
    assert lack["multistep"] < 0.03
    assert lack["bridge"] > 4 * lack["multistep"]


def test_futures_depend_on_their_own_seed_only():
    made, three = model(), windows()
    together = made.sample(three, 5, seed=[3, 7, 11])
    alone = made.sample(three.rows(slice(1, 2)), 5, seed=[7])
    torch.testing.assert_close(together[1:2], alone, atol=1e-5, rtol=1e-5)
    again = made.sample(three, 5, seed=[3, 7, 11])
    assert torch.equal(together, again)
    assert not torch.equal(made.sample(three, 5, seed=0), made.sample(three, 5, seed=1))


def test_chunks_do_not_change_futures(monkeypatch):
    made, three = model(), windows()
    whole = made.sample(three, 5, seed=0)
    monkeypatch.setattr("noisewright.methods.kineflow.flow.CHUNK", 1)
    torch.testing.assert_close(made.sample(three, 5, seed=0), whole, atol=1e-5, rtol=1e-5)


def test_antithetic_futures_are_opposite_around_the_linear_forecast():
    made, one = model(SMALL, loud=False), windows(SMALL, 1)
    drawn = made.sample(one, 6, antithetic=True)
    middle = drawn[:, :3] + drawn[:, 3:]
    torch.testing.assert_close(middle, middle[:, :1].expand_as(middle), atol=1e-5, rtol=0)


def test_learned_damping_has_nothing_to_learn():
    table = waves()
    layout = Layout(24, 6, 1, future=1)
    made = model(layout, loud=False, damping=True)
    starts = table.starts(24, 6)
    made.set_head(linear_head(table, starts, None, None, layout))
    train_flow(made, table, starts, FlowPlan(steps=60, batch=64), 0)
    assert float(made.kappa.detach().abs().max()) < 0.1
    assert made.sample(table.windows(starts[:2], 24, 6), 4).shape == (2, 4, 6, 1)


@pytest.mark.parametrize("sigma_p", [0.5, 1.0])
@pytest.mark.parametrize("s", [0.0, 0.3, 0.9])
def test_linear_part_is_the_regression_of_the_bend_on_position_and_momentum(s, sigma_p):
    stream = torch.Generator().manual_seed(0)
    q0, noise, data = torch.randn(3, 400_000, 1, generator=stream, dtype=torch.float64)
    q, p, _ = kinetic_path(q0, sigma_p * noise, data, s)
    seen, bend = torch.cat([q, p], dim=1), data - q0 - sigma_p * noise
    found = torch.linalg.lstsq(seen, bend).solution[:, 0]
    gain_q, gain_p, left = linear_part(torch.tensor(s), sigma_p)
    assert found.tolist() == pytest.approx([float(gain_q), float(gain_p)], abs=0.02)
    rest = bend[:, 0] - seen @ found
    assert float(rest.std()) == pytest.approx(float(left), abs=0.01)


def test_network_fed_apart_starts_at_the_gaussian_law_and_learns():
    table, layout = waves(), Layout(24, 6, 1, future=1)
    starts = table.starts(24, 6)
    made = model(layout, loud=False, apart=1.0, drivers="concatenated")
    made.set_head(linear_head(table, starts, None, None, layout))
    one = table.windows(starts[:1], 24, 6)
    drawn = made.sample(one, 20_000, steps=20, antithetic=True)[0, :, :, 0]
    unit = float(scaled(one, layout).spread)
    cover = (made.factor[0] @ made.factor[0].T) * unit**2
    torch.testing.assert_close(torch.cov(drawn.T), cover, atol=0.06 * float(cover.max()), rtol=0)
    trained = train_flow(made, table, starts, FlowPlan(steps=40, batch=64), 0)
    assert np.mean(trained.losses[-10:]) < np.mean(trained.losses[:10])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": 3}, "order=3"),
        ({"count": 0}, "n_samples=0"),
        ({"steps": 0}, "steps=0"),
        ({"sigma_p": 0.01}, "sigma_p"),
        ({"grid": "odd"}, "grid='odd'"),
        ({"momentum": "odd"}, "momentum='odd'"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"antithetic": True, "count": 3}, "pairs"),
        ({"seed": [1, 2]}, "2 entries for 3 windows"),
    ],
)
def test_draw_that_cannot_work_is_refused(options, words, refuses):
    count = options.pop("count", 4)
    with refuses(words):
        model().sample(windows(), count, **options)


def test_unknown_way_of_drivers_and_first_order_damping_are_refused(refuses):
    with refuses("drivers='odd'"):
        model(drivers="odd")
    with pytest.raises(InputError, match="damping"):
        model(damping=True).sample(windows(), 4, order=1)
    with pytest.raises(InputError, match="apart="):
        model(apart=1.0)


# ---------------------------------------------------------------------------- training


def test_training_keeps_the_best_look_and_repeats_bit_for_bit():
    table, layout = waves(), Layout(24, 6, 1, future=1)
    starts = table.starts(24, 6)
    head = linear_head(table, starts[:300], table, starts[400:], layout)
    held, outcomes = table.windows(starts[400::5], 24, 6), []
    for _ in range(2):
        made = model(layout, loud=False)
        made.set_head(head)
        outcomes.append(
            train_flow(made, table, starts[:300], FlowPlan(steps=40, batch=64), 0, held=held)
        )
    first, second = outcomes
    assert [step for step, _ in first.held_out] == [0, 6, 12, 18, 24, 30, 36, 40]
    assert first.held_out == second.held_out
    assert first.losses == second.losses
    for ours, theirs in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert np.mean(first.losses[-10:]) < np.mean(first.losses[:10])


def test_last_windows_of_each_series_are_held_out_behind_a_gap():
    table = Table.of(np.arange(400.0)[:, None], lengths=[250, 150])
    starts = table.starts(10, 5)
    held, kept = hold_out(table, starts, 5)
    assert set(kept.tolist()).isdisjoint(held.tolist())
    for first, end in ((0, 250), (250, 400)):
        mine = held[(held >= first) & (held < end)]
        learned = kept[(kept >= first) & (kept < end)]
        assert int(mine.max()) == end - 15
        assert int(mine.min()) - int(learned.max()) > 5  # no value ahead is learned as a target
    few = Table.of(np.arange(40.0)[:, None]).starts(10, 5)
    nothing, everything = hold_out(Table.of(np.arange(40.0)[:, None]), few, 5)
    assert len(nothing) == 0
    assert torch.equal(everything, few)


# ---------------------------------------------------------------------------- baselines and scores


@pytest.mark.parametrize("kind", [DLinear, DriverMLP, PatchTransformer])
def test_networks_for_the_mean_learn_a_wave(kind):
    table, layout = waves(), Layout(24, 6, 1, future=1)
    starts, plan = table.starts(24, 6), FlowPlan(steps=150, batch=64)
    held = table.windows(starts[450:], 24, 6)
    net = train_mean(kind, table, starts[:400], layout, plan, 0, held)
    scores = score_line(mean_forecast(net, held, layout).numpy(), held.target.numpy())
    assert scores["mse"] < 0.35 * float(held.target.var())


def test_linear_laws_and_quantiles_are_calibrated_on_a_wave():
    table, layout = waves(6000), Layout(24, 6, 1, future=1, instance=False)
    starts = table.starts(24, 6)
    head = linear_head(table, starts[:4500], table, starts[4500:5000], layout)
    held = table.windows(starts[5000:], 24, 6)
    truth = held.target.numpy()
    law = LinearLaw(head, layout)
    gaussian = score_samples(law.sample(held, 100, 0).numpy(), truth)
    residuals = law.residuals_of(table, starts[:4500])
    bootstrap = score_samples(
        LinearLaw(head, layout, residuals).sample(held, 100, 0).numpy(), truth, antithetic=False
    )
    net = train_quantiles(head, table, starts[:4500], layout, FlowPlan(steps=40), 0)
    values = quantile_forecast(net, held, layout).numpy()
    quantiles = score_quantiles(values, LEVELS, truth)
    assert (np.diff(values, axis=-1) >= 0).all()
    for scores in (gaussian, bootstrap, quantiles):
        assert scores["coverage90"] == pytest.approx(0.9, abs=0.04)
        assert scores["crps"] == pytest.approx(gaussian["crps"], rel=0.1)


def test_seasonal_naive_repeats_the_last_season_with_its_errors():
    season = np.tile(np.arange(6.0), 40)[:, None]
    table, layout = Table.of(season), Layout(12, 8, 1)
    starts = table.starts(12, 8)
    naive = SeasonalNaive.fitted(table, starts, layout, 6)
    held = table.windows(starts[:5], 12, 8)
    np.testing.assert_allclose(naive.forecast(held)[..., 7].numpy(), held.target.numpy())
    assert float(naive.quantiles.abs().max()) == 0.0
