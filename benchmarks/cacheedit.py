"""Later rounds of an edited picture beside full rounds and beside caches that skip steps.

A ``FluxTransformer2DModel`` with random weights, 2 double- and 4 single-stream blocks of width 256;
key tokens are forced, since time does not depend on which they are. TaylorSeer and MagCache follow
fixed schedules here; what they do to pictures is measured by ``noisewright run cacheedit``::

    python benchmarks/cacheedit.py --json --out docs/benchmarks/cacheedit.json
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from noisewright.methods.cacheedit import CacheEditConfig, apply_cacheedit
from noisewright.methods.cacheedit.baselines import cached
from noisewright.methods.cacheedit.editor import small_transformer
from noisewright.methods.cacheedit.speed import random_call
from timing import Row, interleaved, main, peak_memory, ratio_row

STEPS = 28
BLOCKS = {"heads": 8, "double": 2, "single": 4}


@torch.no_grad()
def walk(model: Any, call: dict[str, Any], steps: int = STEPS) -> None:
    """Call a transformer once for each step."""
    for step in range(steps):
        model(**call, timestep=torch.tensor([1 - step / steps]))


def later_round(side: int, share: float, mode: str, call: dict[str, Any]) -> Callable[[], None]:
    """Return one later round with a share of key tokens; the first has been run."""
    model = small_transformer(**BLOCKS)
    keys = max(1, round(share * 2 * side**2))

    def forced(step: int, now: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        mask = torch.zeros(now.shape[:2], dtype=torch.bool)
        mask[:, torch.linspace(0, now.shape[1] - 1, keys).long()] = True
        return mask

    config = CacheEditConfig(mode=mode)  # pyright: ignore[reportArgumentType]
    handle = apply_cacheedit(model, config, choose=forced)

    def work() -> None:
        handle.begin_round()
        walk(model, call)
        handle.end_round(commit=handle.previous is None)

    work()
    return work


def peer_round(name: str, setting: float, call: dict[str, Any]) -> Callable[[], None]:
    """Return one round with a peer's cache."""
    pipe = SimpleNamespace(transformer=small_transformer(**BLOCKS))
    ratios = [1.0] * STEPS if name == "mag" else None
    holding = cached(pipe, name, setting, steps=STEPS, ratios=ratios)
    renew = holding.__enter__()

    def work() -> None:
        renew()
        walk(pipe.transformer, call)

    work.holding = holding  # the cache lasts as long as the function
    return work


def against_stock(rounds: int) -> list[Row]:
    """Return the time of a later round over that of a stock one, by size and share."""
    rows = []
    for side in (8, 16, 24):
        call = random_call(side, side * side // 8)
        stock = small_transformer(**BLOCKS)
        contenders = {"stock": lambda m=stock, c=call: walk(m, c)}
        shares = (0.05, 0.1, 0.25, 1.0) if side == 16 else (0.1,)
        for mode in ("kv", "hidden"):
            for share in shares:
                contenders[f"{mode}, {share:.0%} key"] = later_round(side, share, mode, call)
        times = interleaved(contenders, rounds)
        for name in contenders:
            if name != "stock":
                goal = 1.1 if "100%" in name else 0.5 if name.startswith("kv, 10%") else None
                section = f"later round, {2 * side**2} image tokens"
                rows.append(ratio_row(times, name, "stock", section=section, what=name, goal=goal))
    return rows


def against_peers(rounds: int) -> list[Row]:
    """Return the time of our later round over that of peers, and of a first round over stock."""
    call = random_call(16, 32)
    stock = small_transformer(**BLOCKS)
    first = small_transformer(**BLOCKS)
    handle = apply_cacheedit(first)

    def first_round() -> None:
        handle.reset()
        handle.begin_round()
        walk(first, call)
        handle.end_round()

    contenders = {
        "ours": later_round(16, 0.1, "kv", call),
        "TaylorSeer, every 5": peer_round("taylorseer", 5, call),
        "MagCache, 3 of 4": peer_round("mag", 10.0, call),
        "first": first_round,
        "stock": lambda: walk(stock, call),
    }
    times = interleaved(contenders, rounds)
    rows = [
        ratio_row(times, "ours", peer, section="a round beside peers", what="kv, 10% key")
        for peer in ("TaylorSeer, every 5", "MagCache, 3 of 4")
    ]
    options = {"section": "what the first round costs", "what": "first round, kv", "goal": 1.05}
    return [*rows, ratio_row(times, "first", "stock", **options)]


MEMORY = """
import torch
from noisewright.methods.cacheedit import CacheEditConfig, apply_cacheedit
from noisewright.methods.cacheedit.editor import small_transformer
from noisewright.methods.cacheedit.speed import random_call
torch.set_num_threads(1)
model, call = small_transformer(heads=8, double=2, single=4), random_call(24, 72)
mode = {mode!r}
handle = apply_cacheedit(model, CacheEditConfig(mode=mode)) if mode else None
with torch.no_grad():
    for number in range(2):
        if handle: handle.begin_round()
        for step in range(6):
            model(**call, timestep=torch.tensor([1 - step / 6]))
        call["hidden_states"] = call["hidden_states"] + 0.3 * number
        if handle: handle.end_round()
"""


def memory() -> list[Row]:
    """Return the peak memory of two rounds, with and without a cache."""
    rows = []
    bare = peak_memory(MEMORY.format(mode=""))
    for mode in ("kv", "hidden"):
        extra = peak_memory(MEMORY.format(mode=mode)) - bare
        what = f"two rounds, {mode}, beyond the model"
        rows.append(Row("peak memory", what, "", extra, extra, extra, 1, unit="MiB"))
    return rows


def measure(quick: bool) -> list[Row]:
    """Measure everything."""
    torch.set_num_threads(1)
    rounds = 2 if quick else 5
    taken = memory()  # first: a child counts what its parent held when it was started
    return against_stock(rounds) + against_peers(rounds) + taken


if __name__ == "__main__":
    main(
        "cacheedit",
        measure,
        title="Later rounds of an edited picture beside full ones and other caches",
        packages=("diffusers",),
    )
