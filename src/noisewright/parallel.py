"""The one fan-out: many independent tasks over processes or a cluster, with answers in order.

Seeds, counterfactual models, audits and sweeps all go through :func:`fan_out`. Three promises:

* **The answers do not depend on who computes them.** Every task runs with the same number of
  threads, in this process or in a worker, so sums are taken in the same order.
* **A lost worker costs its task, not the run.** The task is tried once more, alone; what fails
  twice is reported after everything else has ended.
* **No orphans.** A worker whose parent is gone, killed for instance, ends itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from noisewright.types import InputError, nearest_name

__all__ = [
    "BACKENDS",
    "TasksFailedError",
    "available_cores",
    "fan_out",
    "limited_threads",
    "peak_mb",
]

Backend = Literal["loky", "ray", "dask"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_inside_worker = threading.Event()


class TasksFailedError(RuntimeError):
    """Several tasks of a fan-out failed; the message names each with its reason."""


@dataclass(frozen=True)
class _Outcome:
    """What one task gave: a value, or an error with the text of its traceback."""

    value: Any = None
    error: BaseException | None = None
    trace: str = ""


def available_cores() -> int:
    """Return how many cores this process may use (affinity and container limits counted)."""
    import joblib

    return max(1, joblib.cpu_count())


def peak_mb() -> float:
    """Return the largest resident memory of this process so far, MB."""
    status = Path("/proc/self/status")
    if status.exists():
        # ru_maxrss would count what the parent held when it started this process.
        line = next(row for row in status.read_text().splitlines() if row.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


@contextmanager
def limited_threads(threads: int) -> Iterator[None]:
    """Hold torch, OpenMP and BLAS to a number of threads inside the block, then give them back.

    Libraries that are first imported inside the block read the limit from the environment.

    Args:
        threads: At least 1.
    """
    import threadpoolctl

    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    torch = sys.modules.get("torch")
    count = torch.get_num_threads() if torch is not None else 0
    try:
        with threadpoolctl.threadpool_limits(threads):
            if torch is not None:
                torch.set_num_threads(threads)
            yield
    finally:
        if torch is not None:
            torch.set_num_threads(count)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _sendable(error: Exception) -> Exception:
    """Return the error, or a plain one with its message if it cannot cross a process border."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever a foreign exception does when pickled
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _attempt(work: Callable[..., Any], task: Mapping[str, Any], threads: int) -> _Outcome:
    try:
        with limited_threads(threads):
            return _Outcome(value=work(**task))
    except Exception as error:
        return _Outcome(error=_sendable(error), trace=traceback.format_exc())


