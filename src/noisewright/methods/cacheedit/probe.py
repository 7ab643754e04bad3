"""Where two rounds differ, in latents and deep down, and what must be exact, once trained."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Float
from sklearn.metrics import roc_auc_score
from torch import Tensor

from noisewright.methods.cacheedit.arms import Conversation
from noisewright.methods.cacheedit.config import CacheEditConfig
from noisewright.methods.cacheedit.editor import SmallEditor, kontext_pipeline
from noisewright.methods.cacheedit.edits import cell_mask
from noisewright.methods.cacheedit.handle import apply_cacheedit
from noisewright.methods.cacheedit.key_tokens import similarity
from noisewright.methods.cacheedit.session import CacheEditSession

__all__ = [
    "area_under_curve",
    "calibrated_threshold",
    "emergence",
    "exactness",
    "first_step_recall",
]


def emergence(editor: SmallEditor, talk: Conversation) -> dict[str, Any]:
    """Return how far apart two successive rounds are at each step, with nothing reused.

    Both are measured alike, as one minus the similarity of a token to itself in the round before:
    of the latents after the step, and of the activations of the last block.

    Args:
        editor: Trained.
        talk: Pictures are edited together, round after round.

    Returns:
        ``latent`` and ``deep``, (rounds - 1, steps, batch, latent tokens); ``inside``, (rounds - 1,
        batch, latent tokens), which of them lie in the cell of the round; ``before`` likewise, in
        the cell of the round before.
    """
    pipe = kontext_pipeline(editor.transformer)
    count, side = len(talk.pictures), talk.pictures.shape[-1] // 4
    noise = torch.randn(
        1, 12, 2 * side, 2 * side, generator=torch.Generator().manual_seed(talk.seed)
    )
    noise = pipe._pack_latents(noise, 1, 12, 2 * side, 2 * side).expand(count, -1, -1)
    handle = apply_cacheedit(pipe.transformer, CacheEditConfig(cache_interval=1, mode="hidden"))
    image, walks = (talk.pictures + 1) / 2, []
    for round in range(talk.rounds):
        watch = _Latents()
        handle.reset()  # rounds are compared here, not by the handle
        handle.begin_round()
        arguments: dict[str, Any] = talk.asked(editor, round, slice(None))
        area = arguments["height"] * arguments["width"]
        arguments["callback_on_step_end"] = watch
        image = pipe(image, **arguments, latents=noise, max_area=area, _auto_resize=False).images
        handle.end_round()
        assert handle.previous is not None
        deep = [handle.previous.reference["call 0", step] for step in range(talk.steps)]
        walks.append((watch.seen, [states[:, : side**2] for states in deep]))
    handle.remove()
    latent, deep = (
        torch.stack([_apart(now[kind], old[kind]) for old, now in pairwise(walks)])
        for kind in (0, 1)
    )
    cells = [cell_mask(talk.instructions[:, r], side, side).flatten(1) for r in range(talk.rounds)]
    return {
        "latent": latent,
        "deep": deep,
        "inside": torch.stack(cells[1:]),
        "before": torch.stack(cells[:-1]),
    }


class _Latents:
    """Remembers the latents after each step of a pipeline."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def __call__(self, pipe: Any, step: int, time: Any, tensors: dict[str, Any]) -> Any:
        self.seen.append(tensors["latents"])
        return tensors


def _apart(now: list[Tensor], before: list[Tensor]) -> Float[Tensor, "steps batch tokens"]:
    """Return one minus the similarity of each token to itself, step by step."""
    return torch.stack([1 - similarity(*pair) for pair in zip(now, before, strict=True)])


def area_under_curve(
    apart: Float[Tensor, "*rounds tokens"], inside: Bool[Tensor, "*rounds tokens"]
) -> float:
    """Return the probability that a token inside is further apart than one outside."""
    return float(roc_auc_score(inside.flatten().numpy(), apart.flatten().numpy()))


def first_step_recall(
    deep: Float[Tensor, "rounds batch tokens"],
    inside: Bool[Tensor, "rounds batch tokens"],
    thresholds: tuple[float, ...],
) -> list[tuple[float, float]]:
    """Return recall and share of key tokens at each threshold.

    Args:
        deep: One minus similarity after step 0.
        inside: Which tokens lie in the edited cell.
        thresholds: To try.
    """
    found = []
    for threshold in thresholds:
        keys = deep > 1 - threshold
        found.append((float(keys[inside].double().mean()), float(keys.double().mean())))
    return found


def calibrated_threshold(
    found: list[tuple[float, float]], thresholds: tuple[float, ...], *, recall: float = 0.9
) -> float:
    """Return the threshold with the fewest key tokens whose recall suffices, or the highest one.

    Example:
        >>> calibrated_threshold([(0.5, 0.1), (0.92, 0.2), (1.0, 0.4)], (0.97, 0.99, 0.999))
        0.99
    """
    enough = [(share, t) for (r, share), t in zip(found, thresholds, strict=True) if r >= recall]
    return min(enough)[1] if enough else max(thresholds)


def exactness(editor: SmallEditor, talk: Conversation, threshold: float) -> dict[str, float]:
    """Return the largest differences where there should be none, over modes and pictures.

    Args:
        editor: Trained.
        talk: Two rounds are used.
        threshold: Of key tokens.

    Returns:
        ``round0``: the first round against the stock pipeline; ``all_key``: a later round in which
        every token is recomputed, likewise; ``identical_round``: the same round once more.
    """
    pipe = kontext_pipeline(editor.transformer)
    worst: dict[str, float] = dict.fromkeys(("round0", "all_key", "identical_round"), 0.0)

    def note(name: str, one: Tensor, other: Tensor) -> None:
        worst[name] = max(worst[name], float((one - other).abs().max()))

    for row in range(len(talk.pictures)):
        rows = slice(row, row + 1)
        asked = [talk.asked(editor, round, rows) for round in (0, 1)]
        image = (talk.pictures[rows] + 1) / 2
        first = _stock(pipe, image, asked[0], talk.seed)
        second = _stock(pipe, first, asked[1], talk.seed)
        for mode in ("kv", "hidden"):
            config = CacheEditConfig(mode=mode, threshold=1.5)
            with CacheEditSession(pipe, config, seed=talk.seed) as session:
                note("round0", session.edit(image, **asked[0]).images, first)
                note("all_key", session.edit(None, **asked[1]).images, second)
            config = CacheEditConfig(mode=mode, threshold=threshold, freeze_nonkey=True)
            with (
                CacheEditSession(pipe, config, seed=talk.seed) as session,
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")  # nothing is recomputed, which is the point
                session.edit(image, **asked[0])
                note("identical_round", session.edit(image, **asked[0]).images, first)
    return worst


def _stock(pipe: Any, image: Tensor, arguments: dict[str, Any], seed: int) -> Tensor:
    area = arguments["height"] * arguments["width"]
    noise = torch.Generator().manual_seed(seed)
    return pipe(image, **arguments, max_area=area, _auto_resize=False, generator=noise).images
