r"""The model: a linear head and, for what it leaves over, a flow in phase space.

Training needs neither momentum nor flow time: a noise level and a noisy look at the residual are
all that the network sees. One trained network therefore serves ``order=2`` (phase space) and
``order=1`` (the usual flow matching), which differ in how samples are drawn.

The loss is in the data's units: an error in whitened coordinates is taken back through
:math:`L_\Sigma` and the spread d of the window before it is squared. Neither weight moves the
minimiser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from noisewright.methods.kineflow.apart import apart_slip, end_point
from noisewright.methods.kineflow.field import Drivers, Field, Surroundings
from noisewright.methods.kineflow.head import RidgeHead, linear_forecast, residual_factor
from noisewright.methods.kineflow.scaling import Inputs, Layout, scaled
from noisewright.methods.kineflow.windows import Windows
from noisewright.nets.pretrained import Pretrained
from noisewright.paths import GaussianPath, KineticPath, RectifiedSchedule
from noisewright.paths.phase_space import check_sigma_p
from noisewright.random import StepDraws, derive_seed, noise_stream
from noisewright.solvers import DPMSolverPP, Euler, Solver, integrate_second_order
from noisewright.types import InputError

__all__ = ["Draw", "KineFlow"]

FORCE_WEIGHT = 0.3
LOOKS = 2
"""Noisy looks at each residual in a training step; they share the context's embedding."""

CHUNK = 1_500_000
"""Numbers of one hidden layer that are held at once while sampling."""


@dataclass(frozen=True)
class Draw:
    """How futures are drawn; see :meth:`KineFlow.sample`."""

    order: int
    steps: int
    sigma_p: float
    grid: str
    method: str
    momentum: str
    antithetic: bool
    temperature: float

    def check(self, count: int, *, bound: bool) -> None:
        """Refuse what cannot work.

        Raises:
            InputError: With the value and what can.
        """
        if self.order not in (1, 2):
            raise InputError(f"order={self.order} must be 1 (usual flow) or 2 (phase space)")
        if self.order == 1 and bound:
            raise InputError("this model needs momenta (damping, target='D'): order must be 2")
        for name, value in (("n_samples", count), ("steps", self.steps)):
            if value < 1:
                raise InputError(f"{name}={value} must be at least 1")
        if self.antithetic and count % 2:
            raise InputError(f"n_samples={count} are no pairs; antithetic needs an even number")
        if self.grid not in ("matched", "uniform"):
            raise InputError(f"grid={self.grid!r}; choose 'matched' or 'uniform'")
        if self.momentum not in ("zero", "context"):
            raise InputError(f"momentum={self.momentum!r}; choose 'zero' or 'context'")
        if not self.temperature > 0:
            raise InputError(f"temperature={self.temperature} must be above 0")
        check_sigma_p(self.sigma_p)


class _Ends:
    """Predicted end points of one walk, carried on to the middle of the step to come.

    A bridge step is exact for an end point that stays; it moves, and evenly in the logarithm of
    signal over noise. So half of its last move is added, scaled to the step to come, as
    DPM-Solver++(2M) does on Gaussian paths (Lu et al. 2022). The first step knows no move, and the
    last one arrives at the prediction itself.
    """

    def __init__(self, path: KineticPath, times: list[float]) -> None:
        one = torch.zeros(1, 1, dtype=torch.float64)
        angles = [path.statistic(one, one, t)[1] for t in times]
        self.clock = [-float(angle.tan().log()) for angle in angles[1:-1]]
        self.last: Tensor | None = None
        self.index = 0

    def ahead(self, end: Tensor) -> Tensor:
        """Return the end point that the step from the present knot on should aim at."""
        index, last = self.index - 1, self.last
        self.index, self.last = self.index + 1, end
        if last is None or not 1 <= index < len(self.clock) - 1:
            return end
        before, here, after = self.clock[index - 1 : index + 2]
        return end + (end - last) * (after - here) / (2 * (here - before))


