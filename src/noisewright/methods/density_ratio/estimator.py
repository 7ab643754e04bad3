"""Log density ratios between conditions as a scikit-learn estimator."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from noisewright.methods.density_ratio.blur import CANDIDATES, best_per_fold
from noisewright.methods.density_ratio.conditions import ConditionTable
from noisewright.methods.density_ratio.diagnostics import ratio_diagnostics, unlikely_ends
from noisewright.methods.density_ratio.files import read_model, write_model
from noisewright.methods.density_ratio.flow import VelocityHead, train_flow
from noisewright.methods.density_ratio.folds import fold_rows, row_keys
from noisewright.methods.density_ratio.plan import checked_plan
from noisewright.methods.density_ratio.samples import (
    checked_samples,
    common_scale,
    mean_one_weights,
)
from noisewright.methods.density_ratio.scoring import Scoring, Walked, WalkPlan
from noisewright.paths import Denoiser
from noisewright.random import derive_seed, noise_stream
from noisewright.solvers import Heun
from noisewright.types import InputError

__all__ = ["DensityRatioFlow"]

CHOICE_ROWS, CHOICE_STEPS = 5000, 10
"""Samples and solver steps that the choice of a blur looks at."""


class DensityRatioFlow(BaseEstimator):
    r"""How much likelier is a sample under one condition than under another?

    .. math:: r(x) = \log \frac{p(x \mid a)}{p(x \mid b)}

    from samples alone, by one flow-matching model of all conditions and one ODE solve per sample
    (Antipov et al. 2026); see :mod:`noisewright.methods.density_ratio.ratio`. Ratios are between
    normalised densities: unequal group sizes do not enter. What is estimated is the ratio of the
    densities blurred by N(0, blur^2) in units of the data's root-mean-square radius per feature.

    Args:
        sigma_min: Noise left on the data, in units of the common scale; 0 starts the walk a little
            off the data instead.
        sigma: Height of the bulge of a stochastic path; 0 is the straight line.
        hidden: Width of each residual block; all equal.
        steps: Optimizer steps.
        batch_size: Samples per step.
        lr: Peak learning rate.
        weight_decay: Of AdamW.
        label_dropout: Probability of dropping each label of each sample in training; above 0 for
            ``"unconditional"`` and partial queries.
        ema: Decay of the average of the weights.
        validation_fraction: Share of samples held out to stop early; 0 trains to the end.
        patience: Looks at the held-out loss without improvement before stopping; there are 40 in
            all.
        cv: Number of folds for cross-fitting: a training sample is scored by the model that has not
            seen it. None scores training samples with a model that has.
        blur: Blur of the ratio, from ``sigma_min`` up and in its units; None is ``sigma_min``. One
            trained flow serves all (:mod:`noisewright.methods.density_ratio.blur`). ``"auto"``
            chooses, for the samples of each fold, the one that predicts the labels of the other
            folds' samples best; it needs ``cv``.
        allow_single: Accept a single condition, for densities and samples.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
        random_state: Seed, RandomState or None (fresh entropy).

    Attributes:
        conditions_: The conditions: labels, or tuples of labels with several columns.
        n_features_in_: Number of features.
        centre_: Mean of the data (n_features,).
        scale_: Root mean square of the centred data, one number for all features: a common scale
            does not change ratios.
        flows_: Trained networks, one or one per fold.
        folds_: Fold of each training sample, or None.
        blur_: Blur of the ratio, one per network (models,).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = np.concatenate([rng.normal(0, 1, (400, 2)), rng.normal(1, 1, (400, 2))])
        >>> y = ["ctrl"] * 400 + ["stim"] * 400
        >>> model = DensityRatioFlow(hidden=(32, 32), steps=150, random_state=0).fit(X, y)
        >>> left, right = model.log_ratio([[-1.0, -1.0], [2.0, 2.0]], "stim", "ctrl")
        >>> bool(left < -1 < 1 < right)  # exact: -3 and 3
        True
    """

    def __init__(
        self,
        *,
        sigma_min: float = 1e-2,
        sigma: float = 0.0,
        hidden: Sequence[int] = (256, 256, 256),
        steps: int = 5000,
        batch_size: int = 512,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        label_dropout: float = 0.0,
        ema: float = 0.999,
        validation_fraction: float = 0.1,
        patience: int = 10,
        cv: int | None = None,
        blur: Any = None,
        allow_single: bool = False,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.sigma_min = sigma_min
        self.sigma = sigma
        self.hidden = hidden
        self.steps = steps
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.label_dropout = label_dropout
        self.ema = ema
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.cv = cv
        self.blur = blur
        self.allow_single = allow_single
        self.device = device
        self.random_state = random_state

    # ------------------------------------------------------------------ fit

    def fit(self, X: Any, condition: Any, sample_weight: Any = None) -> Self:
        """Learn the densities of all conditions.

        Args:
            X: Samples (n, d), finite.
            condition: Labels (n,), or a DataFrame (n, columns) of several labels.
            sample_weight: Weight of each sample (n,), not negative.

        Raises:
            InputError: If shapes, values, labels or parameters cannot work.
            TypeError: If a label column holds continuous numbers.
        """
        plan = checked_plan(self.get_params())
        X = checked_samples(X)
        if not len(X):
            raise InputError("X has no samples")
        table, codes = ConditionTable.read(
            condition, samples=len(X), allow_single=self.allow_single
        )
        weight = mean_one_weights(sample_weight, len(X))
        self.n_features_in_ = X.shape[1]
        self.centre_ = np.average(X, axis=0, weights=weight)
        self.scale_ = common_scale(X - self.centre_)
        self.table_ = table
        self.conditions_ = table.labels
        self.seed_ = _seed_of(self.random_state)
        self.folds_, self.keys_ = None, None
        points = torch.from_numpy(((X - self.centre_) / self.scale_).astype(np.float32))
        labels, weights = torch.from_numpy(codes), torch.from_numpy(weight.astype(np.float32))
        chosen = [np.arange(len(X))]
        if self.cv is not None:
            self.keys_ = row_keys(X)
            self.folds_ = fold_rows(self.keys_, codes, self.cv, self.seed_)
            chosen = [np.flatnonzero(self.folds_ != fold) for fold in range(self.cv)]
        classes = [len(values) for values in table.values]
        self.flows_ = [
            train_flow(
                points[rows],
                labels[rows],
                weights[rows],
                classes,
                plan,
                derive_seed(self.seed_, "flow", fold),
            )
            for fold, rows in enumerate(chosen)
        ]
        self.blur_ = self._chosen_blur(X, codes)
        return self

    def _chosen_blur(self, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the blur of each network's ratios (models,)."""
        models = len(self.flows_)
        if self.blur != "auto":
            return np.full(models, float(self.sigma_min if self.blur is None else self.blur))
        assert self.folds_ is not None
        rng = np.random.default_rng(derive_seed(self.seed_, "blur"))
        rows = rng.permutation(len(X))[:CHOICE_ROWS]
        known = np.array([self.table_.codes(label) for label in self.conditions_])
        own = (codes[rows][:, None] == known).all(axis=2).argmax(axis=1)
        candidates = [self.sigma_min, *(b for b in CANDIDATES if b > self.sigma_min)]
        found = []
        for candidate in candidates:
            self.blur_ = np.full(models, float(candidate))
            walk = WalkPlan(n_steps=CHOICE_STEPS)
            found.append(self._walk(X[rows], known, codes[rows], walk).of(lambda c: c)[0])
        best = best_per_fold(np.stack(found), own, self.folds_[rows], models)
        return np.array(candidates)[best]

    # ------------------------------------------------------------------ queries

    def log_ratio(
        self,
        X: Any,
        numerator: Any,
        denominator: Any,
        *,
        along: Any = "numerator",
        solver: str = "midpoint",
        n_steps: int = 40,
        divergence: str = "auto",
        n_probes: int = 1,
        return_std: bool = False,
    ) -> Any:
        """Return log p(x | numerator) / p(x | denominator) per sample, natural logarithm.

        Args:
            X: Samples (n, d).
            numerator: A condition, a dict of some labels, or ``"unconditional"``.
            denominator: Likewise.
            along: Whose field moves the samples: ``"numerator"``, ``"denominator"``, any query, or
                an array (n,) with a condition for each sample (its own, say).
            solver: ``"midpoint"``, ``"rk4"``, ``"heun"``, ``"euler"``, or adaptive: ``"dopri5"``.
            n_steps: Steps of a fixed-step solver.
            divergence: ``"exact"``, ``"hutchinson"``, or ``"auto"``: exact up to 64 features.
            n_probes: Rademacher probes of ``"hutchinson"``, drawn once per sample and common to all
                conditions.
            return_std: Return the standard error too: of the probes, and of the spread between the
                models of a cross-fit on samples that none of them has seen.

        Returns:
            Log ratios (n,), and their standard errors (n,) if asked for.

        Raises:
            KeyError: If a condition is unknown.
            InputError: If X does not fit, or a query leaves labels open without label dropout.
            NonFiniteError: If the walk meets a value that is not finite.
        """
        X = self._samples(X)
        pair = np.array([self._codes(numerator), self._codes(denominator)])
        if (pair[0] == pair[1]).all():
            zeros = np.zeros(len(X))
            return (zeros, zeros.copy()) if return_std else zeros
        words = {"numerator": numerator, "denominator": denominator}
        guide = self._guides(words.get(along, along) if isinstance(along, str) else along, len(X))
        walk = WalkPlan(solver, n_steps, divergence, n_probes)
        walked = self._walk(X, pair, guide, walk)
        value, error = walked.of(lambda changes: changes[:, 0] - changes[:, 1])
        return (value, error) if return_std else value

    def log_ratio_matrix(
        self,
        X: Any,
        conditions: Sequence[Any] | None = None,
        along: Any = None,
        *,
        solver: str = "midpoint",
        n_steps: int = 40,
        divergence: str = "auto",
        n_probes: int = 1,
    ) -> np.ndarray:
        """Return log p(x | c) for every condition, up to a constant per sample; one walk for all.

        Differences of columns are the log ratios: exactly antisymmetric and transitive.

        Args:
            X: Samples (n, d).
            conditions: Queries; None means all of ``conditions_``.
            along: Whose field moves the samples, a query or an array (n,) of them; None means the
                first of ``conditions``.
            solver: As in :meth:`log_ratio`.
            n_steps: Likewise.
            divergence: Likewise.
            n_probes: Likewise.

        Returns:
            (n, conditions), float64.
        """
        X = self._samples(X)
        queries = list(self.conditions_ if conditions is None else conditions)
        if not queries:
            return np.zeros((len(X), 0))
        codes = np.array([self._codes(query) for query in queries])
        guide = self._guides(queries[0] if along is None else along, len(X))
        walk = WalkPlan(solver, n_steps, divergence, n_probes)
        walked = self._walk(X, codes, guide, walk)
        return walked.of(lambda changes: changes)[0]

    def log_density(
        self, X: Any, condition: Any, *, n_steps: int = 40, divergence: str = "auto"
    ) -> np.ndarray:
        """Return log p(x | condition) in the units of X, natural logarithm (n,).

        Two of these make the naive ratio: two walks, whose errors do not cancel.
        """
        X = self._samples(X)
        codes = np.array([self._codes(condition)])
        guide = np.repeat(codes, len(X), axis=0)
        walk = WalkPlan(n_steps=n_steps, divergence=divergence)
        walked = self._walk(X, codes, guide, walk)
        size = self.n_features_in_
        prior = -0.5 * np.square(walked.noise).sum(axis=1) - 0.5 * size * math.log(2 * math.pi)
        return walked.of(lambda changes: changes[:, 0])[0] + prior - size * math.log(self.scale_)

    def sample(
        self, n: int, condition: Any, *, n_steps: int = 40, random_state: Any = 0
    ) -> np.ndarray:
        """Draw samples (n, d) of a condition.

        Args:
            n: How many.
            condition: A query.
            n_steps: Steps of Heun's method.
            random_state: Seed, or RandomState.
        """
        codes = torch.tensor([self._codes(condition)]).expand(n, -1)
        flow = self.flows_[0]
        plan = checked_plan(self.get_params())
        device, path = plan.device, plan.path
        denoiser = Denoiser(VelocityHead(flow.net.to(device)), path, "velocity").to(device).eval()
        noise = path.prior(
            torch.zeros(n, self.n_features_in_, device=device), seed=_seed_of(random_state)
        )
        if n:
            noise = Heun()(denoiser, noise, steps=n_steps, label=codes.to(device)).state
        return noise.cpu().double().numpy() * self.scale_ + self.centre_

    def diagnostics(self, X: Any, condition: Any, **walk: Any) -> dict[str, Any]:
        """Return checks that need no true ratio, for samples with known conditions.

        Args:
            X: Samples (n, d), best ones that the models have not seen (or a cross-fit).
            condition: Their conditions.
            walk: ``solver``, ``n_steps``, ``divergence``, ``n_probes`` as in :meth:`log_ratio`.

        Returns:
            ``"pairs"``: for each pair of conditions the mean of exp r over the denominator's
            samples (should be 1), of exp(-r) over the numerator's, their standard errors, effective
            sample sizes, the area under the ROC curve of r, and calibration by decile of r.
            ``"outside"``: samples whose way ends beyond the 0.9999 quantile of noise, flagged
            (n,); ``"outside_count"``.
        """
        X = self._samples(X)
        own = self.table_.code_rows(condition, len(X))
        known = list(dict.fromkeys(map(tuple, own.tolist())))
        table = [self.table_.codes(label) for label in self.conditions_]
        codes = np.array([c for c in table if c in known])
        walked = self._walk(X, codes, own, WalkPlan(**walk))
        names = [str(self.conditions_[table.index(tuple(c))]) for c in codes.tolist()]
        member = np.array(
            [[tuple(row) == tuple(c) for c in codes.tolist()] for row in own.tolist()]
        )
        outside = unlikely_ends(walked.noise)
        pairs = ratio_diagnostics(
            walked.of(lambda changes: changes)[0], member.reshape(len(X), len(codes)), names
        )
        return {"pairs": pairs, "outside": outside, "outside_count": int(outside.sum())}

    # ------------------------------------------------------------------ the walk

    def _samples(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "flows_")
        X = checked_samples(X)
        if X.shape[1] != self.n_features_in_ and X.size + len(X):
            raise InputError(f"X has {X.shape[1]} features, expected {self.n_features_in_}")
        return X.reshape(-1, self.n_features_in_)

    def _codes(self, query: Any) -> tuple[int, ...]:
        check_is_fitted(self, "flows_")
        codes = self.table_.codes(query)
        if -1 in codes and self.label_dropout == 0:
            raise InputError(
                f"{query!r} leaves labels open, which this model has not learned; fit it with "
                "label_dropout=0.2"
            )
        return codes

    def _guides(self, along: Any, count: int) -> np.ndarray:
        """Return the codes of the guide of each sample, (n, columns)."""
        several = hasattr(along, "columns") or (
            not isinstance(along, (str, bytes, dict, tuple)) and np.ndim(along) == 1
        )
        if several:
            return self.table_.code_rows(along, count)
        return np.repeat([self._codes(along)], count, axis=0)

    def _walk(self, X: np.ndarray, codes: np.ndarray, guide: np.ndarray, walk: WalkPlan) -> Walked:
        """Walk all samples with the models that may score them."""
        plan = checked_plan(self.get_params())
        probes = walk.probes(self.n_features_in_)
        points = torch.from_numpy(((X - self.centre_) / self.scale_).astype(np.float32))
        signs = None
        if probes:
            stream = noise_stream(len(X), seed=derive_seed(self.seed_, "probes"))
            draws = stream.normal_like(torch.empty(len(X), probes, X.shape[1]))
            signs = torch.where(draws > 0, 1.0, -1.0)
        walked = Walked.empty(len(X), len(codes), max(probes, 1), X.shape[1], len(self.flows_))
        for model, flow in enumerate(self.flows_):
            rows = self._rows_of(X, model)
            if len(rows):
                parts = None if signs is None else signs[rows]
                scoring = Scoring(flow, plan, codes, float(self.blur_[model]))
                walked.put(rows, model, scoring.walk(points[rows], guide[rows], parts, walk))
        return walked

    def _rows_of(self, X: np.ndarray, model: int) -> np.ndarray:
        """Return the samples that a model may score: not those it was trained on."""
        if self.folds_ is None or self.keys_ is None:
            return np.arange(len(X))
        fold = dict(zip(self.keys_, self.folds_.tolist(), strict=True))
        return np.flatnonzero([fold.get(key, model) == model for key in row_keys(X)])

    # ------------------------------------------------------------------ files

    def save(self, path: str | Path) -> Path:
        """Write the fitted model into a folder: safetensors and JSON.

        Args:
            path: The folder; replaced as a whole if it exists.
        """
        check_is_fitted(self, "flows_")
        return write_model(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote.

        Raises:
            FileNotFoundError: If there is nothing.
            DamagedRecordError: If a file is cut short or altered.
            InputError: If it is of another format.
        """
        return read_model(cls, path)


def _seed_of(random_state: Any) -> int:
    """Return a seed: an integer as it is, a draw of a RandomState, or fresh entropy for None."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0] >> 1)
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
