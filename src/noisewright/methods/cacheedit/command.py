"""``noisewright edit IMAGE --model M --prompt A --prompt B --out DIR``: your own picture."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from noisewright.reports.command import parse_command, say
from noisewright.types import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

    from noisewright.methods.cacheedit.session import CacheEditSession, RoundStats

__all__ = ["Command", "main", "overlay"]

DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Command:
    """Edit a picture round after round; later rounds recompute only what changed."""

    image: tyro.conf.Positional[Path]
    """The picture to begin with."""
    model: str
    """Folder or hub name of a FLUX.1 Kontext, Qwen-Image-Edit or Qwen-Image-Edit-Plus pipeline."""
    prompt: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """An instruction; once for each round."""
    prompts: Path | None = None
    """A file of instructions, one a line, after those of --prompt."""
    out: Path = Path("edits")
    """Folder for the picture of each round, what was recomputed, and the timing."""
    steps: int | None = None
    """Steps of a round; 28 for Kontext and 30 for Qwen unless given."""
    height: int | None = None
    """Height in pixels; follows the picture unless given."""
    width: int | None = None
    """Width in pixels; likewise."""
    guidance: float = 2.5
    """Guidance of a distilled model (Kontext)."""
    true_guidance: float | None = None
    """True guidance, two calls a step; 4 for Qwen and none for Kontext unless given."""
    negative: str = " "
    """What true guidance leads away from."""
    threshold: float | None = None
    """Similarity below which a token is recomputed; 0.97 for Kontext, 0.99 for Qwen."""
    interval: int = 5
    """Every how many steps all tokens are computed."""
    mode: Literal["kv", "hidden"] = "kv"
    """Keep keys and values, or activations: half the memory, more work."""
    cache_device: str | None = None
    """Where the cache lives, cpu for instance; where the model is unless given."""
    seed: int = 0
    """Of the noise that all rounds start from."""
    device: str = "auto"
    """cpu, cuda, ..."""
    offload: bool = False
    """Move parts of the pipeline to the accelerator only while they run."""
    dtype: str = "auto"
    """float32, bfloat16 or float16; auto: bfloat16 on an accelerator."""
    compare: Literal["none", "full"] = "none"
    """full: run the same rounds without the cache as well, and say how they differ."""


def main(args: list[str]) -> int:
    """Run the command.

    Args:
        args: What follows ``noisewright edit``.

    Returns:
        Exit code 0.

    Raises:
        InputError: If picture, model or a setting cannot work.
        SystemExit: With code 2 for flags that do not exist, 0 after ``--help``.
    """
    command = parse_command(Command, args, "edit")
    prompts = _prompts(command)
    if command.out.exists() and not command.out.is_dir():
        raise InputError(f"--out {command.out} is a file; give the name of a folder")
    if command.dtype not in DTYPES:
        raise InputError(f"--dtype {command.dtype!r} is unknown; choose from {', '.join(DTYPES)}")

    from noisewright.data import decode_picture
    from noisewright.methods.cacheedit.config import CacheEditConfig
    from noisewright.methods.cacheedit.session import CacheEditSession

    config = CacheEditConfig(
        threshold=0.97 if command.threshold is None else command.threshold,
        cache_interval=command.interval,
        mode=command.mode,
        cache_device=command.cache_device,
    )
    picture = decode_picture(command.image)
    pipe = _pipeline(command)
    qwen = type(pipe).__name__.startswith("Qwen")
    if qwen and command.threshold is None:
        config = replace(config, threshold=0.99)
    arguments = _arguments(command, qwen)
    with CacheEditSession(pipe, config, seed=command.seed) as session:
        _announce(session, picture, arguments)
        made = _rounds(session, picture, prompts, arguments, command.out)
    if command.compare == "full":
        _compare(command, pipe, picture, prompts, arguments, made, session.rounds)
    say(str(command.out))
    return 0


def _prompts(command: Command) -> list[str]:
    prompts = list(command.prompt)
    if command.prompts is not None:
        if not command.prompts.is_file():
            raise InputError(f"--prompts {command.prompts} is no file; give one instruction a line")
        lines = command.prompts.read_text(encoding="utf-8").splitlines()
        prompts += [line.strip() for line in lines if line.strip()]
    if not prompts:
        raise InputError(
            "no instruction; give --prompt TEXT once for each round, or --prompts FILE"
        )
    return prompts


def _pipeline(command: Command) -> Any:
    """Return the pipeline on its device."""
    import torch

    from noisewright.adapters.editors import refuse_other_pipelines
    from noisewright.adapters.requirement import diffusers

    device = command.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    name = command.dtype
    if name == "auto":
        name = "float32" if device == "cpu" else "bfloat16"
    try:
        pipe = diffusers.DiffusionPipeline.from_pretrained(
            command.model, dtype=getattr(torch, name)
        )
    except (OSError, ValueError) as error:
        raise InputError(
            f"--model {command.model!r} cannot be loaded ({error}); give a folder that "
            "save_pretrained wrote, or a name on the hub"
        ) from error
    try:
        refuse_other_pipelines(pipe)
    except TypeError as error:
        raise InputError(f"--model {command.model!r}: {error}") from error
    pipe.set_progress_bar_config(disable=True)
    if command.offload:
        pipe.enable_model_cpu_offload(device=device)
        return pipe
    return pipe.to(device)


def _arguments(command: Command, qwen: bool) -> dict[str, Any]:
    steps = command.steps or (30 if qwen else 28)
    arguments: dict[str, Any] = {"num_inference_steps": steps}
    if command.height is not None or command.width is not None:
        arguments |= {"height": command.height, "width": command.width}
    if not qwen:
        arguments["guidance_scale"] = command.guidance
    guidance = command.true_guidance if command.true_guidance is not None else 4.0 if qwen else None
    if guidance is not None:
        arguments |= {"true_cfg_scale": guidance, "negative_prompt": command.negative}
    return arguments


def _announce(session: CacheEditSession, picture: Image, arguments: dict[str, Any]) -> None:
    """Say size and memory before the first step."""
    sizes = session.planned_size(picture, arguments)
    estimate = session.memory_estimate(
        *sizes,
        arguments["num_inference_steps"],
        branches=2 if "true_cfg_scale" in arguments else 1,
    )
    say(
        f"{type(session.pipe).__name__}, {session.pipe.transformer.dtype}; picture "
        f"{picture.height} x {picture.width}, edited at {sizes[0]} x {sizes[1]}"
    )
    say(estimate.describe())


def _rounds(
    session: CacheEditSession,
    picture: Image,
    prompts: list[str],
    arguments: dict[str, Any],
    out: Path,
) -> list[Image]:
    """Run all rounds; write each picture, and what was recomputed, as soon as it is there."""
    from noisewright.storage import write_atomic

    made: list[Image] = []
    say("round  recomputed  arithmetic  seconds  instruction")
    for number, prompt in enumerate(prompts):
        image = session.edit(picture if not made else None, prompt, **arguments).images[0]
        made.append(image)
        stats = session.rounds[-1]
        write_atomic(out / f"round-{number}.png", lambda file, i=image: i.save(file, "PNG"))
        shown = overlay(image, stats)
        write_atomic(out / f"round-{number}-mask.png", lambda file, i=shown: i.save(file, "PNG"))
        recomputed = sum(stats.key_ratio) / len(stats.key_ratio)
        say(
            f"{number:>5}  {recomputed:>10.1%}  {stats.flops_ratio:>10.1%}  {stats.seconds:>7.1f}"
            f"  {prompt}"
        )
        write_atomic(out / "rounds.json", _as_json(session.rounds, prompts))
    return made


def _as_json(rounds: list[RoundStats], prompts: list[str]) -> str:
    import json

    rows = []
    for stats, prompt in zip(rounds, prompts, strict=False):
        row = asdict(stats)
        del row["masks"]
        rows.append({"prompt": prompt} | row)
    return json.dumps(rows, indent=1) + "\n"


def overlay(image: Image, stats: RoundStats) -> Image:
    """Return a picture with everything greyed that no full step of the round found to have moved.

    Args:
        image: Of the round.
        stats: Of the round.
    """
    import numpy as np
    import torch
    from PIL import Image as pil

    mask = torch.stack(stats.masks).any(dim=0).numpy().astype(np.uint8) * 255
    moved = pil.fromarray(mask).resize(image.size, pil.Resampling.NEAREST)
    faded = pil.blend(image.convert("L").convert("RGB"), pil.new("RGB", image.size, "white"), 0.6)
    return pil.composite(image.convert("RGB"), faded, moved)


def _compare(
    command: Command,
    pipe: Any,
    picture: Image,
    prompts: list[str],
    arguments: dict[str, Any],
    made: list[Image],
    rounds: list[RoundStats],
) -> None:
    """Run the rounds without a cache, write their pictures, and say how both differ."""
    import time

    import numpy as np
    import torch

    from noisewright.adapters.editors import at_size, size_arguments
    from noisewright.storage import write_atomic

    sized = dict(arguments)
    asked = {name: sized.pop(name) for name in ("height", "width") if name in sized}
    sizes = size_arguments(pipe, picture, **asked)
    image: Any = at_size(pipe, picture, sizes)
    say("round  seconds in full  with the cache  difference, of 255")
    for number, (prompt, ours, stats) in enumerate(zip(prompts, made, rounds, strict=True)):
        began = time.perf_counter()
        noise = torch.Generator("cpu").manual_seed(command.seed)
        image = pipe(image=image, prompt=prompt, **sized, **sizes, generator=noise).images[0]
        seconds = time.perf_counter() - began
        write_atomic(
            command.out / f"round-{number}-full.png", lambda file, i=image: i.save(file, "PNG")
        )
        apart = np.abs(np.asarray(image, dtype=float) - np.asarray(ours, dtype=float)).mean()
        say(f"{number:>5}  {seconds:>15.1f}  {stats.seconds:>14.1f}  {apart:>18.2f}")
