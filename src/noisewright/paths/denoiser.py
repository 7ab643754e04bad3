r"""A denoiser says what was there: network + path + prediction kind -> E[data | state].

Solvers and steering speak to a denoiser only: ``denoiser(state, t, **condition)`` returns the
prediction of the data. Guidance, tilting or caching are wrappers with the same signature and the
same ``path`` (see :mod:`noisewright.steering`), so they stack and solvers know nothing of them.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Literal, Protocol, Self, get_args, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from noisewright.paths.gaussian import GaussianPath
from noisewright.paths.schedule import precise, schedule_from_dict
from noisewright.storage import write_atomic
from noisewright.types import KINDS, InputError, Kind, nearest_name
from noisewright.version import __version__

__all__ = ["Clock", "DataPredictor", "Denoiser", "LOGSNR_LIMIT"]

Clock = Literal["time", "logsnr"]
"""What a network is told about the noise: the noise time in [0, 1], or the log-SNR."""

LOGSNR_LIMIT = 20.0
"""Log-SNRs told to a network are cut to +- this; the ends of a schedule may be infinite."""


@runtime_checkable
class DataPredictor(Protocol):
    """Whatever predicts the data of a state on a path: denoisers and their wrappers."""

    @property
    def path(self) -> GaussianPath:
        """The path whose states it knows."""
        ...

    def __call__(self, state: Tensor, t: Tensor, **condition: Any) -> Tensor:
        """Return E[data | state] for states (batch, *event) at noise times (batch,)."""
        ...


class Denoiser(nn.Module):
    """Network, path and prediction kind, put together and checked.

    Args:
        net: Called as ``net(state, clock, **condition)`` with the clock (batch,) in float32;
            returns a tensor shaped like the state.
        path: How the network's states came about.
        kind: What the network predicts.
        clock: Whether the network is told the noise ``"time"`` or the ``"logsnr"``; None asks the
            network's own ``clock`` (ours have one) and otherwise means the time.

    Raises:
        InputError: If a name is unknown, the network reads another clock, or the kind cannot work
            on the path: ``noise`` and ``score`` where no signal is left at t = 1, ``velocity``
            where a rate is infinite or zero.

    Example:
        >>> from noisewright.paths import RectifiedSchedule
        >>> path = GaussianPath(RectifiedSchedule())
        >>> denoiser = Denoiser(lambda state, t: torch.zeros_like(state), path, kind="velocity")
        >>> denoiser(torch.ones(1, 2), torch.tensor([0.5]))
        tensor([[1., 1.]])
    """

    def __init__(
        self, net: Any, path: GaussianPath, kind: Kind = "velocity", *, clock: Clock | None = None
    ) -> None:
        super().__init__()
        if kind not in KINDS:
            raise InputError(f"kind {kind!r} is unknown{nearest_name(kind, KINDS)}")
        reads: Clock = getattr(net, "clock", clock or "time")
        told: Clock = reads if clock is None else clock
        if told not in get_args(Clock):
            raise InputError(f"clock {told!r} is unknown{nearest_name(told, get_args(Clock))}")
        if told != reads:
            raise InputError(
                f"clock={told!r}, but the network reads {reads!r} (the time= it was built with)"
            )
        refuse_impossible(path, kind)
        self.net = net
        self.path = path
        self.kind: Kind = kind
        self.clock: Clock = told

    def predict(
        self, state: Tensor, t: Tensor | float, *, kind: Kind | None = None, **condition: Any
    ) -> Tensor:
        """Return the network's prediction as any kind.

        Args:
            state: (batch, *event).
            t: Noise time, scalar or (batch,).
            kind: What is wanted; None returns what the network gave.
            condition: Passed to the network.
        """
        t = precise(t, state.device).expand(len(state))
        value = self.net(state, self.told(t), **condition)
        if kind is None:
            return value
        return self.path.convert(value, state, t, source=self.kind, target=kind)

    def told(self, t: Tensor) -> Tensor:
        """Return what the network is told about the noise at times (batch,), in float32."""
        if self.clock == "time":
            return t.to(torch.float32)
        return self.path.logsnr(t).clamp(-LOGSNR_LIMIT, LOGSNR_LIMIT).to(torch.float32)

    def forward(
        self, state: Float[Tensor, "batch *event"], t: Tensor | float, **condition: Any
    ) -> Float[Tensor, "batch *event"]:
        """Return E[data | state] at noise times ``t``, scalar or (batch,)."""
        return self.predict(state, t, kind="data", **condition)

    def on(self, path: GaussianPath) -> Self:
        """Return a denoiser with the same network on another path (a schedule per sample, say).

        Raises:
            InputError: If the kind cannot work on that path.
        """
        refuse_impossible(path, self.kind)
        other = copy.copy(self)
        other.__dict__["path"] = path
        return other

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the network (safetensors, config.json) and denoiser.json into a folder.

        Args:
            folder: Where; the network must have ``save_pretrained`` (ours have).
        """
        self.net.save_pretrained(folder)
        plain = {
            "version": __version__,
            "kind": self.kind,
            "clock": self.clock,
            "schedule": self.path.schedule.to_dict(),
            "scale": precise(self.path.scale).tolist(),
        }
        write_atomic(Path(folder) / "denoiser.json", json.dumps(plain, indent=1))

    @classmethod
    def from_pretrained(cls, folder: str | Path, net: type[Any]) -> Self:
        """Read what :meth:`save_pretrained` wrote.

        Args:
            folder: Local folder.
            net: Class of the network, with ``from_pretrained``.
        """
        plain = json.loads((Path(folder) / "denoiser.json").read_text())
        scale = torch.tensor(plain["scale"], dtype=torch.float64)
        path = GaussianPath(schedule_from_dict(plain["schedule"]), scale)
        return cls(net.from_pretrained(folder), path, plain["kind"], clock=plain["clock"])


def refuse_impossible(path: GaussianPath, kind: Kind) -> None:
    """Raise if a kind cannot be turned into data on this path at t = 0 or t = 1.

    Raises:
        InputError: Naming the kinds that work.
    """
    obstacle = _obstacle(path, kind)
    if obstacle is not None:
        works = ", ".join(repr(other) for other in KINDS if _obstacle(path, other) is None)
        raise InputError(
            f"kind={kind!r} cannot work with {type(path.schedule).__name__}: {obstacle}; "
            f"kinds that do: {works}"
        )


def _obstacle(path: GaussianPath, kind: Kind) -> str | None:
    """Return why a kind does not determine the data at an end of the path, or None if it does."""
    if kind in ("noise", "score") and bool((path.alpha(1.0) <= 0).any()):
        return "no signal is left at t = 1, so the data cannot be told from the noise there"
    if kind == "velocity":
        schedule = path.columns().schedule
        ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
        (alpha, sigma), (d_alpha, d_sigma) = schedule.levels(ends), schedule.rates(ends)
        turning = alpha * d_sigma - sigma * d_alpha
        if not bool(turning.isfinite().all()):
            return "its levels change infinitely fast at an end"
        if not bool((turning > 0).all()):
            return "its levels stand still at an end"
    return None
