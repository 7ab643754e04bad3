"""``noisewright edit`` on a whole pipeline in a local folder, saved by ``save_pretrained``."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_editors import saved_kontext

from noisewright.methods.cacheedit import ROOM
from noisewright.methods.cacheedit.command import main, overlay
from noisewright.methods.cacheedit.session import RoundStats
from noisewright.types import InputError

# tyro, which parses the flags, cleans its cache at random times of the global stream, and
# transformers draws from it while it loads a model.
pytestmark = pytest.mark.global_stream


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(saved_kontext(tmp_path_factory.mktemp("kontext") / "tiny"))


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "in.png"
    Image.effect_noise((24, 20), 80).convert("RGB").save(path)
    return str(path)


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image).astype(int)


SMALL = ["--height", "16", "--width", "24", "--steps", "3", "--interval", "2"]


@pytest.mark.filterwarnings("ignore:round 1")
def test_rounds_are_written_with_masks_and_timing(model, picture, tmp_path, capsys):
    out = tmp_path / "new" / "edits"
    flags = ["--prompt", "make it red", "--prompt", "remove the cup", "--out", str(out)]
    assert main([picture, "--model", model, *flags, *SMALL, "--compare", "full"]) == 0
    names = {path.name for path in out.iterdir()}
    each = ("round-{}.png", "round-{}-mask.png", "round-{}-full.png")
    assert names == {"rounds.json"} | {name.format(n) for n in (0, 1) for name in each}
    first, full = pixels(out / "round-0.png"), pixels(out / "round-0-full.png")
    assert first.shape == (16, 24, 3)
    assert (first == full).all()
    rows = json.loads((out / "rounds.json").read_text())
    assert [row["prompt"] for row in rows] == ["make it red", "remove the cup"]
    assert rows[0]["flops_ratio"] == 1.0 > rows[1]["flops_ratio"]
    assert rows[1]["size"] == [16, 24]
    said = capsys.readouterr().out.splitlines()
    assert "picture 20 x 24, edited at 16 x 24" in said[0]
    assert said[1].startswith("cache: ")
    assert said[2].startswith("round")


def test_instructions_may_come_from_a_file_and_rounds_repeat_to_the_bit(model, picture, tmp_path):
    (tmp_path / "p.txt").write_text("make it red\n\nmake it blue\n")
    for name in ("a", "b"):
        flags = ["--prompts", str(tmp_path / "p.txt"), "--out", str(tmp_path / name)]
        main([picture, "--model", model, *flags, *SMALL, "--threshold", "2", "--mode", "hidden"])
    for number in (0, 1):
        one, other = ((tmp_path / name / f"round-{number}.png").read_bytes() for name in "ab")
        assert one == other


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "no instruction"),
        (["--prompts", "nowhere.txt"], "is no file"),
        (["--prompt", "x", "--dtype", "int8"], "--dtype 'int8'"),
        (["--prompt", "x", "--threshold", "3"], "threshold=3.0"),
        (["--prompt", "x", "--interval", "0"], "cache_interval=0"),
        (["--prompt", "x", "--height", "16"], "give both or none"),
        (["--prompt", "x", "--height", "15", "--width", "24"], "multiples of 4"),
    ],
)
def test_flags_that_cannot_work_are_refused(model, picture, tmp_path, flags, words):
    with pytest.raises(InputError, match=words):
        main([picture, "--model", model, "--out", str(tmp_path / "o"), *flags])
    assert not (tmp_path / "o").exists()


def test_out_that_is_a_file_is_refused(picture, tmp_path):
    with pytest.raises(InputError, match="is a file"):
        main([picture, "--model", "x", "--prompt", "y", "--out", picture])


def test_model_that_is_not_there_is_refused(picture, tmp_path):
    flags = ["--prompt", "y", "--out", str(tmp_path / "o")]
    with pytest.raises(InputError, match="save_pretrained wrote"):
        main([picture, "--model", str(tmp_path / "none"), *flags])


def test_picture_that_is_not_there_is_refused(model, tmp_path):
    with pytest.raises(InputError, match=r"none\.png"):
        main([str(tmp_path / "none.png"), "--model", model, "--prompt", "y"])


def test_overlay_keeps_what_moved_and_greys_the_rest():
    image = Image.new("RGB", (8, 4), (200, 10, 10))
    mask = torch.tensor([[True, False]])
    stats = RoundStats(1, [0.5], [mask], 1.0, 0.5, 0, (4, 8))
    shown = np.asarray(overlay(image, stats))
    assert (shown[:, :4] == (200, 10, 10)).all()
    assert (np.ptp(shown[:, 4:], axis=2) == 0).all()
    assert (shown[:, 4:] > 150).all()


def test_importing_the_room_is_light():
    code = (
        "import sys, noisewright.methods.cacheedit as room; room.ROOM; "
        "print([m for m in ('numpy', 'torch', 'diffusers') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_names_of_the_specification_are_importable():
    import noisewright.methods.cacheedit as room

    wanted = ["CacheEditConfig", "CacheEditSession", "apply_cacheedit", "remove_cacheedit"]
    wanted += ["key_tokens"]
    assert all(callable(getattr(room, name)) for name in wanted)
    assert ROOM.commands == {"edit": "noisewright.methods.cacheedit.command:main"}
