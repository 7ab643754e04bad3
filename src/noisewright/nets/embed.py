r"""What a network is told beside the state: the time, a label, numbers of the caller's choice.

A time enters as sines and cosines of :math:`2 \pi f_k u` with frequencies :math:`f_k` in geometric
progression. There are two readings of ``t``:

============  ======================================  =====================================
``time``      what ``t`` is                           what the features see
============  ======================================  =====================================
``"time"``    noise time in [0, 1]                    :math:`u = t`, finest period 1/128
``"logsnr"``  log signal-to-noise ratio, -20 .. 20    :math:`u = t / 40`, finest period 1
============  ======================================  =====================================

Half precision cannot hold a time: 0.7505 becomes 0.75 in bfloat16. The features are therefore
computed in float32 whatever the dtype of the weights, and a time that arrives in half precision is
refused, because it has lost its digits already.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from noisewright.types import InputError

__all__ = ["Conditioning", "TimeReading", "fourier_features", "grid_positions"]

TimeReading = Literal["time", "logsnr"]
"""How a network reads its ``t``: noise time in [0, 1], or log-SNR."""

SLOWEST = 0.25
SPAN: dict[str, float] = {"time": 1.0, "logsnr": 40.0}
FASTEST: dict[str, float] = {"time": 128.0, "logsnr": 40.0}


def fourier_features(
    t: Float[Tensor, " batch"], count: int = 64, *, time: TimeReading = "time"
) -> Float[Tensor, "batch count"]:
    r"""Return sines and cosines of a time, in float32.

    .. math:: [\sin 2 \pi f_k u, \; \cos 2 \pi f_k u], \quad f_k = f_0 (f_1 / f_0)^{k / (K - 1)}

    Args:
        t: Noise time or log-SNR, one per row, float32 or float64.
        count: Number of features, even.
        time: How to read ``t``.

    Returns:
        Features in [-1, 1], float32.

    Raises:
        InputError: If ``t`` is in half precision.

    Example:
        >>> fourier_features(torch.tensor([0.0, 0.5]), 2)
        tensor([[0.0000, 1.0000],
                [0.7071, 0.7071]])
    """
    if t.dtype in (torch.float16, torch.bfloat16):
        raise InputError(
            f"t has dtype {t.dtype}, which rounds a time before the network sees it; pass t in "
            "float32 (the state may keep its dtype)"
        )
    half = count // 2
    ratio = math.log(FASTEST[time] / SLOWEST) / max(half - 1, 1)
    index = torch.arange(half, device=t.device, dtype=torch.float32)
    frequencies = SLOWEST * torch.exp(ratio * index)
    angle = (2 * math.pi / SPAN[time]) * t.float()[:, None] * frequencies
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def grid_positions(height: int, width: int, count: int, device: torch.device) -> Tensor:
    """Return 2-D sine-cosine positions (height * width, count) in float32, rows first.

    Args:
        height: Rows of the grid.
        width: Columns of the grid.
        count: Features per cell, a multiple of four: half for the row, half for the column.
        device: Where they are wanted.
    """
    quarter = count // 4
    frequencies = 10_000.0 ** -(torch.arange(quarter, device=device).float() / quarter)
    rows = torch.arange(height, device=device).float()[:, None] * frequencies
    columns = torch.arange(width, device=device).float()[:, None] * frequencies
    row_part = torch.cat([rows.sin(), rows.cos()], dim=1)[:, None].expand(-1, width, -1)
    column_part = torch.cat([columns.sin(), columns.cos()], dim=1)[None].expand(height, -1, -1)
    return torch.cat([row_part, column_part], dim=2).reshape(height * width, count)


class Conditioning(nn.Module):
    r"""One vector per row from the time, a label and a feature vector.

    .. math:: c = W_2 \, \mathrm{silu}(W_1 \phi(t) + E[\text{label}] + W_f \, \text{features})

    A label below 0 means "no label"; features of a row that is not ``present`` are replaced by a
    learned vector. Both are absent for all rows when not given, so a network that was built with
    them can always be asked without. All weights take part in every call, which is what
    distributed training needs.

    Args:
        width: Length of the vector.
        time: How ``t`` is read.
        classes: Number of labels; 0 for a network without labels.
        features: Length of the feature vector; 0 for a network without features.
        frequencies: Number of time features.

    Example:
        >>> conditioning = Conditioning(8, classes=3)
        >>> conditioning(torch.tensor([0.5, 1.0]), label=torch.tensor([2, -1])).shape
        torch.Size([2, 8])
    """

    def __init__(
        self,
        width: int,
        *,
        time: TimeReading = "time",
        classes: int = 0,
        features: int = 0,
        frequencies: int = 64,
    ) -> None:
        super().__init__()
        if time not in get_args(TimeReading):
            raise InputError(f"time={time!r} is unknown; choose from {get_args(TimeReading)}")
        self.time: TimeReading = time
        self.classes = classes
        self.features = features
        self.frequencies = frequencies
        self.time_in = nn.Linear(frequencies, width)
        self.label_in = nn.Embedding(classes + 1, width) if classes else None
        self.features_in = nn.Linear(features, width) if features else None
        if self.features_in is not None:
            self.absent = nn.Parameter(torch.randn(width) * 0.02)
        self.out = nn.Linear(width, width)

    def forward(
        self,
        t: Float[Tensor, " batch"],
        *,
        label: Int[Tensor, " batch"] | None = None,
        features: Float[Tensor, "batch features"] | None = None,
        present: Bool[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch width"]:
        """Return the vector, in the dtype of the weights.

        Args:
            t: Noise time or log-SNR, as ``time`` says, at least float32.
            label: Class index per row; below 0 for none.
            features: Numbers per row, of order one.
            present: True where the row's ``features`` count; None means all do.

        Raises:
            InputError: If a label or features come to a network that was built without.
        """
        first = fourier_features(t, self.frequencies, time=self.time)
        hidden = self.time_in(first.to(self.time_in.weight.dtype))
        hidden = hidden + self._label(label, t) + self._features(features, present, t)
        return self.out(nn.functional.silu(hidden))

    def _label(self, label: Tensor | None, t: Tensor) -> Tensor | float:
        if self.label_in is None:
            if label is not None:
                raise InputError("label= was given to a network built with classes=0")
            return 0.0
        if label is None:
            label = torch.full(t.shape, -1, device=t.device)
        return self.label_in(torch.where(label < 0, self.classes, label))

    def _features(
        self, features: Tensor | None, present: Tensor | None, t: Tensor
    ) -> Tensor | float:
        if self.features_in is None:
            if features is not None:
                raise InputError("features= was given to a network built with features=0")
            return 0.0
        if features is None:
            features = t.new_zeros(len(t), self.features)
            present = torch.zeros_like(t, dtype=torch.bool)
        if present is None:
            present = torch.ones_like(t, dtype=torch.bool)
        if features.shape[1:] != (self.features,):
            raise InputError(
                f"features has shape {tuple(features.shape)}; this network takes "
                f"(batch, {self.features})"
            )
        vector = self.features_in(features.to(self.features_in.weight.dtype))
        return torch.where(present[:, None], vector, self.absent)
