"""How annotations are checked while the tests run, for ``--jaxtyping-packages``.

beartype, on hints that speak of tensors: shapes and dtypes are what nothing else checks. Plain
values (numbers, names, folders) are left to the code itself, which refuses bad ones with a better
message, and scikit-learn wants estimators that take anything. Hints that cannot be checked at a
call are passed over as well: ``Self``, which beartype knows on decorated classes only, and
protocols that are not checkable at run time. An int is a float where a float is asked for.
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


def _about_tensors(hint: Any) -> bool:
    return "Tensor" in (hint if isinstance(hint, str) else repr(hint))


def checked(thing: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose arguments and result are checked at each call."""
    hints = getattr(thing, "__annotations__", {})
    kept = {k: h for k, h in hints.items() if _about_tensors(h) and not _uncheckable(h)}
    if len(kept) < len(hints):
        thing.__annotations__ = {k: kept.get(k, Any) for k in hints}
    return _beartype(thing)
