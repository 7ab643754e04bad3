from __future__ import annotations

import json
import os

import pytest

from noisewright.reports import render_scoreboard
from noisewright.reports.scoreboard import publish_result
from noisewright.types import InputError, Room


def _room(name, field="graphs"):
    return Room(
        name=name, title="t " + name, paper="p", field=field, data="d", module="absent." + name
    )


def test_every_room_has_a_row_also_those_not_run_and_those_broken(run_pond, pond, tmp_path, parsed):
    folder = run_pond().folder
    rooms = {"pond": pond, "lake": _room("lake"), "sea": ImportError("no <water>")}
    page = render_scoreboard([folder], rooms, beside=tmp_path)
    assert parsed(page).open == []
    assert "3 methods" in page
    assert "t lake" in page
    assert "not run yet" in page
    assert "no &lt;water&gt;" in page
    assert "✓ 3 hold" in page
    assert 'href="run/report.html"' in page


def test_a_folder_of_runs_shows_the_fullest_run_of_each_room(run_pond, pond, tmp_path):
    run_pond(out=tmp_path / "runs" / "quick")
    run_pond(out=tmp_path / "runs" / "full", quick=False, seeds=2)
    os.utime(tmp_path / "runs" / "full" / "metrics.json", (1, 1))
    page = render_scoreboard([tmp_path / "runs"], {"pond": pond})
    assert "seeds 0–1" in page
    assert "quick" not in page.partition("<tbody>")[2]


def test_a_published_result_gives_the_same_row_without_its_run(run_pond, pond, tmp_path):
    folder = run_pond(quick=False, seeds=2).folder
    path = publish_result(folder, tmp_path / "results")
    content = json.loads(path.read_text())
    assert {"command", "commit", "finding", "claims", "values"} <= set(content)
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "pond-dark.png",
        "pond.json",
        "pond.png",
    ]
    page = render_scoreboard([path.parent], {"pond": pond})
    assert "✗ 1 falls short" in page
    assert "data:image/png" in page
    assert "Without the echo" in page


def test_bare_metrics_are_judged_by_the_claims_of_the_room(run_pond, pond, tmp_path):
    metrics = run_pond(quick=False).folder / "metrics.json"
    bare = tmp_path / "pond.json"
    bare.write_text(metrics.read_text())
    assert "✗ 1 falls short" in render_scoreboard([bare], {"pond": pond})


def test_a_quick_run_is_not_published(run_pond, tmp_path):
    with pytest.raises(InputError, match="quick run"):
        publish_result(run_pond().folder, tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "damaged"), ("[]", "is no result"), ('{"method": "x"}', "no result")],
)
def test_a_file_that_is_no_result_is_refused_by_name(tmp_path, content, message):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(InputError, match=message):
        render_scoreboard([tmp_path / "x.json"], {})


def test_a_place_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        render_scoreboard([tmp_path / "nowhere"], {})
