"""A conversation about one picture: each call of :meth:`CacheEditSession.edit` is a round."""

from __future__ import annotations

import inspect
import threading
import time
import warnings
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisewright.adapters.dit import dit_family
from noisewright.adapters.editors import (
    at_size,
    refuse_other_pipelines,
    size_arguments,
    token_counts,
)
from noisewright.methods.cacheedit.config import CacheEditConfig
from noisewright.methods.cacheedit.cost import MemoryEstimate, memory_needed
from noisewright.methods.cacheedit.handle import ChooseKeys, apply_cacheedit
from noisewright.methods.cacheedit.schedule import cache_steps
from noisewright.methods.cacheedit.store import bytes_per_number
from noisewright.types import InputError

__all__ = ["CacheEditSession", "RoundStats"]

FORBIDDEN = {
    "generator": "rounds must share the noise; set seed= on the session",
    "latents": "rounds must share the noise; set seed= on the session",
    "return_dict": "edit returns the pipeline's output object",
}


@dataclass(frozen=True)
class RoundStats:
    """What is known of one finished round.

    Attributes:
        round: Its number, from 0.
        key_ratio: Share of recomputed tokens found at each step that computed everything.
        masks: Which latent tokens those were, bool, (rows, columns) each.
        seconds: Wall clock of the pipeline's call.
        flops_ratio: Multiply-adds of the blocks over those without a cache.
        cache_bytes: Bytes that the cache takes after the round.
        size: Height and width of the pictures made, in pixels.
    """

    round: int
    key_ratio: list[float]
    masks: list[Tensor]
    seconds: float
    flops_ratio: float
    cache_bytes: int
    size: tuple[int, int]


