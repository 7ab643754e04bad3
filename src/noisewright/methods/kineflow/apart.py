r"""The model's other form, for comparison: q and p fed apart, the path's bend D as target.

.. math:: \hat D = K(s)\,(q, p) + \rho(s)\, F(q, p, s), \qquad D = y - q_0 - p_0

K is the exact regression for white residuals and :math:`\rho^2` what it leaves over, so the
network starts at the Gaussian law here too. It has more to learn for nothing: one number per
coordinate holds all that (q, p) says (:func:`noisewright.paths.kinetic_statistic`). Flow time is
drawn with density :math:`3 (1 - s)^2`, by which an error of D moves the end point.
"""

from __future__ import annotations

import torch
from torch import Tensor

from noisewright.methods.kineflow.field import Field, Surroundings
from noisewright.paths import kinetic_statistic
from noisewright.random import StepDraws

__all__ = ["apart_slip", "end_point", "linear_part"]

JITTER = 1e-6


def linear_part(s: Tensor, sigma_p: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return K as two gains, and rho, for white residuals; each shaped like ``s``, float64.

    Args:
        s: Flow times, 0 noise, 1 data.
        sigma_p: Spread of the starting momenta.
    """
    s = s.double()
    b, c = (3 * s**2 - s**3) / 2, 3 * s - 1.5 * s**2
    rows = torch.stack(
        [torch.stack([1 - b, s - b, b], dim=-1), torch.stack([-c, 1 - c, c], dim=-1)], dim=-2
    )
    prior = torch.tensor([1.0, sigma_p**2, 1.0], dtype=torch.float64)
    bend = torch.tensor([-1.0, -1.0, 1.0], dtype=torch.float64)
    cover = (rows * prior) @ rows.mT + JITTER * torch.eye(2, dtype=torch.float64)
    cross = rows @ (prior * bend)
    gain = torch.linalg.solve(cover, cross[..., None])[..., 0]
    left = (bend * prior * bend).sum() - (gain * cross).sum(dim=-1)
    return gain[..., 0], gain[..., 1], left.clamp(min=JITTER).sqrt()


def _bend(
    field: Field, q: Tensor, p: Tensor, s: Tensor, sigma_p: float, around: Surroundings
) -> tuple[Tensor, Tensor]:
    """Return the predicted bend and rho, for states (rows, samples, H) and times (.., .., 1)."""
    gain_q, gain_p, left = (part.to(q) for part in linear_part(s.cpu(), sigma_p))
    flat = s.reshape(-1)
    _, angle = kinetic_statistic(
        flat.new_zeros(len(flat), 1), flat.new_zeros(len(flat), 1), flat, sigma_p
    )
    inner = field.inner(torch.cat([q, p], dim=2), angle.reshape(s.shape), around)
    return gain_q * q + gain_p * p + left * inner, left


def end_point(
    field: Field, q: Tensor, p: Tensor, s: float, sigma_p: float, around: Surroundings
) -> Tensor:
    """Return where the path ends by the predicted bend, (rows, samples, H), whitened units."""
    clock = torch.full((1, 1, 1), s, dtype=torch.float64, device=q.device)
    bend, _ = _bend(field, q, p, clock, sigma_p, around)
    return q + (1 - s) * p + (1 - s) ** 3 * bend


def apart_slip(
    field: Field, data: Tensor, around: Surroundings, draws: StepDraws, sigma_p: float, looks: int
) -> Tensor:
    """Return the error of the predicted bend over rho, (rows, looks, H).

    Args:
        field: The networks, built for states of length 2 H.
        data: Whitened residuals (rows, 1, H).
        around: Their surroundings.
        draws: The step's random numbers.
        sigma_p: Spread of the starting momenta.
        looks: Points per path.
    """
    rows, _, horizon = data.shape
    shares = draws.uniform(stratified=True)
    channels = rows // len(shares)
    like = data.new_empty(len(shares), channels * looks * horizon)
    q0, noise = (draws.normal_like(like).view(rows, looks, horizon) for _ in range(2))
    p0 = sigma_p * noise
    shifts = torch.arange(channels * looks, device=data.device) / (channels * looks)
    s = 1 - ((shares[:, None] + shifts) % 1).view(rows, looks, 1) ** (1 / 3)
    bend = data - q0 - p0
    q = q0 + s * p0 + (3 * s**2 - s**3) / 2 * bend
    p = p0 + (3 * s - 1.5 * s**2) * bend
    found, left = _bend(field, q, p, s, sigma_p, around)
    return (found - bend) / left
