"""Hooks into other people's models: one file a family, so that an upstream change is mended once.

Nothing is loaded before it is used; what needs diffusers says so when it is missing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
