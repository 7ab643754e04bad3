"""Saving and loading of networks in the manner of the Hugging Face hub: safetensors and JSON."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import PyTorchModelHubMixin
from torch import nn

from noisewright.nets.embed import Conditioning, TimeReading
from noisewright.random import isolated

__all__ = ["Pretrained"]

Net = TypeVar("Net", bound="Pretrained")


class Pretrained(nn.Module, PyTorchModelHubMixin, library_name="noisewright"):
    """A module with ``save_pretrained``, ``from_pretrained`` and ``push_to_hub``.

    The arguments of ``__init__`` become ``config.json``, so they must be plain values.

    Attributes:
        conditioning: How the network is told the time, labels and features.
    """

    conditioning: Conditioning

    @property
    def clock(self) -> TimeReading:
        """What the network is told of the noise, as :class:`noisewright.paths.Denoiser` asks."""
        return self.conditioning.time

    @classmethod
    def from_pretrained(  # pyright: ignore[reportIncompatibleMethodOverride] - same arguments
        cls: type[Net], pretrained_model_name_or_path: str | Path, **options: Any
    ) -> Net:
        """Return a saved network in evaluation mode.

        Every weight must be there, the global random stream stays as it is and nothing is printed,
        unlike in the mixin that does the work.

        Args:
            pretrained_model_name_or_path: A folder, or a name on the hub.
            options: As in ``PyTorchModelHubMixin.from_pretrained``.
        """
        options.setdefault("strict", True)
        with isolated(0), contextlib.redirect_stdout(io.StringIO()):
            return super().from_pretrained(pretrained_model_name_or_path, **options)
