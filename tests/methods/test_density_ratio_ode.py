"""The ratio ODE with exact Gaussian fields: formula, sign, choice of the guide, border of time."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from noisewright.methods.density_ratio import ratio_ode
from noisewright.methods.density_ratio.cases import exact_fields, exact_laws
from noisewright.methods.density_ratio.ratio import Terms, density_changes, times
from noisewright.methods.density_ratio.schedule import FloorSchedule, noise_time
from noisewright.paths import GaussianPath

SIZE = 10


LAWS = exact_laws(SIZE)
MEANS = {name: law[0] for name, law in LAWS.items()}
COVARIANCES = {name: law[1] for name, law in LAWS.items()}


def gaussian_fields(floor: float, bulge: float = 0.0):
    """Exact velocity, score and divergence along the paper's path, in the paper's time."""
    return exact_fields(LAWS, floor, bulge)


def truth(x: torch.Tensor, a: str, b: str, floor: float = 0.0) -> torch.Tensor:
    eye = floor**2 * torch.eye(SIZE, dtype=torch.float64)
    laws = [MultivariateNormal(MEANS[c], COVARIANCES[c] + eye) for c in (a, b)]
    return laws[0].log_prob(x) - laws[1].log_prob(x)


def points(count: int = 40) -> torch.Tensor:
    """Samples of a and b in turn."""
    stream = torch.Generator().manual_seed(7)
    draws = torch.randn(count, SIZE, generator=stream, dtype=torch.float64)
    roots = {c: torch.linalg.cholesky(COVARIANCES[c]) for c in "ab"}
    return torch.stack([MEANS[c] + roots[c] @ z for c, z in zip("ab" * count, draws, strict=False)])


@pytest.mark.parametrize("along", ["a", "b", "c"])
def test_formula_with_exact_fields_does_not_depend_on_the_guide(along):
    x = points()
    found = ratio_ode(gaussian_fields(1e-3), x, "a", "b", along, n_steps=100, solver="rk4")
    assert float((found - truth(x, "a", "b")).abs().max()) <= 1e-4
    # The blur by sigma_min^2 = 1e-6 is most of what is left.
    assert float((found - truth(x, "a", "b", 1e-3)).abs().max()) <= 1e-5


def test_stochastic_path_gives_the_same_ratio():
    x = points()
    fields = gaussian_fields(0.0, bulge=0.5)
    found = ratio_ode(fields, x, "a", "b", n_steps=200, solver="rk4", clipped=True)
    assert float((found - truth(x, "a", "b")).abs().max()) <= 0.02 * float(
        truth(x, "a", "b").abs().max()
    )


def test_floor_blurs_the_densities_by_exactly_its_variance():
    x = points()
    found = ratio_ode(gaussian_fields(0.3), x, "a", "b", n_steps=100)
    torch.testing.assert_close(found, truth(x, "a", "b", floor=0.3), rtol=1e-5, atol=1e-5)
    assert float((found - truth(x, "a", "b")).abs().max()) > 0.1


def test_antisymmetric_and_transitive_along_one_guide():
    x, fields = points(), gaussian_fields(1e-2)

    def r(a, b):
        return ratio_ode(fields, x, a, b, "c", n_steps=5)

    torch.testing.assert_close(r("a", "b"), -r("b", "a"), rtol=0, atol=1e-10)
    torch.testing.assert_close(r("a", "b") + r("b", "c"), r("a", "c"), rtol=0, atol=1e-10)
    assert torch.equal(r("a", "a"), torch.zeros(len(x), dtype=torch.float64))


def test_adaptive_solver_agrees():
    x = points(5)
    found = ratio_ode(gaussian_fields(0.05), x, "a", "b", solver="dopri5", tolerance=1e-7)
    torch.testing.assert_close(found, truth(x, "a", "b", 0.05), rtol=1e-4, atol=1e-4)


def test_guide_may_be_any_function():
    x = points(8)
    fields = gaussian_fields(1e-2)
    moved = ratio_ode(fields, x, "a", "b", lambda x, t: -0.3 * x, n_steps=400, solver="rk4")
    torch.testing.assert_close(moved, truth(x, "a", "b", 1e-2), rtol=1e-3, atol=1e-3)


def test_all_conditions_at_once_equal_pairs():
    x, fields = points(6), gaussian_fields(1e-2)

    class Three:
        def terms(self, state, t):
            parts = zip(*(fields(state, t, c) for c in "abc"), strict=True)
            velocity, score, divergence = (torch.stack(p) for p in parts)
            return Terms(velocity, score, divergence[..., None])

        def flow(self, state, t):
            return fields(state, t, "c")[0]

    changes = density_changes(Three(), x, times(30)).log_changes[..., 0]
    for i, a in enumerate("abc"):
        for j, b in enumerate("abc"):
            pair = ratio_ode(fields, x, a, b, "c", n_steps=30, solver="midpoint")
            torch.testing.assert_close(changes[:, i] - changes[:, j], pair, rtol=1e-9, atol=1e-9)


def test_guides_may_differ_from_row_to_row():
    x, fields = points(6), gaussian_fields(1e-2)

    class Pair:
        def terms(self, state, t):
            parts = zip(*(fields(state, t, c) for c in "ab"), strict=True)
            velocity, score, divergence = (torch.stack(p) for p in parts)
            return Terms(velocity, score, divergence[..., None])

        def flow(self, state, t):
            both = torch.stack([fields(state, t, c)[0] for c in "ab"])
            return both[guide, torch.arange(len(state))]

    guide = torch.tensor([0, 1, 0, 1, 1, 0])
    mixed = density_changes(Pair(), x, times(10), guide=guide).log_changes[..., 0]
    for row, name in enumerate("ab"[g] for g in guide.tolist()):
        alone = ratio_ode(fields, x[row : row + 1], "a", "b", name, n_steps=10, solver="midpoint")
        torch.testing.assert_close(mixed[row : row + 1, 0] - mixed[row : row + 1, 1], alone)


@pytest.mark.parametrize(("floor", "bulge"), [(0.0, 0.0), (0.1, 0.0), (0.0, 0.5), (0.05, 1.0)])
def test_noise_time_counts_against_the_papers_time(floor, bulge):
    schedule = FloorSchedule(floor, bulge)
    for tau in (0.0, 0.25, 0.9, 1.0):
        alpha, sigma = schedule.levels(torch.tensor(noise_time(tau), dtype=torch.float64))
        level = math.sqrt((1 - (1 - floor) * tau) ** 2 + bulge * tau * (1 - tau))
        assert float(alpha) == pytest.approx(tau)
        assert float(sigma) == pytest.approx(level)


def test_velocity_and_score_determine_each_other_as_in_the_paper():
    path, tau = GaussianPath(FloorSchedule(0.05, 0.3)), 0.6
    t = torch.tensor(noise_time(tau), dtype=torch.float64)
    stream = torch.Generator().manual_seed(0)
    state, velocity = torch.randn(2, 4, 3, generator=stream, dtype=torch.float64)
    score = path.convert(velocity, state, t, source="velocity", target="score")
    u = -velocity  # the paper's clock runs the other way
    line = 1 - 0.95 * tau
    squared = line**2 + 0.3 * tau * (1 - tau)
    half_rate = -0.95 * line + 0.15 * (1 - 2 * tau)
    c = squared - tau * half_rate
    torch.testing.assert_close(c * score, tau * u - state)


def test_times_refuse_what_cannot_work(refuses):
    with refuses("n_steps=0"):
        times(0)
    with refuses("uniform"):
        times(3, grid="cubic")  # pyright: ignore[reportArgumentType]


def test_exact_divergence_and_score_are_those_of_the_velocity_and_the_law():
    x = points(3)
    velocity, score, divergence = gaussian_fields(0.1, 0.4)(x, 0.6, "a")
    for row in range(3):
        jacobian = torch.autograd.functional.jacobian(
            lambda p: gaussian_fields(0.1, 0.4)(p[None], 0.6, "a")[0][0], x[row]
        )
        torch.testing.assert_close(torch.trace(jacobian), divergence[row])
    squared = (1 - 0.9 * 0.6) ** 2 + 0.4 * 0.6 * 0.4
    eye = torch.eye(SIZE, dtype=torch.float64)
    law = MultivariateNormal(0.6 * MEANS["a"], 0.36 * COVARIANCES["a"] + squared * eye)
    point = x.clone().requires_grad_(True)
    gradient = torch.autograd.grad(law.log_prob(point).sum(), point)[0]
    torch.testing.assert_close(gradient, score)
    assert velocity.shape == x.shape
