"""What every steering wrapper is: a denoiser around a denoiser.

A wrapper has the call signature of :class:`~noisewright.paths.Denoiser` and its ``path``; so
solvers know nothing of steering, wrappers stack, and network calls are counted through them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from noisewright.paths import DataPredictor, GaussianPath

__all__ = ["Steered", "stack"]


class Steered(nn.Module):
    """Base of wrappers: holds the inner denoiser and shows its path.

    Args:
        inner: A denoiser, or another wrapper.
    """

    def __init__(self, inner: DataPredictor) -> None:
        super().__init__()
        self.inner = inner

    @property
    def path(self) -> GaussianPath:
        """The inner denoiser's path."""
        return self.inner.path

    def forward(self, state: Tensor, t: Tensor, **condition: Any) -> Tensor:
        """Return the inner prediction; subclasses bend it."""
        return self.inner(state, t, **condition)


def stack(
    denoiser: DataPredictor, *wrappers: Callable[[DataPredictor], DataPredictor]
) -> DataPredictor:
    """Put wrappers around a denoiser, the first one innermost.

    Args:
        denoiser: The model.
        wrappers: Functions from a denoiser to a denoiser, such as
            ``lambda d: ClassifierFree(d, weight=2.0)``.
    """
    for wrap in wrappers:
        denoiser = wrap(denoiser)
    return denoiser
