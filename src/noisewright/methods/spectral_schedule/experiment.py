"""Do noise levels read off each image's spectrum make better pictures in few steps?

The run trains the same network, from the same seed and for the same steps, along each schedule,
draws pictures with 4, 8 and 32 steps, and compares their features and spectra with the data's.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch

from noisewright.data import ImageSet, open_images
from noisewright.methods.spectral_schedule import pictures, work
from noisewright.methods.spectral_schedule.prior import SpectrumPrior
from noisewright.methods.spectral_schedule.regimes import TightRegime
from noisewright.methods.spectral_schedule.spectrum import Spectrum, rapsd
from noisewright.methods.spectral_schedule.tight import TightSchedule
from noisewright.metrics import radial_power
from noisewright.reports.run import Run
from noisewright.types import InputError, nearest_name

__all__ = ["Settings", "run"]

SPACING_ARM = "tight_edm"
"""The network of ``tight`` walked with EDM's spacing on the tight range; not trained again."""

ARMS = (
    "tight",
    "tight_shared",
    "tight_unconditioned",
    "cosine",
    "shifted_cosine",
    "edm",
    "sigmoid",
)
ALIASES = {"shifted": "shifted_cosine"}


@dataclass(frozen=True)
class Settings:
    """Settings of the experiment.

    Attributes:
        size: Side of the images in pixels.
        schedules: Schedules to train along; ``tight`` and ``cosine`` are always among them.
        steps_list: Numbers of steps to draw with.
        train_steps: Optimizer steps of each network.
        batch: Images per step.
        samples: Images drawn per schedule and number of steps.
        beta: 0 gives every frequency equal time, 1 every decade of power.
        eps_max: Share of power still recovered at the noisiest level.
        eps_min: Share of power left at the cleanest level.
        net: ``unet`` or ``dit``.
        widths: Channels of the network at each resolution.
        blocks: Residual blocks per resolution (UNet).
        patch: Side of the squares of pixels that the network folds into one.
        rate: Peak learning rate.
        components: Principal components of the features that distances are measured in.
        timing_rounds: Pairs of short runs that time a training step.
    """

    size: int = 32
    schedules: tuple[str, ...] = (
        "tight",
        "tight_shared",
        "tight_unconditioned",
        "cosine",
        "shifted_cosine",
        "edm",
    )
    steps_list: tuple[int, ...] = (4, 8, 32)
    train_steps: int = 400
    batch: int = 32
    samples: int = 256
    beta: float = 0.75
    eps_max: float = 1e-2
    eps_min: float = 1e-3
    net: str = "unet"
    widths: tuple[int, ...] = (32, 64, 64)
    blocks: int = 1
    patch: int = 2
    rate: float = 3e-3
    components: int = 64
    timing_rounds: int = 3

    @classmethod
    def quick(cls) -> Settings:
        """Return a look of about a minute: half the side, two schedules."""
        return cls(
            size=16,
            schedules=("tight", "cosine", "edm"),
            steps_list=(4, 8),
            timing_rounds=2,
        )

    def checked(self) -> Settings:
        """Return the settings with aliases resolved.

        Raises:
            InputError: If a setting cannot work.
        """
        named = tuple(ALIASES.get(name, name) for name in self.schedules)
        for name in named:
            if name not in ARMS:
                raise InputError(f"schedules: {name!r} is unknown{nearest_name(name, ARMS)}")
        named = tuple(dict.fromkeys(("tight", "cosine", *named)))
        if not self.steps_list or min(self.steps_list) < 1:
            raise InputError(f"steps_list={self.steps_list} must hold numbers of at least 1")
        for name in ("train_steps", "batch", "timing_rounds"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)} must be at least 1")
        if self.size < 8:
            raise InputError(f"size={self.size} must be at least 8 pixels")
        if not 1 <= self.components < self.samples:
            raise InputError(
                f"samples={self.samples} must exceed components={self.components}: a distance in "
                "more dimensions than samples says little"
            )
        values = {f: getattr(self, f) for f in self.__dataclass_fields__}
        return Settings(
            **values | {"schedules": named, "steps_list": tuple(sorted(self.steps_list))}
        )

    @property
    def tight(self) -> dict[str, Any]:
        """Fields of the tight regime."""
        return {"beta": self.beta, "eps_max": self.eps_max, "eps_min": self.eps_min}


