"""Settings of the experiment: the flags of ``noisewright run kineflow``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from noisewright.methods.kineflow.cases import CASES
from noisewright.types import InputError, nearest_name

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """Settings of the experiment."""

    sets: tuple[str, ...] = CASES
    """Which sets to forecast; those that are not at hand are left out and named."""
    steps: int = 1200
    """Optimizer steps of every network on the hourly sets."""
    small_steps: int = 200
    """Optimizer steps on the small sets of statsmodels."""
    osc_steps: int = 300
    """Optimizer steps on the oscillator."""
    osc_hours: int = 20_000
    """Length of the oscillator's series."""
    hidden: int = 168
    """Width of the networks on the hourly sets."""
    small_hidden: int = 64
    """Width of the networks on the small sets."""
    samples: int = 64
    """Futures per window."""
    calls: int = 8
    """Network calls per future, the same for both orders."""
    call_counts: tuple[int, ...] = (2, 4, 10, 20)
    """Numbers of network calls in the sweep; empty leaves it out."""
    noise: float = 0.3
    """Spread of the noise that is put on contexts, in standardised units; 0 leaves it out."""
    channels: int = 7
    """Channels of the ETT sets, the last ones."""
    stride: int = 17
    """Hours between two test windows of the ETT sets; 17 passes through all hours of the day."""
    ablations: bool = True
    """Whether to train the variants that tell what each part adds."""
    time: str | None = None
    """Column of times of your own CSV file (--data FILE); the first one by default."""
    target: tuple[str, ...] = ()
    """Columns of your file to forecast; all numeric ones by default."""
    exog: tuple[str, ...] = ()
    """Columns of your file that are known in advance."""
    context: int = 96
    """Context length for your file."""
    horizon: int = 24
    """Horizon for your file."""
    order: int = 2
    """Order of the flow that is drawn for your file: 2 in phase space, 1 the usual one."""

    @classmethod
    def quick(cls) -> Self:
        """Return sizes for a look in about a minute."""
        return cls(
            sets=("etth1", "osc", "sunspots"),
            steps=250,
            small_steps=60,
            osc_steps=120,
            osc_hours=6000,
            samples=32,
            call_counts=(4, 20),
            channels=3,
            stride=35,
            ablations=False,
        )

    def checked(self) -> Self:
        """Return the settings.

        Raises:
            InputError: If one cannot work.
        """
        for name in self.sets:
            if name not in CASES:
                raise InputError(f"--sets {name!r} is unknown{nearest_name(name, CASES)}")
        if not self.sets:
            raise InputError(f"--sets is empty; choose from {', '.join(CASES)}")
        positive = ("steps", "small_steps", "osc_steps", "hidden", "small_hidden", "calls")
        for name in (*positive, "stride", "context", "horizon"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name.replace('_', '-')} must be at least 1")
        if self.samples < 8 or self.samples % 4:
            raise InputError(f"--samples {self.samples} must be a multiple of 4 from 8 on")
        if not 1 <= self.channels <= 7:
            raise InputError(f"--channels {self.channels} must be in 1..7: ETT has seven")
        if self.osc_hours < 2000:
            raise InputError(f"--osc-hours {self.osc_hours} must be at least 2000")
        if any(count < 1 for count in self.call_counts):
            raise InputError(f"--call-counts {self.call_counts} must be at least 1")
        if self.noise < 0:
            raise InputError(f"--noise {self.noise} must not be negative")
        if self.order not in (1, 2):
            raise InputError(f"--order {self.order} must be 1 or 2")
        return self
