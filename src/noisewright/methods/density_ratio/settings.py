"""Settings of the experiment: the flags of ``noisewright run density_ratio``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from noisewright.types import InputError

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """Settings of the experiment."""

    dims: tuple[int, ...] = (2, 5, 10)
    """Numbers of features of the Gaussian sets."""
    shifts: tuple[float, ...] = (1.0, 2.0)
    """Distances of their means, per coordinate."""
    samples: int = 20_000
    """Training samples of a Gaussian set."""
    queries: int = 1000
    """Test points of a Gaussian set."""
    hidden: tuple[int, ...] = (64, 64, 64)
    """Width of each block of the network."""
    steps: int = 2000
    """Optimizer steps."""
    batch_size: int = 512
    """Samples per step."""
    lr: float = 2e-3
    """Peak learning rate."""
    sigma_min: float = 0.01
    """Blur of the Gaussian sets, in units of the common scale."""
    n_steps: int = 20
    """Steps of the solver, for the ODE and for the naive difference alike."""
    step_counts: tuple[int, ...] = (5, 10, 20, 40)
    """Numbers of solver steps for the picture of error and time."""
    pair_size: int = 20
    """Coordinates of the pairs whose mutual information is estimated."""
    pair_nats: float = 5.0
    """Their mutual information."""
    pair_steps: int = 2000
    """Optimizer steps there."""
    scale_counts: tuple[int, ...] = (500, 1000, 2000, 4000)
    """Numbers of samples of ten features whose scoring is timed."""
    scale_large: int = 10_000
    """Samples of 512 features whose scoring shows the peak of memory."""
    shares: tuple[float, ...] = (0.5, 0.7, 0.9, 1.0)
    """Probabilities of treatment in the enriched cluster."""
    strengths: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0)
    """Strengths of the push between batches."""
    cell_hidden: tuple[int, ...] = (128, 128)
    """Width of each block of the networks for treated cells."""
    cell_steps: int = 800
    """Optimizer steps of each of their models."""
    batch_hidden: tuple[int, ...] = (64, 64)
    """Width of each block of the networks for batches of cells."""
    batch_steps: int = 400
    """Optimizer steps of each of their models."""
    batch_n_steps: int = 40
    """Steps of the solver there."""
    cell_sigma_min: float = 0.1
    """Blur of the cells, in units of the common scale."""
    cell_dims: int = 10
    """Principal components of the packaged cells."""
    folds: int = 5
    """Folds of the cross-fit of cells."""
    h5ad: str | None = None
    """Cells of your own: an AnnData file; then only they are scored."""
    condition: str = "condition"
    """Column of obs with their condition."""
    numerator: str | None = None
    """Condition in the numerator; needed with more than two."""
    denominator: str | None = None
    """Condition in the denominator; needed with more than two."""
    rep: str = "X_pca"
    """Coordinates of your cells: a key of obsm, or X."""
    n_dims: int = 20
    """Leading coordinates of your cells that are used."""
    groupby: str | None = None
    """Column of obs to sum the effect up by."""
    sample_key: str | None = None
    """Column of obs with the sample of each of your cells."""

    @classmethod
    def quick(cls) -> Self:
        """Return sizes for a look in about a minute."""
        return cls(
            dims=(2, 10),
            shifts=(1.0,),
            samples=8000,
            steps=400,
            step_counts=(5, 20),
            pair_steps=400,
            shares=(0.5, 0.9),
            strengths=(0.0, 1.0),
            cell_hidden=(64, 64),
            cell_steps=400,
            batch_steps=200,
            folds=3,
        )

    def checked(self) -> Self:
        """Return the settings.

        Raises:
            InputError: If one cannot work.
        """
        counts = (
            "samples",
            "queries",
            "steps",
            "n_steps",
            "pair_steps",
            "cell_steps",
            "batch_steps",
        )
        for name in counts:
            if getattr(self, name) < 1:
                raise InputError(f"--{name.replace('_', '-')} must be at least 1")
        if self.folds < 2:
            raise InputError(f"--folds {self.folds} must be at least 2")
        if self.pair_size < 2 or self.pair_size % 2:
            raise InputError(f"--pair-size {self.pair_size} must be even")
        if any(not 0.5 <= share <= 1 for share in self.shares):
            raise InputError(f"--shares {self.shares} must lie in [0.5, 1]")
        if any(strength < 0 for strength in self.strengths):
            raise InputError(f"--strengths {self.strengths} must not be negative")
        return replace(self)

    def flow(self, device: str, **changes: Any) -> dict[str, Any]:
        """Return the parameters of the flow of the Gaussian sets."""
        return {
            "sigma_min": self.sigma_min,
            "hidden": tuple(self.hidden),
            "steps": self.steps,
            "batch_size": self.batch_size,
            "lr": self.lr,
            "device": device,
        } | changes

    def cell_flow(self, device: str, **changes: Any) -> dict[str, Any]:
        """Return the parameters of the flows of the packaged cells."""
        return {
            "sigma_min": self.cell_sigma_min,
            "hidden": tuple(self.cell_hidden),
            "steps": self.cell_steps,
            "batch_size": 256,
            "lr": 2e-3,
            "weight_decay": 0.1,
            "cv": self.folds,
            "device": device,
        } | changes
