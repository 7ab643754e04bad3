"""From a figure to files: a light and a dark PNG at twice the size, each whole or absent."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisewright.reports import figures as look
from noisewright.storage import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["save_figure"]

DPI = 200

DARK = {
    look.INK: "#e6edf3",
    look.SOFT: "#9aa4af",
    look.RULE: "#30363d",
    look.PAPER: "#0d1117",
    look.OURS: "#4aa8e8",
    "#000000": "#e6edf3",
    "#7a828b": "#a0a8b0",
    "#b07d2b": "#c9973f",
    "#6b9e8f": "#7fb5a5",
    "#a8727f": "#c68d9a",
    "#a3abb3": "#7d858d",
    "#8a6fa8": "#a88fc4",
}
"""Light colour to dark colour; what is not listed stays."""

_GETTERS = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")


def _translated(color: Any) -> Any:
    """Return the dark version of a colour or an array of colours, alpha kept; None if the same."""
    from matplotlib.colors import to_hex, to_rgba_array

    try:
        rows = to_rgba_array(color)
    except (ValueError, TypeError):
        return None
    changed = False
    for row in rows:
        dark = DARK.get(to_hex(row[:3]))
        if dark is not None and row[3] > 0:
            row[:3] = to_rgba_array(dark)[0, :3]
            changed = True
    if not changed:
        return None
    single = isinstance(color, str) or getattr(color, "ndim", None) == 1 or isinstance(color, tuple)
    return tuple(rows[0]) if single else rows


@contextmanager
def _dark(figure: Figure) -> Iterator[None]:
    """Recolour every artist inside the block, then give each its colours back."""
    undo: list[tuple[Any, Any]] = []
    try:
        for artist in figure.findobj():
            for name in _GETTERS:
                getter = getattr(artist, f"get_{name}", None)
                setter = getattr(artist, f"set_{name}", None)
                if getter is None or setter is None:
                    continue
                before = getter()
                after = _translated(before)
                if after is not None:
                    undo.append((setter, before))
                    setter(after)
        yield
    finally:
        for setter, before in reversed(undo):
            setter(before)


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    # No bbox="tight": the size in the page must be that of the canvas.
    figure.savefig(
        buffer, format="png", dpi=DPI, facecolor=figure.get_facecolor(), metadata={"Software": None}
    )
    return buffer.getvalue()


def save_figure(folder: Path, name: str, figure: Figure) -> dict[str, Any]:
    """Write ``name.png`` and ``name-dark.png`` and close the figure.

    Args:
        folder: Made if needed.
        name: File name without suffix.
        figure: A matplotlib figure.

    Returns:
        Width and height in CSS pixels.

    Raises:
        OSError: If the disk is full; the error names the file and none is left half-written.
    """
    write_atomic(folder / f"{name}.png", _png(figure))
    with _dark(figure):
        write_atomic(folder / f"{name}-dark.png", _png(figure))
    width, height = figure.get_size_inches()
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(figure)
    return {"width": round(width * DPI / 2), "height": round(height * DPI / 2)}
