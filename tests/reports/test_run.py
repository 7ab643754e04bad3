from __future__ import annotations

import errno
import json
import os
import shutil
import tomllib

import numpy as np
import pytest

from noisewright.reports import Run
from noisewright.reports.run import RunFailedError
from noisewright.reports.steps import append_event, mend_tail, read_events
from noisewright.storage import DamagedRecordError
from noisewright.types import InputError, NonFiniteError

FILES = {
    "settings.toml", "metrics.json", "claims.json", "environment.json", "steps.jsonl",
    "report.json", "report.html", "figures", "stages", ".lock",
}  # fmt: skip


def _count(stage, *, size: int, seed: int | None = None) -> dict:
    """Leave a mark for each time it runs."""
    with (stage.folder.parent / "calls.txt").open("a") as file:
        file.write(f"{stage.name} {seed}\n")
    return {"total": size * 2, "pair": (1, 2), "array": np.arange(size), "seed": stage.seed}


def _stop_half_way(stage, *, size: int) -> dict:
    mark = stage.folder / "half"
    if not mark.exists():
        mark.touch()
        raise RuntimeError("power cut")
    return {"found": mark.exists()}


def _diverge(stage) -> dict:
    raise NonFiniteError("loss is nan at step 7; last good checkpoint: step 5")


def _not_a_record(stage):
    return 3


def _calls(run: Run) -> list[str]:
    path = run.folder / "stages" / "calls.txt"
    return path.read_text().splitlines() if path.exists() else []


def test_a_run_leaves_whole_files_and_nothing_else(run_pond, tmp_path):
    result = run_pond(seeds=2, seed=3)
    assert {p.name for p in result.folder.iterdir()} == FILES
    assert sorted(p.name for p in (result.folder / "figures").iterdir()) == [
        "pond-dark.png",
        "pond.png",
    ]
    assert not list(tmp_path.rglob("*.part"))
    assert not list(tmp_path.rglob("*.work"))


def test_metrics_have_the_promised_form(run_pond):
    result = run_pond(seeds=2, seed=3)
    metrics = json.loads((result.folder / "metrics.json").read_text())
    assert metrics == result.metrics
    assert list(metrics) == ["method", "version", "quick", "seeds", "seconds", "values"]
    assert (metrics["method"], metrics["quick"], metrics["seeds"]) == ("pond", True, [3, 4])
    assert list(metrics["values"]) == ["error.ours", "error.plain", "growth"]
    ours = metrics["values"]["error.ours"]
    assert ours["mean"] == pytest.approx(sum(ours["per_seed"]) / 2)
    assert metrics["values"]["growth"] == {"mean": 2.01, "std": 0.0, "per_seed": [2.01, 2.01]}


def test_claims_are_judged_with_quick_targets_and_reasons(run_pond):
    result = run_pond()
    claims = json.loads((result.folder / "claims.json").read_text())
    assert [c["verdict"] for c in claims] == ["holds", "holds", "holds", "not measured"]
    assert set(claims[0]) == {
        "key", "text", "relation", "target", "tolerance", "source", "value", "std",
        "verdict", "why",
    }  # fmt: skip
    assert claims[2]["target"] == 1.0
    assert claims[3]["why"] == "no lake is at hand: noisewright data fetch lake"


def test_a_claim_that_falls_short_stays_and_says_so(run_pond):
    result = run_pond(quick=False)
    assert [one.verdict for one in result.judged][2] == "falls short"
    assert result.falls_short


def test_settings_fed_back_give_the_same_numbers(run_pond, tmp_path):
    from sample_rooms.pond.experiment import Settings

    from noisewright.reports.options import parse

    first = run_pond(seeds=2, seed=1, settings=Settings(size=9, steps=7, steps_list=(3,)))
    path = str(first.folder / "settings.toml")
    settings, options = parse("pond", Settings, ["--config", path, "--out", str(tmp_path / "b")])
    again = run_pond(settings=settings, **vars(options))
    assert again.metrics["values"] == first.metrics["values"]
    text = (first.folder / "settings.toml").read_text()
    assert (again.folder / "settings.toml").read_text() == text
    assert tomllib.loads(text)["run"]["seed"] == 1


def test_the_environment_holds_nothing_personal(run_pond):
    result = run_pond()
    text = (result.folder / "environment.json").read_text()
    facts = json.loads(text)
    assert {"noisewright", "python", "packages", "cores", "threads", "torch", "command"} <= set(
        facts
    )
    for secret in (os.path.expanduser("~"), os.uname().nodename, str(result.folder.parent)):
        assert secret not in text


def test_a_finished_run_is_reported_again_from_its_stages(run_pond):
    first = run_pond()
    (first.folder / "report.html").unlink()
    second = run_pond()
    assert second.metrics["values"] == first.metrics["values"]
    assert (first.folder / "report.html").exists()
    events = read_events(first.folder / "steps.jsonl")[0]
    assert [e["event"] for e in events if e["event"] in ("done", "kept")] == ["done"] * 3 + [
        "kept"
    ] * 3


def test_fresh_computes_everything_again(run_pond):
    first = run_pond()
    run_pond(fresh=True)
    events = read_events(first.folder / "steps.jsonl")[0]
    assert [e["event"] for e in events if e["event"] in ("done", "kept")] == ["done"] * 3


def test_results_of_other_settings_do_not_stay_beside_a_failed_run(run_pond):
    from sample_rooms.pond.experiment import Settings

    first = run_pond()
    with pytest.raises(InputError, match="size=2 must be at least 4"):
        run_pond(settings=Settings(size=2))
    assert not (first.folder / "metrics.json").exists()
    assert not (first.folder / "report.html").exists()
    assert list((first.folder / "stages").iterdir())


