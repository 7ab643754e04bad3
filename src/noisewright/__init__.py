"""noisewright: new methods for diffusion and flow-matching models, each beside its baselines.

The names below are loaded when they are first used, so ``import noisewright`` costs nothing.
"""

from __future__ import annotations

import lazy_loader

from noisewright.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
