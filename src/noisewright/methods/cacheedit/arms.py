"""Conversations by every arm: the same pictures, instructions and noise; what comes out of each."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from noisewright.methods.cacheedit.baselines import GRIDS, cached
from noisewright.methods.cacheedit.config import CacheEditConfig
from noisewright.methods.cacheedit.editor import SmallEditor, kontext_pipeline
from noisewright.methods.cacheedit.edits import cell_mask
from noisewright.methods.cacheedit.handle import ChooseKeys
from noisewright.methods.cacheedit.session import CacheEditSession
from noisewright.random import derive_seed

__all__ = ["OURS", "Arm", "Conversation", "converse", "counted_share", "scores"]

OURS = ("kv", "hidden", "current", "random")
"""Arms with our cache; ``full`` has none, the others are baselines."""

Pictures = Float[Tensor, "batch 3 height width"]


@dataclass(frozen=True)
class Arm:
    """One way to run the rounds of a conversation.

    Attributes:
        name: ``full``, one of ``OURS``, or a baseline.
        threshold: Of key tokens.
        interval: Of full steps.
        setting: Of a baseline.
        ratios: Of MagCache.
        counts: Key tokens of each round and full step of each picture, for ``random``.
    """

    name: str
    threshold: float = 0.97
    interval: int = 5
    setting: float = 0.0
    ratios: list[float] | None = None
    counts: Int[Tensor, "batch rounds steps"] | None = None

    def config(self) -> CacheEditConfig:
        """Return the cache of one of our arms."""
        return CacheEditConfig(
            threshold=self.threshold,
            cache_interval=self.interval,
            mode="hidden" if self.name == "hidden" else "kv",
            source="current" if self.name == "current" else "previous",
        )


@dataclass(frozen=True)
class Conversation:
    """What is edited.

    Attributes:
        pictures: In [-1, 1].
        instructions: Of each round.
        states: What the pictures should be before the first round and after each.
        seed: Of the noise, shared by all rounds and pictures.
        steps: Of a walk.
    """

    pictures: Float[Tensor, "batch 3 height width"]
    instructions: Int[Tensor, "batch rounds 3"]
    states: Float[Tensor, "batch states 3 height width"]
    seed: int
    steps: int

    @property
    def rounds(self) -> int:
        """Instructions about each picture."""
        return int(self.instructions.shape[1])

    def some(self, count: int, rounds: int | None = None) -> Conversation:
        """Return the first pictures, and the first rounds about them."""
        rounds = rounds or self.rounds
        return Conversation(
            self.pictures[:count],
            self.instructions[:count, :rounds],
            self.states[:count, : rounds + 1],
            self.seed,
            self.steps,
        )

    @torch.no_grad()
    def asked(self, editor: SmallEditor, round: int, rows: slice) -> dict[str, Any]:
        """Return the arguments of one round for some pictures."""
        height, width = self.pictures.shape[2:]
        return editor.prompt(self.instructions[rows, round]) | {
            "height": height,
            "width": width,
            "num_inference_steps": self.steps,
            "output_type": "pt",
        }


def converse(editor: SmallEditor, talk: Conversation, arm: Arm) -> dict[str, Any]:
    """Run all rounds about all pictures, one picture after the other.

    Args:
        editor: Trained.
        talk: What is edited.
        arm: How.

    Returns:
        ``images`` (rounds, batch, 3, height, width) in [-1, 1], ``seconds`` of each round on one
        core, and for our arms ``key_ratio``, ``masks`` and ``recall``.
    """
    pipe = kontext_pipeline(editor.transformer)
    made: dict[str, list[Any]] = {name: [] for name in ("images", "seconds", "key_ratio", "masks")}
    for row in range(len(talk.pictures)):
        with _editing(pipe, talk, arm, row) as edit:
            image, rows = (talk.pictures[row : row + 1] + 1) / 2, slice(row, row + 1)
            for round in range(talk.rounds):
                began = time.process_time()
                image = edit(image, talk.asked(editor, round, rows))
                made["seconds"].append(time.process_time() - began)
                made["images"].append(image[0] * 2 - 1)
            if isinstance(edit, _Session):
                made["key_ratio"] += [stats.key_ratio for stats in edit.session.rounds]
                made["masks"] += [torch.stack(stats.masks) for stats in edit.session.rounds]
    shape = (len(talk.pictures), talk.rounds)
    images = torch.stack(made["images"]).unflatten(0, shape).transpose(0, 1)
    record: dict[str, Any] = {
        "images": images.contiguous(),
        "seconds": torch.tensor(made["seconds"]).reshape(shape),
    }
    if made["masks"]:
        masks = torch.stack(made["masks"]).unflatten(0, shape)
        record |= {
            "masks": masks,
            "key_ratio": torch.tensor(made["key_ratio"]).unflatten(0, shape),
            "recall": _recall(masks, talk),
        }
    return record


def _recall(masks: Tensor, talk: Conversation) -> float:
    """Return the share of tokens of edited cells that step 0 finds, in later rounds."""
    found = []
    for round in range(1, talk.rounds):
        inside = cell_mask(talk.instructions[:, round], *masks.shape[3:])
        found.append(masks[:, round, 0][inside].double())
    return float(torch.cat(found).mean()) if found else float("nan")


class _Session:
    """Edits through a session."""

    def __init__(self, session: CacheEditSession) -> None:
        self.session = session

    def __call__(self, image: Tensor, arguments: dict[str, Any]) -> Tensor:
        with warnings.catch_warnings():  # rounds with 0 % or 100 % of key tokens are measured here
            warnings.filterwarnings("ignore", r"round \d+:")
            return self.session.edit(image, **arguments).images


class _Stock:
    """Edits through the pipeline as it is, or with a baseline's cache in it."""

    def __init__(self, pipe: Any, renew: Any, seed: int) -> None:
        self.pipe, self.renew, self.seed = pipe, renew, seed

    def __call__(self, image: Tensor, arguments: dict[str, Any]) -> Tensor:
        self.renew()
        return self.pipe(
            image,
            **arguments,
            max_area=arguments["height"] * arguments["width"],
            _auto_resize=False,
            generator=torch.Generator().manual_seed(self.seed),
        ).images


