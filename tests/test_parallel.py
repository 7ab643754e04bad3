from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from cloudpickle import register_pickle_by_value

from noisewright.parallel import TasksFailedError, fan_out, limited_threads
from noisewright.types import InputError, NonFiniteError

# Workers cannot import a test module, so its functions travel with their code.
register_pickle_by_value(sys.modules[__name__])

ORPHANS = """
import sys, time
from noisewright.parallel import fan_out
def work(i, folder):
    import os, time
    open(f"{folder}/{os.getpid()}", "w").close()
    time.sleep(600)
fan_out(work, [{"i": i, "folder": sys.argv[1]} for i in range(2)], jobs=2)
"""


def _square_sum(i: int, size: int) -> float:
    import torch

    x = torch.randn(size, size, generator=torch.Generator().manual_seed(i))
    return float((x @ x).sum())


def _threads(i: int) -> tuple[int, str]:
    import torch

    return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]


def _dies_at_first(i: int, folder: str) -> int:
    mark = Path(folder, f"died-{i}")
    if i == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return i * i


def _always_dies(i: int, folder: str) -> int:
    if i == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    Path(folder, f"ended-{i}").touch()
    return i


def _fails_on(i: int, bad: tuple[int, ...], folder: str) -> int:
    if i in bad:
        raise NonFiniteError(f"loss is nan in {i}")
    Path(folder, f"ended-{i}").touch()
    return i


def _nested(i: int) -> list[int]:
    return fan_out(pow, [{"base": i, "exp": e} for e in (1, 2)], jobs=2)


def _writes_into(x: np.ndarray) -> float:
    x += 1.0
    return float(x.sum())


def test_fan_out_gives_the_bits_of_a_plain_loop_here_and_in_workers():
    tasks = [{"i": i, "size": 150} for i in range(4)]
    with limited_threads(1):
        plain = [_square_sum(**task) for task in tasks]
    assert fan_out(_square_sum, tasks, jobs=1, threads=1) == plain
    assert fan_out(_square_sum, tasks, jobs=2, threads=1) == plain


def test_each_task_runs_with_the_threads_it_was_promised_and_they_are_given_back():
    import torch

    before = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
    tasks = [{"i": i} for i in range(3)]
    assert fan_out(_threads, tasks, jobs=1, threads=2) == [(2, "2")] * 3
    assert fan_out(_threads, tasks, jobs=2, threads=2) == [(2, "2")] * 3
    assert (torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")) == before


def test_a_worker_that_dies_costs_its_task_one_more_try(tmp_path):
    tasks = [{"i": i, "folder": str(tmp_path)} for i in range(5)]
    assert fan_out(_dies_at_first, tasks, jobs=2) == [0, 1, 4, 9, 16]
    assert (tmp_path / "died-1").exists()


def test_a_task_that_kills_its_worker_twice_is_named_after_the_others_have_ended(tmp_path):
    tasks = [{"i": i, "folder": str(tmp_path)} for i in range(4)]
    with pytest.raises(TasksFailedError, match=r"^task 2 of 4: .*died twice") as caught:
        fan_out(_always_dies, tasks, jobs=2)
    assert "task 1 of" not in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ended-0", "ended-2", "ended-3"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_one_failing_task_raises_its_own_error_and_the_others_end(tmp_path, jobs):
    tasks = [{"i": i, "bad": (1,), "folder": str(tmp_path)} for i in range(4)]
    with pytest.raises(NonFiniteError, match="nan in 1"):
        fan_out(_fails_on, tasks, jobs=jobs)
    assert len(list(tmp_path.iterdir())) == 3


def test_several_failing_tasks_are_listed_in_one_error(tmp_path):
    tasks = [{"i": i, "bad": (0, 2), "folder": str(tmp_path)} for i in range(3)]
    with pytest.raises(TasksFailedError) as caught:
        fan_out(_fails_on, tasks, jobs=1)
    assert str(caught.value).splitlines() == [
        "task 1 of 3: loss is nan in 0",
        "task 3 of 3: loss is nan in 2",
    ]


def test_fan_out_inside_a_worker_runs_there():
    assert fan_out(_nested, [{"i": 2}, {"i": 3}], jobs=2) == [[2, 4], [3, 9]]


def test_large_inputs_are_writable_in_workers_too():
    tasks = [{"x": np.zeros(300_000)} for _ in range(2)]
    assert fan_out(_writes_into, tasks, jobs=2) == [300_000.0] * 2
    assert tasks[0]["x"].sum() == 0.0


def test_no_tasks_give_no_results():
    assert fan_out(_square_sum, [], jobs=2) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 0}, "jobs=0 must be at least 1"),
        ({"threads": 0}, "threads=0 must be at least 1"),
        ({"backend": "lokky"}, "did you mean 'loky'"),
    ],
)
def test_impossible_options_are_refused_with_the_remedy(options, message):
    with pytest.raises(InputError, match=message):
        fan_out(_threads, [{"i": 0}], **options)


@pytest.mark.parametrize("backend", ["ray", "dask"])
def test_a_cluster_that_is_not_installed_names_the_extra(monkeypatch, backend):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"noisewright\[cluster\]"):
        fan_out(_threads, [{"i": 0}], jobs=2, backend=backend)


def test_work_that_no_worker_can_rebuild_is_an_input_error(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def work(i):\n    return i\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here  # type: ignore[import-not-found]  # made two lines above

    (tmp_path / "only_here.py").unlink()
    with pytest.raises(InputError, match="work cannot be rebuilt in a worker"):
        fan_out(only_here.work, [{"i": 0}, {"i": 1}], jobs=2)


def test_workers_end_when_their_parent_is_killed(tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", ORPHANS, str(tmp_path)])
    patience = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 2:
        assert parent.poll() is None
        assert time.monotonic() < patience
        time.sleep(0.05)
    workers = [psutil.Process(int(p.name)) for p in tmp_path.iterdir()]
    parent.kill()
    parent.wait()
    gone, alive = psutil.wait_procs(workers, timeout=30)
    for one in alive:
        one.kill()
    assert len(gone) == 2


def test_peak_memory_rises_with_what_is_held():
    import numpy as np

    from noisewright.parallel import peak_mb

    before = peak_mb()
    held = np.ones(int(before * 1e6 / 8))  # as much again as the process ever had, touched
    assert peak_mb() > before + 10
    assert held[-1] == 1


def grow(index: int) -> int:
    """Keep 120 MB for good, and take long enough for the look at memory that comes each second."""
    vars(sys).setdefault("held", []).append(bytearray(b"x") * 120_000_000)
    time.sleep(0.7)
    return index


@pytest.mark.slow
def test_workers_that_grow_large_are_replaced_although_warnings_are_errors():
    """joblib warns of it in the thread that looks after workers; raised there, all would wait."""
    tasks = [{"index": i} for i in range(12)]
    assert fan_out(grow, tasks, jobs=2, threads=1) == list(range(12))
