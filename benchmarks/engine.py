"""What the engine adds to the network: per step, in training, in memory, and beside its peers.

The bare loops below are the least a sampler and a trainer can do for the same answer.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from noisewright.nets import MLP, UNet
from noisewright.paths import Denoiser, GaussianPath, RectifiedSchedule, TableSchedule
from noisewright.random import isolated
from noisewright.solvers import DDIM, DDPM, DPMSolverPP, Euler, Heun
from noisewright.training import Average, fit
from timing import (
    Row,
    Times,
    child_seconds,
    interleaved,
    main,
    peak_memory,
    quartiles,
    ratio_row,
)

LEVELS = 1000
RECTIFIED = GaussianPath(RectifiedSchedule())


def awake(build: Callable[[], nn.Module]) -> nn.Module:
    """Return a network whose last layer is not zero."""
    with isolated(0):
        net = build()
        for parameter in net.parameters():
            if not parameter.any():
                nn.init.normal_(parameter, std=0.02)
    return net.eval()


def unet() -> nn.Module:
    """Return a network of about a million parameters for 32 x 32 pictures."""
    return awake(lambda: UNet(3, (32, 48, 56)))


def mlp() -> nn.Module:
    """Return a network of about a million parameters that is very cheap: the worst case."""
    return awake(lambda: MLP(32, width=256, depth=3))


def start(*shape: int) -> Tensor:
    """Return the same states every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def size(net: nn.Module) -> str:
    """Return the number of parameters in words."""
    return f"{sum(p.numel() for p in net.parameters()) / 1e6:.2f} M parameters"


@torch.no_grad()
def bare_euler(net: nn.Module, state: Tensor, steps: int) -> Tensor:
    """Integrate a velocity in a plain loop."""
    times = torch.linspace(1, 0, steps + 1)
    for t, following in pairwise(times):
        state = state + (following - t) * net(state, t.expand(len(state)))
    return state


# --- overhead -----------------------------------------------------------------------------------


def overhead(
    net: nn.Module, state: Tensor, steps: int, rounds: int, goal: float | None
) -> list[Row]:
    """Compare solvers with the bare loop that makes the same number of network calls."""
    denoiser = Denoiser(net, RECTIFIED)
    contenders: dict[str, Callable[[], object]] = {
        "bare loop": lambda: bare_euler(net, state, steps),
        "Euler": lambda: Euler()(denoiser, state, steps=steps),
        "DDIM": lambda: DDIM()(denoiser, state, steps=steps, seed=0),
        "DDPM": lambda: DDPM()(denoiser, state, steps=steps, seed=0),
        "DPMSolverPP": lambda: DPMSolverPP()(denoiser, state, steps=steps),
    }
    times = interleaved(contenders, rounds)
    where = f"{type(net).__name__}, {size(net)}, batch {len(state)}, {steps} steps"
    return [
        ratio_row(
            times, n, "bare loop", section="Overhead per step", what=f"{n}: {where}", goal=goal
        )
        for n in contenders
        if n != "bare loop"
    ]


def microseconds(rounds: int, steps: int = 200) -> list[Row]:
    """Return the engine's own time per step, with a network that does nothing."""
    denoiser = Denoiser(nn.Identity(), RECTIFIED, kind="velocity")
    denoiser.net.forward = lambda state, t: state
    state, rows = start(8, 3, 32, 32), []
    for solver in (Euler(), Heun(), DDIM(), DDPM(), DPMSolverPP()):
        times = interleaved(
            {"ours": lambda s=solver: s(denoiser, state, steps=steps, seed=0)}, rounds
        )
        low, middle, high = quartiles([1e6 * t / steps for t in times["ours"]])
        name = type(solver).__name__
        rows.append(Row("Own time per step", name, "", middle, low, high, rounds, "µs"))
    return rows