def _leave_with(parent: int) -> None:
    """End this worker when its parent is gone; polled, since a killed parent says nothing."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, name="leave-with-parent", daemon=True).start()


def _in_worker(
    work: Callable[..., Any],
    index: int,
    task: Mapping[str, Any],
    threads: int,
    parent: int | None,
    marks: str | None,
) -> tuple[int, _Outcome]:
    if parent is not None and not _inside_worker.is_set():
        _leave_with(parent)
    _inside_worker.set()
    if marks is not None:
        Path(marks, str(index)).touch()
    return index, _attempt(work, task, threads)


def _on_loky(
    work: Callable[..., Any],
    tasks: Mapping[int, Mapping[str, Any]],
    workers: int,
    threads: int,
    marks: str,
) -> dict[int, _Outcome]:
    """Run tasks in worker processes; a dead worker ends the round with what is finished."""
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import BrokenProcessPool, TerminatedWorkerError

    finished: dict[int, _Outcome] = {}
    one: Any = 1  # joblib's annotation says str
    calls = (
        delayed(_in_worker)(work, index, task, threads, os.getpid(), marks)
        for index, task in tasks.items()
    )
    try:
        with (
            parallel_config(backend="loky", inner_max_num_threads=threads),
            warnings.catch_warnings(),
        ):
            # A worker that has grown large is replaced by a fresh one. Where warnings are errors,
            # saying so would end the thread that looks after the workers, and with it all hope.
            warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
            # max_nbytes=None: memory-mapped inputs would be read-only in workers only.
            # Two workers at least: with one, joblib would run the task in this process.
            parallel: Any = Parallel(
                n_jobs=max(2, workers),
                batch_size=one,
                max_nbytes=None,
                return_as="generator_unordered",
            )
            finished.update(parallel(calls))
    except TerminatedWorkerError:
        pass
    except BrokenProcessPool as error:
        raise InputError(
            f"{getattr(work, '__name__', work)} cannot be rebuilt in a worker process "
            f"({error.__cause__ or error}); it and its inputs must be importable and picklable"
        ) from error
    return finished


def _surviving_losses(
    work: Callable[..., Any], tasks: Sequence[Mapping[str, Any]], workers: int, threads: int
) -> dict[int, _Outcome]:
    """Run all tasks on loky; those that were running when a worker died get one try alone."""
    outcomes: dict[int, _Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="noisewright-") as marks:
        while waiting := {i: t for i, t in enumerate(tasks) if i not in outcomes}:
            outcomes.update(_on_loky(work, waiting, workers, threads, marks))
            started = {int(mark.name) for mark in Path(marks).iterdir()}
            lost = sorted(started & waiting.keys() - outcomes.keys())
            if not lost and waiting.keys() - outcomes.keys() == waiting.keys():
                lost = [min(waiting)]  # workers die before they start a task: do not loop
            for index in lost:
                outcomes.update(_on_loky(work, {index: tasks[index]}, 1, threads, marks))
                if index not in outcomes:
                    reason = "its worker process died twice (out of memory, or killed)"
                    outcomes[index] = _Outcome(error=RuntimeError(reason))
    return outcomes


def _on_cluster(
    work: Callable[..., Any],
    tasks: Sequence[Mapping[str, Any]],
    jobs: int,
    threads: int,
    backend: str,
) -> dict[int, _Outcome]:
    """Run tasks on Ray or Dask, which look after lost workers themselves."""
    from joblib import Parallel, delayed, parallel_config

    if backend == "ray":
        importlib.import_module("ray.util.joblib").register_ray()
    else:
        distributed = importlib.import_module("distributed")
        try:
            distributed.get_client()
        except ValueError:
            distributed.Client()
    with parallel_config(backend=backend, n_jobs=jobs):
        parallel: Any = Parallel()
        return dict(
            parallel(
                delayed(_in_worker)(work, i, task, threads, None, None)
                for i, task in enumerate(tasks)
            )
        )


def check_backend(backend: str) -> None:
    """Refuse a backend that does not exist or is not installed.

    Raises:
        InputError: With the nearest name, or with the extra to install.
    """
    if backend not in BACKENDS:
        raise InputError(f"backend={backend!r} does not exist{nearest_name(backend, BACKENDS)}")
    needed = {"ray": "ray", "dask": "distributed"}.get(backend)
    if needed and importlib.util.find_spec(needed) is None:
        raise InputError(
            f"backend={backend!r} needs the package {needed!r}; "
            "install it with: pip install 'noisewright[cluster]'"
        )


def _told(error: BaseException | None) -> str:
    """Return an error's message with what was noted on its way, a stage's name for instance."""
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


def _raise_failures(tasks: Sequence[Mapping[str, Any]], outcomes: Mapping[int, _Outcome]) -> None:
    failed = {i: o for i, o in sorted(outcomes.items()) if o.error is not None}
    if not failed:
        return
    first = next(iter(failed.values()))
    cause = RuntimeError(first.trace) if first.trace else None
    if len(failed) == 1 and isinstance(first.error, Exception) and first.trace:
        raise first.error from cause
    lines = [f"task {i + 1} of {len(tasks)}: {_told(o.error)}" for i, o in failed.items()]
    raise TasksFailedError("\n".join(lines)) from cause


def fan_out(
    work: Callable[..., Any],
    tasks: Sequence[Mapping[str, Any]],
    *,
    jobs: int = 1,
    backend: str = "loky",
    threads: int | None = None,
) -> list[Any]:
    """Return ``[work(**task) for task in tasks]``, computed side by side.

    Args:
        work: A function; with worker processes it and its arguments must be picklable.
        tasks: Keyword arguments, one mapping per call.
        jobs: How many tasks run at once; 1 runs them here, one after the other. Inside a worker
            a nested fan-out runs there, one after the other.
        backend: ``"loky"`` (processes of this machine), ``"ray"`` or ``"dask"`` (the extra
            ``cluster``; the cluster is the one those libraries find, or a local one).
        threads: Threads of each task; None means cores // jobs, at least 1.

    Returns:
        Results in the order of ``tasks``.

    Raises:
        InputError: If ``jobs``, ``threads`` or ``backend`` cannot work.
        TasksFailedError: If several tasks failed, or a worker died twice; raised after all other
            tasks have ended. A single failing task raises its own error.

    Example:
        >>> fan_out(pow, [{"base": 2, "exp": 3}, {"base": 3, "exp": 2}])
        [8, 9]
    """
    tasks = list(tasks)
    if jobs < 1:
        raise InputError(f"jobs={jobs} must be at least 1")
    if threads is not None and threads < 1:
        raise InputError(f"threads={threads} must be at least 1")
    check_backend(backend)
    threads = max(1, available_cores() // jobs) if threads is None else threads
    workers = min(jobs, len(tasks))
    if workers <= 1 or _inside_worker.is_set():
        outcomes = {i: _attempt(work, task, threads) for i, task in enumerate(tasks)}
    elif backend == "loky":
        outcomes = _surviving_losses(work, tasks, workers, threads)
    else:
        outcomes = _on_cluster(work, tasks, jobs, threads, backend)
    _raise_failures(tasks, outcomes)
    return [outcomes[i].value for i in range(len(tasks))]
