"""Settings of the experiment."""

from __future__ import annotations

from dataclasses import dataclass

from noisewright.methods.cacheedit.config import CacheEditConfig
from noisewright.types import InputError

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """Settings of the experiment.

    Attributes:
        size: Side of the pictures in pixels, a multiple of 16: 4 cells of whole tokens.
        rounds: Instructions about each picture.
        pictures: Test pictures.
        steps: Steps of a walk.
        interval: Every how many steps all tokens are computed.
        threshold: Similarity below which a token is recomputed; None: the one with the fewest
            key tokens that finds nine tenths of the edited tokens of validation pictures.
        mode: Which way of keeping leads the report: kv or hidden; both are measured.
        thresholds: What None chooses from.
        heads: Width of the editor in heads of 32 channels.
        train_steps: Optimizer steps of the editor.
        batch: Pairs per step.
        rate: Peak learning rate.
        pairs: Training pairs that are drawn.
        validation: Pictures that thresholds and settings of baselines are chosen on.
        baselines: Whether other caches run too.
        counted: Test pictures whose arithmetic is counted while they are edited.
        speed_side: Latent tokens along a side where time is measured; as many of a picture.
        speed_text: Text tokens there.
        speed_blocks: Double- and single-stream blocks there.
        speed_shares: Forced shares of key tokens there.
        speed_repeats: Groups of steps timed for each of them.
    """

    size: int = 32
    rounds: int = 6
    pictures: int = 12
    steps: int = 28
    interval: int = 5
    threshold: float | None = None
    mode: str = "kv"
    thresholds: tuple[float, ...] = (0.97, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995)
    heads: int = 3
    train_steps: int = 800
    batch: int = 24
    rate: float = 2e-3
    pairs: int = 8000
    validation: int = 8
    baselines: bool = True
    counted: int = 2
    speed_side: int = 32
    speed_text: int = 128
    speed_blocks: tuple[int, int] = (2, 4)
    speed_shares: tuple[float, ...] = (0.05, 0.1, 0.25, 0.5, 1.0)
    speed_repeats: int = 2

    @classmethod
    def quick(cls) -> Settings:
        """Return a look of about a minute: half the side, fewer pictures, no other caches."""
        return cls(
            size=16,
            rounds=4,
            pictures=5,
            train_steps=600,
            validation=5,
            baselines=False,
            counted=1,
            speed_side=24,
            speed_text=72,
            speed_blocks=(1, 2),
            speed_shares=(0.1, 1.0),
        )

    def checked(self) -> Settings:
        """Return the settings.

        Raises:
            InputError: If one cannot work.
        """
        if not 2 <= self.rounds <= 15:
            raise InputError(f"rounds={self.rounds} must be from 2 to 15: one cell stays untouched")
        if self.size < 16 or self.size % 16:
            raise InputError(f"size={self.size} must be a multiple of 16")
        for name in ("pictures", "validation", "steps", "heads", "train_steps", "batch", "pairs"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)} must be at least 1")
        if not 0 <= self.counted <= self.pictures:
            raise InputError(f"counted={self.counted} must be from 0 to pictures={self.pictures}")
        for threshold in (*self.thresholds, *([] if self.threshold is None else [self.threshold])):
            CacheEditConfig(threshold=threshold, cache_interval=self.interval)
        if not self.thresholds:
            raise InputError("thresholds is empty; give at least one")
        if self.mode not in ("kv", "hidden"):
            raise InputError(f"mode={self.mode!r} is unknown; known: hidden, kv")
        if not self.speed_shares or not all(0 < share <= 1 for share in self.speed_shares):
            raise InputError(f"speed_shares={self.speed_shares} must be in (0, 1]")
        if self.speed_repeats < 1 or self.speed_side < 2 or min(self.speed_blocks) < 1:
            raise InputError("speed_repeats, speed_side and speed_blocks must be positive")
        return self