def run(settings: Settings, run: Run) -> None:
    """Measure everything that the claims ask for and draw the report."""
    settings = settings.checked()
    train, test, spectrum = _read(settings, run)
    prior = SpectrumPrior(features=work.FEATURES).fit(spectrum, train.labels)
    given = _Given(train, spectrum, prior, _net(settings, train))
    forms = _closed_forms(settings, run, spectrum, test)
    drawn = _train_and_draw(settings, run, given)
    _score(settings, run, given, drawn)
    _overhead(settings, run, given)
    _show(settings, run, given, forms, drawn)


@dataclass(frozen=True)
class _Given:
    """What all schedules share."""

    train: ImageSet
    spectrum: Spectrum
    prior: SpectrumPrior
    net: dict[str, Any]


def _read(settings: Settings, run: Run) -> tuple[ImageSet, ImageSet, Spectrum]:
    source = run.data or "photos"
    train, test = (open_images(source, size=settings.size, split=s) for s in ("train", "test"))
    for part in (train, test):
        run.data_note(part.provenance.describe())
    return train, test, _spectrum(train, run)


def _spectrum(images: ImageSet, run: Run) -> Spectrum:
    """Return the spectra of images, with remarks on them in the report."""
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        spectrum = rapsd(images.images)
    for remark in remarks:
        run.data_note(f"Spectra of {images.provenance.title}: {remark.message}.")
    return spectrum


def _net(settings: Settings, train: ImageSet) -> dict[str, Any]:
    return {
        "name": settings.net,
        "channels": train.channels,
        "classes": 0 if train.labels is None else int(train.labels.max()) + 1,
        "patch": settings.patch,
        "widths": list(settings.widths),
        "blocks": settings.blocks,
    }


def _closed_forms(
    settings: Settings, run: Run, spectrum: Spectrum, test: ImageSet
) -> dict[str, Any]:
    forms = run.stage(
        "closed forms",
        work.closed_forms,
        seen=spectrum,
        unseen=_spectrum(test, run),
        pictures=None if run.data in (None, "photos") else test.images,
        size=64,
        **settings.tight,
    )
    errors = forms["errors"]

    def ratio(measure: str, other: str, steps: tuple[str, ...] = ("5", "10")) -> float:
        return max(errors["tight"][n][measure] / errors[other][n][measure] for n in steps)

    run.record("transfer.log_rmse.tight/edm", ratio("log_spectrum", "edm"))
    run.record("transfer.log_rmse.tight/loglinear_tight", ratio("log_spectrum", "loglinear_tight"))
    run.record("transfer.log_rmse.tight/cosine", ratio("log_spectrum", "cosine", ("5",)))
    run.record("transfer.log_rmse.tight/edm_tight_range", ratio("log_spectrum", "edm_tight_range"))
    run.record("transfer.power.tight/edm_tight_range", ratio("power", "edm_tight_range"))
    run.record("transfer.power.tight/edm", ratio("power", "edm"))
    run.record("bounds.resolution_ratio", forms["growth"])
    run.record("first_step.residual_snr", forms["residual_snr"])
    run.record("gmm.loglik_gain", forms["gain"])
    run.record("gmm.components", forms["components"])
    run.record("overhead.schedule_ms_per_image", forms["ms_per_image"])
    return forms