def training(
    net: nn.Module, data: Tensor, batch: int, steps: int, rounds: int, goal: float | None
) -> Row:
    """Compare ``fit`` with a plain loop of the same optimizer, loss and clipping."""

    def loss(module: Any, rows: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        shaped = t.reshape(-1, *(1,) * (rows.ndim - 1))
        return (module((1 - shaped) * rows + shaped * noise, t) - (noise - rows)).square().mean()

    def bare() -> None:
        net.train()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
        stream = torch.Generator().manual_seed(0)
        for _ in range(steps):
            rows = data[torch.randint(len(data), (batch,), generator=stream)]
            noise = torch.randn(rows.shape, generator=stream)
            value = loss(net, rows, noise, torch.rand(batch, generator=stream))
            value.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            value.item()

    def ours() -> None:
        def drawn(module: Any, rows: Tensor, draws: Any) -> Tensor:
            return loss(module, rows, draws.normal_like(rows), draws.uniform())

        fit(net, data, drawn, steps=steps, batch=batch, seed=0, rate=1e-4).finish()

    times = interleaved({"bare loop": bare, "ours": ours}, rounds)
    what = f"{type(net).__name__}, {size(net)}, batch {batch}, {steps} steps"
    return ratio_row(times, "ours", "bare loop", section="Training loop", what=what, goal=goal)


def averaging(net: nn.Module, rounds: int) -> Row:
    """Compare one update of the average with a plain loop over the weights."""
    average = Average(net, decay=0.999)
    shadow = [p.detach().clone() for p in net.parameters()]

    @torch.no_grad()
    def bare() -> None:
        for _ in range(50):
            for mean, value in zip(shadow, net.parameters(), strict=True):
                mean.lerp_(value, 0.001)

    def ours() -> None:
        for _ in range(50):
            average.update()

    times = interleaved({"loop over weights": bare, "ours": ours}, rounds)
    what = f"50 updates of an average, {size(net)}"
    return ratio_row(times, "ours", "loop over weights", section="Training loop", what=what)


# --- peers --------------------------------------------------------------------------------------


def diffusers_pairs(net: nn.Module, state: Tensor, steps: int) -> dict[str, tuple[Any, Any]]:
    """Return (ours, theirs) for schedulers of diffusers on the same grid."""
    import diffusers

    ddim = diffusers.DDIMScheduler(LEVELS, clip_sample=False)
    euler = diffusers.EulerDiscreteScheduler(LEVELS, timestep_spacing="trailing")
    flow = diffusers.FlowMatchEulerDiscreteScheduler(LEVELS)

    @torch.no_grad()
    def walk(scheduler: Any, told: Callable[[Tensor], Tensor]) -> Tensor:
        scheduler.set_timesteps(steps)
        current = state * (scheduler.sigmas[0] ** 2 + 1).sqrt() if scheduler is euler else state
        for index in scheduler.timesteps:
            seen = current
            if scheduler is euler:
                seen = scheduler.scale_model_input(current, index)
            value = net(seen, told(index).expand(len(state)))
            current = scheduler.step(value, index, current).prev_sample
        return current

    def table_walk(solver: Any, scheduler: Any) -> Callable[[], Tensor]:
        path = GaussianPath(TableSchedule(scheduler.alphas_cumprod))
        denoiser = Denoiser(net, path, kind="noise")
        scheduler.set_timesteps(steps)
        places = (scheduler.timesteps.double() + 1) / LEVELS
        times = torch.cat([places, torch.zeros(1, dtype=torch.float64)])
        return lambda: solver(denoiser, state, times=times, seed=0).state

    flow.set_timesteps(steps)
    sigmas, straight = flow.sigmas.clone(), Denoiser(net, RECTIFIED)

    def level(index: Tensor) -> Tensor:
        return (index.float() + 1) / LEVELS

    return {
        "diffusers DDIM": (table_walk(DDIM(), ddim), lambda: walk(ddim, level)),
        "diffusers EulerDiscrete": (table_walk(Euler(), euler), lambda: walk(euler, level)),
        "diffusers FlowMatchEuler": (
            lambda: Euler()(straight, state, times=sigmas).state,
            lambda: walk(flow, lambda index: index / LEVELS),
        ),
    }


def flow_matching_pair(net: nn.Module, state: Tensor, steps: int) -> dict[str, tuple[Any, Any]]:
    """Return (ours, theirs) for flow_matching's ODE solver, whose time runs from noise to data."""
    from flow_matching.solver import ODESolver
    from flow_matching.utils import ModelWrapper

    class Reversed(ModelWrapper):
        def forward(self, x: Tensor, t: Tensor, **_: Any) -> Tensor:
            return -self.model(x, (1 - t).expand(len(x)))

    solver, denoiser = ODESolver(Reversed(net)), Denoiser(net, RECTIFIED)
    grid = torch.tensor([0.0, 1.0])
    how = {"step_size": 1 / steps, "method": "euler", "time_grid": grid}
    return {
        "flow_matching euler": (
            lambda: Euler()(denoiser, state, steps=steps).state,
            lambda: solver.sample(state, **how),
        )
    }


def azula_pair(net: nn.Module, state: Tensor, steps: int) -> dict[str, tuple[Any, Any]]:
    """Return (ours, theirs) for azula's DDIM, whose schedule stops just short of the ends."""
    from azula.denoise import Denoiser as AzulaDenoiser
    from azula.denoise import DiracPosterior
    from azula.noise import RectifiedSchedule as AzulaSchedule
    from azula.sample import DDIMSampler

    class Told(AzulaDenoiser):
        def __init__(self) -> None:
            super().__init__()
            self.schedule = AzulaSchedule()

        def forward(self, x_t: Tensor, t: Tensor, **_: Any) -> DiracPosterior:
            return DiracPosterior(mean=net(x_t, t.expand(len(x_t))))

    sampler = DDIMSampler(Told(), steps=steps, silent=True)
    denoiser = Denoiser(net, RECTIFIED, kind="data")
    return {
        "azula DDIMSampler": (
            lambda: DDIM()(denoiser, state, steps=steps, seed=0).state,
            lambda: sampler(state),
        )
    }


PEERS = {"diffusers": diffusers_pairs, "flow_matching": flow_matching_pair, "azula": azula_pair}


def peers(net: nn.Module, state: Tensor, steps: int, rounds: int) -> list[Row]:
    """Time every installed peer on the same network, states and number of calls."""
    rows: list[Row] = []
    where = f"{type(net).__name__}, batch {len(state)}, {steps} steps"
    for package, pairs in PEERS.items():
        if importlib.util.find_spec(package) is None:
            continue
        for peer, (ours, theirs) in pairs(net, state, steps).items():
            same = package != "azula"  # its ends differ by construction
            if same and not torch.allclose(ours(), theirs(), rtol=1e-3, atol=1e-3):
                raise AssertionError(f"{peer} and ours do not give the same states")
            times = interleaved({"ours": ours, peer: theirs}, rounds)
            section = "Sampling beside other libraries"
            rows.append(ratio_row(times, "ours", peer, section=section, what=where, goal=1.0))
    return rows


# --- memory and start-up ------------------------------------------------------------------------

SETUP = """
import sys; sys.path.insert(0, {here!r})
import engine
net, state = engine.unet(), engine.start(96, 3, 32, 32)
"""
WALKS = {
    "bare loop": "engine.bare_euler(net, state, 3)",
    "Euler": "engine.Euler()(engine.Denoiser(net, engine.RECTIFIED), state, steps=3)",
    "DPMSolverPP": "engine.DPMSolverPP()(engine.Denoiser(net, engine.RECTIFIED), state, steps=3)",
}


def memory(rounds: int) -> list[Row]:
    """Compare peak resident memory of child processes that differ in the walk only."""
    from pathlib import Path

    setup = SETUP.format(here=str(Path(__file__).parent))
    peaks: Times = {name: [] for name in WALKS}
    for _ in range(rounds):
        for name, code in WALKS.items():
            peaks[name].append(peak_memory(setup + code))
    rows = []
    for name in ("Euler", "DPMSolverPP"):
        ratios = [a / b for a, b in zip(peaks[name], peaks["bare loop"], strict=True)]
        low, middle, high = quartiles(ratios)
        sides = [statistics.median(peaks[side]) for side in (name, "bare loop")]
        what = f"{name}: whole process, UNet, batch 96"
        rows.append(
            Row(
                "Peak memory", what, "bare loop", middle, low, high, rounds, "", None, *sides, "MiB"
            )
        )
    return rows


def start_up(rounds: int) -> list[Row]:
    """Time ``noisewright --help`` beside an empty Python."""
    times: Times = {"help": [], "python -c pass": []}
    for _ in range(rounds):
        times["help"].append(child_seconds(["-m", "noisewright", "--help"]))
        times["python -c pass"].append(child_seconds(["-c", "pass"]))
    low, middle, high = quartiles(times["help"])
    what, section = "noisewright --help", "Start"
    return [
        Row(section, what, "", middle, low, high, rounds, "s", 0.5),
        ratio_row(times, "help", "python -c pass", section=section, what=what),
    ]


def measure(quick: bool) -> list[Row]:
    """Return all rows."""
    torch.set_num_threads(1)
    few, some, many = (2, 3, 3) if quick else (15, 15, 31)
    pictures, vectors = start(8, 3, 32, 32), start(64, 32)
    rows = overhead(unet(), pictures, 4, few, 1.03)
    rows += overhead(mlp(), vectors, 50, many, None)
    rows += microseconds(some)
    rows += [
        training(unet(), start(64, 3, 32, 32).clamp(-1, 1), 8, 4, few, 1.03),
        training(mlp(), start(256, 32), 64, 40, some, None),
        averaging(unet(), some),
    ]
    rows += peers(unet(), pictures, 4, few)
    rows += peers(mlp(), vectors, 50, some)
    rows += memory(1 if quick else 3)
    rows += start_up(some)
    return rows


if __name__ == "__main__":
    main(
        "engine",
        measure,
        title="The engine",
        packages=("diffusers", "flow_matching", "azula"),
    )
