"""What all tests share: one thread, seeded properties, guarded random streams, the data mirror."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded

import random
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import sklearn.datasets  # noqa: F401 - its first import moves Python's random stream
import torch

from noisewright.types import InputError

torch.set_num_threads(1)

# On CI the same examples each time; elsewhere new ones, so that bugs are found over the weeks.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("here", deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")

MIRROR = "NOISEWRIGHT_DATA"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "global_stream: may draw from a global random stream; say why beside the mark"
    )


def _states() -> dict[str, str]:
    return {
        "torch": torch.random.get_rng_state().numpy().tobytes().hex(),
        "numpy": repr(np.random.get_state()),  # noqa: NPY002 - the legacy stream is what is guarded
        "random": repr(random.getstate()),
    }


def _instrumented(config: pytest.Config) -> bool:
    """Whether annotations are checked at run time (``--jaxtyping-packages``)."""
    return bool(config.getoption("jaxtyping_packages", default=None))


@contextmanager
def untouched_streams(*, but: tuple[str, ...] = ()) -> Iterator[None]:
    """Fail if the global stream of torch, numpy or ``random`` moves inside the block."""
    before = _states()
    yield
    after = _states()
    moved = [name for name in before if before[name] != after[name] and name not in but]
    if moved:
        pytest.fail(
            f"the global random stream of {', '.join(moved)} was used; draw from a seeded "
            "generator, or build layers inside noisewright.random.isolated(seed)",
            pytrace=False,
        )


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Guard the body of each test; around the call only, where no plugin seeds anything."""
    if pyfuncitem.get_closest_marker("global_stream"):
        return (yield)
    # The run-time type checker looks at random items of a list.
    with untouched_streams(but=("random",) if _instrumented(pyfuncitem.config) else ()):
        return (yield)


@pytest.fixture
def stream_guard() -> Callable[[], AbstractContextManager[None]]:
    """The guard itself, for tests of it and of single calls."""
    return untouched_streams


@pytest.fixture
def refuses(request: pytest.FixtureRequest) -> Callable[[str], AbstractContextManager[None]]:
    """Expect an InputError with words, where a run-time check of annotations may come first."""
    instrumented = _instrumented(request.config)

    @contextmanager
    def expect(words: str) -> Iterator[None]:
        with pytest.raises((InputError, TypeError) if instrumented else InputError) as caught:
            yield
        if isinstance(caught.value, InputError):
            assert re.search(words, str(caught.value)), str(caught.value)

    return expect


def _mirror_root() -> Path | None:
    """Return the offline mirror: NOISEWRIGHT_DATA, or ``shared/data`` beside the checkout."""
    given = os.environ.get(MIRROR)
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    root = Path(given) if given else beside
    return root if root.is_dir() else None


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return the folder of a named set in the mirror and point the library to it, or skip.

    ``folder = mirror("cifar10_subset")``
    """

    def locate(name: str) -> Path:
        root = _mirror_root()
        if root is None or not (root / name).is_dir():
            pytest.skip(f"data set {name} is not in the mirror ({MIRROR} or ../shared/data)")
        monkeypatch.setenv(MIRROR, str(root))
        return root / name

    return locate


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No mirror and an empty cache; return the folder that holds the cache."""
    monkeypatch.delenv(MIRROR, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"
