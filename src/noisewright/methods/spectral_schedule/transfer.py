r"""What a schedule does to a spectrum, in closed form.

For a Gaussian image law the exact denoiser is the Wiener filter and a step of DDIM is linear, so
each frequency's standard deviation after a walk is a product:

.. math:: \hat s_k = \sigma_0 \prod_i \Bigl( w_{k,i}
    + \tfrac{\sigma_{i+1}}{\sigma_i} (1 - w_{k,i}) \Bigr), \qquad
    w_{k,i} = \frac{S_k}{S_k + \sigma_i^2}.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from noisewright.methods.spectral_schedule.spectrum import Spectrum
from noisewright.paths import precise
from noisewright.types import InputError

__all__ = ["transfer_error", "transferred_power"]


def transferred_power(
    sigmas: Float[Tensor, "*batch levels"], spectrum: Spectrum
) -> Float[Tensor, "batch rings"]:
    """Return the power on each ring after DDIM from pure noise along the levels.

    Args:
        sigmas: Falling levels with a final 0, (n + 1,) or (batch, n + 1).
        spectrum: The spectra that the exact denoiser knows.

    Raises:
        InputError: If the levels do not fall to 0.
    """
    sigmas = precise(sigmas).expand(len(spectrum), -1)
    if not bool((sigmas.diff(dim=1) < 0).all()) or bool((sigmas[:, -1] != 0).any()):
        raise InputError("sigmas must fall strictly and end with 0")
    spread = sigmas[:, :1].expand_as(spectrum.power)
    for here, after in zip(sigmas.T[:-1], sigmas.T[1:], strict=True):
        gain = spectrum.power / (spectrum.power + here[:, None] ** 2)
        spread = spread * (gain + (after / here)[:, None] * (1 - gain))
    return spread.square()


def transfer_error(
    sigmas: Float[Tensor, "*batch levels"], spectrum: Spectrum
) -> dict[str, Float[Tensor, " batch"]]:
    r"""Return how far a walk along the levels misses each spectrum; ring 0 is left out.

    Args:
        sigmas: Falling levels with a final 0, (n + 1,) or (batch, n + 1).
        spectrum: The spectra to be reached.

    Returns:
        ``"power"``: :math:`\sum n (\hat s - \sqrt S)^2 / \sum n S`, the squared Wasserstein
        distance of the two Gaussian laws over the total power;
        ``"log_spectrum"``: root mean square error of log S over rings 1 to K.
    """
    reached, wanted = transferred_power(sigmas, spectrum)[:, 1:], spectrum.power[:, 1:]
    count = spectrum.count[1:]
    log_error = (reached.log() - wanted.log()).square().mean(1).sqrt()
    return {
        "power": (reached.sqrt() - wanted.sqrt()).square() @ count / (wanted @ count),
        "log_spectrum": log_error,
    }
