r"""Which spectra to expect: a Gaussian mixture over spectrum parameters, per class where it can be.

At sampling time there is no image to read a schedule from; parameters theta are drawn from this
law, and each sample gets the schedule of its own draw.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.special import ndtr
from torch import Tensor

from noisewright.methods.spectral_schedule.spectrum import Spectrum
from noisewright.random import derive_seed
from noisewright.storage import load_record, save_record
from noisewright.types import InputError

__all__ = ["SpectrumPrior"]

MOST_COMPONENTS = 8
RIDGE = 1e-3
FEWEST_FOR_MIXTURE = 20
FEWEST_PER_CLASS = 200

Mixture = dict[str, np.ndarray]
"""Arrays ``weights`` (c,), ``means`` (c, j) and ``covariances`` (c, j, j)."""


@dataclass
class SpectrumPrior:
    """A mixture of Gaussians over theta, with full covariances.

    A class with at least 200 images gets a mixture of its own; a smaller one uses the mixture of
    all images, moved to the class mean.

    Attributes:
        n_components: Number of components, or ``"bic"`` to choose 1 to 8 by that criterion.
        features: Number of spectrum parameters.
        seed: Of the mixture's initialisation.
        mixtures: The fitted mixtures: ``"all"`` and one per class.
        size: Height and width of the images it was fitted to; None before.
    """

    n_components: int | Literal["bic"] = "bic"
    features: int = 8
    seed: int = 0
    mixtures: dict[str, Mixture] = field(default_factory=dict)
    size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.n_components != "bic" and self.n_components < 1:
            raise InputError(f"n_components={self.n_components} must be at least 1, or 'bic'")

    def fit(self, spectrum: Spectrum, labels: Int[Tensor, " batch"] | None = None) -> Self:
        """Fit the mixtures to the spectra of training images.

        Args:
            spectrum: Spectra of at least two images.
            labels: Class of each image, for a law per class.

        Raises:
            InputError: If there are fewer than two images, or labels do not fit.
        """
        theta = spectrum.features(self.features).cpu().numpy()
        if len(theta) < 2:
            raise InputError(f"a prior needs at least two spectra, got {len(theta)}")
        if labels is not None and len(labels) != len(theta):
            raise InputError(f"{len(labels)} labels for {len(theta)} spectra")
        self.size = spectrum.size
        self.mixtures = {"all": self._mixture(theta)}
        for label in [] if labels is None else labels.unique().tolist():
            mine = theta[(labels == label).cpu().numpy()]  # pyright: ignore[reportOptionalSubscript, reportAttributeAccessIssue]
            self.mixtures[str(label)] = (
                self._mixture(mine)
                if len(mine) >= FEWEST_PER_CLASS
                else _moved(self.mixtures["all"], mine.mean(0))
            )
        return self

    def _mixture(self, theta: np.ndarray) -> Mixture:
        from sklearn.mixture import GaussianMixture

        few = len(theta) < FEWEST_FOR_MIXTURE
        if few:
            warnings.warn(
                f"{len(theta)} spectra are too few for a mixture: one Gaussian is fitted",
                stacklevel=4,
            )
        if few or self.n_components == 1:
            counts: Sequence[int] = (1,)
        elif self.n_components == "bic":
            counts = range(1, min(MOST_COMPONENTS, len(theta) // 10) + 1)
        else:
            counts = (int(self.n_components),)
        fits = [
            GaussianMixture(c, reg_covar=RIDGE, random_state=self.seed, max_iter=200).fit(theta)
            for c in counts
        ]
        best = min(fits, key=lambda m: m.bic(theta))
        names = ("weights", "means", "covariances")
        return {name: np.asarray(getattr(best, f"{name}_")) for name in names}

    def _of(self, label: int | None) -> Mixture:
        if not self.mixtures:
            raise InputError("this prior is not fitted; call fit(spectrum) first")
        key = "all" if label is None else str(label)
        if key not in self.mixtures:
            known = sorted(int(k) for k in self.mixtures if k != "all")
            raise InputError(f"label {label} was not seen in training; known labels: {known}")
        return self.mixtures[key]

    def sample(
        self, n: int, label: int | None = None, temperature: float = 1.0, seed: int = 0
    ) -> Float[Tensor, "n features"]:
        """Draw spectrum parameters; the first draws are the same however many follow.

        Args:
            n: How many.
            label: A class seen in training; None draws from all.
            temperature: Factor on the covariances; 0 gives the component means.
            seed: Same seed, same draws.

        Raises:
            InputError: If the label is unknown or the temperature negative.
        """
        if temperature < 0:
            raise InputError(f"temperature={temperature} must be at least 0")
        mixture = self._of(label)
        stream = np.random.default_rng(derive_seed(seed, "spectrum prior"))
        # Row by row from one stream: the first draws do not change with how many follow.
        unit = stream.standard_normal((n, mixture["means"].shape[1] + 1))
        bounds = np.cumsum(mixture["weights"])[:-1]
        component = np.searchsorted(bounds, ndtr(unit[:, 0]), side="right")
        unit = unit[:, 1:]
        roots = np.linalg.cholesky(mixture["covariances"])
        moved = np.einsum("nij,nj->ni", roots[component], unit) * np.sqrt(temperature)
        return torch.from_numpy(mixture["means"][component] + moved)

    def log_prob(
        self, theta: Float[Tensor, "batch features"], label: int | None = None
    ) -> Float[Tensor, " batch"]:
        """Return the log density of parameters, in nats."""
        mixture = {k: torch.from_numpy(v) for k, v in self._of(label).items()}
        parts = torch.distributions.MultivariateNormal(mixture["means"], mixture["covariances"])
        each = parts.log_prob(theta.double()[:, None])
        return torch.logsumexp(each + mixture["weights"].log(), dim=1)

    def save(self, folder: str | Path) -> None:
        """Write the prior into a folder."""
        plain = {"n_components": self.n_components, "features": self.features, "seed": self.seed}
        size = None if self.size is None else list(self.size)
        save_record(folder, plain | {"mixtures": self.mixtures, "size": size})

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what :meth:`save` wrote."""
        record = load_record(folder)
        if record.get("size") is not None:
            record["size"] = tuple(record["size"])
        return cls(**record)


def _moved(mixture: Mixture, mean: np.ndarray) -> Mixture:
    """Return the mixture shifted so that its mean is ``mean``."""
    centre = mixture["weights"] @ mixture["means"]
    return mixture | {"means": mixture["means"] + (mean - centre)}
