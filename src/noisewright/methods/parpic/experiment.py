"""Does keeping the direction of edges find groups that symmetrising loses, and at what cost?

Every method clusters the same graphs with the true number of groups: block models whose groups
differ in direction, nearest-neighbour digraphs of tables, two real digraphs. Then the walk is held
against its definitions, and time and memory are measured on growing graphs. With ``--graph`` the
run clusters a graph of your own instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from noisewright.data.sources import NotAtHandError
from noisewright.methods.parpic import measures, pictures
from noisewright.methods.parpic.baselines import OWN_COUNT, available_methods
from noisewright.methods.parpic.command import count_or_auto
from noisewright.methods.parpic.graph_sets import (
    EXTRA,
    KINDS,
    KNN,
    MODELS,
    REAL,
    WHY,
    Case,
    block_model,
    packaged,
    real,
)
from noisewright.methods.parpic.own_graph import cluster_own_graph
from noisewright.methods.parpic.settings import Settings
from noisewright.random import derive_seed
from noisewright.reports.run import Run

__all__ = ["Settings", "run"]

MEANT = (*(name for name in MODELS if name not in EXTRA), *KNN, *REAL)
"""The sets that means are taken over."""


def run(settings: Settings, run: Run) -> None:
    """Measure everything that the claims ask for and draw the report."""
    settings = settings.checked()
    if settings.graph is not None or run.data is not None:
        cluster_own_graph(settings, run)
        return
    cases = _cases(settings, run)
    compared = _compare(settings, run, cases)
    swept = _sweep(settings, run, cases)
    _check(run, cases)
    seconds, exponent = _scale(settings, run)
    _matrices(run, cases, compared)
    run.figure("entropy", pictures.curves(_first(compared)), **_ENTROPY)
    run.figure("embedding", _planes(cases, compared), **_EMBEDDING)
    run.figure("drawing", _small_graph(cases, compared), **_DRAWING)
    run.figure("gamma", pictures.gamma_sweep(settings.gammas, swept), **_GAMMA)
    run.figure("runtime", pictures.runtime(seconds, exponent), **_RUNTIME)
    _tables(run, cases)
    run.finding(_finding(run))


Cases = dict[str, dict[tuple[int, int], Case]]
Records = dict[str, list[dict[str, Any]]]


def _cases(settings: Settings, run: Run) -> Cases:
    """Load or draw each graph for each seed and repetition; say what was read or is missing."""
    draws = [(seed, repeat) for seed in run.seeds for repeat in range(settings.repeats)]
    cases: Cases = {
        name: {draw: block_model(name, _seed(*draw)) for draw in draws} for name in MODELS
    }
    for name in (*KNN, *REAL):
        try:
            case = packaged(name) if name in KNN else real(name)
        except NotAtHandError as error:
            _miss(run, name, str(error))
            continue
        cases[name] = dict.fromkeys(draws, case)
    for found in cases.values():
        run.data_note(next(iter(found.values())).note)
    return cases


def _seed(seed: int, repeat: int) -> int:
    return seed if repeat == 0 else derive_seed(seed, "repeat", repeat) % 2**31


def _miss(run: Run, name: str, why: str) -> None:
    """Say why a set has no values; a mean over all sets has none then either."""
    run.data_note(f"{name}: not measured: {why}")
    for method in available_methods():
        for key in (f"ari.{name}.{method}", f"ami.{name}.{method}", f"ari.all_mean.{method}"):
            run.unmeasured(key, why)


def _compare(settings: Settings, run: Run, cases: Cases) -> Records:
    """Cluster every graph by every method."""
    tasks = [
        {
            "name": name,
            "graph": case.graph,
            "groups": case.groups,
            "seed": _seed(*draw),
            "gamma": settings.gamma,
            "steps": count_or_auto(settings.time, "time"),
        }
        for name, found in cases.items()
        for draw, case in found.items()
    ]
    records = iter(run.stages("cluster", measures.compare, tasks))
    compared = {name: [next(records) for _ in found] for name, found in cases.items()}
    for i, seed in enumerate(run.seeds):
        part = slice(i * settings.repeats, (i + 1) * settings.repeats)
        _record_scores(run, {name: found[part] for name, found in compared.items()}, seed)
    return compared


def _record_scores(run: Run, compared: Records, seed: int) -> None:
    methods = available_methods()
    for score in ("ari", "ami"):
        means = {
            (name, method): float(np.mean([r["methods"][method][score] for r in found]))
            for name, found in compared.items()
            for method in methods
        }
        for (name, method), value in means.items():
            run.record(f"{score}.{name}.{method}", value, seed=seed)
        for method in methods:
            for title, names in (("knn_mean", KNN), ("all_mean", MEANT)):
                if all(name in compared for name in names):
                    value = float(np.mean([means[name, method] for name in names]))
                    run.record(f"{score}.{title}.{method}", value, seed=seed)
    for name, found in compared.items():
        time = float(np.mean([r["time"] for r in found]))
        run.record(f"diffusion_time.{name}", time, seed=seed)
        best = float(np.max(np.mean([r["fixed"] for r in found], axis=0)))
        run.record(f"ari.{name}.best_fixed_time", best, seed=seed)
    fixed = [np.max(np.mean([r["fixed"] for r in compared[name]], axis=0)) for name in KNN]
    run.record("ari.knn_mean.best_fixed_time", float(np.mean(fixed)), seed=seed)


def _sweep(settings: Settings, run: Run, cases: Cases) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return mean and spread of ParPIC's agreement over gamma for each set."""
    tasks = [
        {
            "name": name,
            "graph": cases[name][seed, 0].graph,
            "groups": cases[name][seed, 0].groups,
            "seed": seed,
            "gammas": settings.gammas,
        }
        for name in cases
        for seed in run.seeds
    ]
    records = iter(run.stages("gamma", measures.sweep, tasks))
    swept = {name: np.array([next(records)["ari"] for _ in run.seeds]) for name in cases}
    return {name: (found.mean(axis=0), found.std(axis=0)) for name, found in swept.items()}


