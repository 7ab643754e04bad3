import noisewright.types

from .adjacency import as_adjacency as as_adjacency
from .adjacency import nearest_neighbor_digraph as nearest_neighbor_digraph
from .block_model import directed_sbm as directed_sbm
from .entropy import entropy_limit as entropy_limit
from .entropy import find_knee as find_knee
from .entropy import walk_entropy as walk_entropy
from .estimator import ParPIC as ParPIC
from .walk import ReversibleWalk as ReversibleWalk
from .walk import reversible_walk as reversible_walk
from .walk import vertex_measure as vertex_measure

ROOM: noisewright.types.Room
