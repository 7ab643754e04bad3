"""Editing one picture in several rounds, recomputing only what changed (CacheEdit)."""

import lazy_loader

from noisewright.types import Room

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

ROOM = Room(
    name="cacheedit",
    title="multi-round editing that recomputes what changed",
    paper="CacheEdit: Efficient Multi-round Image Editing via Adaptive Token-wise Reuse, ICML 2026",
    field="images",
    data="packaged photographs, edited cell by cell",
    module=__name__,
    extras=("images",),
    commands={"edit": "noisewright.methods.cacheedit.command:main"},
)
