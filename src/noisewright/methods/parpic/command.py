"""``noisewright parpic EDGES --out labels.csv``: the groups of a graph file, one row a vertex."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from noisewright.reports.command import parse_command, say
from noisewright.types import InputError

__all__ = ["Command", "count_or_auto", "labels_text", "main"]


@dataclass(frozen=True)
class Command:
    """Find the groups of a directed graph and write them to a file."""

    edges: tyro.conf.Positional[Path]
    """Graph: .csv .tsv .txt .edges .mtx .npz .gml .graphml; an edge list holds source, target,
    weight."""
    out: Path = Path("labels.csv")
    """Where the groups go: rows of vertex, label."""
    clusters: str = "auto"
    """Number of groups, or auto."""
    gamma: float = 0.5
    """Weight of incoming against outgoing edges, from 0 to 1."""
    time: str = "auto"
    """Number of diffusion steps, or auto for the knee of the entropy curve."""
    row_normalize: bool = False
    """Scale the rows of the embedding: try it where degrees are very uneven."""
    seed: int = 0
    """Seed of the random columns and of k-means."""


def main(args: list[str]) -> int:
    """Run the command.

    Args:
        args: What follows ``noisewright parpic``.

    Returns:
        Exit code 0.

    Raises:
        InputError: If the file or a setting cannot work.
        SystemExit: With code 2 for flags that do not exist, 0 after ``--help``.
    """
    command = parse_command(Command, args, "parpic")
    clusters = count_or_auto(command.clusters, "clusters")
    time = count_or_auto(command.time, "time")
    if command.out.is_dir():
        raise InputError(f"--out {command.out} is a folder; give the name of a file")

    from noisewright.data.graphs import read_graph
    from noisewright.methods.parpic.estimator import ParPIC
    from noisewright.storage import write_atomic

    graph = read_graph(command.edges)
    say(graph.describe())
    model = ParPIC(
        clusters,
        gamma=command.gamma,
        diffusion_time=time,
        row_normalize=command.row_normalize,
        random_state=command.seed,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(graph.adjacency)
    for warning in caught:
        say(f"note: {warning.message}")
    write_atomic(command.out, labels_text(graph.names, model.labels_))
    sizes = np.bincount(model.labels_[model.labels_ >= 0])
    say(f"{model.n_clusters_} groups of {_listed(sizes)} vertices, {model.diffusion_time_} steps")
    say(str(command.out))
    return 0


def count_or_auto(text: str, name: str) -> int | Literal["auto"]:
    """Return a positive integer, or ``"auto"``.

    Raises:
        InputError: If it is neither.

    Example:
        >>> count_or_auto("3", "clusters"), count_or_auto("auto", "clusters")
        (3, 'auto')
    """
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"--{name} must be a positive integer or auto, got {text!r}")
    return int(text)


def labels_text(names: Sequence[Any] | np.ndarray, labels: np.ndarray) -> str:
    """Return a CSV of vertex and label.

    Example:
        >>> labels_text(["a", "b,c"], np.array([0, -1])).splitlines()
        ['vertex,label', 'a,0', '"b,c",-1']
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("vertex", "label"))
    writer.writerows(zip(names, labels.tolist(), strict=True))
    return text.getvalue()


def _listed(sizes: np.ndarray) -> str:
    shown = ", ".join(map(str, sizes[:8]))
    return f"{shown} ... {sizes[-1]}" if len(sizes) > 8 else shown
