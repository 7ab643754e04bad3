"""Text tables of edges or labels: separators, comments, headers, and errors that name the line."""

from __future__ import annotations

import io
import re
from typing import Any, cast

import numpy as np

from noisewright.types import InputError

__all__ = ["decoded", "read_edge_rows", "read_rows"]

_ROLES = {
    "source": ("source", "from", "src", "tail", "sender", "citing", "u", "i"),
    "target": ("target", "to", "dst", "dest", "head", "receiver", "cited", "v", "j"),
    "weight": ("weight", "w", "value", "count", "n"),
}


def decoded(content: bytes, name: str) -> str:
    """Return the text of a file: UTF-8, else Latin-1.

    Raises:
        InputError: If it holds a NUL, as no text does.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    if "\0" in text:
        raise InputError(f"{name} is not a text file; its suffix promises one")
    return text


def read_rows(
    content: bytes, name: str, separator: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells of a table as stripped text (rows, columns), and the line of each row.

    Args:
        content: Bytes of the file; lines that begin with # or % and blank lines are left out.
        name: Name for messages.
        separator: None means the first of comma, semicolon and tab that the first row has, else
            white space.

    Raises:
        InputError: If there is no row, or rows differ in their number of columns.
    """
    import pandas as pd

    lines = re.split(r"\r\n|\r|\n", decoded(content, name))
    kept = [i for i, line in enumerate(lines) if line.strip() and line.lstrip()[0] not in "#%"]
    if not kept:
        raise InputError(f"{name} holds no row besides comments")
    sample = lines[kept[0]]
    if separator is None or separator not in sample:
        separator = next((s for s in ",;\t" if s in sample), r"\s+")
    try:
        table = pd.read_csv(
            io.StringIO("\n".join(lines[i].strip(" ") for i in kept)),
            sep=separator,
            header=None,
            dtype=str,
            keep_default_na=False,
            skipinitialspace=True,
            skip_blank_lines=False,
            quoting=0 if separator != r"\s+" else 3,
            engine="c",
        )
    except (ValueError, OverflowError) as error:
        found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        where = (
            f"line {kept[int(found[2]) - 1] + 1} has {found[3]} columns, the first row {found[1]}"
            if found
            else str(error).strip()
        )
        raise InputError(f"{name}: {where}; every row must have the same columns") from None
    if len(table) != len(kept):
        raise InputError(f"{name}: a quotation mark is never closed; quote whole cells or none")
    cells = table.fillna("").to_numpy(dtype=object)
    for column in range(cells.shape[1]):
        cells[:, column] = [text.strip() for text in cells[:, column]]
    return cells, np.asarray(kept) + 1


def _numbers(cells: Any) -> np.ndarray:
    """Return cells as numbers, NaN where one is none."""
    import pandas as pd

    return np.asarray(cast(Any, pd.to_numeric(pd.Series(cells), errors="coerce")), dtype=np.float64)


def _has_header(cells: np.ndarray) -> bool:
    """Tell whether the first row names columns: known words, or text above numbers."""
    first = [text.lower() for text in cells[0]]
    words = {word for role in _ROLES.values() for word in role if len(word) > 1}
    if len(set(first) & words) >= 2:
        return True
    if len(cells) < 2 or np.isfinite(_numbers(first)).any():
        return False
    return bool(np.isfinite(_numbers(cells[1])).any())


def _columns(cells: np.ndarray, header: bool) -> tuple[int, int, int | None]:
    """Return the positions of source, target and weight."""
    if header:
        heads = [text.lower() for text in cells[0]]
        source, target, weight = (
            next((i for i, head in enumerate(heads) if head in words), None)
            for words in _ROLES.values()
        )
        if source is not None and target is not None:
            return source, target, weight
    return 0, 1, 2 if cells.shape[1] > 2 else None


def read_edge_rows(
    content: bytes, name: str, separator: str | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...]]:
    r"""Read an edge list.

    Args:
        content: Bytes of the file.
        name: Name for messages.
        separator: As in :func:`read_rows`.

    Returns:
        Vertices of the edges (2, m), weights (m,), names (n,) in order of number or of first
        appearance, and notes on what was decided.

    Raises:
        InputError: If a row cannot be an edge; the message names its line.

    Example:
        >>> ends, weight, names, _ = read_edge_rows(b"from,to\nb,a\na,c\n", "x.csv")
        >>> ends.tolist(), weight.tolist(), names.tolist()
        ([[0, 1], [1, 2]], [1.0, 1.0], ['b', 'a', 'c'])
    """
    cells, lines = read_rows(content, name, separator)
    if cells.shape[1] < 2:
        raise InputError(f"{name}, line {lines[0]}: one column; a row holds source and target")
    header = _has_header(cells)
    source, target, column = _columns(cells, header)
    cells, lines = cells[int(header) :], lines[int(header) :]
    if not len(cells):
        raise InputError(f"{name} holds a header only; it must hold at least one edge")
    ends = cells[:, [source, target]]
    lost = np.flatnonzero((ends == "").any(axis=1))
    if lost.size:
        raise InputError(f"{name}, line {lines[lost[0]]}: source or target is missing")
    weight = np.ones(len(cells)) if column is None else _weights(cells[:, column], lines, name)
    codes, names = _numbered(np.concatenate([ends[:, 0], ends[:, 1]]))
    unused = cells.shape[1] - 2 - (column is not None)
    notes = (f"{unused} further columns were not used.",) if unused else ()
    return codes.reshape(2, -1), weight, names, notes


def _weights(cells: np.ndarray, lines: np.ndarray, name: str) -> np.ndarray:
    weight = _numbers(cells)
    bad = np.flatnonzero(~np.isfinite(weight))
    if bad.size:
        raise InputError(
            f"{name}, line {lines[bad[0]]}: weight {cells[bad[0]]!r} is no finite number; the "
            "third column of an edge list is its weight"
        )
    return weight


def _numbered(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of each name and the names, sorted if all are whole numbers."""
    import pandas as pd

    codes, found = pd.factorize(cells)
    names = np.asarray(found, dtype=str)
    if all(re.fullmatch(r"[+-]?[0-9]{1,18}", text) for text in names):
        order = np.argsort([int(text) for text in names], kind="stable")
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        codes, names = rank[codes], names[order]
    return codes, names