@contextmanager
def _editing(pipe: Any, talk: Conversation, arm: Arm, row: int) -> Iterator[_Session | _Stock]:
    if arm.name in OURS:
        choose = None
        if arm.name == "random":
            assert arm.counts is not None
            choose = _random_keys(arm.counts[row], derive_seed(talk.seed, "random keys", row))
        with CacheEditSession(pipe, arm.config(), seed=talk.seed, choose=choose) as session:
            yield _Session(session)
        return
    cache = nullcontext(lambda: None)
    if arm.name in GRIDS:
        cache = cached(pipe, arm.name, arm.setting, steps=talk.steps, ratios=arm.ratios)
    with cache as renew:
        yield _Stock(pipe, renew, talk.seed)


def _random_keys(counts: Int[Tensor, "rounds steps"], seed: int) -> ChooseKeys:
    """Return a rule that draws as many key tokens as are given for each later round and step."""
    stream = torch.Generator().manual_seed(seed)
    waiting = counts[1:].flatten().tolist()

    def choose(step: int, now: Tensor, before: Tensor) -> Tensor:
        tokens = now.shape[1]
        mask = torch.zeros(1, tokens, dtype=torch.bool)
        mask[0, torch.randperm(tokens, generator=stream)[: waiting.pop(0)]] = True
        return mask

    return choose


def scores(
    images: Float[Tensor, "rounds batch 3 height width"], talk: Conversation
) -> dict[str, Tensor]:
    """Return decibels of peak signal to noise, each (rounds, batch).

    Args:
        images: In [-1, 1].
        talk: What was asked.

    Returns:
        ``edit``: the cell of the round against what it should be; ``background``: cells that no
        instruction of the conversation touches, against the picture before the first round.
    """
    height, width = images.shape[3:]
    cells = torch.stack(
        [cell_mask(talk.instructions[:, r], height, width) for r in range(talk.rounds)]
    )
    untouched = ~cells.any(dim=0)
    found: dict[str, list[Tensor]] = {"edit": [], "background": []}
    for round in range(len(images)):
        found["edit"].append(_psnr(images[round], talk.states[:, round + 1], cells[round]))
        found["background"].append(_psnr(images[round], talk.pictures, untouched))
    return {name: torch.stack(rows) for name, rows in found.items()}


def _psnr(images: Tensor, truth: Tensor, where: Tensor) -> Float[Tensor, " batch"]:
    """Return the PSNR over a part of each picture; values span 2."""
    error = (images - truth).double().square().mean(dim=1)
    mean = (error * where).sum(dim=(1, 2)) / where.sum(dim=(1, 2))
    return 10 * torch.log10(4 / mean.clamp(min=1e-12))


def counted_share(editor: SmallEditor, talk: Conversation, arm: Arm) -> float:
    """Return the arithmetic of a later round over that without a cache, counted as it runs.

    Args:
        editor: Trained.
        talk: What is edited: rounds after the first are counted.
        arm: How.
    """
    pipe = kontext_pipeline(editor.transformer)
    spent, whole = 0, 0
    for row in range(len(talk.pictures)):
        rows = slice(row, row + 1)
        with _editing(pipe, talk, arm, row) as edit:
            image = (talk.pictures[rows] + 1) / 2
            for round in range(talk.rounds):
                counter = FlopCounterMode(display=False, custom_mapping=_CPU_ATTENTION)
                with counter if round else nullcontext():
                    image = edit(image, talk.asked(editor, round, rows))
                spent += counter.get_total_flops() if round else 0
        plain = FlopCounterMode(display=False, custom_mapping=_CPU_ATTENTION)
        with plain:
            _Stock(pipe, lambda: None, talk.seed)(image, talk.asked(editor, 0, rows))
        whole += plain.get_total_flops() * (talk.rounds - 1)
    return spent / whole


def _attention_flops(query: Any, key: Any, value: Any, *rest: Any, **more: Any) -> int:
    return sdpa_flop_count(query, key, value)


_CPU_ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops,
}
"""Attention on CPUs, which torch's counter does not know."""
