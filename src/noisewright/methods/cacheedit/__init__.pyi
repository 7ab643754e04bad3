import noisewright.types

from .config import CacheEditConfig as CacheEditConfig
from .cost import MemoryEstimate as MemoryEstimate
from .cost import block_cost as block_cost
from .cost import speedup as speedup
from .handle import CacheEditHandle as CacheEditHandle
from .handle import apply_cacheedit as apply_cacheedit
from .handle import remove_cacheedit as remove_cacheedit
from .key_tokens import key_tokens as key_tokens
from .schedule import map_group as map_group
from .session import CacheEditSession as CacheEditSession
from .session import RoundStats as RoundStats

ROOM: noisewright.types.Room
