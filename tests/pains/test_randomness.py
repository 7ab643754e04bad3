"""Seeds, generators and batches that change an answer they should not, or keep one they should.

The two walks below call *every* public function of the engine that takes ``generator`` or ``seed``.
They find them by signature; a new one that :data:`CALLS` does not know fails the test.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sklearn.datasets  # noqa: F401 - first, here: its import moves the stream of `random`
import torch
from torch import Tensor, nn

from noisewright import data, metrics, random, solvers, training
from noisewright.nets import MLP
from noisewright.paths import Denoiser, GaussianPath, KineticPath, RectifiedSchedule
from noisewright.random import derive_seed, isolated
from noisewright.steering import ClassifierFree, GradientGuidance
from noisewright.testing import gaussian_denoiser

ENGINE = (
    *("random", "storage", "parallel", "paths", "solvers", "steering", "nets", "data"),
    *("metrics", "training", "testing"),
)
PATH = GaussianPath(RectifiedSchedule())
DENOISER = gaussian_denoiser(PATH, mean=1.0, variance=0.5)
STATE = PATH.prior(torch.empty(3, 2), seed=99)
SOLVERS = [
    *("DDIM", "DDPM", "EulerMaruyama"),
    *("Euler", "Heun", "Midpoint", "RK4", "RungeKutta", "DPMSolverPP"),
]
DRAWS_NOTHING = {f"solvers.{name}.__call__" for name in SOLVERS[3:]} | {
    "data.open_images",  # of digits, which are there whole
}


def awake_network(dtype: torch.dtype) -> MLP:
    with isolated(0):
        net = MLP(5, width=32, depth=2)
        nn.init.normal_(net.head.weight, std=0.3)
    return net.to(dtype)


def made(name: str) -> solvers.Solver:
    return solvers.DDIM(0.5) if name == "DDIM" else getattr(solvers, name)()


def walk_of(name: str) -> Callable[..., Tensor]:
    return lambda **how: made(name)(DENOISER, STATE, steps=4, **how).state


def isolated_draw(seed: int) -> Tensor:
    with isolated(seed):
        return torch.randn(4)


def trained(seed: int) -> list[float]:
    def loss(net: nn.Module, batch: Tensor, draws: random.StepDraws) -> Tensor:
        return (net(batch) - draws.normal_like(batch)).square().mean(dim=1)

    with isolated(1):
        net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    run = training.fit(net, torch.ones(8, 2), loss, steps=3, batch=4, seed=seed)
    return run.finish().losses


CALLS: dict[str, Callable[..., Any]] = {
    **{f"solvers.{name}.__call__": walk_of(name) for name in SOLVERS},
    "random.noise_stream": lambda **how: random.noise_stream(3, **how).normal_like(STATE),
    "random.derive_seed": lambda seed: derive_seed(seed, "name"),
    "random.isolated": isolated_draw,
    "random.StepDraws.__init__": lambda seed: random.StepDraws(seed, 2, 4, slice(1, 3)).uniform(),
    "paths.GaussianPath.prior": lambda **how: PATH.prior(STATE, **how),
    "paths.KineticPath.prior": lambda **how: torch.stack(KineticPath().prior(STATE, **how)),
    "solvers.log_likelihood": lambda **how: solvers.log_likelihood(
        Denoiser(awake_network(torch.float32), PATH),
        torch.ones(2, 5),
        steps=3,
        divergence="hutchinson",
        **how,
    ),
    "solvers.elbo_terms": lambda **how: solvers.elbo_terms(
        DENOISER, STATE, [1.0, 0.5, 0.1], **how
    ).total(),
    "data.photos": lambda seed: data.photos(16, "test", per_photo=2, seed=seed).images,
    "data.open_images": lambda seed: data.open_images("digits", size=8, seed=seed).images,
    "data.DrivenOscillator.simulate": lambda seed: torch.from_numpy(
        data.DrivenOscillator.simulate(50, seed).y
    ),
    "data.ImageSet.split": lambda seed: (
        data.digits("test").split(0.5, by="image", seed=seed)[1].images
    ),
    "metrics.RandomConvFeatures.__init__": lambda seed: metrics.RandomConvFeatures(
        1, seed, width=2, stages=1
    )(STATE.reshape(1, 1, 2, 3)),
    "metrics.bootstrap_interval": lambda seed: dataclasses.astuple(
        metrics.bootstrap_interval(STATE.flatten(), draws=20, seed=seed)
    ),
    "metrics.randomised_ranks": lambda seed: torch.from_numpy(
        metrics.randomised_ranks(STATE.numpy(), STATE[:, 0].numpy(), 1, seed=seed)
    ),
    "training.fit": trained,
    "training.Plan.__init__": lambda seed: training.Plan(1, 1, seed=seed).seed,
}


def functions_of(name: str, thing: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield a public function, or the public methods of a class that can be made."""
    if not inspect.isclass(thing):
        if inspect.isfunction(thing):
            yield name, thing
        return
    if inspect.isabstract(thing):
        return
    for method in dir(thing):
        if method.startswith("_") and method not in ("__init__", "__call__"):
            continue
        function = inspect.getattr_static(thing, method)
        function = getattr(function, "__func__", function)
        if inspect.isfunction(function) and function.__module__.startswith("noisewright"):
            yield f"{name}.{method}", function


