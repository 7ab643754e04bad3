"""What the method is compared with: caches of diffusers and cache-dit, inside a Kontext pipeline.

They skip whole steps or blocks of one walk; none looks at the round before. Those of diffusers
want to be told the branch (``cache_context``), which the Kontext pipeline does not do, so calls
are wrapped here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from noisewright.adapters.requirement import diffusers
from noisewright.types import InputError, nearest_name

__all__ = ["GRIDS", "available_baselines", "cached", "magnitude_ratios"]

GRIDS: dict[str, tuple[float, ...]] = {
    "taylorseer": (2, 3, 5, 7),
    "first_block": (0.03, 0.06, 0.1, 0.2),
    "mag": (0.02, 0.06, 0.12, 0.3),
    "cache_dit": (0.04, 0.08, 0.12, 0.2),
}
"""Settings that a baseline is chosen from on validation pictures, mild ones first: the interval of
TaylorSeer, thresholds of the others."""

WARM_UP = 3
"""Steps computed before any is skipped, where a baseline can be told: its own default, or that of
TaylorSeer."""


def available_baselines() -> tuple[str, ...]:
    """Return the baselines that can run here: cache-dit only where it is installed."""
    there = importlib.util.find_spec("cache_dit") is not None
    return tuple(name for name in GRIDS if there or name != "cache_dit")


def _of_diffusers(name: str, setting: float, steps: int, ratios: list[float] | None) -> Any:
    if name == "taylorseer":
        return diffusers.TaylorSeerCacheConfig(
            cache_interval=int(setting),
            disable_cache_before_step=WARM_UP,
            taylor_factors_dtype=None,
            use_lite_mode=True,
        )
    if name == "first_block":
        return diffusers.FirstBlockCacheConfig(threshold=setting)
    if name == "mag":
        return diffusers.MagCacheConfig(
            threshold=setting,
            mag_ratios=ratios,
            calibrate=ratios is None,
            num_inference_steps=steps,
        )
    raise InputError(f"baseline {name!r} is unknown{nearest_name(name, GRIDS)}")


@contextmanager
def cached(
    pipe: Any, name: str, setting: float, *, steps: int, ratios: list[float] | None = None
) -> Iterator[Callable[[], None]]:
    """Run a pipeline with a baseline's cache inside the block.

    Args:
        pipe: A ``FluxKontextPipeline``.
        name: A key of :data:`GRIDS`.
        setting: Its interval or threshold.
        steps: Of a walk.
        ratios: Of MagCache, from :func:`magnitude_ratios`; None measures them.

    Yields:
        What to call before each round, so that nothing is left of the one before.

    Raises:
        InputError: If there is no such baseline.
    """
    if name == "cache_dit":
        with _cache_dit(pipe, setting) as renew:
            yield renew
        return
    model = pipe.transformer
    config = _of_diffusers(name, setting, steps, ratios)
    model.enable_cache(config)
    original = model.forward

    @functools.wraps(original)
    def named(*args: Any, **kwargs: Any) -> Any:
        with model.cache_context("cond"):
            return original(*args, **kwargs)

    model.forward = named
    try:
        yield model._reset_stateful_cache
    finally:
        model.forward = original
        model.disable_cache()
        with contextlib.suppress(AttributeError):
            del model.forward


@contextmanager
def _cache_dit(pipe: Any, threshold: float) -> Iterator[Callable[[], None]]:
    """Run with cache-dit's cache of residuals; it starts anew with each call of the pipeline."""
    import cache_dit

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it tells of every pipeline that it touches
    try:
        cache_dit.enable_cache(
            pipe,
            cache_config=cache_dit.DBCacheConfig(
                Fn_compute_blocks=1,
                Bn_compute_blocks=0,
                residual_diff_threshold=threshold,
                max_warmup_steps=WARM_UP,
            ),
        )
        try:
            yield lambda: None
        finally:
            cache_dit.disable_cache(pipe)
    finally:
        logging.disable(before)


def magnitude_ratios(pipe: Any, walk: Callable[[], object], *, steps: int) -> list[float]:
    """Return MagCache's ratios of residuals for a model: it prints them at the end of a walk.

    Args:
        pipe: A ``FluxKontextPipeline``.
        walk: Runs it once.
        steps: Of the walk.
    """
    printed = io.StringIO()
    with cached(pipe, "mag", 0.0, steps=steps) as renew, contextlib.redirect_stdout(printed):
        renew()
        walk()
    lines = printed.getvalue().splitlines()
    return json.loads(next(row for row in lines if row[:1] == "[" and row[1:2].isdigit()))
