r"""Networks of diffusers as networks of ours, and pre-trained ones as denoisers.

A discrete pre-trained model is told the index of a level; level i of T sits at noise time
(i + 1) / T of :class:`~noisewright.paths.TableSchedule`.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from noisewright.paths import Denoiser, GaussianPath, TableSchedule
from noisewright.types import InputError, Kind, nearest_name

__all__ = ["DiffusersNet", "diffusers_denoiser", "wrap_unet"]

KIND_OF: dict[str, Kind] = {"epsilon": "noise", "v_prediction": "v", "sample": "data"}


class DiffusersNet(nn.Module):
    """A model of diffusers with the call of our networks.

    Args:
        model: Called as ``model(state, timestep, class_labels=...)``, answers with ``.sample``;
            ``UNet2DModel`` and ``DiTTransformer2DModel`` do.
        levels: Number T of levels of a discrete model, which is told the index of a level. None
            passes the clock on as it is.
    """

    def __init__(self, model: Any, levels: int | None = None) -> None:
        super().__init__()
        self.model = model
        self.levels = levels

    def forward(
        self,
        state: Float[Tensor, "batch channels height width"],
        clock: Float[Tensor, " batch"],
        *,
        label: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch channels height width"]:
        """Return the model's answer in the dtype of the state."""
        if self.levels is not None:  # float32 times of whole levels land a hair beside them
            clock = (clock.double() * self.levels - 1).round(decimals=3).clamp(min=0).float()
        answer = self.model(state.to(self.model.dtype), clock, class_labels=label).sample
        return answer[:, : state.shape[1]].to(state.dtype)  # learned variances follow


def wrap_unet(unet: Any, *, levels: int | None = None) -> DiffusersNet:
    """Return a diffusers model as a network for :class:`~noisewright.paths.Denoiser`.

    Args:
        unet: A ``UNet2DModel``, or another model with its call.
        levels: Number of levels of a discrete pre-trained model; None passes the clock on.
    """
    return DiffusersNet(unet, levels)


def diffusers_denoiser(model: Any, scheduler: Any) -> Denoiser:
    """Return a discrete pre-trained model as a denoiser that our solvers walk.

    Args:
        model: For instance ``pipeline.unet``.
        scheduler: The scheduler it was trained with: gives the table of levels and the kind of
            prediction.

    Raises:
        InputError: If the scheduler has no table, or the kind of prediction is unknown.
    """
    table = getattr(scheduler, "alphas_cumprod", None)
    if table is None:
        raise InputError(f"{type(scheduler).__name__} has no alphas_cumprod: the model's levels")
    kind = scheduler.config.prediction_type
    if kind not in KIND_OF:
        raise InputError(f"prediction_type={kind!r} is unknown{nearest_name(str(kind), KIND_OF)}")
    path = GaussianPath(TableSchedule(table.to(torch.float64)))
    return Denoiser(wrap_unet(model, levels=len(table)), path, KIND_OF[kind])
