"""Is the ratio right, per sample, and what does one walk instead of two save?

Gaussians in closed form say whether the log ratio is right and what it costs; pairs of known
mutual information whether its mean is; real blood cells with drawn treatments whether it finds the
states that a treatment enriches, and with pushed batches whether it sees a batch effect go. With
``--h5ad`` the run scores cells of your own instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from noisewright.data.cells import pbmc68k_reduced
from noisewright.data.sources import NotAtHandError
from noisewright.methods.density_ratio import pictures, trials
from noisewright.methods.density_ratio.baselines import MOST_SAMPLES
from noisewright.methods.density_ratio.cases import exact_errors
from noisewright.methods.density_ratio.own_cells import score_own_cells
from noisewright.methods.density_ratio.settings import Settings
from noisewright.reports.run import Run

__all__ = ["Settings", "run"]

Records = dict[Any, list[dict[str, Any]]]


def run(settings: Settings, run: Run) -> None:
    """Measure everything that the claims ask for and draw the report."""
    settings = settings.checked()
    if settings.h5ad is not None or run.data is not None:
        score_own_cells(settings, run)
        return
    gaussians = _gaussians(settings, run)
    _pairs_and_scale(settings, run)
    _exactness(run, gaussians)
    cells = _cells(run)
    treated = _treatments(settings, run, *cells[:2]) if cells is not None else {}
    batches = _batches(settings, run, *cells[:2]) if cells is not None else {}
    if cells is not None and treated:
        _landscape(run, cells, treated)
    _gaussian_pictures(run, gaussians)
    if batches:
        _batch_picture(settings, run)
    _tables(settings, run, gaussians, treated)
    run.finding(_finding(run))


# ---------------------------------------------------------------------------- measurements


def _gaussians(settings: Settings, run: Run) -> Records:
    """Score every pair of Gaussians by every method."""
    sets = [(size, shift) for shift in settings.shifts for size in settings.dims]
    tasks = [
        {
            "size": size,
            "shift": shift,
            "samples": settings.samples,
            "queries": settings.queries,
            "flow": settings.flow(run.device),
            "n_steps": settings.n_steps,
            "step_counts": settings.step_counts if (size, shift) == _shown(sets) else (),
            "seed": seed,
        }
        for size, shift in sets
        for seed in run.seeds
    ]
    records = iter(run.stages("gaussians", trials.gaussian_trial, tasks))
    found = {one: [next(records) for _ in run.seeds] for one in sets}
    for (size, shift), parts in found.items():
        head = f"gauss.{size}.{shift:g}"
        for seed, record in zip(run.seeds, parts, strict=True):
            for method, value in record["mse"].items():
                run.record(f"{head}.mse.{method}", value, seed=seed)
            for way, value in record["seconds"].items():
                run.record(f"{head}.seconds.{way}", value, seed=seed)
            run.record(f"{head}.variance", record["variance"], seed=seed)
            run.record(f"{head}.correlation", record["correlation"], seed=seed)
            run.record(f"norm.{head}.mean_exp_r", record["normalised"], seed=seed)
    run.data_note(
        f"Gaussians: {settings.samples} training samples in two unit Gaussians, "
        f"{settings.queries} test points, half from either; drawn anew for each seed. densratio "
        f"and MELD, where installed, see at most {MOST_SAMPLES} samples a group."
    )
    return found


def _shown(sets: list[tuple[int, float]]) -> tuple[int, float]:
    """Return the set that pictures show: 10 features at distance 1, or the last one."""
    return (10, 1.0) if (10, 1.0) in sets else sets[-1]


def _pairs_and_scale(settings: Settings, run: Run) -> None:
    """Estimate a mutual information that is known; measure how cost grows with the samples."""
    tasks: list[dict[str, Any]] = [
        {
            "kind": "pairs",
            "size": settings.pair_size,
            "nats": settings.pair_nats,
            "samples": settings.samples,
            "flow": settings.flow(run.device, steps=settings.pair_steps),
            "n_steps": settings.n_steps,
            "seed": seed,
        }
        for seed in run.seeds
    ]
    scale = {"kind": "scale", "counts": settings.scale_counts, "large": settings.scale_large}
    *pairs, scaled = run.stages("single", trials.single_trial, [*tasks, scale])
    for seed, record in zip(run.seeds, pairs, strict=True):
        run.record("mi.estimate", record["estimate"], seed=seed)
        run.record("mi.error", abs(record["estimate"] - settings.pair_nats), seed=seed)
        run.record("mi.std_error", record["std_error"], seed=seed)
    run.record("mi.true", settings.pair_nats)
    counts, seconds = zip(*((int(n), v) for n, v in scaled["seconds"].items()), strict=True)
    run.record("scale.exponent", float(np.polyfit(np.log(counts), np.log(seconds), 1)[0]))
    run.record("scale.peak_mb", scaled["peak_mb"])


def _exactness(run: Run, gaussians: Records) -> None:
    """Hold the formula against exact fields, and the learned ratios against each other."""
    for guide, error in exact_errors().items():
        run.record(f"exact.error.{guide}", error)
    for name in ("antisymmetry", "transitivity", "self"):
        for place, seed in enumerate(run.seeds):
            worst = max(parts[place]["exact"][name] for parts in gaussians.values())
            run.record(f"exact.{name}", worst, seed=seed)


def _cells(run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return principal components, clusters and the plane of the packaged cells."""
    try:
        cells, provenance = pbmc68k_reduced()
    except NotAtHandError as error:
        run.data_note(f"Cells: not measured: {error}")
        for key in ("pbmc.0.9.sign_auc.ode", "pbmc.0.9.auprc.ode", "batch.rank", "batch.0.before"):
            run.unmeasured(key, str(error))
        return None
    run.data_note(provenance.describe())
    clusters = np.asarray(cells.obs["louvain"].astype(str), dtype=str)
    return np.asarray(cells.obsm["X_pca"]), clusters, np.asarray(cells.obsm["X_umap"])


