"""The one place that imports diffusers, and says how to get it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

try:
    import diffusers
except ModuleNotFoundError as error:
    raise ImportError(
        f"this needs {error.name}, which is not installed: pip install noisewright[images]"
    ) from error

__all__ = ["diffusers", "numpy_conversions_silenced"]


@contextmanager
def numpy_conversions_silenced() -> Iterator[None]:
    """Hide what numpy 2 says about diffusers' way of making arrays from tensors."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
        yield
