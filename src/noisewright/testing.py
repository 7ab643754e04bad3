"""Public conformance checks: what a path, a solver, a denoiser and a room must satisfy.

Each check is a plain function that raises AssertionError; the lists below feed
``pytest.mark.parametrize``. Run them on your own parts:

    @pytest.mark.parametrize("check", solver_checks(), ids=lambda c: c.__name__)
    def test_my_solver(check):
        check(MySolver())
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import torch
from torch import Tensor, nn

from noisewright.paths import Denoiser, GaussianPath, RectifiedSchedule, expand_to
from noisewright.solvers import Solver, uniform_times
from noisewright.types import KINDS, Claim, InputError, Room

__all__ = [
    "GaussianOracle",
    "denoiser_checks",
    "gaussian_denoiser",
    "path_checks",
    "room_checks",
    "solver_checks",
]


class GaussianOracle(nn.Module):
    r"""The exact E[data | state] for data N(mean, variance), one number per axis.

    .. math:: \hat y = m + \frac{\alpha v}{\alpha^2 v + \sigma^2} (x - \alpha m)

    Args:
        path: The path of the states.
        mean: Mean of the data, broadcast against an event.
        variance: Variance of the data, broadcast against an event.
    """

    def __init__(self, path: GaussianPath, mean: Tensor, variance: Tensor) -> None:
        super().__init__()
        self.path = path
        self.mean: Tensor
        self.variance: Tensor
        self.register_buffer("mean", mean)
        self.register_buffer("variance", variance)

    def forward(self, state: Tensor, t: Tensor, **_: Any) -> Tensor:
        """Return the posterior mean of the data."""
        a, s = (expand_to(level, state) for level in self.path.levels(t.double()))
        gain = a * self.variance / (a * a * self.variance + s * s)
        return (self.mean + gain * (state - a * self.mean)).to(state.dtype)


def gaussian_denoiser(
    path: GaussianPath, mean: Tensor | float = 0.0, variance: Tensor | float = 1.0
) -> Denoiser:
    """Return the exact denoiser of Gaussian data on a path.

    Example:
        >>> denoiser = gaussian_denoiser(GaussianPath(RectifiedSchedule()), mean=3.0)
        >>> denoiser(torch.zeros(1, 2), 1.0)
        tensor([[3., 3.]])
    """
    oracle = GaussianOracle(path, torch.as_tensor(mean), torch.as_tensor(variance))
    return Denoiser(oracle, path, kind="data")


def _events(batch: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(batch)
    return torch.randn(batch, 2, 3, generator=generator, dtype=torch.float64)


def _interior() -> Tensor:
    return torch.tensor([0.13, 0.5, 0.96], dtype=torch.float64)


# --- paths -------------------------------------------------------------------------------------


def check_path_signal_to_noise_falls(path: GaussianPath) -> None:
    """Log-SNR falls strictly with time."""
    logsnr = torch.stack([path.logsnr(t) for t in torch.linspace(0.01, 0.99, 41)])
    assert bool((logsnr.diff(dim=0) < 0).all())


def check_path_ends_are_finite(path: GaussianPath) -> None:
    """Levels at t = 0 and t = 1 are finite; the data dominates one end, the noise the other."""
    for t in (0.0, 1.0):
        assert all(bool(level.isfinite().all()) for level in path.levels(t))
    assert bool((path.alpha(0.0) > path.sigma(0.0)).all())
    assert bool((path.sigma(1.0) > path.alpha(1.0)).all())


def check_path_time_of_logsnr_inverts(path: GaussianPath) -> None:
    """The inverse returns the time."""
    for t in (0.1, 0.5, 0.9):
        back = path.time_of_logsnr(path.logsnr(t))
        assert torch.allclose(back, torch.tensor(t, dtype=torch.float64), atol=1e-6)


def check_path_conversions_round_trip(path: GaussianPath) -> None:
    """Every kind plus the state gives every other kind."""
    data, noise, t = _events(), _events().flip(0), _interior()
    state = path.state(data, noise, t)
    values = {kind: path.target(data, noise, t, kind) for kind in KINDS}
    for source in KINDS:
        for target in KINDS:
            got = path.convert(values[source], state, t, source=source, target=target)
            assert torch.allclose(got, values[target], rtol=1e-6, atol=1e-6), (source, target)


def check_path_rates_match_differences(path: GaussianPath) -> None:
    """Rates equal central differences of the levels."""
    t, step = torch.tensor(0.4371, dtype=torch.float64), 1e-6
    rates = path.schedule.rates(t)
    ahead, behind = path.schedule.levels(t + step), path.schedule.levels(t - step)
    for rate, up, down in zip(rates, ahead, behind, strict=True):
        assert torch.allclose(rate, (up - down) / (2 * step), rtol=1e-4, atol=1e-5)


def check_path_posterior_keeps_the_marginal(path: GaussianPath) -> None:
    """Stepping with the true data keeps variance sigma(s)^2 around alpha(s) data, for any eta."""
    data = torch.zeros(1, 1, dtype=torch.float64)
    t, s = torch.tensor(0.7), torch.tensor(0.3)
    path = path.select(slice(0, 1))
    for eta in (0.0, 0.5, 1.0):
        here, there = path.levels(t), path.levels(s)
        unit = expand_to(here.sigma, data) * torch.ones_like(data)  # state one std from its mean
        mean, std = path.posterior(unit, data, levels=here, next_levels=there, eta=eta)
        total = mean**2 + std**2
        assert torch.allclose(total, expand_to(there.sigma, data) ** 2, rtol=1e-6)


def check_path_per_sample_equals_one_by_one(path: GaussianPath) -> None:
    """Rows with their own times equal rows alone."""
    data, noise, t = _events(), _events().flip(0), _interior()
    together = path.state(data, noise, t)
    for i in range(3):
        rows = slice(i, i + 1)
        alone = path.select(rows).state(data[rows], noise[rows], t[rows])
        assert torch.equal(together[rows], alone)


def path_checks() -> list[Callable[[GaussianPath], None]]:
    """Return the checks that every Gaussian path must pass (batch of three, or shared)."""
    return [
        check_path_signal_to_noise_falls,
        check_path_ends_are_finite,
        check_path_time_of_logsnr_inverts,
        check_path_conversions_round_trip,
        check_path_rates_match_differences,
        check_path_posterior_keeps_the_marginal,
        check_path_per_sample_equals_one_by_one,
    ]


# --- solvers -----------------------------------------------------------------------------------


def _toy() -> tuple[Denoiser, Tensor]:
    path = GaussianPath(RectifiedSchedule())
    denoiser = gaussian_denoiser(path, mean=1.0, variance=torch.tensor(0.25, dtype=torch.float64))
    return denoiser, path.prior(_events(), seed=0)


def check_solver_needs_steps_or_times(solver: Solver) -> None:
    """Neither or both of steps= and times= is an error; no number of steps is assumed."""
    denoiser, noise = _toy()
    for wrong in ({}, {"steps": 4, "times": torch.tensor([1.0, 0.0])}):
        try:
            solver(denoiser, noise, **wrong)
        except InputError:
            continue
        raise AssertionError(f"accepted {wrong}")


def check_solver_counts_steps_and_calls(solver: Solver) -> None:
    """Walking n steps visits n + 1 times; each step is watched once."""
    denoiser, noise = _toy()
    seen: list[int] = []
    solution = solver(denoiser, noise, steps=5, seed=0, watch=lambda step: seen.append(step.index))
    assert seen == [0, 1, 2, 3, 4]
    assert solution.times.shape == (6,)
    assert solution.calls >= 5
    assert torch.equal(solution.times, uniform_times(denoiser.path, 5))


def check_solver_has_no_hidden_state(solver: Solver) -> None:
    """The same call twice gives the same bits, with another call between."""
    denoiser, noise = _toy()
    first = solver(denoiser, noise, steps=4, seed=0).state
    solver(denoiser, noise + 1, steps=3, seed=1)
    assert torch.equal(first, solver(denoiser, noise, steps=4, seed=0).state)


def check_solver_leaves_inputs_and_global_stream_alone(solver: Solver) -> None:
    """Inputs keep their values; torch's global stream is neither read nor advanced."""
    denoiser, noise = _toy()
    before, stream = noise.clone(), torch.get_rng_state()
    solver(denoiser, noise, steps=3, seed=0)
    solver(denoiser, noise, steps=3)
    assert torch.equal(before, noise)
    assert torch.equal(stream, torch.get_rng_state())