def _treatments(settings: Settings, run: Run, points: np.ndarray, clusters: np.ndarray) -> Records:
    """Find drawn treatments of real cells, cross-fitted."""
    tasks = [
        {
            "points": points[:, : settings.cell_dims].astype(np.float64),
            "clusters": clusters,
            "share": share,
            "flow": settings.cell_flow(run.device),
            "n_steps": settings.n_steps,
            "seed": seed,
        }
        for share in settings.shares
        for seed in run.seeds
    ]
    records = iter(run.stages("treatment", trials.treatment_trial, tasks))
    found = {share: [next(records) for _ in run.seeds] for share in settings.shares}
    for share, parts in found.items():
        head = f"pbmc.{float(share)}"
        for seed, record in zip(run.seeds, parts, strict=True):
            for method, scores in record["scores"].items():
                for score, value in scores.items():
                    run.record(f"{head}.{score}.{method}", value, seed=seed)
            for name in ("base_rate", "null_abs_mean", "share_small", "blur"):
                run.record(f"{head}.{name}", record[name], seed=seed)
            run.record(f"norm.{head}.mean_exp_r", record["checks"]["mean_exp_r"], seed=seed)
    return found


def _batches(settings: Settings, run: Run, points: np.ndarray, clusters: np.ndarray) -> Records:
    """Score batches that were pushed, before and after a correction."""
    cases = [(s, corrected) for s in settings.strengths for corrected in (False, True)]
    tasks = [
        {
            "points": points[:, : settings.cell_dims].astype(np.float64),
            "clusters": clusters,
            "strength": strength,
            "corrected": corrected,
            "flow": settings.cell_flow(
                run.device, hidden=tuple(settings.batch_hidden), steps=settings.batch_steps
            ),
            "n_steps": settings.batch_n_steps,
            "seed": seed,
        }
        for strength, corrected in cases
        for seed in run.seeds
    ]
    records = iter(run.stages("batches", trials.batch_trial, tasks))
    found = {case: [next(records) for _ in run.seeds] for case in cases}
    for (strength, corrected), parts in found.items():
        key = f"batch.{strength:g}.{'after' if corrected else 'before'}"
        for seed, record in zip(run.seeds, parts, strict=True):
            run.record(key, record["score"], seed=seed)
            if strength == 0 and not corrected:
                run.record("batch.0.before_abs", abs(record["score"]), seed=seed)
    for place, seed in enumerate(run.seeds):
        scores = [found[s, False][place]["score"] for s in settings.strengths]
        run.record("batch.rank", trials.rank_correlation(settings.strengths, scores), seed=seed)
    return found


# ---------------------------------------------------------------------------- the report


def _landscape(
    run: Run, cells: tuple[np.ndarray, np.ndarray, np.ndarray], treated: Records
) -> None:
    """Draw the picture that answers the question."""
    share = 0.9 if 0.9 in treated else max(treated)
    record = treated[share][0]
    _, clusters, place = cells
    r, odds = np.asarray(record["found"]["ode"]), np.asarray(record["odds"])
    run.figure(
        "landscape",
        pictures.landscape(place, r, odds, clusters, share),
        caption="700 blood cells in their UMAP plane. Treatment was drawn so that its log odds are "
        "known (left); the flow saw only cells and labels, and scored each cell by a model that "
        "had not seen it (right). Below, by cluster.",
        alt="Two maps of cells with the same two islands coloured, one blue and one orange, and "
        "violins of the log ratio for each of eleven clusters beside bars of the truth.",
    )
    columns = {name: [] for name in ("mean", "low", "high", "n")}
    names = sorted(set(clusters), key=lambda c: (len(c), c))
    rng = np.random.default_rng(0)
    for name in names:
        inside = r[clusters == name]
        again = inside[rng.integers(len(inside), size=(1000, len(inside)))].mean(axis=1)
        low, high = np.quantile(again, [0.025, 0.975])
        for column, value in zip(columns, (inside.mean(), low, high, len(inside)), strict=True):
            columns[column].append(value)
    run.figure(
        "effects",
        pictures.effects([f"cluster {n}" for n in names], *(np.array(columns[c]) for c in columns)),
        caption=f"Effect of the treatment by cluster (number of cells) at p = {share:g}: mean log "
        "ratio, 95 % bootstrap interval over cells.",
        alt="One dot with an interval for each cluster; cluster 1 right of zero, cluster 2 left.",
    )