def _train_and_draw(
    settings: Settings, run: Run, given: _Given
) -> dict[tuple[str, int, int], torch.Tensor]:
    """Return drawn images per (schedule, steps, seed)."""
    train = given.train
    shared = {"prior": given.prior, "net": given.net}
    jobs = [{"schedule": a, "seed": s} for s in run.seeds for a in settings.schedules]
    plan = {"steps": settings.train_steps, "batch": settings.batch, "rate": settings.rate}
    data = {"images": train.images, "labels": train.labels, "spectrum": given.spectrum}
    trained = run.stages(
        "train",
        work.train_schedule,
        [job | data | shared | {"plan": plan, "tight": settings.tight} for job in jobs],
    )
    walks: list[dict[str, Any]] = []
    for job, record in zip(jobs, trained, strict=True):
        arm = job["schedule"]
        walks.append({"arm": arm, "seed": job["seed"], "trained": record, "tight": settings.tight})
        if arm == "tight":
            walks.append(walks[-1] | {"arm": SPACING_ARM})
    tasks = [
        walk | shared | {"steps": steps, "count": settings.samples, "size": train.size}
        for walk in walks
        for steps in settings.steps_list
    ]
    records = run.stages("draw", work.draw_images, tasks)
    return {
        (task["arm"], task["steps"], task["seed"]): record["images"]
        for task, record in zip(tasks, records, strict=True)
    }


