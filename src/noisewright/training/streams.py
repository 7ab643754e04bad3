"""The process-wide random streams, lent to a piece of work and given back as they were.

Dropout and the transforms of a data set can draw only from global streams. Inside
:func:`own_streams` these start from a seed; outside nobody notices. Seeding them anew for every
training step makes each step a pure function of (seed, step), so that a resumed run needs no
stored stream states and cannot restore them wrongly.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["own_streams", "seed_streams"]


def seed_streams(seed: int, cuda: torch.Generator | None = None) -> None:
    """Start the global streams of torch, Python and numpy from a seed.

    Args:
        seed: Any non-negative integer below 2**63.
        cuda: The default generator of the accelerator in use, if there is one.
    """
    torch.default_generator.manual_seed(seed)
    if cuda is not None:
        cuda.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the legacy stream is the one to protect


@contextmanager
def own_streams(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed the global streams inside the block; put them back afterwards, also on errors.

    Args:
        seed: Where they start inside the block.
        device: Accelerator whose stream is lent too; None or a CPU for none.

    Example:
        >>> before = torch.get_rng_state()
        >>> with own_streams(0):
        ...     a = torch.rand(2)
        >>> with own_streams(0):
        ...     b = torch.rand(2)
        >>> bool((a == b).all() and (torch.get_rng_state() == before).all())
        True
    """
    cuda = None
    if device is not None and device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        cuda = torch.cuda.default_generators[index]
    generators = [g for g in (torch.default_generator, cuda) if g is not None]
    kept = [generator.get_state() for generator in generators]
    kept_python, kept_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        seed_streams(seed, cuda)
        yield
    finally:
        for generator, state in zip(generators, kept, strict=True):
            generator.set_state(state)
        random.setstate(kept_python)
        np.random.set_state(kept_numpy)  # noqa: NPY002
