r"""The acceleration field: a driven, damped oscillator around the end point that it predicts.

In whitened coordinates, with the noisy look :math:`u = \cos\varphi\, y + \sin\varphi\,\varepsilon`,

.. math:: \hat y = m + k\,(u - \cos\varphi\, m) + \sin\varphi\, F(u, \varphi, x), \qquad
          k = \frac{v \cos\varphi}{v \cos^2\varphi + \sin^2\varphi}

* **driving force** :math:`m(x, e)`: sees context and drivers, never the state;
* **spring** :math:`v(x, e)`: how far the data may lie from m;
* **inner force** F: sees the state and the context, never the drivers.

All three start at m = 0, v = 1, F = 0, where the formula is exact for N(0, I); with the right m
and v it is exact for any Gaussian, so the gate of the force is known and not learned. Other ways
for the drivers to enter are kept for comparison: ``"concatenated"`` gives them to F, ``"state"``
adds their force to u.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from noisewright.methods.kineflow.scaling import Inputs, Layout
from noisewright.types import InputError

__all__ = ["Drivers", "Field", "Surroundings"]

Drivers = Literal["forces", "concatenated", "state"]
"""How drivers enter: as a force on the momentum, as inputs of F, or added to the state."""

LOG_SPRING = (-4.0, 3.0)
CHANNEL_SIZE = 16
LEVELS = 8


@dataclass(frozen=True)
class Surroundings:
    """What a window says, computed once for all samples and steps.

    Attributes:
        context: First layer's share of the context, (rows, 1, hidden).
        force: m, (rows, 1, H).
        spring: v, (rows, 1, H).
        push: What is added to the look in ``"state"`` mode, (rows, 1, H); 0 otherwise.
    """

    context: Tensor
    force: Tensor
    spring: Tensor
    push: Tensor


class ResidualBlock(nn.Module):
    """Two layers added to their input."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layer_in = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.layer_out = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        inner = functional.silu(self.layer_in(self.norm(hidden)))
        return hidden + self.layer_out(self.dropout(inner))


def _trunk(size: int, hidden: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(size, hidden),
        nn.SiLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, hidden),
        nn.SiLU(),
    )


def _silent(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class Field(nn.Module):
    """Force, spring and inner force.

    Args:
        layout: Shapes of the windows.
        hidden: Width.
        depth: Residual blocks of the inner force.
        dropout: In all of them.
        drivers: How drivers enter.
        width: Length of the state: H, or 2 H where position and momentum come separately.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        hidden: int,
        depth: int,
        dropout: float,
        drivers: Drivers,
        width: int,
    ) -> None:
        super().__init__()
        if drivers not in get_args(Drivers):
            raise InputError(f"drivers={drivers!r} is unknown; choose from {get_args(Drivers)}")
        self.layout, self.drivers = layout, drivers
        horizon, own = layout.horizon, layout.own_size + CHANNEL_SIZE
        everything = own + layout.driver_size
        self.channel = nn.Embedding(layout.channels, CHANNEL_SIZE)
        self.context = _trunk(everything if drivers == "concatenated" else own, hidden, dropout)
        self.context_in = nn.Linear(hidden, hidden)
        self.state_in = nn.Linear(width, hidden, bias=False)
        self.level_in = nn.Linear(LEVELS, hidden, bias=False)
        self.blocks = nn.ModuleList(ResidualBlock(hidden, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(hidden)
        self.head = _silent(nn.Linear(hidden, horizon))
        if drivers != "concatenated":
            self.trunk = _trunk(everything, hidden, dropout)
            self.force = _silent(nn.Linear(hidden, horizon))
            self.spring = _silent(nn.Linear(hidden, horizon))

    def surroundings(self, inputs: Inputs) -> Surroundings:
        """Return what the windows say."""
        own = torch.cat([inputs.own, self.channel(inputs.channel)], dim=1)
        everything = torch.cat([own, inputs.drivers], dim=1)
        seen = everything if self.drivers == "concatenated" else own
        context = self.context_in(self.context(seen))[:, None]
        nothing = context.new_zeros(len(context), 1, self.layout.horizon)
        if self.drivers == "concatenated":
            return Surroundings(context, nothing, nothing + 1, nothing)
        hidden = self.trunk(everything)
        force = self.force(hidden)[:, None]
        if self.drivers == "state":
            return Surroundings(context, nothing, nothing + 1, force)
        low, high = LOG_SPRING
        spring = self.spring(hidden).clamp(low, high).exp()[:, None]
        return Surroundings(context, force, spring, nothing)

    def inner(self, state: Tensor, angle: Tensor, around: Surroundings) -> Tensor:
        """Return the inner force.

        Args:
            state: The noisy look (rows, samples, H), or position and momentum (rows, samples, 2 H).
            angle: Its angle, broadcast against (rows, samples, 1).
            around: From :meth:`surroundings`.
        """
        levels = self.level_in(_level_features(angle).to(state.dtype))
        hidden = self.state_in(state) + levels + around.context
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(functional.silu(self.norm(hidden)))

    def predict(self, look: Tensor, angle: Tensor, around: Surroundings) -> Tensor:
        """Return the predicted end point for noisy looks (rows, samples, H), whitened units."""
        cos, sin = angle.cos().to(look.dtype), angle.sin().to(look.dtype)
        inner = self.inner(look + around.push, angle, around)
        gain = around.spring * cos / (around.spring * cos**2 + sin**2)
        return around.force + gain * (look - cos * around.force) + sin * inner

    def slip(self, data: Tensor, noise: Tensor, angle: Tensor, around: Surroundings) -> Tensor:
        r"""Return :math:`(\hat y - y) / \sin\varphi`, without dividing by what may be 0."""
        cos, sin = angle.cos().to(data.dtype), angle.sin().to(data.dtype)
        inner = self.inner(cos * data + sin * noise + around.push, angle, around)
        width = around.spring * cos**2 + sin**2
        return (around.force - data) * sin / width + around.spring * cos / width * noise + inner


def _level_features(angle: Tensor) -> Tensor:
    """Return what the network is told of the noise level, (..., 8), in at least float32."""
    angle = angle.float()
    odds = (angle.sin().clamp(min=1e-4) / angle.cos().clamp(min=1e-4)).log() / 4
    waves = [f(2 * k * angle) for k in (1, 2, 3) for f in (torch.sin, torch.cos)]
    return torch.cat([angle, odds, *waves], dim=-1)
