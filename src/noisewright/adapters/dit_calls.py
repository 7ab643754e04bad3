"""Which step of a walk, and which branch of guidance, a call of a transformer belongs to.

Some pipelines say so (``cache_context("cond")``, ``cache_context("uncond")``), others call twice
in a row. So a branch is the name of the context, if there is one, and otherwise how many calls
there have been at this time; a new time is a new step.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CallPlace", "CallTracker"]


@dataclass(frozen=True)
class CallPlace:
    """Where a call stands.

    Attributes:
        step: Counted from 0.
        branch: Name of the branch of guidance.
        time: Of the step, as the pipeline counts it.
    """

    step: int
    branch: str
    time: float


class CallTracker:
    """Counts calls from :meth:`begin` on.

    A walk that visits one time twice in a row (a Heun solver) looks like guidance here; pipelines
    that name their branches are told apart even then.

    Attributes:
        times: Time of each step seen so far.

    Example:
        >>> tracker = CallTracker()
        >>> [(p.step, p.branch) for p in map(tracker.see, [1.0, 1.0, 0.5, 0.5])]
        [(0, 'call 0'), (0, 'call 1'), (1, 'call 0'), (1, 'call 1')]
        >>> tracker.begin()
        >>> tracker.see(1.0, "uncond")
        CallPlace(step=0, branch='uncond', time=1.0)
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget all calls: a new walk begins."""
        self.times: list[float] = []
        self._seen: dict[str | None, int] = {}

    def see(self, time: float, context: str | None = None) -> CallPlace:
        """Return where a call stands.

        Args:
            time: Of the call.
            context: Name of the cache context, if the pipeline entered one.
        """
        if not self.times or time != self.times[-1]:
            self.times.append(time)
            self._seen = {}
        number = self._seen.get(context, 0)
        self._seen[context] = number + 1
        if context is None:
            branch = f"call {number}"
        else:
            branch = context if number == 0 else f"{context} {number}"
        return CallPlace(len(self.times) - 1, branch, time)
