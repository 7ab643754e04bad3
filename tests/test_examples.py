"""The examples run as a user runs them, and what they print is right."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run_example(name: str, folder: Path, *flags: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *flags], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_has_a_test_here():
    here = Path(__file__).read_text(encoding="utf-8")
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(re.findall(r'"(\w+\.py)", t', here))


def test_solvers_make_nine_calls_each_and_reach_the_mixture(tmp_path):
    text = run_example("gaussian_mixture.py", tmp_path, "--out", "out.png", "--count", "400")
    found = re.findall(r"(\S+)  (\d+) calls  MMD (-?[\d.]+)", text)
    assert len(found) == 4
    assert {int(calls) for _, calls, _ in found} == {9}
    assert all(float(distance) < 0.02 for *_, distance in found), text
    assert (tmp_path / "out.png").stat().st_size > 1000


@pytest.mark.slow
def test_digits_learn_their_labels(tmp_path):
    text = run_example("train_digits.py", tmp_path, "--out", "out.png")
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", text)]
    assert losses[-1] < losses[0]
    distances = {
        float(weight): (int(calls), float(distance))
        for weight, calls, distance in re.findall(
            r"weight ([\d.]+)  (\d+) calls  Fréchet ([\d.]+)", text
        )
    }
    # Without a label the ten digits are not drawn equally often; with one they are.
    assert distances[1.0][1] < distances[0.0][1]
    assert distances[2.0][0] == 2 * distances[1.0][0]
    assert (tmp_path / "out.png").stat().st_size > 1000


@pytest.mark.slow
def test_futures_follow_the_exact_law_under_both_scenarios(tmp_path):
    text = run_example("scenarios_with_a_driver.py", tmp_path, "--out", "out.png", "--steps", "40")
    found = re.findall(r"mean off by ([\d.]+) spreads; ([\d.]+) of futures in 90 %", text)
    assert len(found) == 2
    assert all(float(error) < 0.6 and 0.7 < float(inside) <= 1 for error, inside in found), text
    assert (tmp_path / "out.png").stat().st_size > 1000


@pytest.mark.slow
def test_tight_levels_keep_more_of_the_spectrum_in_diffusers(tmp_path):
    text = run_example("tight_levels.py", tmp_path)
    edm, tight = (float(error) for error in re.findall(r"steps: ([\d.]+)", text))
    assert tight < 0.8 * edm