def _components(settings: Settings, train: ImageSet) -> int:
    return min(settings.components, train.images[0].numel() // 2)


def _score(
    settings: Settings,
    run: Run,
    given: _Given,
    drawn: dict[tuple[str, int, int], torch.Tensor],
) -> None:
    """Record distances of all schedules and their ratios."""
    components = _components(settings, given.train)
    ruler = work.Ruler(given.train.images, given.spectrum, components)
    found = {key: ruler.measure(some) for key, some in drawn.items()}
    for (arm, steps, seed), values in found.items():
        for name, value in values.items():
            run.record(f"{name}.{arm}.{steps}", value, seed=seed)
    few = [s for s in settings.steps_list if s in (4, 8)]
    for seed in run.seeds:
        for measure in ("fd", "fd_centered") if few else ():
            for key, value in _ratios(found, measure, few, seed).items():
                run.record(f"{measure}_ratio_{key}", value, seed=seed)
        fd = {key[:2]: values["fd"] for key, values in found.items() if key[2] == seed}
        if 32 in settings.steps_list:
            many = fd["tight", 32] / fd["cosine", 32]
            run.record("fd_ratio_tight_vs_cosine.32", many, seed=seed)
        if 8 in settings.steps_list:
            ours, theirs = (found[a, 8, seed]["spectrum_rmse"] for a in ("tight", "cosine"))
            run.record("spectrum_rmse_ratio", ours / theirs, seed=seed)


def _ratios(
    found: dict[tuple[str, int, int], dict[str, float]], measure: str, few: list[int], seed: int
) -> dict[str, float]:
    """Return distances of tight schedules over others', the worst over few numbers of steps."""
    at = {key[:2]: values[measure] for key, values in found.items() if key[2] == seed}
    others = {arm for arm, _ in at} - {"tight"}
    return {
        "tight_vs_cosine": max(at["tight", s] / at["cosine", s] for s in few),
        "tight_vs_best_baseline": max(
            at["tight", s] / min(at[arm, s] for arm in others) for s in few
        ),
    }


def _overhead(settings: Settings, run: Run, given: _Given) -> None:
    spent = run.stage(
        "time a step",
        work.time_one_step,
        images=given.train.images,
        spectrum=given.spectrum,
        prior=given.prior,
        net=given.net | {"classes": 0},
        batch=settings.batch,
        tight=settings.tight,
        rounds=settings.timing_rounds,
    )
    ratio = (spent["tight"] / spent["cosine"]).median().item()
    run.record("overhead.train_time_ratio", ratio)


def _show(
    settings: Settings,
    run: Run,
    given: _Given,
    forms: dict[str, Any],
    drawn: dict[tuple[str, int, int], torch.Tensor],
) -> None:
    train, spectrum = given.train, given.spectrum
    first, steps = run.seeds[0], settings.steps_list
    arms = list(dict.fromkeys(arm for arm, _, _ in drawn))
    shown = 8 if 8 in steps else steps[0]
    tight = TightRegime(**settings.tight).schedule(spectrum)
    assert isinstance(tight, TightSchedule)
    ratio = run.spread("fd_ratio_tight_vs_cosine")[0] if {4, 8} & set(steps) else float("nan")
    best = run.spread("fd_ratio_tight_vs_best_baseline")[0] if {4, 8} & set(steps) else ratio
    centered = "fd_centered_ratio_tight_vs_cosine"
    run.finding(_finding(ratio, best, run.spread(centered)[0] if {4, 8} & set(steps) else ratio))
    generator = torch.Generator().manual_seed(0)
    some = train.images[torch.randperm(len(train), generator=generator)[:10]]
    run.figure(
        "samples",
        pictures.sample_grid(some, {a: drawn[a, shown, first] for a in arms}),
        caption=f"Drawn with {shown} steps by the same network trained along each schedule for "
        f"{settings.train_steps} steps; the same noise in each column.",
        alt=f"Rows of small pictures: training photographs on top, then pictures drawn in {shown} "
        "steps with each schedule.",
    )
    unit = f"Fréchet distance, pca-{_components(settings, train)} features"
    values = {a: {s: run.spread(f"fd.{a}.{s}") for s in steps} for a in arms}
    run.figure(
        "quality",
        pictures.quality(values, steps, unit),
        caption="Distance to the data against the number of steps; lower is better.",
        alt="Curves of Fréchet distance against steps, one per schedule, on logarithmic axes.",
    )
    run.table(
        f"Distance to the data ({unit}) and error of the mean log spectrum",
        [
            "schedule",
            *(f"{s} steps" for s in steps),
            f"without mean colour, {shown} steps",
            f"spectrum, {shown} steps",
        ],
        [
            [
                pictures.LABELS[a],
                *(run.spread(f"fd.{a}.{s}") for s in steps),
                run.spread(f"fd_centered.{a}.{shown}"),
                run.spread(f"spectrum_rmse.{a}.{shown}"),
            ]
            for a in arms
        ],
        ours=pictures.LABELS["tight"],
    )
    run.figure(
        "spectra",
        pictures.sample_spectra(spectrum, {a: radial_power(drawn[a, shown, first]) for a in arms}),
        caption=f"Mean log power of pictures drawn with {shown} steps, relative to the data's.",
        alt="Curves of excess power in decibels against frequency, one per schedule.",
    )
    run.figure(
        "fan",
        pictures.fan(spectrum, tight),
        caption="Left: spectra of the training images (median, middle half, 90 %). Right: the "
        "schedules read off them; dashed, the range of EDM.",
        alt="Two fans: amplitude falling with frequency, and noise level rising with time, both "
        "with wide bands over images.",
    )
    run.figure(
        "transfer",
        pictures.transfer_bars(forms["errors"]),
        caption="What each schedule does to held-out spectra in closed form, with the exact "
        "denoiser of a Gaussian law: 5 steps (pale) and 10 steps.",
        alt="Bars of log-spectrum error and power error for five schedules.",
    )


def _finding(ratio: float, best: float, centered: float) -> str:
    """Say how tight schedules compare with cosine and the best baseline, and what mean colours do.

    Args:
        ratio: Distance over cosine's.
        best: Distance over the best baseline's.
        centered: Distance over cosine's, mean colours taken out.
    """
    if ratio != ratio:
        return "Tight schedules were trained, but not drawn with 4 or 8 steps"
    side = "closer to" if ratio < 1 else "farther from"
    tail = "no baseline is closer"
    if best > 1:
        tail = f"the best baseline is {(1 - 1 / best) * 100:.0f} % closer still"
    return (
        f"At 4 to 8 steps tight schedules come {abs(1 - ratio) * 100:.0f} % {side} the data than "
        f"cosine ({centered:.2f}× its distance without mean colours); {tail}"
    )
