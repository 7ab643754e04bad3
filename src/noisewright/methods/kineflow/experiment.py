"""Does a flow with momentum forecast better, and what do order, forces and loss add?

Every method sees the same windows of the same sets. One network is trained with the drivers as
forces and drawn in both orders; others take drivers the usual way. The oscillator's exact law says
how much there was to gain. With ``--data FILE.csv`` the run forecasts a series of your own instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from noisewright.data.sources import NotAtHandError
from noisewright.methods.kineflow import checks, pictures, trials
from noisewright.methods.kineflow.cases import Case, oscillator_case, series_case
from noisewright.methods.kineflow.own_series import forecast_own_series
from noisewright.methods.kineflow.settings import Settings
from noisewright.methods.kineflow.summary import finding, main_set, tables
from noisewright.reports.run import Run

__all__ = ["Settings", "run"]

HOURLY = ("etth1", "etth2")
FLOWS = ("forces", "whitened", "plain")
ABLATIONS = ("state", "damped", "unweighted")
SCORES = ("crps", "mse", "coverage90", "roughness_ratio", "seconds_sample")
LINES = ("dlinear", "driver_mlp", "patchtst")
GENERATIVE = ("first_order_flow", "ddpm_residual")

Records = dict[str, dict[str, list[dict[str, Any]]]]


def run(settings: Settings, run: Run) -> None:
    """Measure everything that the claims ask for and draw the report."""
    settings = settings.checked()
    if run.data is not None:
        forecast_own_series(settings, run)
        return
    cases = _cases(settings, run)
    found = _train(settings, run, cases)
    _record_methods(settings, run, cases, found)
    _record_extras(settings, run, found)
    _exactness(run)
    _pictures(settings, run, cases, found)
    tables(run, list(cases))
    run.finding(finding(run, main_set(cases)))


# ---------------------------------------------------------------------------- measurements


def _cases(settings: Settings, run: Run) -> dict[str, Case]:
    """Load the sets that are at hand; say what was read or is missing."""
    cases = {}
    for name in settings.sets:
        try:
            if name == "osc":
                cases[name] = oscillator_case(settings.osc_hours)
            else:
                cases[name] = series_case(name, settings.channels, settings.stride)
        except NotAtHandError as error:
            run.data_note(f"{name}: not measured: {error}")
            for kind in ("crps", "mse", "coverage90", "roughness_ratio", "noise_rise"):
                run.unmeasured(f"{name}.{kind}.kineflow", str(error))
            continue
        run.data_note(cases[name].note)
    return cases


def _steps(settings: Settings, name: str) -> int:
    if name in HOURLY:
        return settings.steps
    return settings.osc_steps if name == "osc" else settings.small_steps


def _train(settings: Settings, run: Run, cases: dict[str, Case]) -> Records:
    """Train every arm on every set with every seed; return records by set and arm."""
    flows, simple, means = [], [], []
    for name, case in cases.items():
        steps, hourly = _steps(settings, name), name in HOURLY
        arms = [*FLOWS, *(("no_drivers",) if name == "osc" else ())]
        arms += ABLATIONS if name == "etth1" and settings.ablations else ()
        for seed in run.seeds:
            flows += [
                {
                    "case": case,
                    "arm": arm,
                    "steps": steps,
                    "hidden": settings.hidden if hourly or name == "osc" else settings.small_hidden,
                    "samples": settings.samples,
                    "calls": settings.calls,
                    "call_counts": settings.call_counts if name == "etth1" else (),
                    "noise": settings.noise if name == "etth1" else 0.0,
                    "detail": name in ("etth1", "osc"),
                    "seed": seed,
                }
                for arm in arms
            ]
            common = {"case": case, "steps": steps, "seed": seed}
            simple.append(common | {"samples": settings.samples})
            kinds = LINES if hourly else LINES[:2]
            means += [common | {"kinds": (kind,)} for kind in kinds]
    found: Records = {name: {} for name in cases}
    labelled = [
        ("flow", trials.flow_trial, flows),
        ("simple", trials.simple_trial, simple),
        ("mean", trials.mean_trial, means),
    ]
    for label, work, tasks in labelled:
        for task, record in zip(tasks, run.stages(label, work, tasks), strict=True):
            arm = task.get("arm") or "+".join(task.get("kinds", (label,)))
            found[task["case"].name].setdefault(arm, []).append(record)
    return found


def _record_methods(settings: Settings, run: Run, cases: dict[str, Case], found: Records) -> None:
    """Record the scores of every method by key, and those of the better first-order flow."""
    for name in cases:
        run.record(f"{name}.nfe", settings.calls)
        for place, seed in enumerate(run.seeds):
            records = [parts[place] for parts in found[name].values()]
            methods = {m: s for record in records for m, s in record["methods"].items()}
            better = _better_first_order(found[name], place)
            methods["first_order_flow"] = methods[better]
            run.record(f"{name}.first_order_is_whitened", better.endswith("whitened"), seed=seed)
            for method, scores in methods.items():
                for score in SCORES:
                    if score in scores:
                        run.record(f"{name}.{score}.{method}", scores[score], seed=seed)
                if "seconds_train" in scores:
                    run.record(f"{name}.seconds_train.{method}", scores["seconds_train"], seed=seed)
            for arm, method in (
                ("forces", "kineflow"),
                ("whitened", "first_order_whitened"),
                ("plain", "first_order_plain"),
            ):
                value = found[name][arm][place]["seconds_train"]
                run.record(f"{name}.seconds_train.{method}", value, seed=seed)
            _record_best(run, name, methods, seed)


def _better_first_order(arms: dict[str, list[dict[str, Any]]], place: int) -> str:
    """Return which form of the usual flow was better on validation."""
    least = {arm: min(s for _, s in arms[arm][place]["held_out"]) for arm in ("whitened", "plain")}
    return f"first_order_{min(least, key=lambda arm: least[arm])}"


def _record_best(run: Run, name: str, methods: dict[str, dict[str, Any]], seed: int) -> None:
    lines = [methods[m]["mse"] for m in LINES if m in methods]
    run.record(f"{name}.mse.best_discriminative", min(lines), seed=seed)
    rivals = [methods[m]["crps"] for m in GENERATIVE if m in methods]
    run.record(f"{name}.crps.best_generative", min(rivals), seed=seed)


def _record_extras(settings: Settings, run: Run, found: Records) -> None:
    """Record calls, noise and what the exact law says."""
    for place, seed in enumerate(run.seeds):
        if "etth1" in found:
            arms = {arm: parts[place] for arm, parts in found["etth1"].items()}
            for way, scores in arms["forces"].get("calls", {}).items():
                for count, value in scores.items():
                    run.record(f"etth1.crps_calls.{count}.{way}", value, seed=seed)
            noisy = {m: v for arm in FLOWS for m, v in arms[arm].get("noise", {}).items()}
            if noisy:
                noisy["first_order_flow"] = noisy[_better_first_order(found["etth1"], place)]
            clean = {m: s for arm in FLOWS for m, s in arms[arm]["methods"].items()}
            clean["first_order_flow"] = clean[_better_first_order(found["etth1"], place)]
            for method, value in noisy.items():
                run.record(f"etth1.crps_noise.{settings.noise:g}.{method}", value, seed=seed)
                rise = value / clean[method]["crps"] - 1
                run.record(f"etth1.noise_rise.{method}", rise, seed=seed)
        if "osc" in found:
            record = found["osc"]["forces"][place]
            exact = record["osc"]["crps_exact"]
            ratio = record["methods"]["kineflow"]["crps"] / exact
            run.record("osc.crps.exact", exact, seed=seed)
            run.record("osc.crps_ratio_to_exact", ratio, seed=seed)
            run.record("osc.force_effect_error", record["osc"]["force_effect_error"], seed=seed)
            usual = found["osc"]["whitened"][place]["osc"]["force_effect_error"]
            run.record("osc.force_effect_error.first_order_whitened", usual, seed=seed)


def _exactness(run: Run) -> None:
    """Hold the formulas against closed forms, and measure seconds and memory of sampling."""
    tasks = [{"seed": seed} for seed in run.seeds]
    for seed, record in zip(run.seeds, run.stages("exact", checks.check_trial, tasks), strict=True):
        for name, value in record.items():
            run.record(f"exact.{name}", value, seed=seed)
    scale = run.stage("scale", checks.scale_trial)
    counts, seconds = zip(*((int(n), v) for n, v in scale["seconds"].items()), strict=True)
    run.record("scale.window_seconds", dict(zip(counts, seconds, strict=True))[100])
    run.record("scale.exponent", float(np.polyfit(np.log(counts), np.log(seconds), 1)[0]))
    run.record("scale.peak_mb", scale["peak_mb"])
    run.record("scale.libraries_mb", scale["libraries_mb"])


# ---------------------------------------------------------------------------- the report


def _spreads(run: Run, name: str, kind: str, methods: Iterable[str]) -> dict[str, tuple]:
    """Return mean and spread of the methods that were measured."""
    known = run.values.means()
    return {m: run.spread(f"{name}.{kind}.{m}") for m in methods if f"{name}.{kind}.{m}" in known}


def _pictures(settings: Settings, run: Run, cases: dict[str, Case], found: Records) -> None:
    first = {name: {arm: parts[0] for arm, parts in arms.items()} for name, arms in found.items()}
    main = main_set(cases)
    _lead(run, main, first[main])
    _additions(run, main)
    _by_lead(run, main, first[main])
    _calibration(run, first)
    if "osc" in first:
        run.figure(
            "force",
            pictures.switched_force(first["osc"]["forces"]["osc"]["switch"]),
            caption="Oscillator, one window: futures with the force as it came, and with the force "
            "to come flipped in sign. Dashed: mean and 90 % interval of the exact law.",
            alt="Two fan charts; in both the blue bands lie on the dashed lines of the exact law.",
        )
    _portrait(run)
    if first[main]["forces"].get("calls"):
        _calls(settings, run)
    fans = {name: arms["forces"]["fan"] for name, arms in first.items() if "fan" in arms["forces"]}
    if fans:
        run.figure(
            "fans",
            pictures.fans(fans),
            caption="More windows: 50 and 90 % bands, four futures each, and what came (orange).",
            alt="Rows of fan charts, three windows a set.",
        )
    if "spectrum" in first[main]["forces"]["methods"]["kineflow"]:
        shown = {
            method: scores["spectrum"]
            for arm in FLOWS
            for method, scores in first[main][arm]["methods"].items()
            if "spectrum" in scores
        }
        truth = first[main]["forces"]["methods"]["kineflow"]["spectrum_truth"]
        run.figure(
            "spectra",
            pictures.spectra(truth, shown),
            caption=f"{main}: power of futures over lead times beside that of what came. Nothing "
            "in a phase-space flow smooths lead times by itself.",
            alt="Falling curves of power against frequency, one for what came, one a method.",
        )


def _lead(run: Run, main: str, arms: dict[str, Any]) -> None:
    order = (
        "kineflow",
        "first_order_forces",
        "first_order_flow",
        "ddpm_residual",
        "quantile_linear",
        "linear_bootstrap",
        "linear_gaussian",
        "seasonal_naive",
    )
    fan = arms["forces"].get("fan")
    scores = _spreads(run, main, "crps", order)
    shown = {key: np.asarray(fan[key])[0] for key in ("context", "truth", "samples")} if fan else {}
    if shown:
        run.figure(
            "scores",
            pictures.lead_picture(scores, shown, f"CRPS on {main}, lower is better"),
            caption=f"Left: the ranked probability score of forecasts on {main}, standardised "
            "units, mean and spread over seeds. The first two bars are one network drawn in both "
            "orders: they tie. Right: futures of one test window.",
            alt="Horizontal bars of the score by method, ours first, and a fan chart whose blue "
            "bands hold the orange line of what came.",
        )


def _additions(run: Run, main: str) -> None:
    parts = ("first_order_forces", "second_order_whitened", *ABLATIONS, "first_order_plain")
    parts = (*parts, "linear_gaussian_common", "linear_gaussian_channels")
    scores = _spreads(run, main, "crps", parts)
    if scores:
        run.figure(
            "additions",
            pictures.additions(scores, run.spread(f"{main}.crps.kineflow")[0]),
            caption=f"What each part adds on {main}: the score of variants above that of kineflow. "
            "First order with the same network: the order adds nothing. Drivers concatenated or "
            "added to the state: what forces add. Loss in whitened units: what the loss adds.",
            alt="Bars of percent above kineflow, one a variant.",
        )


def _by_lead(run: Run, main: str, arms: dict[str, Any]) -> None:
    methods = {m: s for record in arms.values() for m, s in record["methods"].items()}
    shown = ("kineflow", "first_order_whitened", "linear_gaussian", "seasonal_naive")
    ours = methods["kineflow"]
    curves = {m: methods[m]["crps_by_lead"] for m in shown if "crps_by_lead" in methods.get(m, {})}
    if "spread_by_lead" in ours:
        run.figure(
            "leads",
            pictures.by_lead(curves, (ours["spread_by_lead"], ours["error_by_lead"])),
            caption=f"{main}, first seed. Left: score by lead time. Right: the spread of futures "
            "beside the error of their mean; equal where spread says how wrong the mean will be.",
            alt="Rising curves of score by lead; two rising curves of spread and error.",
        )


def _calibration(run: Run, first: dict[str, dict[str, Any]]) -> None:
    ours = {name: arms["forces"]["methods"]["kineflow"] for name, arms in first.items()}
    held = {name: s["reliability"] for name, s in ours.items() if "reliability" in s}
    if held:
        run.figure(
            "calibration",
            pictures.reliability(held, {name: ours[name]["ranks"] for name in held}),
            caption="Left: how often central intervals hold what came. Right: its rank among the "
            "futures (probability integral transform); flat at 1 is calibrated.",
            alt="Reliability curves near the diagonal, and histograms of ranks.",
        )


def _portrait(run: Run) -> None:
    walks = run.stage("portrait", checks.portrait_trial)
    run.figure(
        "portrait",
        pictures.phase_portrait(
            np.asarray(walks["second"]), np.asarray(walks["first"]), walks["times"]
        ),
        caption="A law of two modes with its exact field. Left: walks in phase space from noise "
        "(grey) to data (orange). Right: positions over the noise levels visited, beside states of "
        "the usual flow: other curves, the same law at the end.",
        alt="Curves in the plane of position and momentum that end in two clusters; curves of "
        "position that split into two bundles.",
    )


def _calls(settings: Settings, run: Run) -> None:
    counts = settings.call_counts
    curves = {
        way: [run.spread(f"etth1.crps_calls.{n}.{way}")[0] for n in counts] for way in pictures.WAYS
    }
    known = run.values.means()
    methods = ("kineflow", "first_order_forces", "first_order_flow")
    rise = {m: known[f"etth1.noise_rise.{m}"] for m in methods if f"etth1.noise_rise.{m}" in known}
    run.figure(
        "calls",
        pictures.calls_and_noise(counts, curves, rise, settings.noise),
        caption="ETTh1, every third window. Above: score against network calls, one network, "
        "four ways of walking. Below: how much the score rises when contexts are noisy.",
        alt="Curves that fall steeply to four calls and are flat from there; bars of the rise.",
    )
