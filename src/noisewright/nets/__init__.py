"""Networks: plain modules with one signature, ``net(state, t, *, label, features, mask)``."""

from noisewright.nets.embed import Conditioning, fourier_features
from noisewright.nets.unet import UNet

__all__ = ["Conditioning", "UNet", "fourier_features"]
