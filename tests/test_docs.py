"""What the documentation tells a reader to type works.

Python blocks run, page by page and in order; a block with a title is a file, and the files of a
page make a package that is run as a room. Commands are read by the parsers that will read them. A
fragment that stands for the reader's own code is marked ``py`` and is not run.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import sklearn.datasets  # noqa: F401 - first, here: its import moves the stream of `random`
import torch

from noisewright import cli, methods
from noisewright.reports.options import parse

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ROOT / "src" / "noisewright" / "methods"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOMS.glob("*/README.md")),
]
BLOCK = re.compile(r"^```(\w+)(?: title=\"(.*?)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    code: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(m[1], m[2] or "", m[3], text[: m.start()].count("\n") + 1)
        for m in BLOCK.finditer(text)
    ]


def name_of(page: Path) -> str:
    return page.parent.name if page.parent.parent == ROOMS else page.stem


def pages_with(*languages: str) -> list[Path]:
    return [p for p in PAGES if any(b.language in languages and not b.title for b in blocks_of(p))]


def run_page(page: Path, folder: Path) -> dict:
    """Run the untitled Python blocks of a page as one module; lines keep their numbers."""
    lines: list[str] = []
    for block in blocks_of(page):
        if block.language == "python" and not block.title:
            lines += [""] * (block.line - len(lines)) + block.code.splitlines()
    file = folder / f"{name_of(page).lower().replace('-', '_')}_blocks.py"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


@pytest.mark.global_stream  # a reader's own torch.randn, in the shortest example there is
def test_readme_example_draws_points_of_the_circle(tmp_path):
    code = "".join(b.code for b in blocks_of(ROOT / "README.md") if b.language == "python")
    statements = [line for line in code.splitlines() if line.strip()]
    assert len(statements) <= 12
    with torch.random.fork_rng():
        torch.manual_seed(0)
        samples = run_page(ROOT / "README.md", tmp_path)["samples"]
    radius = samples.norm(dim=1)
    assert samples.shape == (4096, 2)
    assert float((radius - 1).abs().mean()) < 0.15
    angle = torch.atan2(samples[:, 1], samples[:, 0])
    quarters = torch.histc(angle, 4, -torch.pi, torch.pi) / len(angle)
    assert bool(((quarters > 0.15) & (quarters < 0.35)).all())  # all around, not one arc


@pytest.mark.parametrize("page", pages_with("python")[1:], ids=name_of)
def test_python_blocks_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path)


def typed_commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for block in blocks_of(page):
            lines = block.code.replace("\\\n", " ").splitlines()
            if block.language == "console":  # what is typed, between what is answered
                lines = [line[2:] for line in lines if line.startswith("$ ")]
            if block.language in ("sh", "console"):
                found += [(f"{name_of(page)}:{block.line}", line) for line in lines if line.strip()]
    return found


def check_noisewright(words: list[str]) -> None:
    own = {name for room in methods.rooms().values() for name in getattr(room, "commands", ())}
    assert words[0] in {*cli.COMMANDS, *own}, words
    if words[0] == "show":
        assert words[1] in methods.names()
    if words[0] == "run" and "." not in words[1]:  # a dotted name is the reader's own package
        experiment = importlib.import_module(f"{methods.room(words[1]).module}.experiment")
        flags = [w for w in words[2:] if "--config" not in w and not w.endswith(".toml")]
        parse(words[1], experiment.Settings, flags)


@pytest.mark.parametrize(("place", "line"), typed_commands())
def test_command_is_one_that_exists(place, line):
    words = shlex.split(line, comments=True)
    program = Path(words[0]).name
    if program == "noisewright":
        check_noisewright(words[1:])
    elif program == "make":
        targets = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{words[1]}:", targets, re.MULTILINE), place
    elif words[1:4] == ["-m", "pip", "install"]:
        assert words[4:6] == ["-c", "constraints.txt"], f"{place}: torch is not held"
    else:
        files = [word for word in words if word.endswith(".py")]
        assert program == "python", f"{place}: {line}"
        assert files
        assert all((ROOT / file).is_file() for file in files)


@pytest.mark.parametrize("page", pages_with("json", "toml"), ids=name_of)
def test_settings_and_records_parse(page):
    readers = {"json": json.loads, "toml": tomllib.loads}
    for block in blocks_of(page):
        if block.language in readers:
            assert readers[block.language](block.code)


def test_the_room_of_adding_a_room_runs(tmp_path):
    files = [b for b in blocks_of(ROOT / "docs" / "adding-a-room.md") if b.title]
    assert len(files) == 6
    for block in files:
        path = tmp_path / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.code, encoding="utf-8")
    (tmp_path / "mine" / "__init__.py").touch()
    check = (
        "from noisewright.methods import room\n"
        "from noisewright.testing import room_checks\n"
        "[check(room('mine.order')) for check in room_checks()]\n"
    )
    run = ["-m", "noisewright", "run", "mine.order", "--quick", "--strict", "--out", "runs/order"]
    for args, code in ((["-c", check], 0), (run, 3)):  # its claim falls short, as the page says
        done = subprocess.run(
            [sys.executable, *args],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stderr + done.stdout
    metrics = json.loads((tmp_path / "runs" / "order" / "metrics.json").read_text())
    errors = {key: value["mean"] for key, value in metrics["values"].items()}
    assert errors["error.heun"] / errors["error.euler"] == pytest.approx(0.99, abs=0.01)
    assert (tmp_path / "runs" / "order" / "report.html").is_file()


@pytest.mark.slow
def test_site_builds_without_a_warning(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    front = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    concepts = (tmp_path / "site" / "concepts" / "index.html").read_text(encoding="utf-8")
    assert "<math" in concepts  # formulas need no script
    for page in (front, concepts):  # and nothing is fetched while reading
        assert not re.findall(r'<(?:link|script|img)[^>]*(?:src|href)="https?://', page)
