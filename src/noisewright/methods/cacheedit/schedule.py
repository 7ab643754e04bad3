r"""Which steps compute all tokens, and what the others lean on.

With an interval c the steps 0, c, 2c, ... compute and keep everything; step s in between leans on
:math:`g(s)`, the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["cache_steps", "is_cache_step", "map_group"]


def is_cache_step(step: int, interval: int = 5, steps: Sequence[int] | None = None) -> bool:
    """Return whether a step computes everything.

    Args:
        step: Counted from 0.
        interval: Of the schedule.
        steps: An explicit schedule instead.
    """
    return step in steps if steps is not None else step % interval == 0


def map_group(step: int, interval: int = 5, steps: Sequence[int] | None = None) -> int:
    """Return the last step that computed everything, this one included.

    Args:
        step: Counted from 0.
        interval: Of the schedule.
        steps: An explicit schedule instead; 0 is among it.

    Example:
        >>> [map_group(step) for step in range(7)]
        [0, 0, 0, 0, 0, 5, 5]
        >>> [map_group(step, steps=(0, 1, 4)) for step in range(6)]
        [0, 1, 1, 1, 4, 4]
    """
    if steps is not None:
        return max(one for one in steps if one <= step)
    return step - step % interval


def cache_steps(total: int, interval: int = 5, steps: Sequence[int] | None = None) -> list[int]:
    """Return the steps of a walk that compute everything.

    Example:
        >>> cache_steps(28)
        [0, 5, 10, 15, 20, 25]
    """
    return [step for step in range(total) if is_cache_step(step, interval, steps)]
