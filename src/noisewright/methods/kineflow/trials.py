"""The stages of the experiment: one set, one arm and one seed, from windows to scores."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisewright.data import DrivenOscillator
from noisewright.methods.kineflow import baselines
from noisewright.methods.kineflow.cases import OSCILLATOR_SEED, Case, Parts
from noisewright.methods.kineflow.flow import KineFlow
from noisewright.methods.kineflow.head import RidgeHead
from noisewright.methods.kineflow.scores import score_line, score_quantiles, score_samples
from noisewright.methods.kineflow.training import FlowPlan, TrainedFlow, linear_head, train_flow
from noisewright.methods.kineflow.windows import Windows
from noisewright.paths import CosineSchedule, GaussianPath
from noisewright.random import derive_seed, isolated
from noisewright.solvers import DDPM

__all__ = ["ARMS", "flow_trial", "mean_trial", "simple_trial"]

Arm = dict[str, Any]

ARMS: dict[str, Arm] = {
    "forces": {"drivers": "forces"},
    "whitened": {"drivers": "concatenated"},
    "plain": {"drivers": "concatenated", "precondition": False},
    "state": {"drivers": "state"},
    "damped": {"drivers": "forces", "damping": True},
    "unweighted": {"drivers": "forces", "data_units": False},
    "no_drivers": {"drivers": "forces"},
}
"""Networks that are trained; each differs from ``forces`` in one thing."""

DDPM_STEPS = 50
FAN_WINDOWS = 3
FAN_SAMPLES = 40


def _plan(case: Case, steps: int, **changes: Any) -> FlowPlan:
    batch = max(40, 280 // case.values.shape[1])
    return FlowPlan(steps=steps, batch=batch, **changes)


def _head(case: Case, parts: Parts, *, by_channel: bool = False) -> RidgeHead:
    return linear_head(
        parts.train,
        parts.starts,
        parts.held_table,
        parts.held_starts,
        case.layout,
        by_channel=by_channel,
    )


def _model(
    case: Case, parts: Parts, hidden: int, seed: int, **options: Any
) -> tuple[KineFlow, bool]:
    """Return an untrained flow on its linear head, and whether the residuals needed a floor."""
    with isolated(derive_seed(seed, "weights")):
        model = KineFlow(asdict(case.layout), hidden=hidden, **options)
    return model, model.set_head(_head(case, parts))


def _trained(
    stage: Any, model: KineFlow, case: Case, parts: Parts, steps: int, seed: int
) -> TrainedFlow:
    return train_flow(
        model,
        parts.train,
        parts.starts,
        _plan(case, steps),
        seed,
        held=parts.few,
        watch=lambda done: stage.progress(done.step, steps, loss=done.loss),
    )


def flow_trial(
    stage: Any,
    *,
    case: Case,
    arm: str,
    steps: int,
    hidden: int,
    samples: int,
    calls: int,
    call_counts: tuple[int, ...],
    noise: float,
    detail: bool,
    seed: int,
) -> dict[str, Any]:
    """Train one network on one set and score every way of sampling it."""
    if arm == "no_drivers":
        case = case.without_drivers()
    parts = case.parts()
    model, floored = _model(case, parts, hidden, seed, **ARMS[arm])
    started = time.process_time()
    trained = _trained(stage, model, case, parts, steps, seed)
    ways = _Ways(model, parts.test, samples, calls, seed)
    found: dict[str, Any] = {
        "seconds_train": time.process_time() - started,
        "floored": floored,
        "held_out": [[int(step), float(score)] for step, score in trained.held_out],
        "losses": np.asarray(trained.losses),
        "parameters": sum(p.numel() for p in model.parameters()),
        "methods": ways.plain(arm, detail=detail),
    }
    if arm == "forces" and call_counts:
        found["calls"] = ways.by_calls(call_counts)
    if noise and arm in ("forces", "whitened", "plain"):
        found["noise"] = ways.under_noise(arm, noise)
    if case.name == "osc" and arm in ("forces", "whitened"):
        found["osc"] = _against_exact(case, parts, ways, detail=detail)
    if detail and arm == "forces":
        found["fan"] = ways.fan()
    return found


class _Ways:
    """Ways of sampling one network on the test windows; each draws with a seed of its own."""

    def __init__(self, model: KineFlow, test: Windows, samples: int, calls: int, seed: int) -> None:
        self.model, self.test, self.samples, self.calls, self.seed = (
            model,
            test,
            samples,
            calls,
            seed,
        )

    def draw(self, name: str, windows: Windows | None = None, **options: Any) -> np.ndarray:
        """Return futures (windows, samples, H, C)."""
        settings = {"steps": self.calls, "antithetic": True} | options
        drawn = self.model.sample(
            self.test if windows is None else windows,
            self.samples,
            seed=derive_seed(self.seed, name),
            **settings,
        )
        return drawn.numpy()

    def score(self, name: str, *, detail: bool = False, **options: Any) -> dict[str, Any]:
        """Return scores and seconds of one way."""
        started = time.process_time()
        samples = self.draw(name, **options)
        seconds = time.process_time() - started
        truth = _truth(self.test)
        antithetic = options.get("antithetic", True)
        scores = score_samples(samples, truth, antithetic=antithetic, detail=detail)
        return scores | {"seconds_sample": seconds}

    def plain(self, arm: str, *, detail: bool) -> dict[str, dict[str, Any]]:
        """Score the ways that have a name in the report."""
        if arm == "forces":
            found = {"kineflow": self.score("kineflow", order=2, detail=detail)}
            found["first_order_forces"] = self.score("first_order_forces", order=1)
            return found
        if arm == "whitened":
            found = {"first_order_whitened": self.score("whitened", order=1, detail=detail)}
            if detail:
                found["second_order_whitened"] = self.score("whitened second", order=2)
            return found
        if arm == "plain":
            path = GaussianPath(CosineSchedule())
            return {
                "first_order_plain": self.score("plain", order=1, detail=detail),
                "ddpm_residual": self._fewer(2).score(
                    "ddpm", order=1, steps=DDPM_STEPS, solver=DDPM(), path=path, antithetic=False
                ),
            }
        return {arm: self.score(arm, order=2)}

    def _fewer(self, share: int) -> _Ways:
        """Return the same with fewer samples: the scores do not depend on their number."""
        return _Ways(self.model, self.test, self.samples // share, self.calls, self.seed)

    def by_calls(self, counts: tuple[int, ...]) -> dict[str, dict[str, float]]:
        """Score few and many network calls on every third window."""
        some = _Ways(
            self.model, self.test.rows(slice(None, None, 3)), self.samples, self.calls, self.seed
        )
        ways: dict[str, dict[str, Any]] = {
            "kineflow": {"order": 2},
            "first_order_forces": {"order": 1},
            "context_momentum": {"order": 2, "momentum": "context"},
            "even_times": {"order": 2, "grid": "uniform"},
        }
        return {
            name: {str(n): some.score(f"{name} {n}", steps=n, **options)["crps"] for n in counts}
            for name, options in ways.items()
        }

    def under_noise(self, arm: str, noise: float) -> dict[str, float]:
        """Return the score with noise on the contexts, by method."""
        stream = torch.Generator().manual_seed(derive_seed(self.seed, "context noise"))
        shaken = noise * torch.randn(self.test.context.shape, generator=stream)
        test = self.test
        noisy = Windows(test.context + shaken, test.future, test.past, test.calendar, test.target)
        some = _Ways(self.model, noisy, self.samples, self.calls, self.seed)
        orders = {
            "forces": {"kineflow": 2, "first_order_forces": 1},
            "whitened": {"first_order_whitened": 1},
            "plain": {"first_order_plain": 1},
        }[arm]
        return {
            name: some.score(f"noisy {name}", order=order)["crps"] for name, order in orders.items()
        }

    def fan(self) -> dict[str, Any]:
        """Return a few windows with their futures, of the last channel."""
        chosen = self.test.rows(slice(3, None, max(1, len(self.test) // FAN_WINDOWS)))
        chosen = chosen.rows(slice(0, FAN_WINDOWS))
        samples = self.draw("fan", chosen)[:, :, :, -1]
        return {
            "context": chosen.context[:, :, -1].numpy(),
            "truth": _truth(chosen)[:, :, -1],
            "samples": samples,
        }


def _truth(windows: Windows) -> np.ndarray:
    assert windows.target is not None
    return windows.target.numpy()


def _against_exact(case: Case, parts: Parts, ways: _Ways, *, detail: bool) -> dict[str, Any]:
    """Hold the oscillator's forecasts against its law, also with the force to come flipped."""
    series = DrivenOscillator.simulate(len(case.values), OSCILLATOR_SEED)
    first = case.ends[0]
    centre, spread = case.values[:first].mean(), case.values[:first].std()
    starts = (parts.test_rows + case.context).numpy()
    place = starts[:, None] + np.arange(case.horizon)
    law = series.predict(starts, case.horizon)
    flipped_law = series.predict(starts, case.horizon, force=-series.force[place])
    future = parts.test.future.clone()
    future[:, case.context :] *= -1
    test = parts.test
    flipped = Windows(test.context, future, test.past, test.calendar, test.target)
    samples = ways.draw("force"), ways.draw("force", flipped)
    change = (samples[1].mean(axis=1) - samples[0].mean(axis=1))[..., 0] * spread
    exact = flipped_law.mean - law.mean
    found: dict[str, Any] = {
        "crps_exact": float(law.crps(series.y[place]).mean() / spread),
        "force_effect_error": float(np.linalg.norm(change - exact) / np.linalg.norm(exact)),
    }
    if detail:
        chosen = int(np.argmax(np.abs(exact).mean(axis=1)))
        found["switch"] = {
            "context": test.context[chosen, :, 0].numpy(),
            "truth": _truth(test)[chosen, :, 0],
            "as_is": samples[0][chosen, :, :, 0],
            "flipped": samples[1][chosen, :, :, 0],
            "exact_mean": (law.mean[chosen] - centre) / spread,
            "exact_flipped": (flipped_law.mean[chosen] - centre) / spread,
            "exact_spread": law.spread / spread,
        }
    return found


