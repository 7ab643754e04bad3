r"""Likelihoods: exact by the flow's divergence, bounded by the terms of the ELBO.

On the straightened path (see :mod:`noisewright.solvers.ode`) the field is :math:`u = (w - y)/\tau`,
so that :math:`\log p(\text{data}) = \log N(w_1; 0, \tau_1^2 I) + \int \nabla \cdot u \, d\tau`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from noisewright.paths import DataPredictor, expand_to, precise
from noisewright.random import noise_stream
from noisewright.solvers.grids import check_times
from noisewright.types import InputError, NonFiniteError

__all__ = ["ElboTerms", "elbo_terms", "log_likelihood"]

LARGEST_EXACT = 4096
"""Above this many numbers per sample the exact divergence must be asked for by name."""


def _standard_normal(rows: Tensor, std: Tensor) -> Tensor:
    """Return log N(rows; 0, std^2 I), rows (batch, size) in float64, std (batch,)."""
    size = rows.shape[1]
    return -0.5 * (rows / std[:, None]).square().sum(1) - size * (
        std.log() + 0.5 * math.log(2 * math.pi)
    )


def log_likelihood(
    denoiser: DataPredictor,
    data: Float[Tensor, "batch *event"],
    *,
    steps: int,
    divergence: Literal["auto", "exact", "hutchinson"] = "auto",
    probes: int = 1,
    start: float = 1e-3,
    seed: int | Sequence[int] | None = None,
    generator: torch.Generator | None = None,
    **condition: Any,
) -> Float[Tensor, " batch"]:
    """Return log densities of data under the probability-flow ODE, by Heun's method.

    The data count as the state at time ``start`` divided by its signal level; the density is that
    of data blurred by the little noise there.

    Args:
        denoiser: Predicts the data.
        data: Examples.
        steps: Steps from ``start`` to 1, evenly spaced in the log of tau.
        divergence: ``"exact"`` needs one backward pass per number of a sample, ``"hutchinson"``
            one per probe, with Rademacher probes drawn once per sample and kept for the whole
            way; ``"auto"`` is exact up to 64 numbers.
        probes: Number of Hutchinson probes.
        start: Noise time at which the data is put in, in (0, 1).
        seed: For the probes: an integer, or one per sample.
        generator: A running stream instead.
        condition: Passed to the denoiser.

    Returns:
        Natural log densities per sample, float64.

    Raises:
        InputError: If steps, probes or start are out of range, or ``"auto"`` would be exact beyond
            reason.
        NonFiniteError: If the result is not finite.
    """
    if steps < 1 or probes < 1 or not 0 < start < 1:
        raise InputError(
            f"steps={steps} and probes={probes} must be at least 1, start={start} inside (0, 1)"
        )
    size = data[0].numel() if len(data) else 0
    exact = divergence == "exact" or (divergence == "auto" and size <= 64)
    stream = noise_stream(len(data), seed=seed, generator=generator, device=data.device)
    signs = (
        None
        if exact
        else [torch.where(stream.normal_like(data) > 0, 1.0, -1.0) for _ in range(probes)]
    )
    path = denoiser.path
    tau = _fractions(denoiser, start, steps, len(data))
    straight = data.double() * expand_to(1 - tau[0], data).double()
    total = torch.zeros(len(data), dtype=torch.float64, device=data.device)

    def field(straight: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
        t = path.time_of_fraction(tau).expand(len(data))
        return _field(denoiser, straight.to(data.dtype), t, tau, signs, condition)

    for index in range(steps):
        here, there = tau[index], tau[index + 1]
        width = there - here
        slope, spread = field(straight, here)
        ahead = straight + expand_to(width, slope).double() * slope
        next_slope, next_spread = field(ahead, there)
        straight = straight + expand_to(width, slope).double() * (slope + next_slope) / 2
        total = total + width * (spread + next_spread) / 2
    prior = _standard_normal(straight.flatten(1), tau[-1].expand(len(data)))
    result = prior + total + size * torch.log(1 - tau[0])
    if not bool(result.isfinite().all()):
        raise NonFiniteError(f"log_likelihood over {steps} steps is not finite")
    return result


def _fractions(denoiser: DataPredictor, start: float, steps: int, batch: int) -> Tensor:
    """Return tau from ``start`` to 1, (steps + 1,) or (steps + 1, batch), even in its logarithm."""
    first, last = (denoiser.path.levels(t).fraction for t in (start, 1.0))
    place = torch.linspace(0, 1, steps + 1, dtype=torch.float64)
    if first.ndim or last.ndim:
        place = place[:, None]
        first, last = first.expand(batch), last.expand(batch)
    tau = torch.exp(torch.log(first) + place * (torch.log(last) - torch.log(first)))
    return torch.minimum(tau, last)


def _field(
    denoiser: DataPredictor,
    straight: Tensor,
    t: Tensor,
    tau: Tensor,
    signs: list[Tensor] | None,
    condition: dict[str, Any],
) -> tuple[Tensor, Tensor]:
    """Return slope u (float64) and its divergence per row (float64)."""
    scale = expand_to(denoiser.path.levels(t).reach, straight)
    with torch.enable_grad():
        point = straight.detach().requires_grad_(True)
        data = denoiser((point * scale).to(straight.dtype), t, **condition)
        if signs is None:
            flat = data.flatten(1)
            columns = (
                _pull(flat[:, i].sum(), point).flatten(1)[:, i] for i in range(flat.shape[1])
            )
            trace = torch.stack([c.double() for c in columns]).sum(0)
        else:
            products = ((s * _pull((data * s).sum(), point)).flatten(1).double() for s in signs)
            trace = torch.stack([p.sum(1) for p in products]).mean(0)
    slope = (straight - data.detach()).double() / expand_to(tau, straight).double()
    return slope, (straight[0].numel() - trace) / tau


def _pull(value: Tensor, point: Tensor) -> Tensor:
    return torch.autograd.grad(value, point, retain_graph=True)[0]


@dataclass(frozen=True)
class ElboTerms:
    """The parts of the variational bound on -log p(data), in nats per sample.

    Attributes:
        prior: KL of the state at the first time from N(0, sigma^2 I), (batch,).
        diffusion: One KL per interval of the grid, (batch, intervals), one draw of noise each.
        reconstruction: Expected -log p(data | cleanest noisy state), (batch,).
    """

    prior: Tensor
    diffusion: Tensor
    reconstruction: Tensor

    def total(self) -> Float[Tensor, " batch"]:
        """Return the bound on -log p(data)."""
        return self.prior + self.diffusion.sum(1) + self.reconstruction


def elbo_terms(
    denoiser: DataPredictor,
    data: Float[Tensor, "batch *event"],
    times: Tensor | Sequence[float],
    *,
    seed: int | Sequence[int] | None = None,
    generator: torch.Generator | None = None,
    **condition: Any,
) -> ElboTerms:
    r"""Return the terms of the discrete-time bound (Kingma et al. 2021, eq. 11 to 13).

    For an interval from t to a cleaner s, with one draw of the state at t,

    .. math:: \tfrac12 \bigl(\mathrm{SNR}(s) - \mathrm{SNR}(t)\bigr)
        \lVert y - \hat y(x_t, t) \rVert^2 .

    Args:
        denoiser: Predicts the data.
        data: Examples.
        times: Falling times whose last one lies above 0: the cleanest noisy state.
        seed: For the noise, one integer or one per sample. The same seed for two models gives them
            common noise.
        generator: A running stream instead.
        condition: Passed to the denoiser.

    Raises:
        InputError: If the last time is 0, where the bound is infinite.
    """
    path = denoiser.path
    grid = check_times(precise(times), path, len(data)).expand(len(data), -1)
    if bool((grid[:, -1] <= 0).any()):
        raise InputError("times must end above 0: at t = 0 nothing is left to bound, use 1e-3")
    stream = noise_stream(len(data), seed=seed, generator=generator, device=data.device)
    alpha, sigma = (path.columns() if path.batch else path).levels(grid)
    snr = (alpha / sigma).square()
    terms = []
    with torch.no_grad():
        for index in range(grid.shape[1] - 1):
            t = grid[:, index]
            noise = stream.normal_like(data)
            guess = denoiser(path.state(data, noise, t), t, **condition)
            error = (data - guess).double().flatten(1).square().sum(1)
            terms.append(0.5 * (snr[:, index + 1] - snr[:, index]) * error)
    rows = data.double().flatten(1)
    size = rows.shape[1]
    faded = alpha[:, 0] / sigma[:, 0]
    prior = 0.5 * (faded[:, None] * rows).square().sum(1)
    spread = sigma[:, -1] / alpha[:, -1]
    reconstruction = size * (spread.log() + 0.5 * math.log(2 * math.pi) + 0.5)
    return ElboTerms(prior, torch.stack(terms, dim=1), reconstruction)