class CacheEditSession:
    """Edits one picture round after round, recomputing only what changed.

    The first round costs what it always did. Later ones start from the same noise, compare deep
    activations with the round before, and recompute the tokens that moved. The pipeline is given
    back as it was by :meth:`close` or at the end of a ``with`` block.

    Args:
        pipe: ``FluxKontextPipeline``, ``QwenImageEditPipeline`` or ``QwenImageEditPlusPipeline``.
        config: None takes the defaults.
        seed: Of the noise that all rounds start from.
        choose: Another rule for what is recomputed, for experiments; see :func:`apply_cacheedit`.

    Raises:
        TypeError: If pipeline or transformer is not supported.
        InputError: If something else holds on to the transformer, or it is compiled.

    Attributes:
        rounds: One record per finished round.
    """

    def __init__(
        self,
        pipe: Any,
        config: CacheEditConfig | None = None,
        *,
        seed: int = 0,
        choose: ChooseKeys | None = None,
    ) -> None:
        refuse_other_pipelines(pipe)
        self.pipe, self.config, self.seed = pipe, config or CacheEditConfig(), seed
        self.rounds: list[RoundStats] = []
        self.handle = apply_cacheedit(
            pipe.transformer, self.config, clock=self._clock, choose=choose
        )
        self._last: Any = None
        self._busy = threading.Lock()
        self._size: dict[str, Any] = {}

    def __enter__(self) -> CacheEditSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _clock(self) -> float | None:
        """Return the pipeline's own time, which half precision has not rounded."""
        now = getattr(self.pipe, "_current_timestep", None)
        return None if now is None else float(now)

    # ------------------------------------------------------------------ rounds

    def edit(self, image: Any = None, prompt: Any = None, **arguments: Any) -> Any:
        """Edit a picture, or the one that the last round made.

        Args:
            image: As the pipeline takes it. None: the output of the round before.
            prompt: The instruction.
            arguments: Anything else that the pipeline takes, but no noise of your own. Without
                ``height`` and ``width`` the size follows the picture, as the pipeline would choose
                it; all rounds keep it.

        Returns:
            The pipeline's output object.

        Raises:
            InputError: If there is no picture, noise is given, the session is closed, or the cache
                does not fit into memory.
            RuntimeError: If another thread is editing in this session.
        """
        for name, why in FORBIDDEN.items():
            if name in arguments:
                raise InputError(f"{name}= cannot be given: {why}")
        if image is None and self._last is None:
            raise InputError("no previous output; pass an image")
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("another thread is editing in this session; make one for each")
        try:
            return self._round(self._last if image is None else image, prompt, arguments)
        finally:
            self._busy.release()

    def _round(self, image: Any, prompt: Any, arguments: dict[str, Any]) -> Any:
        sizes = self._sizes(image, arguments)
        steps = self._steps(arguments)
        sigmas = arguments.get("sigmas")
        tag = {
            "seed": self.seed,
            "steps": steps,
            "sigmas": None if sigmas is None else tuple(np.asarray(sigmas).tolist()),
            "height": sizes["height"],
            "width": sizes["width"],
        }
        if self.handle.previous is None:
            self._refuse_too_large(sizes, steps, prompt, arguments)
        began = time.perf_counter()
        self.handle.begin_round(tag)
        finished = False
        try:
            output = self.pipe(
                image=at_size(self.pipe, image, sizes),
                **({} if prompt is None else {"prompt": prompt}),
                **arguments | sizes,
                generator=torch.Generator("cpu").manual_seed(self.seed),
            )
            finished = not getattr(self.pipe, "_interrupt", False)
        finally:
            self.handle.end_round(commit=finished)
        if finished:
            self._finish(output, sizes, time.perf_counter() - began)
            self._last = output.images
        return output

    def _finish(self, output: Any, sizes: dict[str, Any], seconds: float) -> None:
        report = self.handle.report
        ratios = report.key_ratio
        number = len(self.rounds)
        self.rounds.append(
            RoundStats(
                round=number,
                key_ratio=ratios,
                masks=report.masks,
                seconds=seconds,
                flops_ratio=report.cost / report.full_cost if report.full_cost else 1.0,
                cache_bytes=self.handle.cache_bytes,
                size=(sizes["height"], sizes["width"]),
            )
        )
        mean = sum(ratios) / max(1, len(ratios))
        wanted = self.config.threshold > 1  # everything, on purpose
        if not report.first and not wanted and (mean == 0 or mean > 0.9):
            lesson = "a higher threshold finds more" if mean == 0 else "nothing is gained"
            warnings.warn(
                f"round {number}: {mean:.0%} of the tokens were recomputed at "
                f"threshold={self.config.threshold}; {lesson}",
                stacklevel=4,
            )

    def planned_size(self, image: Any, arguments: dict[str, Any]) -> tuple[int, int]:
        """Return height and width that rounds about a picture would have.

        Args:
            image: The first picture.
            arguments: What :meth:`edit` would be given; ``height`` and ``width`` count.

        Raises:
            InputError: If the size cannot work.
        """
        asked = {k: arguments[k] for k in ("height", "width") if arguments.get(k) is not None}
        sizes = size_arguments(self.pipe, image, **asked)
        return sizes["height"], sizes["width"]

    def _sizes(self, image: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the size: as asked for, as before, or as the picture has it."""
        asked = {k: arguments.pop(k) for k in ("height", "width") if arguments.get(k) is not None}
        if not asked and self._size and self.rounds:
            return self._size
        self._size = size_arguments(self.pipe, image, **asked)
        return self._size

    def _steps(self, arguments: dict[str, Any]) -> int:
        if arguments.get("sigmas") is not None:
            return len(arguments["sigmas"])
        default = inspect.signature(self.pipe.__call__).parameters["num_inference_steps"].default
        return arguments.get("num_inference_steps", default)

    # ------------------------------------------------------------------ state and memory

    def reset(self) -> None:
        """Forget all rounds; the next one computes everything and needs a picture."""
        self.handle.reset()
        self.rounds, self._last, self._size = [], None, {}

    def close(self) -> None:
        """Give the pipeline back as it was; harmless when done twice."""
        self.handle.remove()
        self._last = None

    def memory_estimate(
        self, height: int, width: int, steps: int, *, rows: int = 1, branches: int = 1
    ) -> MemoryEstimate:
        """Return the bytes that the cache will take, by part.

        Args:
            height: Of the pictures, in pixels.
            width: Likewise.
            steps: Of a round.
            rows: Batch.
            branches: Calls of the transformer per step: 2 with true guidance.
        """
        latents, shown = token_counts(self.pipe, height, width)
        transformer = self.pipe.transformer
        width_of_block = transformer.inner_dim
        last_axis = width_of_block
        if self.config.mode == "kv":
            last_axis = transformer.config.attention_head_dim
        dtype = transformer.dtype
        return memory_needed(
            tokens=latents + shown,
            latents=latents,
            width=width_of_block,
            channels=transformer.proj_out.out_features,
            layers=len(dit_family(transformer).blocks(transformer)),
            steps=steps,
            full_steps=len(cache_steps(steps, self.config.cache_interval, self.config.cache_steps)),
            mode=self.config.mode,
            replay=self.config.replay,
            item=bytes_per_number(self.config, dtype, last_axis),
            computed_item=dtype.itemsize,
            rows=rows,
            branches=branches,
        )

    def _refuse_too_large(
        self, sizes: dict[str, Any], steps: int, prompt: Any, arguments: dict[str, Any]
    ) -> None:
        """Refuse before the first step what cannot fit."""
        prompts = arguments.get("prompt_embeds") if prompt is None else prompt
        rows = len(prompts) if isinstance(prompts, (list, Tensor)) else 1
        guided = any(arguments.get(f"negative_prompt{end}") is not None for end in ("", "_embeds"))
        estimate = self.memory_estimate(
            sizes["height"],
            sizes["width"],
            steps,
            rows=rows * arguments.get("num_images_per_prompt", 1),
            branches=2 if guided else 1,
        )
        free = _free_bytes(self.config.devices() or (self.pipe._execution_device,))
        if free is not None and estimate.total > free:
            raise InputError(
                f"{estimate.describe()}, but only {free / 1e9:.2f} GB are free; use "
                'mode="hidden", a larger cache_interval, cache_dtype=torch.float8_e4m3fn or '
                'cache_device="cpu"'
            )


def _free_bytes(devices: tuple[torch.device, ...]) -> int | None:
    """Return the free memory of devices together, or None where nobody can say."""
    total = 0
    for device in dict.fromkeys(devices):
        if device.type == "cuda":
            total += torch.cuda.mem_get_info(device)[0]
        elif device.type == "cpu":
            import psutil

            total += psutil.virtual_memory().available
        else:
            return None
    return total
