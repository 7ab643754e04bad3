"""Cases with a known answer: Gaussians in closed form, and real cells with drawn treatments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import logit
from torch import Tensor

from noisewright.methods.density_ratio.ratio import ratio_ode
from noisewright.random import derive_seed

__all__ = [
    "GaussianCase",
    "centred_per_group",
    "correlated_pairs",
    "drawn_treatment",
    "exact_errors",
    "exact_fields",
    "exact_laws",
    "gaussian_case",
    "pushed_batches",
]


@dataclass(frozen=True)
class GaussianCase:
    """Two unit Gaussians, at 0 (label 0) and at ``shift`` in every coordinate (label 1).

    Attributes:
        X: Training samples (n, d).
        y: Their labels.
        queries: Test points, half from either.
        query_labels: Where each came from.
        truth: log p(x | 1) / p(x | 0) at the test points.
    """

    X: np.ndarray
    y: np.ndarray
    queries: np.ndarray
    query_labels: np.ndarray
    truth: np.ndarray


def gaussian_case(size: int, shift: float, samples: int, queries: int, seed: int) -> GaussianCase:
    """Draw a case.

    Args:
        size: Number of features.
        shift: Distance of the means per coordinate, in standard deviations.
        samples: Training samples in all.
        queries: Test points in all.
        seed: Of all draws.
    """
    rng = np.random.default_rng(derive_seed(seed, "gaussians", size, shift))
    y, labels = np.arange(samples) % 2, np.arange(queries) % 2
    X = rng.standard_normal((samples, size)) + shift * y[:, None]
    points = rng.standard_normal((queries, size)) + shift * labels[:, None]
    truth = shift * points.sum(axis=1) - 0.5 * size * shift**2
    return GaussianCase(X, y, points, labels, truth)


def correlated_pairs(
    size: int, nats: float, samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    r"""Draw X and Y (samples, size / 2) of unit Gaussians, coordinate by coordinate correlated.

    The correlation :math:`\rho = \sqrt{1 - e^{-4 I / d}}` makes their mutual information I.

    Args:
        size: Coordinates of both together, even.
        nats: The mutual information.
        samples: How many pairs.
        seed: Of the draws.
    """
    rng = np.random.default_rng(derive_seed(seed, "pairs", size, nats))
    rho = np.sqrt(1 - np.exp(-4 * nats / size))
    X = rng.standard_normal((samples, size // 2))
    Y = rho * X + np.sqrt(1 - rho**2) * rng.standard_normal(X.shape)
    return X, Y


def drawn_treatment(
    clusters: np.ndarray, share: float, seed: int, *, up: str = "1", down: str = "2"
) -> tuple[np.ndarray, np.ndarray]:
    """Draw who is treated: with probability p in one cluster, 1 - p in another, 1/2 elsewhere.

    Args:
        clusters: Cluster of each cell.
        share: p, in [0.5, 1].
        seed: Of the draws.
        up: The cluster with p.
        down: The one with 1 - p.

    Returns:
        Treated or not (n,), and the true log odds of each cell (n,), infinite for p = 1.
    """
    chance = np.full(len(clusters), 0.5)
    chance[clusters == up], chance[clusters == down] = share, 1 - share
    rng = np.random.default_rng(derive_seed(seed, "treatment"))
    return rng.random(len(clusters)) < chance, logit(chance)


def pushed_batches(
    points: np.ndarray, clusters: np.ndarray, strength: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Split cells at random into two batches and push the second one, each cluster its own way.

    Args:
        points: Coordinates (n, d).
        clusters: Cluster of each cell.
        strength: Length of the push, in root mean squares of a cluster's spread per coordinate.
        seed: Of the split and the directions; the same for all strengths.

    Returns:
        Coordinates and batches (n,), 0 or 1.
    """
    rng = np.random.default_rng(derive_seed(seed, "batches"))
    batch = rng.permutation(len(points)) % 2
    moved = points.astype(np.float64).copy()
    for cluster in np.unique(clusters):
        inside = clusters == cluster
        direction = rng.standard_normal(points.shape[1])
        spread = np.sqrt(points[inside].var(axis=0).mean())
        push = strength * spread * direction / np.linalg.norm(direction)
        moved[inside & (batch == 1)] += push
    return moved, batch


