"""``noisewright run density_ratio --h5ad F``: the report for a user's own cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisewright.data.cells import describe_cells, read_cells
from noisewright.methods.density_ratio import pictures
from noisewright.methods.density_ratio.cells import CellStateRatio
from noisewright.methods.density_ratio.command import chosen_pair
from noisewright.methods.density_ratio.settings import Settings
from noisewright.reports.run import Run
from noisewright.types import InputError

__all__ = ["score_own_cells"]


def score_own_cells(settings: Settings, run: Run) -> None:
    """Score the cells of a file, cross-fitted, and draw where each condition is enriched.

    Raises:
        InputError: If the file or a column cannot be used.
    """
    path = str(settings.h5ad or run.data)
    cells = read_cells(path)
    run.data_note(describe_cells(cells, path))
    try:
        a, b = chosen_pair(cells, settings.condition, settings.numerator, settings.denominator)
        flow = settings.cell_flow(run.device, steps=settings.cell_steps)
        model = CellStateRatio(
            cells, settings.condition, rep=settings.rep, n_dims=settings.n_dims, **flow
        )
        groups = None if settings.groupby is None else cells.obs[settings.groupby].astype(str)
        samples = None if settings.sample_key is None else cells.obs[settings.sample_key]
    except (KeyError, TypeError) as error:
        raise InputError(str(error.args[0])) from error
    records = run.stages(
        "score",
        score,
        [
            {
                "points": model.points,
                "labels": model.labels[settings.condition].astype(str).to_numpy(dtype=str),
                "pair": [str(a), str(b)],
                "groups": None if groups is None else groups.to_numpy(dtype=str),
                "samples": None if samples is None else samples.astype(str).to_numpy(dtype=str),
                "flow": flow,
                "n_steps": settings.n_steps,
                "seed": seed,
            }
            for seed in run.seeds
        ],
    )
    for seed, record in zip(run.seeds, records, strict=True):
        run.record("mean_ratio", record["mean"], seed=seed)
        for name, value in record["checks"].items():
            run.record(f"checks.{name}", value, seed=seed)
    _show(run, cells, records[0], str(a), str(b), settings)


def score(
    stage: Any,
    *,
    points: np.ndarray,
    labels: np.ndarray,
    pair: list[str],
    groups: np.ndarray | None,
    samples: np.ndarray | None,
    flow: dict[str, Any],
    n_steps: int,
    seed: int,
) -> dict[str, Any]:
    """Fit, score and sum up by group; a stage."""
    import pandas as pd
    from anndata import AnnData

    cells = AnnData(np.zeros((len(points), 1), dtype=np.float32))
    cells.obsm["points"] = points
    cells.obs["condition"] = pd.Categorical(labels)
    for name, column in (("group", groups), ("sample", samples)):
        if column is not None:
            cells.obs[name] = pd.Categorical(column)
    model = CellStateRatio(
        cells, "condition", rep="points", n_dims=points.shape[1], random_state=seed, **flow
    ).fit()
    over, under = pair
    r = model.score(over, under, n_steps=n_steps)
    effect = None
    if groups is not None:
        sample_key = None if samples is None else "sample"
        effect = model.treatment_effect(over, under, "group", sample_key).reset_index()
        effect = {name: column.to_list() for name, column in effect.items()}
    checks = cells.uns["log_density_ratio"].get("diagnostics", {})
    return {"r": r, "mean": float(r.mean()), "effect": effect, "checks": checks}


def _show(run: Run, cells: Any, record: dict[str, Any], a: str, b: str, settings: Settings) -> None:
    r = np.asarray(record["r"])
    plane = next((k for k in ("X_umap", "X_tsne", settings.rep) if k in cells.obsm), None)
    if plane is not None:
        run.figure(
            "cells",
            pictures.own_cells(np.asarray(cells.obsm[plane])[:, :2], r, f"{a} against {b}"),
            caption=f"Each cell by how much likelier its state is under {a} than under {b}; "
            "every cell is scored by a model that has not seen it.",
            alt="A scatter of cells, blue where the numerator is enriched, orange where it is not.",
        )
    effect = record["effect"]
    if effect is not None:
        mean, low, high, counts = (np.asarray(effect[n]) for n in ("mean", "low", "high", "n"))
        run.figure(
            "effects",
            pictures.effects([str(g) for g in effect["group"]], mean, low, high, counts),
            caption=f"Mean log ratio of each {settings.groupby}, with the number of cells.",
            alt="One dot with an interval for each group of cells.",
        )
        heads = [name for name in effect if name != "index"]
        rows = [list(row) for row in zip(*(effect[name] for name in heads), strict=True)]
        run.table(f"Effect by {settings.groupby}", heads, rows)
    share = float((r > 0).mean())
    run.finding(f"{share:.0%} of {len(r)} cells are in states likelier under {a} than under {b}")