def taking(parameter: str) -> list[str]:
    """Return the names of all public functions of the engine with such a parameter."""
    found = []
    for package in ENGINE:
        module = importlib.import_module(f"noisewright.{package}")
        for public in module.__all__:
            for name, function in functions_of(public, getattr(module, public)):
                if parameter in inspect.signature(function).parameters:
                    found.append(f"{package}.{name}")
    return sorted(set(found))


def same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor):
        return torch.equal(left, right)
    return left == right


def test_walk_finds_functions_and_methods():
    found = taking("generator")
    assert {"random.noise_stream", "solvers.DDPM.__call__", "paths.GaussianPath.prior"} <= {*found}
    assert set(taking("seed")) > set(found)


@pytest.mark.parametrize("name", taking("generator"))
def test_stochastic_branch_forgets_the_generator_it_was_given(name):
    """huggingface/diffusers#13678: the stochastic branch drew from the global stream."""
    assert name in CALLS, f"{name} takes a generator: add how to call it to CALLS in this file"
    results = []
    for globally in (1, 2):
        with isolated(globally):
            before = torch.get_rng_state()
            results.append(CALLS[name](generator=torch.Generator().manual_seed(5)))
            assert torch.equal(before, torch.get_rng_state())
    assert same(*results)
    other = CALLS[name](generator=torch.Generator().manual_seed(6))
    assert same(other, results[0]) == (name in DRAWS_NOTHING)


@pytest.mark.parametrize("name", taking("seed"))
def test_seed_zero_is_treated_as_no_seed(name):
    """awslabs/gluonts#2378: a truth test on the seed skipped 0."""
    assert name in CALLS, f"{name} takes a seed: add how to call it to CALLS in this file"
    results = []
    for globally in (1, 2):
        with isolated(globally):
            results.append(CALLS[name](seed=0))
    assert same(*results)
    assert same(CALLS[name](seed=1), results[0]) == (name in DRAWS_NOTHING)


def labelled() -> Denoiser:
    def net(state: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        return torch.zeros_like(state) if label is None else state

    return Denoiser(net, PATH, kind="data")


LABEL = torch.ones(3, dtype=torch.long)
T = torch.full((3,), 0.5)
ZEROS: dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]] = {
    "eta": (
        lambda: solvers.DDIM(eta=0.0)(DENOISER, STATE, steps=4, seed=3).state,
        lambda: solvers.DDIM(eta=0.0)(DENOISER, STATE, steps=4, seed=4).state,
    ),
    "diffusion": (
        lambda: solvers.EulerMaruyama(diffusion=0.0)(DENOISER, STATE, steps=4, seed=3).state,
        lambda: solvers.EulerMaruyama(diffusion=0.0)(DENOISER, STATE, steps=4, seed=4).state,
    ),
    "weight of classes": (
        lambda: ClassifierFree(labelled(), 0.0)(STATE, T, label=LABEL),
        lambda: torch.zeros_like(STATE),
    ),
    "weight inside an interval": (
        lambda: ClassifierFree(labelled(), 0.0, interval=(0.0, 0.5))(STATE, T, label=LABEL),
        lambda: torch.zeros_like(STATE),
    ),
    "weight of a reward": (
        lambda: GradientGuidance(DENOISER, lambda d: d.sum(1), weight=0.0)(STATE, T),
        lambda: DENOISER(STATE, T),
    ),
    "label": (
        lambda: ClassifierFree(labelled(), 1.0)(STATE, T, label=0 * LABEL),
        lambda: STATE,
    ),
}


