"""The formulas that the engine holds, under the room's name: path, statistic, grid, score."""

from __future__ import annotations

from noisewright.metrics import crps_ensemble
from noisewright.paths import kinetic_path, kinetic_statistic, matched_grid

__all__ = ["crps_ensemble", "kinetic_path", "kinetic_statistic", "matched_grid"]
