"""How annotations are checked while the tests run, for ``--jaxtyping-packages``.

beartype, with what it does not do by itself: an int is a float where a float is asked for (PEP
484), and hints that cannot be checked at a call are passed over: ``Self``, which beartype knows on
decorated classes only, and protocols that are not checkable at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, get_args

from beartype import BeartypeConf, beartype

__all__ = ["checked"]

_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))


def _uncheckable(hint: Any) -> bool:
    if hint is Self or (isinstance(hint, str) and "Self" in hint):
        return True
    if getattr(hint, "_is_protocol", False) and not getattr(hint, "_is_runtime_protocol", False):
        return True
    return any(map(_uncheckable, get_args(hint)))


def checked(thing: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose arguments and result are checked at each call."""
    hints = getattr(thing, "__annotations__", {})
    if any(map(_uncheckable, hints.values())):
        thing.__annotations__ = {k: Any if _uncheckable(h) else h for k, h in hints.items()}
    return _beartype(thing)
