"""What the terminal shows: the finding and the verdicts in about ten lines, and comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from noisewright.reports.html import SIGNS, bar, counts, number, read_run, with_spread
from noisewright.reports.progress import duration

__all__ = ["compare", "show_result"]

COLORS = {"holds": "green", "falls short": "red", "not measured": "yellow"}
_ROWS = 7


def _verdict(verdict: str) -> str:
    return f"[{COLORS[verdict]}]{SIGNS[verdict]} {verdict}[/]"


def show_result(folder: Path, console: Console) -> None:
    """Print the finding, the verdicts and the path of the report of a finished run.

    Args:
        folder: The run folder.
        console: Where to print.
    """
    run = read_run(folder)
    claims: Sequence[Mapping[str, Any]] = run["claims"]
    console.print(f"\n[bold]{escape(run['report']['finding'])}[/]", highlight=False)
    if claims:
        order = {"falls short": 0, "holds": 1, "not measured": 2}
        shown = sorted(claims, key=lambda c: order[c["verdict"]])[:_ROWS]
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, show_edge=False)
        for column in ("verdict", "claim", "measured", "bar"):
            right = column == "measured"
            table.add_column(
                column, justify="right" if right else "left", no_wrap=column != "claim"
            )
        for claim in shown:
            measured = with_spread(claim["value"], claim["std"])
            table.add_row(
                _verdict(claim["verdict"]), escape(claim["text"]), measured, f"[dim]{bar(claim)}[/]"
            )
        console.print(table)
        if len(claims) > len(shown):
            console.print(f"[dim]and {len(claims) - len(shown)} more in the report[/]")
    tally = ", ".join(f"{n} {verdict}" for verdict, n in counts(claims).items() if n)
    seconds = duration(run["metrics"]["seconds"])
    console.print(f"[dim]{tally + ' · ' if tally else ''}{seconds}[/]", highlight=False)
    console.print(str(folder / "report.html"), markup=False, highlight=False, soft_wrap=True)


def _difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[str, str]:
    """Return (b / a or b - a, a word on whether they differ beyond their spread)."""
    if a["mean"] is None or b["mean"] is None:
        return "–", ""
    left, right = float(a["mean"]), float(b["mean"])
    if a["per_seed"] == b["per_seed"]:
        return "=", "same"
    ratio = f"× {number(right / left)}" if left and left * right > 0 else number(right - left)
    spread = math.hypot(a["std"] or 0.0, b["std"] or 0.0)
    if spread == 0.0:
        return ratio, "differs"
    return ratio, "differs" if abs(right - left) > 2 * spread else "within spread"


def compare(first: Path, second: Path, console: Console) -> None:
    """Print every value of two runs side by side.

    Args:
        first: A run folder.
        second: Another.
        console: Where to print.

    Raises:
        InputError: If either is not a finished run.
    """
    a, b = read_run(first)["metrics"], read_run(second)["metrics"]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("key", overflow="fold")
    for head in (str(first), str(second), "B / A"):
        table.add_column(escape(head), justify="right", no_wrap=head == "B / A")
    table.add_column("")
    nothing = {"mean": None, "std": None, "per_seed": []}
    for key in dict.fromkeys([*a["values"], *b["values"]]):
        one, two = a["values"].get(key, nothing), b["values"].get(key, nothing)
        change, word = _difference(one, two)
        mark = f"[yellow]{word}[/]" if word == "differs" else f"[dim]{word}[/]"
        table.add_row(
            escape(key),
            with_spread(one["mean"], one["std"]),
            with_spread(two["mean"], two["std"]),
            change,
            mark,
        )
    for name, metrics in (("A", a), ("B", b)):
        quick = ", quick" if metrics["quick"] else ""
        console.print(
            f"[bold]{name}[/] {escape(metrics['method'])}, seeds {metrics['seeds']}{quick}, "
            f"{duration(metrics['seconds'])}",
            highlight=False,
        )
    console.print(table)
    console.print("[dim]differs: by more than twice the joint spread over seeds[/]")