def test_input_errors_before_and_after_the_first_stage_are_told_apart(run_pond, monkeypatch):
    from sample_rooms.pond import experiment

    whole = experiment.run
    monkeypatch.setattr(experiment, "run", lambda s, run: (whole(s, run), run.record("", 1.0)))
    with pytest.raises(RunFailedError, match="must be text"):
        run_pond()


def test_a_damaged_stage_is_named_with_the_remedy(run_pond):
    folder = run_pond().folder
    (record,) = (folder / "stages").glob("survey-*/record.json")
    record.write_text(record.read_text()[:-9])
    with pytest.raises(DamagedRecordError, match=r"survey-.*--fresh"):
        run_pond()
    assert run_pond(fresh=True).values["growth"] == 2.01


def test_a_full_disk_names_the_file_and_leaves_the_stages(run_pond, monkeypatch):
    from noisewright import storage

    real, state = os.fsync, {"left": 6}

    def full(handle):
        state["left"] -= 1
        if state["left"] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*run/stages"):
        run_pond()
    monkeypatch.undo()


def test_two_runs_in_one_folder_are_refused(run_pond, tmp_path):
    import fcntl

    (tmp_path / "run").mkdir()
    with (tmp_path / "run" / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another run is writing"):
            run_pond()


def test_an_absent_device_is_refused_before_work(run_pond, tmp_path):
    with pytest.raises(InputError, match="'tpu9' is not a device"):
        run_pond(device="tpu9")
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------------- stages


def test_a_stage_is_done_once_per_content(tmp_path):
    run = Run(tmp_path)
    first = run.stage("count", _count, size=3)
    assert run.stage("count", _count, size=3)["total"] == 6
    assert run.stage("count", _count, size=4)["total"] == 8
    assert Run(tmp_path).stage("count", _count, size=3)["total"] == 6
    assert _calls(run) == ["count None", "count None"]
    assert first["pair"] == [1, 2]  # as stored, so that a first and a second run see the same
    assert run.earlier_seconds > 0


def test_many_stages_are_named_by_what_differs_and_only_missing_ones_run(tmp_path):
    run = Run(tmp_path)
    tasks = [{"size": 3, "seed": s} for s in range(3)]
    assert [r["seed"] for r in run.stages("count", _count, tasks)] == [0, 1, 2]
    (gone,) = (tmp_path / "stages").glob("count-seed=1-*[!k]")
    shutil.rmtree(gone)
    run.stages("count", _count, tasks)
    assert _calls(run) == [f"count seed={s} {s}" for s in (0, 1, 2, 1)]


def test_the_working_folder_stays_until_the_stage_is_done(tmp_path):
    with pytest.raises(RuntimeError, match="power cut"):
        Run(tmp_path).stage("half", _stop_half_way, size=1)
    assert [p.name for p in (tmp_path / "stages").glob("half-*.work/*")] == ["half"]
    assert Run(tmp_path).stage("half", _stop_half_way, size=1) == {"found": True}
    assert list((tmp_path / "stages").glob("*.work")) == []


def test_what_is_not_finite_stops_the_run_with_the_stage_named(tmp_path):
    message = r"^stage 'train tight': loss is nan at step 7; last good checkpoint: step 5$"
    with pytest.raises(NonFiniteError, match=message):
        Run(tmp_path).stage("train tight", _diverge)


def test_a_stage_must_return_a_record(tmp_path):
    with pytest.raises(InputError, match="returned a int; return a dict"):
        Run(tmp_path).stage("bad", _not_a_record)


def test_a_stage_left_half_written_by_a_kill_is_swept(tmp_path):
    run = Run(tmp_path)
    run.stage("count", _count, size=3)
    (folder,) = (p for p in (tmp_path / "stages").glob("count-*") if p.is_dir())
    shutil.rmtree(folder)
    (tmp_path / "stages" / f".{folder.name}.abc.part").mkdir()
    run.stage("count", _count, size=3)
    assert not list((tmp_path / "stages").glob(".*.part"))


# ---------------------------------------------------------------------------- what is shown


def test_pictures_need_a_caption_an_alt_text_and_a_name_of_their_own(tmp_path):
    from noisewright.reports.figures import canvas

    run = Run(tmp_path)
    run.figure("one", canvas()[0], caption="c", alt="a")
    for name, caption, alt in [
        ("one", "c", "a"),
        ("two", " ", "a"),
        ("two", "c", ""),
        ("../two", "c", "a"),
        (".two", "c", "a"),
    ]:
        with pytest.raises(InputError, match="figure"):
            run.figure(name, canvas()[0], caption=caption, alt=alt)
    assert len(run.figures) == 1


def test_a_ragged_table_is_refused(tmp_path):
    with pytest.raises(InputError, match="row 1 has 1 cells for 2 columns"):
        Run(tmp_path).table("t", ["a", "b"], [[1, 2], [1]])


def test_weights_are_kept_as_safetensors(tmp_path):
    import torch
    from safetensors.torch import load_file

    from noisewright.random import isolated

    with isolated(0):
        layer = torch.nn.Linear(2, 2)
    Run(tmp_path).weights("net", layer)
    kept = load_file(tmp_path / "weights" / "net" / "model.safetensors")
    assert torch.equal(kept["weight"], layer.weight)


def test_a_history_line_that_a_kill_cut_short_does_not_spoil_the_next(tmp_path):
    log = tmp_path / "steps.jsonl"
    append_event(log, "step", "a", loss=float("nan"))
    with log.open("a") as file:
        file.write('{"event": "st')
    mend_tail(log)
    append_event(log, "done", "a", seconds=1.0)
    events, offset = read_events(log)
    assert [e["event"] for e in events] == ["step", "done"]
    assert events[0]["loss"] is None
    assert read_events(log, offset) == ([], offset)