CHECKS = {
    "balance": "exactness.balance",
    "rows": "exactness.rows",
    "permutation": "exactness.permutation",
    "scale": "exactness.scale",
    "truncation": "truncation.gap",
    "entropy_exact": "entropy.exact_error",
    "entropy_probes": "entropy.probe_error",
    "entropy_drop": "entropy.lazy_drop",
    "entropy_end": "entropy.end_error",
}


def _check(run: Run, cases: Cases) -> None:
    """Hold the walk of the block models against definitions; the worst of them counts."""
    names = [name for name in MODELS if name in MEANT]
    tasks = [
        {
            "name": name,
            "graph": cases[name][seed, 0].graph,
            "groups": cases[name][seed, 0].groups,
            "seed": seed,
        }
        for seed in run.seeds
        for name in names
    ]
    records = iter(run.stages("check", measures.check_walk, tasks))
    for seed in run.seeds:
        found = [next(records) for _ in names]
        for field, key in CHECKS.items():
            run.record(key, max(record[field] for record in found), seed=seed)


def _scale(settings: Settings, run: Run) -> tuple[dict[str, dict[int, float]], float]:
    """Time ParPIC and others on growing graphs; once, with the first seed."""
    timed = ("parpic", "sc_sym", "dsc", "pic", *(m for m in OWN_COUNT if m in available_methods()))
    record = run.stage(
        "time",
        measures.scale,
        sizes=settings.sizes,
        methods=(*timed, "dense_spectral"),
        limit=settings.baseline_limit,
        seed=run.seeds[0],
    )
    seconds = {
        method: {int(n): found["seconds"] for n, found in rows.items()}
        for method, rows in record.items()
    }
    for method, row in seconds.items():
        for n, value in row.items():
            run.record(f"seconds.{n}.{method}", value)
    for n, found in record["parpic"].items():
        run.record(f"peak_mb.{n}", found["peak_mb"])
    ours = seconds["parpic"]
    exponent = float(np.polyfit(np.log(list(ours)), np.log(list(ours.values())), 1)[0])
    run.record("scaling_exponent", exponent)
    return seconds, exponent


# ---------------------------------------------------------------------------- the report

SHOWN = ("parpic", "sc_sym", "dsc", "bibliometric", "hermitian", "pic")

SHORT = {
    "core_periphery": "core",
    "assortative": "assort.",
    "assortative_hard": "hard",
    "chain_sparse": "sparse chain",
    "breast_cancer": "cancer",
    "drosophila_left": "fly",
}
"""Heads of columns."""

_ENTROPY = {
    "caption": "Entropy of the walk on its way from one step to its limit, and the time ParPIC "
    "chooses on each graph (dot): the knee, where a walk has filled its group and not yet left "
    "it. Nearest-neighbour graphs need some thirty steps, block models three or four.",
    "alt": "Curves that rise from 0 to 1 over a logarithmic axis of steps, one for each graph, "
    "each with a dot at its knee.",
}
_EMBEDDING = {
    "caption": "Vertices where the random columns put them (two main directions). Left by the "
    "group found, right by the true group.",
    "alt": "Scatter plots of vertices in clouds, coloured by group, found beside true.",
}
_DRAWING = {
    "caption": "The nearest-neighbour graph of the wines, vertices where the embedding puts them. "
    "An edge has the colour of its tail's group at its tail; a cross is a wine in the wrong group.",
    "alt": "A drawing of 178 vertices in three clusters joined by directed edges.",
}
_GAMMA = {
    "caption": "Agreement with the truth over gamma, the one parameter of the vertex measure. At "
    "gamma = 0 the walk is that of W + Wᵀ, where the direction is lost.",
    "alt": "One curve for each graph of the adjusted Rand index over gamma from 0 to 1.",
}
_RUNTIME = {
    "caption": "Seconds of one fit on one core against size, assortative block models with 15 "
    "edges out of each vertex.",
    "alt": "Rising lines on logarithmic axes, one for each method.",
}


