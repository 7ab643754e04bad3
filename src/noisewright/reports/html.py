"""``report.html``: one self-contained page made from the files of a run folder, nothing else.

The page loads nothing from elsewhere, reads on a phone, follows the reader's light or dark mode,
and escapes every text that it did not write itself.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisewright.reports.progress import duration
from noisewright.types import InputError

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["environment", "number", "read_run", "render_report", "with_spread"]

SIGNS = {"holds": "✓", "falls short": "✗", "not measured": "–"}
CLASSES = {"holds": "good", "falls short": "bad", "not measured": "idle"}
RELATIONS = {"<=": "≤", ">=": "≥", "<": "<", ">": ">", "==": "=", "within": "="}
CHIPS = 8


def number(value: float | None, digits: int = 3) -> str:
    """Return a number for people: three significant digits, a real minus sign.

    Example:
        >>> number(0.43125), number(-1234567.0), number(12), number(None), number(2e-7)
        ('0.431', '−1,234,567', '12', '–', '2.00e-07')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and not math.isfinite(value):
        return "not finite"
    if value == 0 or (isinstance(value, int) and abs(value) < 10**15):
        text = f"{value:,.0f}"
    elif not 1e-3 <= abs(value) < 1e15:
        text = f"{value:.{digits - 1}e}"
    else:
        rounded = float(f"{value:.{digits - 1}e}")  # 9.999 has the digits of 10.0
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
        text = f"{value:,.{decimals}f}"
    return text.replace("-", "−") if text.startswith("-") else text


ROUNDING = 1e-7
"""Spread over mean below which seeds differ by rounding only."""


def with_spread(mean: float | None, std: float | None) -> str:
    """Return ``mean ± std``, both with the decimals that the spread asks for.

    Example:
        >>> with_spread(0.4312, 0.0176), with_spread(24.8, 0.0), with_spread(8.0, 0.25)
        ('0.431 ± 0.018', '24.8', '8.00 ± 0.25')

        A spread that is only rounding is none.

        >>> with_spread(0.295, 5e-11)
        '0.295'
    """
    if mean is None or not std or not math.isfinite(std) or not math.isfinite(mean):
        return number(mean)
    if std < ROUNDING * abs(mean):
        return number(mean)
    decimals = 1 - math.floor(math.log10(abs(std)))
    if decimals < 0:
        return f"{number(mean)} ± {number(std, 2)}"
    if mean and decimals > 4 - math.floor(math.log10(abs(mean))):  # a spread too small to write out
        return f"{number(mean, 4)} ± {std:.0e}"
    text = f"{mean:,.{decimals}f} ± {std:,.{decimals}f}"
    return text.replace("-", "−") if text.startswith("-") else text


def plain(value: float) -> str:
    """Return a target as people write it: ``0.8``, not ``0.800``."""
    return f"{value:,.10g}".replace("-", "−")


def bar(claim: Mapping[str, Any]) -> str:
    """Return the bar of a claim: ``≤ 0.9``, ``= 2 ± 0.05``."""
    text = f"{RELATIONS[claim['relation']]} {plain(claim['target'])}"
    return f"{text} ± {plain(claim['tolerance'])}" if claim["relation"] == "within" else text


def environment() -> Environment:
    """Return the template environment: autoescape on, and a missing name is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = Path(__file__).parent / "templates"
    env = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {
        "number": number,
        "duration": duration,
        "bar": bar,
        "sign": SIGNS.__getitem__,
        "verdict_class": CLASSES.__getitem__,
    }
    env.globals["with_spread"] = with_spread
    return env


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{path.parent} is no finished run ({path.name} is missing); run it to its end first"
        ) from None
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); run the same command again") from None


def read_run(folder: str | Path) -> dict[str, Any]:
    """Return what a finished run folder holds: metrics, claims, environment, report, settings.

    Raises:
        InputError: If the folder is not a finished run, or a file is damaged.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give the folder of a run")
    content = {name: _json(folder / f"{name}.json") for name in ("metrics", "claims", "report")}
    content["environment"] = _json(folder / "environment.json")
    settings = folder / "settings.toml"
    content["settings"] = settings.read_text(encoding="utf-8") if settings.is_file() else ""
    return content


def data_uri(path: Path) -> str:
    """Return a PNG as a data address; empty if it is absent."""
    if not path.is_file():
        return ""
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()


def _cells(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with text cells, and which columns hold numbers."""

    def text(cell: Any) -> str:
        if isinstance(cell, list):
            return with_spread(*cell) if len(cell) == 2 else " – ".join(map(number, cell))
        return cell if isinstance(cell, str) else number(cell)

    columns = range(len(table["columns"]))
    numeric = [
        any(not isinstance(row[c], str) and row[c] is not None for row in table["rows"])
        and all(not isinstance(row[c], str) or row[c] in ("", "–") for row in table["rows"])
        for c in columns
    ]
    rows = [[text(cell) for cell in row] for row in table["rows"]]
    return {**table, "rows": rows, "numeric": numeric}


def chips(claims: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the claims of the first screen: at most eight, those that fall short among them."""
    order = {"falls short": 0, "holds": 1, "not measured": 2}
    first = sorted(range(len(claims)), key=lambda i: (order[claims[i]["verdict"]], i))[:CHIPS]
    shown = []
    for i in sorted(first):
        claim = claims[i]
        text = claim["text"].rstrip(".")
        measured = "" if claim["value"] is None else number(claim["value"])
        shown.append(
            {
                "verdict": claim["verdict"],
                "label": text if len(text) <= 72 else claim["key"],
                "title": f"{text}: {claim['key']} {bar(claim)}",
                "measured": measured,
                "bar": bar(claim) if claim["verdict"] == "falls short" else "",
            }
        )
    return shown


def counts(claims: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many claims have each verdict."""
    return {verdict: sum(c["verdict"] == verdict for c in claims) for verdict in SIGNS}


def seeds_text(seeds: Sequence[int]) -> str:
    """Return ``seed 0`` or ``seeds 0–2``."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    return f"seeds {seeds[0]}–{seeds[-1]}"


def _shown_settings(text: str) -> str:
    """Return settings for the page: without absolute paths."""
    from noisewright.reports.environment import shown_path

    lines = []
    for text_line in text.splitlines():
        name, equals, value = text_line.partition(" = ")
        if equals and value.startswith('"/') and value.endswith('"'):
            text_line = f'{name} = "{shown_path(value[1:-1])}"'
        lines.append(text_line)
    return "\n".join(lines).strip()


def render_report(folder: str | Path) -> str:
    """Return the page of a finished run.

    Args:
        folder: Holds metrics.json, claims.json, report.json, environment.json, settings.toml and
            figures.

    Raises:
        InputError: If the folder is not a finished run.
    """
    folder = Path(folder)
    run = read_run(folder)
    report = run["report"]
    pictures = [
        {
            **figure,
            "light": data_uri(folder / "figures" / f"{figure['name']}.png"),
            "dark": data_uri(folder / "figures" / f"{figure['name']}-dark.png"),
        }
        for figure in report["figures"]
    ]
    return (
        environment()
        .get_template("report.html.jinja")
        .render(
            report=report,
            room=report["room"],
            metrics=run["metrics"],
            claims=run["claims"],
            chips=chips(run["claims"]),
            counts=counts(run["claims"]),
            environment=run["environment"],
            settings=_shown_settings(run["settings"]),
            seeds=seeds_text(run["metrics"]["seeds"]),
            lead=pictures[:1],
            pictures=pictures[1:],
            tables=[_cells(table) for table in report["tables"]],
        )
    )