def simple_trial(stage: Any, *, case: Case, steps: int, samples: int, seed: int) -> dict[str, Any]:
    """Score the simple laws on one set: Gaussian, bootstrap, linear quantiles, seasonal naive.

    The linear laws come in two forms, common and by channel; the better one on validation counts.
    """
    parts, layout = case.parts(), case.layout
    truth, draw = _truth(parts.test), derive_seed(seed, "draw")
    apart = parts.starts[:: max(1, len(parts.starts) // 2000)]
    forms = {
        form: baselines.LinearLaw(_head(case, parts, by_channel=form == "channels"), layout)
        for form in ("common", "channels")
    }
    held = {
        form: score_samples(law.sample(parts.held, samples, draw).numpy(), _truth(parts.held))
        for form, law in forms.items()
    }
    better = min(forms, key=lambda form: held[form]["crps"])
    head = forms[better].head
    residuals = forms[better].residuals_of(parts.train, apart)
    bootstrap = baselines.LinearLaw(head, layout, residuals)
    naive = baselines.SeasonalNaive.fitted(parts.train, apart, layout, case.period)
    found = {
        f"linear_gaussian_{form}": _timed(
            lambda law=law: score_samples(
                law.sample(parts.test, samples, draw).numpy(), truth, detail=True
            )
        )
        for form, law in forms.items()
    }
    found |= {
        "linear_gaussian": found[f"linear_gaussian_{better}"],
        "linear_bootstrap": _timed(
            lambda: score_samples(
                bootstrap.sample(parts.test, samples, draw).numpy(), truth, antithetic=False
            )
        ),
        "seasonal_naive": _timed(
            lambda: score_quantiles(naive.forecast(parts.test).numpy(), baselines.LEVELS, truth)
        ),
    }
    started = time.process_time()
    net = baselines.train_quantiles(
        head, parts.train, parts.starts, layout, _plan(case, steps), seed, parts.held
    )
    trained = time.process_time() - started
    found["quantile_linear"] = _timed(
        lambda: score_quantiles(
            baselines.quantile_forecast(net, parts.test, layout).numpy(), baselines.LEVELS, truth
        )
    ) | {"seconds_train": trained}
    stage.progress(1, 1)
    return {"methods": found, "penalty": head.penalty, "form": better}


MEANS = {
    "dlinear": baselines.DLinear,
    "driver_mlp": baselines.DriverMLP,
    "patchtst": baselines.PatchTransformer,
}
"""Networks for the mean."""


def mean_trial(
    stage: Any, *, case: Case, kinds: tuple[str, ...], steps: int, seed: int
) -> dict[str, Any]:
    """Score the networks for the mean on one set."""
    parts, found = case.parts(), {}
    for place, name in enumerate(kinds):
        started = time.process_time()
        net = baselines.train_mean(
            MEANS[name],
            parts.train,
            parts.starts,
            case.layout,
            _plan(case, steps),
            seed,
            parts.held,
        )
        trained = time.process_time() - started
        line: Tensor = baselines.mean_forecast(net, parts.test, case.layout)
        found[name] = score_line(line.numpy(), _truth(parts.test)) | {"seconds_train": trained}
        stage.progress(place + 1, len(kinds))
    return {"methods": found}


def _timed(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    started = time.process_time()
    found = work()
    return found | {"seconds_sample": time.process_time() - started}


def own_trial(
    stage: Any,
    *,
    case: Case,
    steps: int,
    hidden: int,
    samples: int,
    calls: int,
    order: int,
    seed: int,
) -> dict[str, Any]:
    """Train the flow on one's own series; score it beside the simple laws, and draw fans."""
    parts = case.parts()
    model, _ = _model(case, parts, hidden, seed)
    _trained(stage, model, case, parts, steps, seed)
    ways = _Ways(model, parts.test, samples, calls, seed)
    simple = simple_trial(stage, case=case, steps=steps, samples=samples, seed=seed)["methods"]
    return {
        "methods": {"kineflow": ways.score("kineflow", order=order)} | simple,
        "fan": ways.fan(),
    }
