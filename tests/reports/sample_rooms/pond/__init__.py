"""A room outside the package, as a user would write one; the tests of runs and reports use it."""

from __future__ import annotations

from noisewright.types import Room

ROOM = Room(
    name="pond",
    title="Counts frogs by their echo",
    paper="Frog and Toad, Ponds that answer, 2024",
    field="images",
    data="made ripples",
    module=__name__,
)
