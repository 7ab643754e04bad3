"""Progress for people: bars with an ETA in a terminal, plain lines in a pipe.

The display follows ``steps.jsonl``, so it shows work in this process and in workers alike, and
nothing that computes ever prints.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from noisewright.reports.steps import read_events

__all__ = ["duration", "follow"]

_LINE_EVERY = 10.0  # seconds between lines of one stage in a pipe
_META = {"time", "event", "stage", "done", "total", "seconds"}


def duration(seconds: float) -> str:
    """Return a length of time for people.

    Example:
        >>> duration(0.42), duration(61), duration(4000)
        ('0.4 s', '1 min 1 s', '1 h 7 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def _numbers(event: Mapping[str, Any]) -> str:
    pairs = [(k, v) for k, v in event.items() if k not in _META and v is not None]
    return "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in pairs)


class _Plan:
    """How many tasks of the fan-out that is going on have ended."""

    def __init__(self) -> None:
        self.name, self.done, self.total = "", 0, 0

    def count(self, event: Mapping[str, Any]) -> str:
        """Return ``3 of 8`` if the event ends a task of the fan-out, else nothing."""
        if event["event"] == "plan":
            self.name, self.done, self.total = event["stage"], 0, event["total"]
        elif event["event"] == "done" and self.total and event["stage"].startswith(self.name):
            self.done += 1
            return f"{self.done} of {self.total}"
        return ""


class _Lines:
    """Plain lines: a stage starts, moves on every ten seconds, ends."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.since: dict[str, float] = {}
        self.last: dict[str, float] = {}
        self.plan = _Plan()

    def show(self, event: Mapping[str, Any]) -> None:
        kind, stage, now = event["event"], event["stage"], event["time"]
        of = self.plan.count(event)
        if kind == "start":
            self.since[stage] = self.last[stage] = now
            self._line(f"{stage}: started")
        elif kind == "done":
            self._line(f"{stage}: done in {duration(event['seconds'])}{of and f', {of}'}")
        elif kind == "kept":
            self._line(f"{stage}: kept from an earlier run")
        elif kind == "step" and now - self.last.get(stage, 0.0) >= _LINE_EVERY:
            self.last[stage] = now
            done, total = event["done"], event["total"]
            left = (now - self.since.get(stage, now)) / max(done, 1) * (total - done)
            text = f"{stage}: {done}/{total}, {duration(left)} left  {_numbers(event)}"
            self._line(text.rstrip())

    def _line(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Nothing is open."""


class _Bars:
    """One bar per running stage; a finished stage becomes a line above the bars."""

    def __init__(self, console: Console) -> None:
        self.bars = Progress(
            TextColumn("[bold]{task.description}", markup=True),
            BarColumn(bar_width=28),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("[dim]{task.fields[numbers]}"),
            console=console,
            transient=True,
        )
        self.bars.start()
        self.tasks: dict[str, TaskID] = {}
        self.plan = _Plan()
        self.whole: TaskID | None = None

    def show(self, event: Mapping[str, Any]) -> None:
        from rich.markup import escape

        kind, stage = event["event"], event["stage"]
        if self.plan.count(event) and self.whole is not None:
            self.bars.update(self.whole, completed=self.plan.done)
            if self.plan.done == self.plan.total:
                self.bars.remove_task(self.whole)
                self.whole = None
        if kind == "plan" and event["total"] > 1:
            text = f"{escape(stage)}, all {event['total']}"
            self.whole = self.bars.add_task(text, total=event["total"], numbers="")
        elif kind == "start":
            self.tasks[stage] = self.bars.add_task(escape(stage), total=None, numbers="")
        elif kind == "step" and stage in self.tasks:
            self.bars.update(
                self.tasks[stage],
                completed=event["done"],
                total=event["total"],
                numbers=escape(_numbers(event)),
            )
        elif kind in ("done", "kept"):
            if stage in self.tasks:
                self.bars.remove_task(self.tasks.pop(stage))
            how = duration(event["seconds"]) if kind == "done" else "kept from an earlier run"
            self.bars.console.print(f"[green]✓[/] {escape(stage)}  [dim]{how}", highlight=False)

    def close(self) -> None:
        self.bars.stop()


@contextmanager
def follow(log: Path, console: Console) -> Iterator[None]:
    """Show the events that are appended to ``log`` while the block runs.

    Args:
        log: ``steps.jsonl``.
        console: Bars if it is a terminal, plain lines if not.
    """
    view = _Bars(console) if console.is_terminal else _Lines(console)
    ended = threading.Event()
    state = {"offset": log.stat().st_size if log.exists() else 0}

    def catch_up() -> None:
        events, state["offset"] = read_events(log, state["offset"])
        for event in events:
            view.show(event)

    def watch() -> None:
        while not ended.wait(0.2):
            catch_up()

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        catch_up()
        view.close()