@pytest.mark.parametrize("name", ZEROS)
def test_zero_is_an_ordinary_value(name):
    got, expected = ZEROS[name]
    assert torch.equal(got(), expected())


def test_temperature_zero_draws_the_means_whatever_the_seed():
    from noisewright.methods.spectral_schedule import SpectrumPrior, rapsd

    stream = torch.Generator().manual_seed(0)
    spectrum = rapsd(torch.rand(40, 1, 16, 16, generator=stream))
    prior = SpectrumPrior(n_components=1).fit(spectrum)
    cold = prior.sample(2, temperature=0.0, seed=0)
    assert torch.equal(cold, prior.sample(2, temperature=0.0, seed=1))
    assert torch.equal(cold[0], cold[1])
    assert not torch.equal(prior.sample(2, seed=0), cold)


@pytest.mark.parametrize("solver", [solvers.DDPM(), solvers.EulerMaruyama()], ids=str)
def test_passing_the_same_generator_twice_does_not_repeat_a_run(solver):
    """huggingface/diffusers#4055: a generator is a stream, a seed is a name."""
    stream = torch.Generator().manual_seed(0)
    first, second = (solver(DENOISER, STATE, steps=4, generator=stream) for _ in range(2))
    assert not torch.equal(first.state, second.state)
    named = [solver(DENOISER, STATE, steps=4, seed=0).state for _ in range(2)]
    assert torch.equal(*named)
    (recorded,) = second.streams  # the record repeats the run, wherever the stream had got to
    again = torch.Generator()
    again.set_state(recorded)
    assert torch.equal(solver(DENOISER, STATE, steps=4, generator=again).state, second.state)


def test_seed_and_generator_together_are_refused():
    with pytest.raises(ValueError, match="not both"):
        solvers.DDPM()(DENOISER, STATE, steps=2, seed=0, generator=torch.Generator())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "solver", [solvers.DDPM(), solvers.DDIM(0.5), solvers.EulerMaruyama()], ids=str
)
def test_picture_changes_when_its_neighbours_in_the_batch_change(solver, dtype):
    """crowsonkb/k-diffusion#25: noise drawn for the whole batch at once."""
    denoiser = Denoiser(awake_network(dtype), PATH)
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-4}[dtype]

    def sample(seeds: list[int]) -> dict[int, Tensor]:
        noise = PATH.prior(torch.empty(len(seeds), 5, dtype=dtype), seed=seeds)
        end = solver(denoiser, noise, steps=8, seed=seeds).state
        return dict(zip(seeds, end, strict=True))

    together = sample([3, 7, 11])
    assert (together[3] - together[7]).abs().max() > 0.1
    for seeds in ([3], [7], [11], [11, 3, 7], [7, 7, 3]):
        for seed, picture in sample(seeds).items():
            assert torch.allclose(picture, together[seed], rtol=0, atol=tolerance)


def test_probes_of_a_likelihood_belong_to_their_sample():
    seeds = [3, 7, 11]
    how = {"steps": 4, "divergence": "hutchinson"}
    together = solvers.log_likelihood(DENOISER, STATE.double(), seed=seeds, **how)
    turned = solvers.log_likelihood(DENOISER, STATE.double().flip(0), seed=seeds[::-1], **how)
    assert torch.allclose(turned.flip(0), together, rtol=0, atol=1e-10)