def _gaussian_pictures(run: Run, gaussians: Records) -> None:
    size, shift = _shown(list(gaussians))
    record = gaussians[size, shift][0]
    found = {name: np.asarray(value) for name, value in record["found"].items()}
    shown = ("ode", "naive", "knn", "kde", "rulsif", "logreg")
    run.figure(
        "scatter",
        pictures.scatter(
            np.asarray(record["truth"]), {n: found[n] for n in shown if n in found}, record["mse"]
        ),
        caption=f"Estimated against true log ratio of two Gaussians, {size} features, means "
        f"{shift:g} apart in each. A logistic model has exactly the right form here.",
        alt="Six scatter plots of estimate against truth with the identity line.",
    )
    curves = {
        n: {
            way: np.mean([r["curves"][n][way] for r in gaussians[size, shift]], axis=0).tolist()
            for way in ("ode", "naive")
        }
        for n in record["curves"]
    }
    run.figure(
        "steps",
        pictures.steps_curves(curves),
        caption="Error and seconds against solver steps: one walk for both conditions, or one for "
        "each. Few steps are enough; what is left is the error of the network.",
        alt="Two panels with a line for one walk and a line for two.",
    )


def _batch_picture(settings: Settings, run: Run) -> None:
    before, after = (
        [run.spread(f"batch.{s:g}.{when}") for s in settings.strengths]
        for when in ("before", "after")
    )
    run.figure(
        "batches",
        pictures.batches(list(settings.strengths), before, after),
        caption="Batch score (mean log p(cell | type, batch) - log p(cell | type), cross-fitted) "
        "against how far batch 2 was pushed; after centring each cluster of each batch.",
        alt="A rising line before correction and a flat one after it.",
    )


def _tables(settings: Settings, run: Run, gaussians: Records, treated: Records) -> None:
    heads = [f"d={size}, shift {shift:g}" for size, shift in gaussians]
    methods = list(next(iter(gaussians.values()))[0]["mse"])
    run.table(
        "Mean squared error of the log ratio against the closed form, nats²",
        ["method", *heads],
        [
            [pictures.NAMES[m], *(run.spread(f"gauss.{d}.{s:g}.mse.{m}") for d, s in gaussians)]
            for m in methods
        ],
        ours=pictures.NAMES["ode"],
    )
    if treated:
        rows = []
        for method in next(iter(treated.values()))[0]["scores"]:
            cells = [
                run.spread(f"pbmc.{float(share)}.{score}.{method}")
                for share in treated
                if share > 0.5
                for score in ("auprc", "sign_auc", "spearman")
            ]
            rows.append([pictures.NAMES[method], *cells])
        heads = [
            f"{score}, p={share:g}"
            for share in treated
            if share > 0.5
            for score in ("AUPRC", "sign AUC", "Spearman")
        ]
        run.table(
            "Cells with drawn treatments, all cross-fitted on the same folds: finding the affected "
            "(AUPRC of |r|), telling more from less (sign AUC), ranking all (Spearman)",
            ["method", *heads],
            rows,
            ours=pictures.NAMES["ode"],
        )
    rows = []
    for (size, shift), parts in gaussians.items():
        plain = parts[0]["checks"]
        weighted = run.spread(f"norm.gauss.{size}.{shift:g}.mean_exp_r")
        rows.append(
            [
                f"Gaussians, d={size}, shift {shift:g}",
                weighted,
                plain["mean_exp_r"],
                plain["ess"],
                plain["auc"],
            ]
        )
    rows += [
        [f"cells, p={share:g}", None, c["mean_exp_r"], c["ess"], c["auc"]]
        for share, parts in treated.items()
        for c in (parts[0]["checks"],)
    ]
    run.table(
        "Checks without the truth: the mean of exp r over the denominator should be 1 (weighted: "
        "over the mixture, with known weights, which large d needs), effective sample size, AUC",
        ["set", "weighted mean", "plain mean", "ESS", "AUC"],
        rows,
    )


def _finding(run: Run) -> str:
    keys = run.values.means()
    heads = [key.removesuffix(".mse.ode") for key in keys if key.endswith(".mse.ode")]
    head = "gauss.10.1" if "gauss.10.1" in heads else heads[-1]
    off = {m: np.sqrt(keys[f"{head}.mse.{m}"]) for m in ("ode", "knn")}
    size = head.split(".")[1]
    error = (
        f"One walk per sample: with {size} features log ratios are off by {off['ode']:.2f} nats, "
        f"from neighbours by {off['knn']:.2f}"
    )
    aucs = [keys.get(f"pbmc.0.9.sign_auc.{m}") for m in ("ode", "knn")]
    if None in aucs:
        return error
    return f"{error}; on 700 cells enriched states are told from depleted ones with AUC " + (
        f"{aucs[0]:.2f}, by neighbours with {aucs[1]:.2f}"
    )
