"""Ratios for single cells: AnnData in, annotated AnnData out.

Nothing here imports anndata: any object with ``obs``, ``obsm``, ``uns`` and ``X`` in its manner
will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy import sparse, stats

from noisewright.methods.density_ratio.estimator import DensityRatioFlow
from noisewright.types import InputError
from noisewright.version import __version__

__all__ = ["CellStateRatio"]

LARGEST_DENSE = 10**8
BATCH_DROPOUT = 0.2
LEVEL = 0.95


class CellStateRatio:
    """How much likelier is each cell's state under one condition than under another?

    Args:
        adata: Cells; a view is copied once, of a backed object only coordinates are read.
        condition_key: Column of ``obs`` with the condition of each cell.
        rep: Coordinates: a key of ``obsm``, or ``"X"`` for the expression matrix.
        n_dims: Leading coordinates that are used; of ``"X"`` all genes are.
        cell_type_key: Column of ``obs`` with the type of each cell, for :meth:`batch_score`.
        batch_key: Column of ``obs`` with the batch of each cell. With it (or a cell type) the model
            learns several labels and drops them at random, 0.2 each, unless ``label_dropout`` says
            otherwise.
        flow: Parameters of :class:`DensityRatioFlow`; ``cv=5`` by default, because a flow remembers
            a few hundred cells, and with one label column ``blur="auto"``.

    Raises:
        KeyError: If a key does not exist, with those that do.
        InputError: If the coordinates cannot be used.
        TypeError: If a column holds continuous numbers.
    """

    def __init__(
        self,
        adata: Any,
        condition_key: str,
        *,
        rep: str = "X_pca",
        n_dims: int = 20,
        cell_type_key: str | None = None,
        batch_key: str | None = None,
        **flow: Any,
    ) -> None:
        self.adata = adata.copy() if getattr(adata, "is_view", False) else adata
        self.condition_key = condition_key
        self.cell_type_key = cell_type_key
        self.batch_key = batch_key
        self.rep = rep
        self.points = coordinates(self.adata, rep, n_dims)
        keys = dict.fromkeys(k for k in (condition_key, cell_type_key, batch_key) if k is not None)
        self.labels = pd.DataFrame({k: _column(self.adata, k) for k in keys})
        flow = {"cv": 5} | flow
        if len(keys) == 1 and flow["cv"] is not None:
            flow.setdefault("blur", "auto")
        if len(keys) > 1:
            flow.setdefault("label_dropout", BATCH_DROPOUT)
        self.flow = DensityRatioFlow(**flow)

    def fit(self) -> Self:
        """Learn the flow of all labels."""
        self.flow.fit(self.points, self.labels)
        return self

    def score(
        self,
        numerator: Any,
        denominator: Any,
        key_added: str = "log_density_ratio",
        **walk: Any,
    ) -> np.ndarray:
        """Return log p(cell | numerator) / p(cell | denominator) and write it into the AnnData.

        ``obs[key_added]`` gets the ratios, float32; ``uns[key_added]`` the parameters and checks.

        Args:
            numerator: A value of the condition column, or a dict of labels.
            denominator: Likewise.
            key_added: Name of both entries.
            walk: Settings of :meth:`DensityRatioFlow.log_ratio`; cells move along the field of
                their own condition where it is one of the two, else along the numerator's.
        """
        a, b = self._query(numerator), self._query(denominator)
        walk.setdefault("along", self._own(a, b))
        r = self.flow.log_ratio(self.points, a, b, **walk)
        self.adata.obs[key_added] = r.astype(np.float32)
        self.adata.uns[key_added] = self._record(numerator, denominator, r)
        return r

    def treatment_effect(
        self,
        numerator: Any,
        denominator: Any,
        groupby: str,
        sample_key: str | None = None,
        *,
        draws: int = 1000,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Return the effect per group of cells: mean log ratio with its interval.

        Args:
            numerator: As in :meth:`score`.
            denominator: Likewise.
            groupby: Column of ``obs`` that groups the cells.
            sample_key: Column with the sample (donor, well) of each cell. Then intervals come from
                whole samples drawn again: cells of one sample are no independent witnesses.
            draws: Repetitions of the bootstrap.
            seed: Of the bootstrap.

        Returns:
            One row per group: ``mean``, ``low``, ``high`` (95 %), ``n``, ``share_positive``, and
            with ``sample_key`` also ``samples`` and ``sample_sd``.
        """
        walk_along = self._own(self._query(numerator), self._query(denominator))
        r = self.flow.log_ratio(
            self.points, self._query(numerator), self._query(denominator), along=walk_along
        )
        groups = _column(self.adata, groupby)
        samples = None if sample_key is None else _column(self.adata, sample_key)
        rng = np.random.default_rng(seed)
        rows = {}
        for group in sorted(set(groups), key=str):
            inside = groups == group
            part = None if samples is None else samples[inside]
            rows[group] = _effect(r[inside], part, rng, draws)
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis(groupby)

    def synergy(self, combo: Any, singles: Sequence[Any], control: Any) -> pd.Series:
        """Return how much a combination is more than its parts, per cell, in nats.

        r(combo, control) minus the sum of r(single, control); all from one walk.

        Args:
            combo: Condition with everything.
            singles: Conditions with one part each.
            control: Condition with nothing.
        """
        queries = [self._query(c) for c in (combo, *singles, control)]
        matrix = self.flow.log_ratio_matrix(self.points, queries, along=queries[-1])
        parts = (matrix[:, 1:-1] - matrix[:, -1:]).sum(axis=1)
        excess = matrix[:, 0] - matrix[:, -1] - parts
        return pd.Series(excess, index=self.adata.obs.index, name="synergy")

    def batch_score(self, groupby: str | None = None, **walk: Any) -> pd.DataFrame:
        """Return how far each batch is from all cells of its type: mean log ratio, 0 if corrected.

        r = log p(x | type, batch) - log p(x | type); its mean over the batch's cells estimates a
        Kullback-Leibler divergence, in nats.

        Args:
            groupby: Further column to group by; None means the cell type, if there is one.
            walk: Settings of :meth:`DensityRatioFlow.log_ratio_matrix`.

        Returns:
            One row per group and batch: ``score``, ``std_error``, ``n``.

        Raises:
            InputError: If no batch key was given, or the model cannot leave labels out.
        """
        if self.batch_key is None:
            raise InputError("batch_score needs batch_key=, the column that names the batches")
        batches = self.labels[self.batch_key].to_numpy()
        types = None if self.cell_type_key is None else self.labels[self.cell_type_key].to_numpy()
        r = np.empty(len(self.points))
        pairs = pd.DataFrame({"batch": batches, "kind": types if types is not None else "all"})
        for (batch, kind), place in pairs.groupby(["batch", "kind"]).indices.items():  # pyright: ignore[reportGeneralTypeIssues] - two keys
            given = {} if self.cell_type_key is None else {self.cell_type_key: kind}
            matrix = self.flow.log_ratio_matrix(
                self.points[place],
                [{**given, self.batch_key: batch}, given or "unconditional"],
                **walk,
            )
            r[place] = matrix[:, 0] - matrix[:, 1]
        self.batch_ratio = r
        group_key = groupby or self.cell_type_key
        groups = _column(self.adata, group_key) if group_key else np.repeat("all", len(r))
        frame = pd.DataFrame({"group": groups, "batch": batches, "r": r})
        table = frame.groupby(["group", "batch"])["r"].agg(["mean", "sem", "size"])
        return table.set_axis(["score", "std_error", "n"], axis=1).reset_index()

    def _query(self, condition: Any) -> Any:
        if isinstance(condition, dict) or self.labels.shape[1] == 1:
            return condition
        return {self.condition_key: condition}

    def _own(self, a: Any, b: Any) -> Any:
        """Return each cell's own condition where it is a or b, else a: one guide per cell."""
        if self.labels.shape[1] > 1:
            return "numerator"
        own = self.labels[self.condition_key].to_numpy().copy()
        known = np.array([value in (a, b) for value in own])
        own[~known] = a
        return own if a in self.flow.conditions_ else "numerator"

    def _record(self, numerator: Any, denominator: Any, r: np.ndarray) -> dict[str, Any]:
        """Return plain values that an h5ad file can hold."""
        parameters = {k: _plain(v) for k, v in self.flow.get_params().items() if v is not None}
        record = {
            "numerator": str(numerator),
            "denominator": str(denominator),
            "condition_key": self.condition_key,
            "rep": self.rep,
            "n_dims": int(self.points.shape[1]),
            "seed": int(self.flow.seed_),
            "version": __version__,
            "parameters": parameters,
        }
        own = self.labels[self.condition_key].to_numpy()
        over_a, over_b = r[own == numerator], r[own == denominator]
        if len(over_a) > 1 and len(over_b) > 1:
            from noisewright.methods.density_ratio.diagnostics import pair_diagnostics

            found = pair_diagnostics(over_a, over_b)
            found.pop("calibration")
            record["diagnostics"] = {k: float(v) for k, v in found.items()}
        return record


