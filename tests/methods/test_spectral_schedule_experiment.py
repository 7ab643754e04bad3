"""The experiment of spectral_schedule from data to report, in a miniature setting."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from noisewright import methods
from noisewright.methods.spectral_schedule import experiment, work
from noisewright.methods.spectral_schedule.experiment import Settings
from noisewright.reports.claims import load_claims
from noisewright.reports.options import Options
from noisewright.reports.run import execute, room_folder
from noisewright.types import InputError

TINY = {
    "size": 8,
    "schedules": ("cosine",),
    "steps_list": (4, 8),
    "train_steps": 4,
    "batch": 8,
    "samples": 24,
    "components": 16,
    "widths": (8, 8),
    "timing_rounds": 1,
}


@pytest.mark.slow
def test_run_in_miniature_judges_every_claim_and_writes_every_file(tmp_path, no_data):
    room = methods.room("spectral_schedule")
    options = Options(quick=True, out=tmp_path, jobs=1)
    result = execute(room, experiment, Settings(**TINY), options)
    claims = load_claims(room_folder(room) / "claims.toml")
    assert [one.key for one in result.judged] == [claim.key for claim in claims]
    unmeasured = {one.key for one in result.judged if one.verdict == "not measured"}
    assert unmeasured == {"fd_ratio_tight_vs_cosine.32"}
    values = json.loads((tmp_path / "metrics.json").read_text())["values"]
    # The ratio is the worse of 4 and 8 steps.
    ratios = [values[f"fd.tight.{n}"]["mean"] / values[f"fd.cosine.{n}"]["mean"] for n in (4, 8)]
    assert math.isclose(values["fd_ratio_tight_vs_cosine"]["mean"], max(ratios), rel_tol=1e-9)
    # These two are closed forms and do not depend on the miniature.
    assert values["transfer.log_rmse.tight/edm"]["mean"] <= 0.80
    assert abs(values["bounds.resolution_ratio"]["mean"] - 2) <= 0.05
    assert len(list((tmp_path / "figures").glob("*.png"))) >= 5
    assert "chelsea" in (tmp_path / "report.html").read_text()


COMMAND = [
    *(sys.executable, "-m", "noisewright", "run", "spectral_schedule", "--quick", "--jobs", "1"),
    *("--size", "8", "--schedules", "cosine", "--steps-list", "4", "8", "--train-steps", "250"),
    *("--batch", "8", "--samples", "24", "--components", "16", "--widths", "8", "8"),
    *("--timing-rounds", "1"),
]


def _run(folder):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*COMMAND, "--out", str(folder)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _values(folder):
    values = json.loads((folder / "metrics.json").read_text())["values"]
    return {k: v for k, v in values.items() if not k.startswith("overhead.")}  # seconds


@pytest.mark.slow
def test_killed_in_three_places_ends_with_the_bits_of_an_undisturbed_run(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert _run(whole).wait() == 0
    places = (
        lambda: list((broken / "stages").glob("closed-forms-*")),
        lambda: list((broken / "stages").glob("train*.work/checkpoints/step-*")),
        lambda: list((broken / "stages").glob("draw*")),
    )
    for reached in places:
        process = _run(broken)
        while process.poll() is None and not reached():
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (broken / "metrics.json").exists()
    assert _run(broken).wait() == 0
    assert _values(broken) == _values(whole)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schedules": ("cosin",)}, "did you mean 'cosine'"),
        ({"steps_list": ()}, "steps_list"),
        ({"size": 4}, "at least 8"),
        ({"samples": 10}, "samples=10 must exceed components=16"),
        ({"train_steps": 0}, "train_steps=0"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes, words):
    with pytest.raises(InputError, match=words):
        Settings(**TINY | changes).checked()


def test_shifted_is_another_name_and_ours_is_never_left_out():
    named = Settings(**TINY | {"schedules": ("shifted", "edm")}).checked().schedules
    assert named == ("tight", "cosine", "shifted_cosine", "edm")


def test_distance_without_mean_color_does_not_see_mean_colors():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(60, 180, (200, 3, 8, 8), generator=generator, dtype=torch.uint8)
    ruler = work.Ruler(images, work.rapsd(images), 16)
    plain, tinted = ruler.measure(images), ruler.measure(images + 40)
    assert plain["fd"] < 1e-9 < 1 < tinted["fd"]
    assert tinted["fd_centered"] < 1e-6


def test_a_walk_that_starts_without_signal_is_measured_from_its_first_finite_level():
    spectrum = work.held_out_spectra(None, 64)
    cosine = work.walk_ratios(work.CosineRegime(), spectrum, 5)
    tight = work.walk_ratios(work.TightRegime(), spectrum, 5)
    assert len(cosine) == 5  # six knots, the noisiest of which is infinite
    assert tight.shape == (3, 6)
