"""The words that the whole library shares: prediction kinds, claims, rooms, records, errors.

Nothing here imports torch, so the command line can list rooms and claims at once.
"""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from dataclasses import field as with_default
from typing import Literal, get_args

__all__ = [
    "KINDS",
    "Claim",
    "InputError",
    "Kind",
    "NonFiniteError",
    "Relation",
    "Room",
    "Verdict",
    "nearest_name",
]

Kind = Literal["data", "noise", "velocity", "score", "v"]
"""What a network predicts: the data, the noise, the velocity d state / d t, the score, or
``"v"`` = signal_level * noise - noise_level * data (Salimans & Ho 2022, the v-prediction of
diffusers)."""

KINDS: tuple[Kind, ...] = get_args(Kind)

Relation = Literal["<=", ">=", "<", ">", "==", "within"]
Verdict = Literal["holds", "falls short", "not measured"]


class InputError(ValueError):
    """Something the caller gave cannot work; the message names argument, value and remedy."""


class NonFiniteError(FloatingPointError):
    """A NaN or an infinity appeared; the message names the stage, the step and what is safe."""


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelt name: ``; did you mean 'x'?``, or the whole list.

    Args:
        name: What was given.
        known: The names that exist.

    Example:
        >>> nearest_name("spectral_shedule", ["parpic", "spectral_schedule"])
        "; did you mean 'spectral_schedule'?"
        >>> nearest_name("zzz", ["parpic", "cgm"])
        '; known: cgm, parpic'
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
}


@dataclass(frozen=True)
class Claim:
    """One thing that must hold of a room's measured values.

    Attributes:
        key: A key of ``metrics.json``, or an expression ``a / b`` or ``a - b`` of two keys (the
            spaces make the operator; a slash without spaces is part of a key).
        relation: How the value compares with the target; ``"within"`` means target +- tolerance.
        target: The bar, in the unit of the key.
        text: One sentence for people.
        source: Whether the bar comes from the ``"paper"`` or is ``"ours"``.
        quick_target: Another bar for ``--quick`` runs; None means the same.
        tolerance: Half-width for ``"within"``.
    """

    key: str
    relation: Relation
    target: float
    text: str
    source: Literal["paper", "ours"] = "ours"
    quick_target: float | None = None
    tolerance: float = 0.0

    def value(self, values: Mapping[str, float]) -> float | None:
        """Return the measured value of the key or expression, or None if a key is missing.

        Example:
            >>> Claim("a / b", "<=", 1.0, "").value({"a": 1.0, "b": 4.0})
            0.25
        """
        if self.key in values:
            return values[self.key]
        for sign, apply in ((" / ", operator.truediv), (" - ", operator.sub)):
            left, found, right = self.key.partition(sign)
            if found and left in values and right in values:
                if sign == " / " and values[right] == 0:
                    return math.nan
                return apply(values[left], values[right])
        return None

    def bar(self, *, quick: bool = False) -> float:
        """Return the target that applies."""
        return self.quick_target if quick and self.quick_target is not None else self.target

    def judge(self, values: Mapping[str, float], *, quick: bool = False) -> Verdict:
        """Return the verdict on mean values; NaN falls short.

        Example:
            >>> Claim("x", "within", 2.0, "", tolerance=0.05).judge({"x": 1.96})
            'holds'
            >>> Claim("y", "<=", 2.0, "").judge({"x": 1.96})
            'not measured'
        """
        value = self.value(values)
        if value is None:
            return "not measured"
        bar = self.bar(quick=quick)
        if self.relation == "within":
            return "holds" if abs(value - bar) <= self.tolerance else "falls short"
        return "holds" if _COMPARE[self.relation](value, bar) else "falls short"


@dataclass(frozen=True)
class Room:
    """What the registry and the reports know of a method without loading it.

    Attributes:
        name: Folder under ``noisewright.methods``; the name on the command line.
        title: What it does, in about six words.
        paper: Authors, title, venue, year.
        field: Where its users work, one word or two: ``"images"``, ``"graphs"``, ...
        data: The embedded default data, in a few words.
        extras: Optional dependencies that the experiment needs, as named in pyproject.
        commands: Commands of its own: name to ``"module:function"``; the function takes the
            remaining arguments as a list of strings and returns an exit code.
        module: Dotted name of the package, given by ``__name__`` in the room's ``__init__``.
    """

    name: str
    title: str
    paper: str
    field: str
    data: str
    module: str
    extras: tuple[str, ...] = ()
    commands: Mapping[str, str] = with_default(default_factory=dict)
