"""Real directed graphs with known groups, if they are at hand. Nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from noisewright.data.edge_rows import read_rows
from noisewright.data.graphs import Graph, read_graph, read_vertex_labels
from noisewright.data.sources import MIRROR, NotAtHandError, find, source
from noisewright.types import InputError

__all__ = ["drosophila_mb", "email_eu_core"]


def _folder(name: str, folder: str | Path | None, hint: str) -> Path:
    place = Path(folder) if folder is not None else find(name)
    if place is None:
        raise NotAtHandError(f"{name} is not at hand; {hint}")
    return place


def email_eu_core(folder: str | Path | None = None) -> tuple[Graph, np.ndarray]:
    """Return who wrote to whom in a European research institution, and each one's department.

    Args:
        folder: Where ``email-Eu-core.txt`` and ``email-Eu-core-department-labels.txt`` lie;
            looked up by default.

    Returns:
        The graph, 1005 vertices and 25 571 edges of weight 1 of which 642 are self-loops, and the
        department of each vertex, one of 42.

    Raises:
        NotAtHandError: If it is not at hand; the message says how to get it.
        InputError: If its files are damaged.
    """
    place = _folder("email_eu_core", folder, source("email_eu_core").note)
    graph = read_graph(place / "email-Eu-core.txt")
    groups, _ = read_vertex_labels(place / "email-Eu-core-department-labels.txt", graph)
    return graph, groups


def drosophila_mb(
    side: Literal["left", "right"] = "left", folder: str | Path | None = None
) -> tuple[Graph, np.ndarray]:
    """Return the connectome of a larval fly's mushroom body, and the type of each neuron.

    Args:
        side: Which half of the brain.
        folder: Where ``left_adjacency.csv`` and its like lie; looked up by default.

    Returns:
        The graph, 209 (right: 213) neurons with numbers of synapses as weights, and the type of
        each: input, Kenyon cell, output or projection neuron.

    Raises:
        NotAtHandError: If it is not at hand; the message says how to fetch it.
        InputError: If the side is unknown or its files are damaged.
    """
    if side not in ("left", "right"):
        raise InputError(f"side must be 'left' or 'right', got {side!r}")
    place = _folder(
        "drosophila_mb", folder, "run `noisewright data fetch drosophila_mb`, or set "
        f"{MIRROR} to a folder that holds drosophila_mb/",
    )  # fmt: skip
    name = f"{side}_adjacency.csv"
    cells, _ = read_rows(_bytes(place / name), name)
    try:
        weights = cells.astype(np.float64)
    except ValueError as error:
        raise InputError(f"{name} holds a cell that is no number: {error}") from error
    if weights.shape[0] != weights.shape[1]:
        raise InputError(f"{name}: adjacency must be square, got shape {weights.shape}")
    from scipy import sparse

    names = np.arange(len(weights)).astype(str)
    graph = Graph(sparse.csr_array(weights), names, place=name)
    groups, _ = read_vertex_labels(place / f"{side}_cell_labels.csv", graph)
    return graph, groups


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; complete the folder") from error
