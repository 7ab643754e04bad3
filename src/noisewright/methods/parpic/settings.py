"""Settings of the experiment."""

from __future__ import annotations

from dataclasses import dataclass

from noisewright.methods.parpic.command import count_or_auto
from noisewright.types import InputError

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """Settings of the experiment.

    Attributes:
        graph: A graph file of your own to cluster instead: .csv .tsv .txt .edges .mtx .npz .gml
            .graphml. The same as --data.
        labels: Known groups of that graph: a file of vertex, label, or a vertex attribute.
        clusters: Number of groups of that graph, or auto.
        gamma: ParPIC's weight of incoming against outgoing edges, from 0 to 1.
        time: ParPIC's number of diffusion steps, or auto for the knee of the entropy curve.
        row_normalize: Scale the rows of the embedding of your own graph to norm 1.
        repeats: Repetitions of each comparison within a seed.
        sizes: Vertices of the graphs that time is measured on, multiples of 3.
        baseline_limit: Vertices up to which baselines are timed.
        gammas: Values of gamma in the sweep.
    """

    graph: str | None = None
    labels: str | None = None
    clusters: str = "auto"
    gamma: float = 0.5
    time: str = "auto"
    row_normalize: bool = False
    repeats: int = 1
    sizes: tuple[int, ...] = (300, 900, 3000, 9000, 30000)
    baseline_limit: int = 9000
    gammas: tuple[float, ...] = (0.0, 0.15, 0.3, 0.5, 0.7, 0.85, 1.0)

    @classmethod
    def quick(cls) -> Settings:
        """Return a look of about a minute: small graphs for time, three values of gamma."""
        return cls(sizes=(300, 900, 3000), baseline_limit=900, gammas=(0.0, 0.5, 1.0))

    def checked(self) -> Settings:
        """Return the settings.

        Raises:
            InputError: If one cannot work.
        """
        count_or_auto(self.clusters, "clusters")
        count_or_auto(self.time, "time")
        for name, values in (("gamma", (self.gamma,)), ("gammas", self.gammas)):
            if not values or not all(0 <= value <= 1 for value in values):
                raise InputError(f"{name}={getattr(self, name)} must be in [0, 1]")
        if self.repeats < 1:
            raise InputError(f"repeats={self.repeats} must be at least 1")
        if len(set(self.sizes)) < 2 or any(n < 60 or n % 3 for n in self.sizes):
            raise InputError(f"sizes={self.sizes} must be two or more multiples of 3 from 60 on")
        if self.labels is not None and self.graph is None:
            raise InputError(f"labels={self.labels!r} goes with graph; give --graph FILE")
        return self
