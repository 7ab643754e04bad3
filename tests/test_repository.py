"""The tree itself: versions agree, every room is documented, links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from noisewright import methods
from noisewright.version import __version__

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 1_000_000  # bytes of a tracked file


def load_pages():
    """The hook that makes pages for the documentation."""
    spec = importlib.util.spec_from_file_location("pages", ROOT / "docs" / "hooks" / "pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = load_pages()


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def plain_name(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def test_changelog_has_the_version():
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_citation_parses_and_has_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == __version__
    assert citation["license"] == project()["license"]


def test_every_direct_dependency_is_pinned_once():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    names = [plain_name(pin) for pin in pins]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)  # no build suffix, no address
    assert names == sorted(set(names))
    extras = project()["optional-dependencies"].values()
    wanted = [*project()["dependencies"], *(name for extra in extras for name in extra)]
    assert {plain_name(w) for w in wanted} - {"noisewright"} <= set(names)


def test_nothing_asks_for_torchvision():
    # It replaces torch by a build that it does not match.
    for name in ("constraints.txt", "pyproject.toml"):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        assert not [line for line in lines if re.match(r'\s*"?torchvision', line)], name


def test_extra_all_holds_every_field():
    extras = project()["optional-dependencies"]
    (everything,) = extras["all"]
    named = set(re.search(r"\[(.*)\]", everything)[1].split(","))
    assert named == extras.keys() - {"all", "dev", "docs", "oracles"}


def test_rooms_name_extras_that_exist():
    for room in PAGES.rooms().values():
        assert set(room.extras) <= project()["optional-dependencies"].keys(), room.name


def test_every_room_loads_and_is_documented():
    assert PAGES.rooms().keys() == set(methods.names())
    made = PAGES.generated()
    for name in methods.names():
        assert PAGES.readme_of(name).is_file(), f"{name} has no README.md"
        assert f"methods/{name}.md" in made


def test_readme_table_is_the_one_that_the_rooms_give():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in readme for name in methods.names())
    assert readme == PAGES.with_table(readme), "run: python docs/hooks/pages.py"
    for name in PAGES.rooms():
        page = PAGES.readme_of(name).read_text(encoding="utf-8")
        assert page == PAGES.with_result(page, name), "run: python docs/hooks/pages.py"
        assert "<!-- /result -->" in page, f"{name}: the README has no place for results"


def test_no_tracked_file_names_a_place_on_a_machine():
    # The words are put together here, so that this file does not name one itself.
    places = re.compile(
        "|".join(["/" + "work/", "/" + "root/", "/" + r"home/\w", "/" + "opt/pypi"])
    )
    named = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        named += [f"{path.relative_to(ROOT)}: {m[0]}" for m in places.finditer(text)]
    assert not named


def test_no_tracked_file_is_large():
    large = [p.relative_to(ROOT) for p in tracked_files() if p.stat().st_size > LARGEST]
    assert not large


def test_make_targets_are_all_explained():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.search(r"\.PHONY: (.*)", text)[1].split()) - {"help"}
    assert targets == set(re.findall(r'echo "make (\w+)', text))


def test_continuous_integration_only_calls_make_test():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("#!")
    assert lines[1] == "set -euo pipefail"
    assert [line for line in lines[2:] if line and not line.startswith(("#", "cd "))] == [
        "make test"
    ]


def test_issue_forms_ask_for_what_a_number_depends_on():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        if path.name == "config.yml":
            continue
        asked = str(form["body"]).lower()
        for word in ("seed", "device", "dtype", "settings.toml", "environment.json"):
            assert word in asked, f"{path.name} does not ask for {word}"


def anchors_of(text: str) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def test_links_between_files_lead_somewhere():
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    files += [*(ROOT / "docs").glob("*.md"), *map(PAGES.readme_of, methods.names())]
    made = PAGES.generated()
    lost = []
    for file in filter(Path.is_file, files):
        text = re.sub(r"```.*?```", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
        for match in PAGES.LINK.finditer(text):
            address, anchor = match[2], (match[3] or "").removeprefix("#")
            if re.match(r"[a-z]+:|//", address):
                continue
            target = (file.parent / address).resolve() if address else file
            on_site = target.is_relative_to(PAGES.DOCS) and (
                target.relative_to(PAGES.DOCS).as_posix() in made
            )
            found = target.exists() or on_site
            if found and anchor and target.suffix == ".md" and target.is_file():
                found = anchor in anchors_of(target.read_text(encoding="utf-8"))
            if not found:
                lost.append(f"{file.relative_to(ROOT)}: {match[0]}")
    assert not lost
