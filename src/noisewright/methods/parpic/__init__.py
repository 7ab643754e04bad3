"""Clusters of directed graphs by a reversible walk that keeps the direction of edges (ParPIC)."""

import lazy_loader

from noisewright.types import Room

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

ROOM = Room(
    name="parpic",
    title="groups in directed graphs, directions kept",
    paper="G. Debaussart-Joniec, H. Sevi, M. Jonckheere, A. Kalogeratos, "
    "Parametrized Power-Iteration Clustering for Directed Graphs, ICML 2026, arXiv:2210.00310",
    field="graphs",
    data="block models and nearest-neighbour digraphs of packaged tables",
    module=__name__,
    commands={"parpic": "noisewright.methods.parpic.command:main"},
)