_CURVES = ("chain", "core_periphery", "email", "breast_cancer", "wine", "digits")


def _first(compared: Records) -> dict[str, dict[str, Any]]:
    return {name: compared[name][0] for name in _CURVES if name in compared}


def _matrices(run: Run, cases: Cases, compared: Records) -> None:
    """Draw the picture that answers the question."""
    shown = {}
    for name in ("chain", "core_periphery"):
        case, record = next(iter(cases[name].values())), compared[name][0]
        order = np.random.default_rng(0).permutation(len(case.groups))
        labels = {m: np.asarray(record["labels"][m])[order] for m in ("sc_sym", "parpic")}
        shown[name] = (case.graph[order][:, order], labels)
    scores = {name: {m: run.spread(f"ari.{name}.{m}") for m in SHOWN} for name in shown}
    run.figure(
        "matrices",
        pictures.matrices(shown, scores, SHOWN),
        caption="Two graphs whose groups differ in where their edges point. Each square is the "
        "adjacency matrix, tails down, heads across; lines part the groups found. ParPIC's order "
        "shows the blocks, the symmetrised graph's does not. Bars: agreement with the truth.",
        alt="For a chain and for a core with its peripheries: the adjacency matrix as given, "
        "ordered by spectral clustering, ordered by ParPIC, and bars of the adjusted Rand index.",
    )


def _planes(cases: Cases, compared: Records) -> Any:
    shown = {
        name: (
            np.asarray(compared[name][0]["plane"]),
            np.asarray(compared[name][0]["labels"]["parpic"]),
            next(iter(cases[name].values())).groups,
        )
        for name in ("chain", "core_periphery")
    }
    return pictures.planes(shown)


def _small_graph(cases: Cases, compared: Records) -> Any:
    case, record = next(iter(cases["wine"].values())), compared["wine"][0]
    labels = np.asarray(record["labels"]["parpic"])
    return pictures.drawing(case.graph, np.asarray(record["plane"]), labels, case.groups)


def _tables(run: Run, cases: Cases) -> None:
    names = list(cases)
    for score, title in (("ari", "Adjusted Rand index"), ("ami", "Adjusted mutual information")):
        rows = [
            [pictures.NAMES[m], *(run.spread(f"{score}.{name}.{m}") for name in names)]
            for m in available_methods()
        ]
        run.table(
            f"{title} against the true groups (Louvain, Leiden and Infomap choose the number of "
            "groups themselves, the others are given it)",
            ["method", *(SHORT.get(name, name) for name in names)],
            rows,
            ours=pictures.NAMES["parpic"],
        )
    if losses := list(_losses(run, names)):
        run.table(
            "Where ParPIC falls behind some other method by more than 0.01, and why",
            ["set", "kind of graph", "ParPIC", "unit rows", "spectral", "best", "", "reason"],
            losses,
        )


def _losses(run: Run, names: list[str]) -> Iterator[list[Any]]:
    others = [m for m in available_methods() if m not in ("parpic", "parpic_rows")]
    for name in names:
        scores = {m: run.spread(f"ari.{name}.{m}") for m in available_methods()}
        best = max(others, key=lambda method: scores[method][0])
        if scores[best][0] > scores["parpic"][0] + 0.01:
            shown = [scores[m] for m in ("parpic", "parpic_rows", "sc_sym", best)]
            why = WHY.get(name, "not understood")
            yield [name, KINDS[name], *shown, pictures.NAMES[best], why]


def _finding(run: Run) -> str:
    def mean(key: str) -> float:
        return run.spread(f"ari.{key}")[0]

    pairs = {n: (mean(f"{n}.parpic"), mean(f"{n}.sc_sym")) for n in ("chain", "core_periphery")}
    verb = "finds" if all(ours > theirs for ours, theirs in pairs.values()) else "does not find"
    return (
        f"Keeping edge directions {verb} groups that symmetrising loses: agreement "
        f"{pairs['chain'][0]:.2f} against {pairs['chain'][1]:.2f} on a chain, "
        f"{pairs['core_periphery'][0]:.2f} against {pairs['core_periphery'][1]:.2f} on a core with "
        "peripheries"
    )
