"""Claims: what must hold of a room's values, read from ``claims.toml`` and judged.

The file is a list of tables::

    [[claim]]
    key = "fd_ratio_tight_vs_cosine"     # a key of metrics.json, or "a / b", "a - b"
    relation = "<="                      # <= >= < > == within
    target = 0.90
    text = "Samples are closer to the data than with the cosine schedule."
    source = "ours"                      # or "paper": whose bar it is
    quick_target = 1.5                   # optional: the bar of --quick runs
    tolerance = 0.05                     # only with relation = "within"

A claim that falls short stays in the file and shows as such.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_args

from noisewright.types import Claim, InputError, Relation, Verdict, nearest_name

__all__ = ["Judged", "judge", "load_claims", "operands"]

_FIELDS = {f.name: f for f in fields(Claim)}
_NEEDED = [name for name, f in _FIELDS.items() if f.default is MISSING]
_NUMBERS = ("target", "quick_target", "tolerance")


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict, as it stands in ``claims.json``.

    Attributes:
        key: Key or expression.
        text: One sentence.
        relation: How the value compares with the target.
        target: The bar that applied.
        tolerance: Half-width for ``"within"``.
        source: ``"paper"`` or ``"ours"``.
        value: Measured mean, or None.
        std: Spread over seeds, or None where there is one value.
        verdict: ``"holds"``, ``"falls short"`` or ``"not measured"``.
        why: A reason, for whatever does not hold.
    """

    key: str
    text: str
    relation: str
    target: float
    tolerance: float
    source: str
    value: float | None
    std: float | None
    verdict: Verdict
    why: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, with None for a value that is not finite."""
        plain = asdict(self)
        for name in ("value", "std"):
            number = plain[name]
            if number is not None and not math.isfinite(number):
                plain[name] = None
        return plain


def _checked(entry: Any, where: str) -> Claim:
    if not isinstance(entry, dict):
        raise InputError(f"{where} is not a table; write [[claim]] above its fields")
    for name in entry:
        if name not in _FIELDS:
            raise InputError(f"{where} has an unknown field {name!r}{nearest_name(name, _FIELDS)}")
    missing = [name for name in _NEEDED if name not in entry]
    if missing:
        raise InputError(f"{where} misses {', '.join(missing)}")
    if entry["relation"] not in get_args(Relation):
        known = " ".join(get_args(Relation))
        raise InputError(f"{where} has relation={entry['relation']!r}; use one of: {known}")
    if entry.get("source", "ours") not in ("paper", "ours"):
        raise InputError(f"{where} has source={entry['source']!r}; use 'paper' or 'ours'")
    for name in _NUMBERS:
        number = entry.get(name, 0.0)
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise InputError(f"{where} has {name}={number!r}; give a number")
    if (entry["relation"] == "within") != (entry.get("tolerance", 0) > 0):
        raise InputError(f"{where}: relation='within' and tolerance > 0 go together")
    numbers = {name: float(entry[name]) for name in _NUMBERS if name in entry}
    return Claim(**{**entry, **numbers})


def load_claims(path: str | Path) -> list[Claim]:
    """Read ``claims.toml``.

    Args:
        path: The file.

    Returns:
        Claims in the order of the file.

    Raises:
        InputError: If the file is absent or damaged, or an entry is incomplete or misspelt; the
            message names the file and the entry.
    """
    path = Path(path)
    name = f"{path.parent.name}/{path.name}"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{name} does not exist; a room states what must hold of it") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{name} is not valid TOML: {error}") from None
    for top in content:
        if top not in ("claim", "claims"):
            raise InputError(f"{name} has an unknown table {top!r}; claims are [[claim]] tables")
    entries = [entry for value in content.values() for entry in value]
    claims = [_checked(entry, f"{name}, claim {i + 1}") for i, entry in enumerate(entries)]
    seen: set[tuple[str, str]] = set()
    for claim in claims:
        if (claim.key, claim.relation) in seen:
            raise InputError(f"{name} states {claim.key!r} {claim.relation} twice; keep one")
        seen.add((claim.key, claim.relation))
    return claims


def operands(key: str, known: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys that an expression needs: itself if it is a key.

    Example:
        >>> operands("a / b", {}), operands("t.log/lin", {})
        (('a', 'b'), ('t.log/lin',))
    """
    if key in known:
        return (key,)
    for sign in (" / ", " - "):
        left, found, right = key.partition(sign)
        if found:
            return left, right
    return (key,)


def _reason(
    claim: Claim,
    verdict: Verdict,
    values: Mapping[str, float],
    reasons: Mapping[str, str],
    quick: bool,
) -> str:
    parts = (claim.key, *operands(claim.key, values))
    if verdict == "not measured":
        given = [reasons[part] for part in parts if part in reasons]
        if given:
            return given[0]
        if quick:
            return "left out of --quick runs"
        absent = [part for part in operands(claim.key, values) if part not in values]
        return f"this run did not record {' and '.join(absent)}"
    value = claim.value(values)
    if verdict == "falls short" and value is not None:
        if not math.isfinite(value):
            return "the value is not a finite number"
        bar = claim.bar(quick=quick)
        if claim.relation == "within":
            return f"{abs(value - bar):.3g} away from {bar:g}, allowed {claim.tolerance:g}"
        return f"misses the bar by {abs(value - bar):.3g}"
    return ""


def judge(
    claims: Sequence[Claim],
    values: Mapping[str, float],
    *,
    spreads: Mapping[str, float] | None = None,
    reasons: Mapping[str, str] | None = None,
    quick: bool = False,
) -> list[Judged]:
    """Judge claims on mean values.

    Args:
        claims: From :func:`load_claims`.
        values: Mean value per key; non-finite values fall short.
        spreads: Standard deviation over seeds per key or expression, where there are several.
        reasons: Why a key was not measured.
        quick: Whether the quick targets apply.

    Example:
        >>> (one,) = judge([Claim("x", "<=", 1.0, "x is small")], {"x": 1.25})
        >>> one.verdict, one.why
        ('falls short', 'misses the bar by 0.25')
    """
    judged = []
    for claim in claims:
        verdict = claim.judge(values, quick=quick)
        judged.append(
            Judged(
                key=claim.key,
                text=claim.text,
                relation=claim.relation,
                target=claim.bar(quick=quick),
                tolerance=claim.tolerance,
                source=claim.source,
                value=claim.value(values),
                std=(spreads or {}).get(claim.key),
                verdict=verdict,
                why=_reason(claim, verdict, values, reasons or {}, quick),
            )
        )
    return judged