def centred_per_group(points: np.ndarray, clusters: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """Correct batches: shift each one's clusters to the mean of the whole cluster."""
    corrected = points.copy()
    for cluster in np.unique(clusters):
        inside = clusters == cluster
        middle = points[inside].mean(axis=0)
        for value in np.unique(batch[inside]):
            rows = inside & (batch == value)
            corrected[rows] += middle - points[rows].mean(axis=0)
    return corrected


def exact_fields(
    laws: dict[str, tuple[Tensor, Tensor]], floor: float, bulge: float = 0.0
) -> Callable[[Tensor, float, str], tuple[Tensor, Tensor, Tensor]]:
    """Return velocity, score and divergence of Gaussians on the paper's path, in its time.

    Args:
        laws: Mean (d,) and covariance (d, d) of each condition.
        floor: The paper's sigma_min.
        bulge: The paper's sigma.
    """

    def fields(x: Tensor, t: float, name: str) -> tuple[Tensor, Tensor, Tensor]:
        mean, covariance = laws[name]
        line = 1 - (1 - floor) * t
        squared = line * line + bulge * t * (1 - t)
        half_rate = -(1 - floor) * line + 0.5 * bulge * (1 - 2 * t)  # lambda times its rate
        eye = torch.eye(len(mean), dtype=x.dtype)
        precision = torch.linalg.inv(t * t * covariance + squared * eye)
        gain = (t * covariance + half_rate * eye) @ precision
        centred = x - t * mean
        divergence = torch.trace(gain).expand(len(x))
        return mean + centred @ gain.T, -centred @ precision, divergence

    return fields


def exact_laws(size: int = 10, shift: float = 4.0) -> dict[str, tuple[Tensor, Tensor]]:
    """Return three Gaussians: a, b with other covariance ``shift`` away, and a third one, c."""

    def covariance(seed: int, low: float, high: float) -> Tensor:
        stream = torch.Generator().manual_seed(seed)
        draw = torch.randn(size, size, generator=stream, dtype=torch.float64)
        turn = torch.linalg.qr(draw).Q
        return turn @ torch.diag(torch.linspace(low, high, size, dtype=torch.float64)) @ turn.T

    one = torch.ones(size, dtype=torch.float64)
    return {
        "a": (shift * one, covariance(0, 0.9, 1.8)),
        "b": (0 * one, covariance(1, 0.8, 2.0)),
        "c": (torch.linspace(-1, 1, size, dtype=torch.float64), torch.diag(one)),
    }


def exact_errors(floor: float = 1e-3, n_steps: int = 100) -> dict[str, float]:
    """Return the largest error of the ratio ODE with exact fields, by guide.

    Samples of both Gaussians against their densities without any blur, RK4, float64.
    """
    laws = exact_laws()
    normal = {n: torch.distributions.MultivariateNormal(*law) for n, law in laws.items()}
    stream = torch.Generator().manual_seed(7)
    draws = torch.randn(2, 20, 10, generator=stream, dtype=torch.float64)
    x = torch.cat(
        [normal[n].mean + z @ normal[n].scale_tril.T for n, z in zip("ab", draws, strict=True)]
    )
    truth = normal["a"].log_prob(x) - normal["b"].log_prob(x)
    fields = exact_fields(laws, floor)
    guides = {"numerator": "a", "denominator": "b", "third": "c"}
    return {
        name: float((ratio_ode(fields, x, "a", "b", g, n_steps=n_steps) - truth).abs().max())
        for name, g in guides.items()
    }