def coordinates(adata: Any, rep: str, n_dims: int) -> np.ndarray:
    """Return the leading coordinates of cells, (cells, n_dims), float64.

    Args:
        adata: Cells.
        rep: Key of ``obsm``, or ``"X"``.
        n_dims: How many.

    Raises:
        KeyError: If there is no such key.
        InputError: If there are fewer coordinates, or X is too large to be dense.
    """
    if rep == "X":
        matrix = adata.X
        if sparse.issparse(matrix) and np.prod(matrix.shape) > LARGEST_DENSE:
            raise InputError(
                f"X is sparse with {matrix.shape[0]} x {matrix.shape[1]} entries, too many to be "
                "dense; reduce it first (principal components) and give rep='X_pca'"
            )
        points = matrix.toarray() if sparse.issparse(matrix) else matrix
    elif rep in adata.obsm:
        points = adata.obsm[rep]
    else:
        raise KeyError(
            f"obsm has no {rep!r}; there are {', '.join(map(str, adata.obsm)) or 'none'}"
        )
    points = np.asarray(points)
    if n_dims < 1 or (rep != "X" and points.shape[1] < n_dims):
        raise InputError(f"{rep} has {points.shape[1]} coordinates, n_dims={n_dims} asked for")
    return points[:, :n_dims].astype(np.float64) if rep != "X" else points.astype(np.float64)


