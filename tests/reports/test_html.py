from __future__ import annotations

import json

import pytest

from noisewright.reports.html import chips, number, render_report, with_spread
from noisewright.types import InputError


def _edit(folder, name, change):
    path = folder / f"{name}.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_the_page_is_well_formed_and_loads_nothing_from_elsewhere(run_pond, parsed):
    page = parsed((run_pond().folder / "report.html").read_text())
    assert page.open == []
    addresses = [a.get("src") or a.get("srcset") for t in ("img", "source") for a in page.all(t)]
    assert len(addresses) == 2
    assert all(a.startswith("data:image/png;base64,") for a in addresses)
    assert page.all("link") == page.all("script") == []
    assert all(a["href"].startswith("#") for a in page.all("a"))


def test_every_picture_has_its_alt_text_and_a_dark_version(run_pond, parsed):
    page = parsed((run_pond().folder / "report.html").read_text())
    assert [a["alt"] for a in page.all("img")] == ['One grey picture, "calm".']
    assert page.all("source")[0]["media"] == "(prefers-color-scheme: dark)"


def test_text_from_anywhere_is_escaped(run_pond, parsed):
    folder = run_pond().folder
    evil = '<script>alert("x")</script>'

    def poison(content):
        content.update(finding=evil, question=evil, notes=[evil], command=evil)
        content["room"].update(title=evil, paper=evil, name=evil)
        content["figures"][0].update(caption=evil, alt=evil)
        content["tables"][0].update(caption=evil, columns=[evil, evil], rows=[[evil, evil]])

    _edit(folder, "report", poison)
    _edit(folder, "claims", lambda c: [one.update(text=evil, why=evil, key=evil) for one in c])
    _edit(folder, "environment", lambda c: c.update({evil: evil}))
    _edit(folder, "metrics", lambda c: c["values"].update({evil: c["values"]["growth"]}))
    (folder / "settings.toml").write_text(f"# {evil}")
    page = render_report(folder)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 15
    assert parsed(page).open == []


def test_the_first_screen_has_the_finding_the_verdicts_and_then_the_picture(run_pond):
    page = (run_pond(quick=False).folder / "report.html").read_text()
    places = [
        page.index(part)
        for part in (
            "<h1>Without the echo",
            "✗ 1 falls short",
            '<ul class="chips"',
            "<img",
            "<table",
        )
    ]
    assert places == sorted(places)
    assert "quick look" not in page


def test_absolute_paths_of_a_user_do_not_reach_the_page(run_pond, tmp_path):
    folder = run_pond(data=str(tmp_path / "mine" / "frogs.csv")).folder
    assert str(tmp_path) in (folder / "settings.toml").read_text()
    page = (folder / "report.html").read_text()
    assert str(tmp_path) not in page
    assert "frogs.csv" in page


def test_the_page_can_be_made_again_from_the_files(run_pond):
    folder = run_pond().folder
    assert render_report(folder) == (folder / "report.html").read_text()


def test_a_room_without_claims_pictures_and_tables_still_has_a_page(run_pond, parsed):
    folder = run_pond().folder
    _edit(folder, "claims", lambda c: c.clear())
    _edit(folder, "report", lambda c: c.update(figures=[], tables=[], notes=[]))
    _edit(folder, "metrics", lambda c: c.update(values={}))
    assert parsed(render_report(folder)).open == []


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda f: (f / "metrics.json").unlink(), "no finished run"),
        (lambda f: (f / "claims.json").write_text("{"), "damaged"),
    ],
)
def test_an_unfinished_or_damaged_folder_is_refused(run_pond, harm, message):
    folder = run_pond().folder
    harm(folder)
    with pytest.raises(InputError, match=message):
        render_report(folder)


def test_chips_are_few_and_keep_what_falls_short():
    claim = {"key": "k", "relation": "<=", "target": 1.0, "tolerance": 0.0, "value": 0.5}
    verdicts = ["holds"] * 12 + ["falls short"] * 2
    claims = [claim | {"text": f"t{i}", "verdict": v} for i, v in enumerate(verdicts)]
    shown = chips(claims)
    assert [chip["label"] for chip in shown] == ["t0", "t1", "t2", "t3", "t4", "t5", "t12", "t13"]
    assert shown[-1]["bar"] == "≤ 1"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (1.0, "1.00"), (0.999_9, "1.00"), (9.999, "10.0"), (123456.7, "123,457"),
        (-0.05, "−0.0500"), (1e-5, "1.00e-05"), (7, "7"), (None, "–"), (float("nan"), "not finite"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("pair", "text"),
    [
        ((1.0, 0.5), "1.00 ± 0.50"),
        ((123.456, 12.0), "123 ± 12"),
        ((5e4, 2e4), "50,000 ± 20,000"),
        ((0.229923, 0.000057), "0.2299 ± 6e-05"),
        ((0.22, 0.00057), "0.22000 ± 0.00057"),
        ((1.0, None), "1.00"),
        ((None, 1.0), "–"),
    ],
)
def test_spread_sets_the_decimals(pair, text):
    assert with_spread(*pair) == text