def check_solver_keeps_dtype(solver: Solver) -> None:
    """States come back in the dtype that went in."""
    denoiser, noise = _toy()
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        assert solver(denoiser, noise.to(dtype), steps=3, seed=0).state.dtype == dtype


def check_solver_rows_are_independent(solver: Solver) -> None:
    """A sample depends on its own seed and start only, not on its neighbours or their order."""
    denoiser, noise = _toy()
    seeds = [3, 7, 11]
    together = solver(denoiser, noise, steps=6, seed=seeds).state
    for i, seed in enumerate(seeds):
        alone = solver(denoiser, noise[i : i + 1], steps=6, seed=[seed]).state
        assert torch.allclose(alone[0], together[i], rtol=0, atol=1e-10)
    turned = solver(denoiser, noise.flip(0), steps=6, seed=seeds[::-1]).state.flip(0)
    assert torch.allclose(turned, together, rtol=0, atol=1e-10)


def check_solver_reaches_the_data_law(solver: Solver) -> None:
    """With the exact denoiser of N(1, 1/4), many steps give that mean and variance."""
    denoiser, _ = _toy()
    noise = denoiser.path.prior(torch.empty(4000, 2, dtype=torch.float64), seed=1)
    data = solver(denoiser, noise, steps=200, seed=2).state
    assert abs(float(data.mean()) - 1.0) < 0.03
    assert abs(float(data.var()) - 0.25) < 0.03


