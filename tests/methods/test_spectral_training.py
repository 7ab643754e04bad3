"""Training along a regime and drawing from the model, in miniature."""

from __future__ import annotations

import pytest
import sklearn.mixture  # noqa: F401 - importing it draws from Python's own stream
import torch

from noisewright.methods.spectral_schedule import TightRegime, rapsd, train
from noisewright.nets import UNet
from noisewright.solvers import Heun
from noisewright.types import InputError

pytestmark = pytest.mark.filterwarnings("ignore:.*too few for a mixture:UserWarning")


def pictures(count=24, side=8, channels=1):
    generator = torch.Generator().manual_seed(0)
    white = torch.randn(count, channels, side, side, generator=generator, dtype=torch.float64)
    away = torch.hypot(*torch.meshgrid(*[torch.fft.fftfreq(side) * side] * 2, indexing="ij"))
    shaped = torch.fft.ifft2(torch.fft.fft2(white) / away.clamp(min=1)).real
    shaped = shaped + 0.2 * torch.arange(count)[:, None, None, None] / count
    return (shaped / shaped.abs().amax(dim=(1, 2, 3), keepdim=True)).float()


def net(classes=0):
    return UNet(1, (8,), blocks=1, vector=8, heads=0, time="logsnr", features=8, classes=classes)


def trained(steps=3, *, schedule="tight", labels=None, **options):
    classes = 0 if labels is None else int(labels.max()) + 1
    return train(
        pictures(),
        lambda: net(classes),
        schedule=schedule,
        steps=steps,
        batch=8,
        labels=labels,
        **options,
    )


SCHEDULES = [
    "tight",
    "tight_shared",
    "tight_unconditioned",
    "cosine",
    "shifted_cosine",
    "edm",
    "sigmoid",
]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_trains_and_samples(schedule):
    model = trained(schedule=schedule)
    assert len(model.losses) == 3
    images = model.sample(3, steps=3)
    assert images.shape == (3, 1, 8, 8)
    assert bool(images.isfinite().all())
    assert float(images.abs().max()) <= 1
    assert torch.equal(model.sample(3, steps=3), images)
    assert not torch.equal(model.sample(3, steps=3, seed=1), images)


class Stopped(Exception):
    pass


def test_a_stopped_training_goes_on_with_the_same_bits(tmp_path):
    def stop(step):
        if step.step == 4:
            raise Stopped

    straight = trained(6)
    with pytest.raises(Stopped):
        trained(6, checkpoint=tmp_path / "point", every=2, watch=stop)
    again = trained(6, checkpoint=tmp_path / "point", every=2)
    assert list(again.losses) == list(straight.losses)
    for a, b in zip(again.net.parameters(), straight.net.parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(again.sample(2, steps=3), straight.sample(2, steps=3))


def test_training_lowers_the_loss():
    losses = trained(120, rate=1e-2).losses
    assert sum(losses[-20:]) < 0.9 * sum(losses[:20])


@pytest.mark.parametrize("schedule", ["tight", "edm"])
def test_neither_chunk_nor_number_changes_a_sample(schedule):
    model = trained(schedule=schedule)
    whole = model.sample(5, steps=3)
    close = {"rtol": 1e-4, "atol": 1e-5}
    assert torch.allclose(model.sample(5, steps=3, chunk=2), whole, **close)
    assert torch.allclose(model.sample(2, steps=3), whole[:2], **close)


def test_without_theta_the_prior_speaks_and_given_theta_is_used():
    model = trained(30, rate=1e-2)
    drawn = model.prior.sample(3, seed=0)
    assert torch.equal(model.sample(3, steps=3), model.sample(3, steps=3, theta=drawn))
    theta = rapsd(pictures()).features()[:3]
    assert not torch.equal(model.sample(3, steps=3, theta=theta), model.sample(3, steps=3))


def test_labels_and_guidance_inside_an_interval():
    labels = torch.arange(24) % 2
    model = trained(60, labels=labels, rate=1e-2)
    assert model.classes == 2
    wanted = torch.tensor([0, 1, 1])
    plain = model.sample(3, steps=4, labels=wanted)
    assert not torch.equal(plain, model.sample(3, steps=4, labels=1 - wanted))
    guided = model.sample(3, steps=4, labels=wanted, guidance=3.0)
    assert not torch.equal(guided, plain)
    # Times of four steps are 1, 2/3, 1/3 and 0: none lies in this interval.
    nowhere = model.sample(3, steps=4, labels=wanted, guidance=3.0, interval=(0.4, 0.6))
    assert torch.equal(nowhere, plain)
    everywhere = model.sample(3, steps=4, labels=wanted, guidance=3.0, interval=(0.0, 1.0))
    assert not torch.equal(everywhere, guided)


def test_another_solver_and_spacing_walk_the_same_model():
    model = trained()
    assert model.sample(2, steps=3, solver=Heun()).shape == (2, 1, 8, 8)
    other = model.sample(2, steps=3, regime=TightRegime(spacing="edm"))
    assert bool(other.isfinite().all())


def test_calls_that_do_not_fit_are_refused(refuses):
    model = trained()
    with pytest.raises(InputError, match="2 labels for 2 samples of 0 classes"):
        model.sample(2, steps=2, labels=torch.tensor([0, 1]))
    with pytest.raises(InputError, match=r"theta has shape \(2, 5\), not \(2, 8\)"):
        model.sample(2, steps=2, theta=torch.zeros(2, 5))
    with refuses("did you mean 'cosine'"):
        trained(schedule="cosin")
    known = trained(labels=torch.arange(24) % 2)
    with pytest.raises(InputError, match=r"label 5 .* known labels: \[0, 1\]"):
        known.sample(1, steps=2, labels=torch.tensor([5]))