class _Looks:
    """The network as the engine's solvers want it: predicts the data of states on a path."""

    def __init__(self, model: KineFlow, around: Surroundings, path: GaussianPath) -> None:
        self.model, self.around, self.path = model, around, path

    def __call__(self, state: Tensor, t: Tensor, **_: object) -> Tensor:
        """Return E[data | state] for states (rows, samples, H) at one noise time."""
        signal, noise = self.path.levels(t[:1])
        reach = torch.hypot(signal, noise).to(state)
        angle = torch.atan2(noise, signal).reshape(1, 1, 1)
        return self.model.field.predict(state / reach, angle, self.around)


class KineFlow(Pretrained):
    """Linear head, residual factor and acceleration field.

    Args:
        layout: Fields of :class:`~noisewright.methods.kineflow.scaling.Layout`, as a dict.
        hidden: Width of the networks.
        depth: Residual blocks of the inner force.
        dropout: In all networks.
        drivers: ``"forces"``, ``"concatenated"`` or ``"state"``.
        precondition: Whether the flow works on whitened residuals.
        data_units: Whether the loss is in the data's units.
        damping: Whether a multiple of the momentum's information-free part is learned.
        apart: None for the model above. A number is the spread of starting momenta of its other
            form, :mod:`noisewright.methods.kineflow.apart`; drivers are concatenated there.

    Attributes:
        layout: Shapes of the windows.
        field: The networks.
    """

    def __init__(
        self,
        layout: dict,
        *,
        hidden: int = 168,
        depth: int = 3,
        dropout: float = 0.1,
        drivers: Drivers = "forces",
        precondition: bool = True,
        data_units: bool = True,
        damping: bool = False,
        apart: float | None = None,
    ) -> None:
        super().__init__()
        self.layout = Layout(**layout)
        self.precondition, self.data_units, self.apart = precondition, data_units, apart
        if apart is not None and (drivers != "concatenated" or damping):
            raise InputError("apart= goes with drivers='concatenated' and without damping")
        horizon, channels = self.layout.horizon, self.layout.channels
        self.field = Field(
            self.layout,
            hidden=hidden,
            depth=depth,
            dropout=dropout,
            drivers=drivers,
            width=horizon if apart is None else 2 * horizon,
        )
        self.kappa = nn.Parameter(torch.zeros(horizon)) if damping else None
        self.weight: Tensor
        self.bias: Tensor
        self.factor: Tensor
        self.register_buffer("weight", torch.zeros(channels, horizon, self.layout.linear_size))
        self.register_buffer("bias", torch.zeros(channels, horizon))
        self.register_buffer("factor", torch.eye(horizon).repeat(channels, 1, 1))

    # ------------------------------------------------------------------ the linear head

    def set_head(self, head: RidgeHead) -> bool:
        """Take over a fitted head and its residual factor; return whether a floor had to help."""
        factor, floored = residual_factor(head.covariance, whiten=self.precondition)
        self.weight.copy_(head.weight)
        self.bias.copy_(head.bias)
        self.factor.copy_(factor)
        return floored

    def point(self, inputs: Inputs) -> Tensor:
        """Return the linear forecast in the rows' own units, (rows, H)."""
        return linear_forecast(inputs, self.weight, self.bias)

    def whitened(self, residual: Tensor) -> Tensor:
        """Return residuals (rows, H) in the coordinates of the flow."""
        channels = len(self.factor)
        columns = residual.unflatten(0, (-1, channels)).permute(1, 2, 0)
        return torch.linalg.solve(self.factor, columns).permute(2, 0, 1).flatten(0, 1)

    def coloured(self, white: Tensor) -> Tensor:
        """Return whitened values (rows, samples, H) in the rows' own units."""
        values = white.unflatten(0, (-1, len(self.factor)))
        return torch.einsum("bcsh,cgh->bcsg", values, self.factor).flatten(0, 1)

    # ------------------------------------------------------------------ training

    def loss(self, windows: Windows, draws: StepDraws) -> Tensor:
        """Return the loss per window.

        Args:
            windows: With targets.
            draws: The step's random numbers.
        """
        inputs = scaled(windows, self.layout)
        assert inputs.target is not None
        rest = inputs.target - self.point(inputs)
        data = self.whitened(rest)[:, None]
        around = self.field.surroundings(inputs)
        batch, channels = len(windows), self.layout.channels
        if self.apart is None:
            slip = self._slip(data, around, draws, batch)
        else:
            slip = apart_slip(self.field, data, around, draws, self.apart, LOOKS)
        weight = self._weights(inputs)
        found = weight * self._size(slip).mean(dim=1)
        if self.field.drivers == "forces":
            found = found + FORCE_WEIGHT * weight * self._size(around.force - data).mean(dim=1)
        return found.view(batch, channels).mean(dim=1)

    def _slip(self, data: Tensor, around: Surroundings, draws: StepDraws, batch: int) -> Tensor:
        """Return the error of the end point over the noise level, (rows, LOOKS, H)."""
        channels, horizon = self.layout.channels, self.layout.horizon
        like = data.new_empty(batch, channels * LOOKS * horizon)
        noise = draws.normal_like(like).view(batch * channels, LOOKS, horizon)
        angle = self._angles(draws, batch, channels).to(data.device)
        slip = self.field.slip(data, noise, angle, around)
        if self.kappa is not None:
            slip = slip + self.kappa * draws.normal_like(like).view_as(noise)
        return slip

    @property
    def needs_momentum(self) -> bool:
        """Whether it can be drawn in phase space only."""
        return self.kappa is not None or self.apart is not None

    @staticmethod
    def _angles(draws: StepDraws, batch: int, channels: int) -> Tensor:
        """Return noise levels (rows, LOOKS, 1), t uniform and spread evenly over the batch."""
        shifts = torch.arange(channels * LOOKS) / (channels * LOOKS)
        t = (draws.uniform(stratified=True).cpu()[:, None] + shifts) % 1
        t = t.view(batch * channels, LOOKS, 1)
        return torch.atan2(1 - t, t)

    def _size(self, error: Tensor) -> Tensor:
        """Return the mean square of whitened errors (rows, looks, H), in residual variances."""
        if not self.data_units:
            return error.square().mean(dim=2)
        mean = self.factor.square().sum(dim=2).mean()
        return self.coloured(error).square().mean(dim=2) / mean

    def _weights(self, inputs: Inputs) -> Tensor:
        return inputs.spread[:, 0] if self.data_units else torch.ones_like(inputs.spread[:, 0])

    # ------------------------------------------------------------------ sampling

    @torch.no_grad()
    def sample(
        self,
        windows: Windows,
        count: int,
        *,
        order: int = 2,
        steps: int = 10,
        seed: int | Sequence[int] = 0,
        sigma_p: float = 1.0,
        grid: Literal["matched", "uniform"] = "matched",
        method: str = "multistep",
        momentum: Literal["zero", "context"] = "zero",
        antithetic: bool = False,
        temperature: float = 1.0,
        solver: Solver | None = None,
        path: GaussianPath | None = None,
    ) -> Tensor:
        """Draw futures.

        Args:
            windows: What is known; a target is not read.
            count: Futures per window.
            order: 2 walks in phase space, 1 along the usual straight path.
            steps: Steps; one network call each with ``"multistep"`` and ``"bridge"``.
            seed: One integer, or one per window; a window's futures depend on its own seed only.
            sigma_p: Spread of the starting momenta.
            grid: Noise levels that are visited: those of even first-order steps, or even in time.
            method: ``"multistep"`` (second-order accurate at one call a step, in both orders), or
                one of :func:`noisewright.solvers.integrate_second_order`; ``"bridge"`` is Euler's
                step for order 1.
            momentum: Whether the starting momenta have mean zero, or point along the force.
            antithetic: Draw starts in opposite pairs: future i and i + count / 2.
            temperature: Spread of the start; 1 is the law that was learned.
            solver: For order 1, a solver of the engine instead.
            path: For order 1, another Gaussian path than the straight one.

        Returns:
            (batch, count, H, C), standardised units.

        Raises:
            InputError: If a setting cannot work.
        """
        draw = Draw(order, steps, sigma_p, grid, method, momentum, antithetic, temperature)
        draw.check(count, bound=self.needs_momentum)
        seeds = (
            [derive_seed(seed, "window", i) for i in range(len(windows))]
            if isinstance(seed, int)
            else list(seed)
        )
        if len(seeds) != len(windows):
            raise InputError(f"seed has {len(seeds)} entries for {len(windows)} windows")
        width = self.field.state_in.out_features
        chunk = max(1, CHUNK // (self.layout.channels * count * width))
        channels, horizon = self.layout.channels, self.layout.horizon
        found = windows.context.new_empty(len(windows), count, horizon, channels)
        for begin in range(0, len(windows), chunk):
            part = slice(begin, begin + chunk)
            found[part] = self._futures(windows.rows(part), count, seeds[part], draw, solver, path)
        return found

    def _futures(
        self,
        windows: Windows,
        count: int,
        seeds: list[int],
        draw: Draw,
        solver: Solver | None,
        path: GaussianPath | None,
    ) -> Tensor:
        inputs = scaled(windows, self.layout)
        around = self.field.surroundings(inputs)
        batch, channels, horizon = len(windows), self.layout.channels, self.layout.horizon
        unique = count // 2 if draw.antithetic else count
        stream = noise_stream(batch, seed=seeds, device="cpu")
        like = inputs.own.new_empty(batch, channels, unique, horizon)

        def start() -> Tensor:
            noise = draw.temperature * stream.normal_like(like).flatten(0, 1)
            return torch.cat([noise, -noise], dim=1) if draw.antithetic else noise

        if draw.order == 2:
            ends = self._walk(start(), start(), around, draw)
        else:
            rectified = path or GaussianPath(RectifiedSchedule())
            default = DPMSolverPP() if draw.method == "multistep" else Euler()
            walker, looks = solver or default, _Looks(self, around, rectified)
            seeded = seeds if walker.stochastic and channels == 1 else None
            if walker.stochastic and seeded is None:
                seeded = [derive_seed(s, "row", c) for s in seeds for c in range(channels)]
            ends = walker(looks, start(), steps=draw.steps, seed=seeded).state
        values = (self.point(inputs)[:, None] + self.coloured(ends)) * inputs.spread[:, None]
        values = values + inputs.centre[:, None]
        return values.view(batch, channels, count, horizon).permute(0, 2, 3, 1)

    def _walk(self, q: Tensor, noise: Tensor, around: Surroundings, draw: Draw) -> Tensor:
        """Return the ends of walks in phase space, (rows, samples, H)."""
        kinetic = KineticPath(draw.sigma_p if self.apart is None else self.apart)
        drift = around.force if draw.momentum == "context" else torch.zeros_like(around.force)
        times = (
            kinetic.times(draw.steps)
            if draw.grid == "matched"
            else [1 - i / draw.steps for i in range(draw.steps + 1)]
        )
        ends = _Ends(kinetic, times) if draw.method == "multistep" else None

        def field(q: Tensor, p: Tensor, t: Tensor) -> Tensor:
            # A mean of the starting momenta moves (q, p) along a known curve: take it out.
            s = 1 - float(t)
            b, c = (3 * s**2 - s**3) / 2, 3 * s - 1.5 * s**2
            still_q, still_p = q - (s - b) * drift, p - (1 - c) * drift
            if self.apart is not None:
                end = end_point(self.field, still_q, still_p, s, self.apart, around)
            else:
                look, angle = kinetic.statistic(still_q, still_p, t)
                end = self.field.predict(look, angle.reshape(1, 1, 1), around)
                if self.kappa is not None:
                    across = kinetic.across(still_q, still_p, t)
                    end = end + (angle.sin() * self.kappa * across).to(end.dtype)
            if ends is not None:
                end = ends.ahead(end)
            return kinetic.acceleration(end, q, p, t)

        p = kinetic.sigma_p * noise + drift
        method = "bridge" if ends is not None else draw.method
        return integrate_second_order(field, q, p, method=method, times=times).state

    def settings(self) -> dict:
        """Return the layout as plain values."""
        return asdict(self.layout)