def check_solver_takes_times_per_sample(solver: Solver) -> None:
    """A (batch, n + 1) grid gives each row what its own grid gives alone."""
    denoiser, noise = _toy()
    rows = [[1.0, 0.6, 0.3, 0.0], [1.0, 0.9, 0.5, 0.0], [1.0, 0.4, 0.1, 0.0]]
    times = torch.tensor(rows, dtype=torch.float64)
    together = solver(denoiser, noise, times=times, seed=[1, 2, 3]).state
    for i in range(3):
        alone = solver(denoiser, noise[i : i + 1], times=times[i], seed=[i + 1]).state
        assert torch.allclose(alone[0], together[i], rtol=0, atol=1e-10)


def check_solver_stops_when_watch_says_so(solver: Solver) -> None:
    """A watch that returns True ends the walk there."""
    denoiser, noise = _toy()
    solution = solver(
        denoiser, noise, steps=6, seed=0, record="all", watch=lambda step: step.index == 2
    )
    assert solution.trajectory is not None
    assert len(solution.trajectory) == 4
    assert torch.equal(solution.trajectory[-1], solution.state)


def solver_checks() -> list[Callable[[Solver], None]]:
    """Return the checks that every fixed-step solver must pass."""
    return [
        check_solver_needs_steps_or_times,
        check_solver_counts_steps_and_calls,
        check_solver_has_no_hidden_state,
        check_solver_leaves_inputs_and_global_stream_alone,
        check_solver_keeps_dtype,
        check_solver_rows_are_independent,
        check_solver_reaches_the_data_law,
        check_solver_takes_times_per_sample,
        check_solver_stops_when_watch_says_so,
    ]


