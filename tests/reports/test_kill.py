from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import psutil
import pytest

from noisewright.reports.keys import source_fingerprint
from noisewright.reports.steps import read_events

pytestmark = pytest.mark.slow

ARGS = (
    "run",
    "sample_rooms.pond",
    "--seeds",
    "2",
    "--jobs",
    "2",
    "--threads",
    "1",
    "--nap",
    "0.05",
)


def _finish(process) -> str:
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, out + err
    return out


def _wait_for(process, log: Path, seen) -> None:
    patience = time.monotonic() + 120
    while not seen(read_events(log)[0]):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < patience
        time.sleep(0.01)


def _values(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())["values"]


def _in_survey(events):
    return any(e["event"] == "step" and e["stage"] == "survey" for e in events)


def _in_fan_out(events):
    return sum(e["event"] == "step" and e["stage"].startswith("listen") for e in events) >= 15


def _after_a_worker_finished(events):
    return any(e["event"] == "done" and e["stage"].startswith("listen") for e in events)


def test_a_run_killed_in_three_places_goes_on_and_ends_with_the_same_bits(start, tmp_path):
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    source = source_fingerprint.__wrapped__()
    _finish(start(*ARGS, "--out", str(straight)))
    for place in (_in_survey, _in_fan_out, _after_a_worker_finished):
        process = start(*ARGS, "--out", str(broken))
        _wait_for(process, broken / "steps.jsonl", place)
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not (broken / "metrics.json").exists()
        assert not psutil.wait_procs(workers, timeout=30)[1]
    _finish(start(*ARGS, "--out", str(broken)))
    assert _values(broken) == _values(straight)
    if source_fingerprint.__wrapped__() != source:
        pytest.skip("the package was edited meanwhile, so its stages were rightly done again")
    starts = [e["stage"] for e in read_events(broken / "steps.jsonl")[0] if e["event"] == "done"]
    assert sorted(starts) == sorted(set(starts))
    steps = [
        (e["stage"], e["done"])
        for e in read_events(broken / "steps.jsonl")[0]
        if e["event"] == "step" and e["stage"].startswith("listen")
    ]
    # The fan-out went on from its checkpoints: hardly a step was taken twice.
    assert len(steps) <= len(set(steps)) + 6


def test_ctrl_c_prints_the_command_that_continues(start, tmp_path):
    out = tmp_path / "run"
    process = start(*ARGS, "--out", str(out), "--fresh")
    _wait_for(process, out / "steps.jsonl", _in_fan_out)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    again = err.strip().splitlines()[-1].strip()
    assert again == " ".join(["noisewright", *ARGS, "--out", str(out)])
    assert "Traceback" not in err
    _finish(start(*ARGS, "--out", str(out)))
    assert (out / "report.html").exists()


def test_two_processes_of_one_launch_write_one_run(start, tmp_path):
    alone, out = tmp_path / "alone", tmp_path / "run"
    args = ("run", "sample_rooms.pond", "--quick", "--jobs", "1", "--threads", "1")
    _finish(start(*args, "--out", str(alone)))
    ranks = [start(*args, "--out", str(out), RANK=str(r), WORLD_SIZE="2") for r in (0, 1)]
    shown = [_finish(rank) for rank in ranks]
    assert _values(out) == _values(alone)
    assert "report.html" in shown[0]
    assert "report.html" not in shown[1]
