"""Networks: plain modules that share one signature.

``net(state, t, *, label=None, features=None, present=None, mask=None)`` returns a prediction shaped
like ``state``. What it stands for (data, noise, velocity) is not the network's business.
"""

from noisewright.nets.branched import BranchedMLP
from noisewright.nets.dit import DiT, DiTBlocks
from noisewright.nets.embed import Conditioning, fourier_features, grid_positions
from noisewright.nets.mlp import MLP
from noisewright.nets.unet import UNet

__all__ = [
    "MLP",
    "BranchedMLP",
    "Conditioning",
    "DiT",
    "DiTBlocks",
    "UNet",
    "fourier_features",
    "grid_positions",
]
