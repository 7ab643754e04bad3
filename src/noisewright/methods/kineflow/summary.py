"""What the report says in words and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from noisewright.methods.kineflow import pictures
from noisewright.reports.run import Run

__all__ = ["finding", "main_set", "tables"]

TIE = 1.0
"""Percent below which two scores count as equal; see claim 4."""

RIVALS = ("quantile_linear", "linear_bootstrap", "linear_gaussian", "ddpm_residual")


def main_set(cases: Iterable[str]) -> str:
    """Return the set that leads the report."""
    cases = list(cases)
    return next((name for name in ("etth1", "etth2", "osc") if name in cases), cases[0])


def tables(run: Run, cases: Sequence[str]) -> None:
    """Add the tables of all methods on all sets."""
    methods = list(pictures.NAMES)
    known = run.values.means()
    for kind, title in (
        ("crps", "CRPS, standardised units; a line for the mean has its absolute error"),
        ("mse", "Squared error of the mean forecast, standardised units"),
        ("coverage90", "Share of what came inside the 90 % interval"),
    ):
        rows = [
            [
                pictures.NAMES[m],
                *(
                    run.spread(key) if (key := f"{name}.{kind}.{m}") in known else None
                    for name in cases
                ),
            ]
            for m in methods
        ]
        rows = [row for row in rows if any(cell is not None for cell in row[1:])]
        run.table(title, ["method", *cases], rows, ours=pictures.NAMES["kineflow"])


def finding(run: Run, main: str) -> str:
    """Return the title of the report: what was found on the set that leads it."""
    known = run.values.means()
    ours = known[f"{main}.crps.kineflow"]

    def percent(method: str) -> float:
        return 100 * (1 - ours / known[f"{main}.crps.{method}"])

    def words(gain: float) -> str:
        return f"{abs(gain):.1f} % {'better' if gain >= 0 else 'worse'} than"

    gap = percent("first_order_forces")
    order = "adds nothing" if abs(gap) < TIE else "adds" if gap > 0 else "costs"
    return (
        f"On {main} futures are {words(percent('linear_gaussian'))} a linear Gaussian forecast and "
        f"{words(percent('first_order_flow'))} the usual flow; second order {order}: the same "
        f"network in first order is within {abs(gap):.1f} %{_rival(known, main)}"
    )


def _rival(known: dict[str, float], main: str) -> str:
    """Name the method that is clearly better than both orders, if there is one."""
    ours = known[f"{main}.crps.kineflow"]
    rivals = {m: known.get(f"{main}.crps.{m}", np.inf) for m in RIVALS}
    best = min(rivals, key=lambda method: rivals[method])
    gain = 100 * (1 - rivals[best] / ours)
    return f"; {pictures.NAMES[best]} are {gain:.1f} % better than either" if gain > TIE else ""