def _column(adata: Any, key: str) -> np.ndarray:
    """Return a column of obs as plain values."""
    if key not in adata.obs:
        raise KeyError(f"obs has no {key!r}; there are {', '.join(map(str, adata.obs.columns))}")
    return np.asarray(adata.obs[key].astype(object))


def _effect(
    r: np.ndarray, samples: np.ndarray | None, rng: np.random.Generator, draws: int
) -> dict[str, float]:
    """Return mean, interval, count and share above zero; by sample if there are any."""
    found = {"mean": float(r.mean()), "low": np.nan, "high": np.nan}
    units = r if samples is None else np.array([r[samples == s].mean() for s in set(samples)])
    if len(units) > 1:
        again = rng.integers(len(units), size=(draws, len(units)))
        edges = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
        found["low"], found["high"] = map(float, np.quantile(units[again].mean(axis=1), edges))
    found |= {"n": len(r), "share_positive": float((r > 0).mean())}
    if samples is not None:
        found["mean"] = float(units.mean())
        spread = float(stats.tstd(units)) if len(units) > 1 else np.nan
        found |= {"samples": len(units), "sample_sd": spread}
    return found


def _plain(value: Any) -> Any:
    """Return what h5ad can store: numbers, text, and lists of them."""
    if isinstance(value, (tuple, list)):
        return np.asarray(value)
    return value if isinstance(value, (bool, int, float, str)) else str(value)
