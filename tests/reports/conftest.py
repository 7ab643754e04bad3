from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from noisewright import methods
from noisewright.reports import Options, RunResult, execute

HERE = Path(__file__).parent
VOID = {"meta", "img", "source", "br", "link", "input"}


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture
def parsed() -> Callable[[str], _Page]:
    """Parse a page; tags that do not match fail."""
    return _Page


@pytest.fixture
def pond(monkeypatch: pytest.MonkeyPatch):
    """The sample room, importable as a user's own package would be."""
    monkeypatch.syspath_prepend(str(HERE))
    return methods.room("sample_rooms.pond")


@pytest.fixture
def run_pond(pond, tmp_path: Path) -> Callable[..., RunResult]:
    """Run the sample room in this process, quick and silent unless told otherwise."""

    def run(**options: Any) -> RunResult:
        chosen = {"quick": True, "out": tmp_path / "run", "jobs": 1, "threads": 1} | options
        settings = chosen.pop("settings", None)
        return execute(pond, None, settings, Options(**chosen))

    return run


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[str]]:
    """Start ``python -m noisewright ...`` with the sample rooms in reach."""

    def start(*args: str, **variables: str) -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
        return subprocess.Popen(
            [sys.executable, "-m", "noisewright", *args],
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=hear_ctrl_c,
        )

    def hear_ctrl_c() -> None:
        # A shell that puts the tests into the background makes all of them deaf to it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return start