# --- denoisers ---------------------------------------------------------------------------------


def check_denoiser_keeps_shape_and_dtype(denoiser: Any, state: Tensor) -> None:
    """The prediction is shaped like the state, in its dtype."""
    data = denoiser(state, torch.full((len(state),), 0.5))
    assert data.shape == state.shape
    assert data.dtype == state.dtype


def check_denoiser_rows_are_independent(denoiser: Any, state: Tensor) -> None:
    """A row's prediction does not change with its neighbours."""
    t = torch.linspace(0.2, 0.8, len(state), dtype=torch.float64)
    together = denoiser(state, t)
    alone = torch.cat([denoiser(state[i : i + 1], t[i : i + 1]) for i in range(len(state))])
    assert torch.allclose(together, alone, atol=1e-5)


def check_denoiser_has_no_hidden_state(denoiser: Any, state: Tensor) -> None:
    """The same call twice gives the same bits and leaves the state alone."""
    t, before = torch.full((len(state),), 0.4), state.clone()
    assert torch.equal(denoiser(state, t), denoiser(state, t))
    assert torch.equal(before, state)


def check_denoiser_is_finite_at_the_ends(denoiser: Any, state: Tensor) -> None:
    """Predictions at t = 0 and t = 1 are finite."""
    for t in (0.0, 1.0):
        assert bool(denoiser(state, torch.full((len(state),), t)).isfinite().all())


def check_denoiser_can_be_walked(denoiser: Any, state: Tensor) -> None:
    """A solver gets from noise to finite data with it."""
    from noisewright.solvers import Euler

    solution = Euler()(denoiser, denoiser.path.prior(state, seed=0), steps=3)
    assert bool(solution.state.isfinite().all())


def denoiser_checks() -> list[Callable[[Any, Tensor], None]]:
    """Return the checks that every denoiser or wrapper must pass, called with a batch of states."""
    return [
        check_denoiser_keeps_shape_and_dtype,
        check_denoiser_rows_are_independent,
        check_denoiser_has_no_hidden_state,
        check_denoiser_is_finite_at_the_ends,
        check_denoiser_can_be_walked,
    ]


# --- rooms -------------------------------------------------------------------------------------


def check_room_has_its_files(room: Room) -> None:
    """Experiment, claims and docs page are there."""
    here = resources.files(room.module)
    missing = [f for f in ("experiment.py", "claims.toml", "README.md") if not (here / f).is_file()]
    assert not missing, f"{room.name} lacks {missing}"


def check_room_claims_are_readable(room: Room) -> None:
    """Every claim has a key, a relation, a target and a sentence; keys are stated once."""
    text = (resources.files(room.module) / "claims.toml").read_text()
    claims = [Claim(**entry) for entry in tomllib.loads(text)["claim"]]
    assert claims
    assert len({c.key for c in claims}) == len(claims)
    assert all(c.text and c.judge({}) == "not measured" for c in claims)


def check_room_settings_are_documented(room: Room) -> None:
    """Every field of Settings has a default and a docstring; quick() returns the same kind."""
    import dataclasses
    import inspect

    settings = importlib.import_module(f"{room.module}.experiment").Settings
    source = inspect.getsource(settings)
    for field in dataclasses.fields(settings):
        has_default = field.default is not dataclasses.MISSING
        assert has_default or field.default_factory is not dataclasses.MISSING, field.name
        assert f"{field.name}:" in source
    assert isinstance(settings.quick(), settings)


def check_room_public_names_resolve(room: Room) -> None:
    """Every name that the room announces can be imported from it."""
    module = importlib.import_module(room.module)
    for name in module.__all__:
        assert getattr(module, name) is not None


def room_checks() -> Sequence[Callable[[Room], None]]:
    """Return the checks that every room must pass."""
    return [
        check_room_has_its_files,
        check_room_claims_are_readable,
        check_room_settings_are_documented,
        check_room_public_names_resolve,
    ]
