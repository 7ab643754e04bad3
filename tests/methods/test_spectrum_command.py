"""``noisewright spectrum DIR``: a folder of pictures in, noise levels out."""

from __future__ import annotations

import csv
import io

import pytest
import torch
from PIL import Image

from noisewright.cli import main as cli
from noisewright.methods.spectral_schedule import rapsd
from noisewright.methods.spectral_schedule.command import main
from noisewright.types import InputError

# tyro, which parses the flags, cleans its cache at random times of the global stream.
pytestmark = pytest.mark.global_stream


def cloud(height, width, seed):
    generator = torch.Generator().manual_seed(seed)
    white = torch.randn(3, height, width, generator=generator, dtype=torch.float64)
    down, across = torch.fft.fftfreq(height) * height, torch.fft.fftfreq(width) * width
    away = torch.hypot(down[:, None], across[None]).clamp(min=1)
    shaped = torch.fft.ifft2(torch.fft.fft2(white) / away).real
    return ((shaped / shaped.abs().max() + 1) * 127.5).round().to(torch.uint8)


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(path)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "pictures"
    for i in range(3):
        save(place / f"a{i}.png", cloud(24, 32, i))
    save(place / "more" / "b.png", cloud(40, 40, 9))
    save(place / "flat.png", torch.full((3, 20, 20), 200, dtype=torch.uint8))
    save(place / "tiny.png", cloud(6, 6, 1))
    (place / "broken.png").write_bytes(b"not a picture")
    return place


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_rows_hold_what_the_library_reads_off_each_picture(folder, tmp_path, capsys):
    out = tmp_path / "new" / "levels.csv"
    assert main([str(folder), "--csv", str(out)]) == 0
    found = rows(out.read_text())
    assert [row["file"] for row in found] == ["a0.png", "a1.png", "a2.png", "more/b.png"]
    for i, row in enumerate(found):
        size = (40, 40) if i == 3 else (24, 32)
        assert (int(row["height"]), int(row["width"])) == size
        spectrum = rapsd(cloud(*size, 9 if i == 3 else i)[None])
        low, high = spectrum.noise_bounds()
        assert float(row["slope"]) == pytest.approx(float(spectrum.slope), rel=1e-5)
        assert float(row["sigma_min"]) == pytest.approx(float(low), rel=1e-5)
        assert float(row["sigma_max"]) == pytest.approx(float(high), rel=1e-5)
        assert float(row["sqrt_s_1"]) == pytest.approx(float(spectrum.power[0, 1].sqrt()), rel=1e-5)
    told = capsys.readouterr().out
    assert "1 unreadable, 1 of a single colour, 1 smaller than 8 pixels" in told
    assert "median" in told
    assert "24×32" in told
    assert "better one range per size" in told
    assert "EDM's 0.002 to 80 has 15.3" in told


def test_csv_on_the_terminal_is_nothing_but_csv(folder, capsys):
    assert main([str(folder), "--csv", "-"]) == 0
    told = capsys.readouterr()
    assert len(rows(told.out)) == 4
    assert told.out.startswith("file,height,width,slope")
    assert "one range for all" in told.err


def test_size_makes_squares_of_one_size(folder, capsys):
    assert main([str(folder), "--size", "16", "--csv", "-"]) == 0
    told = capsys.readouterr()
    assert {(row["height"], row["width"]) for row in rows(told.out)} == {("16", "16")}
    assert "per size" not in told.err


def test_shares_and_window_reach_the_bounds(folder, capsys):
    def levels(*flags):
        main([str(folder), "--csv", "-", *flags])
        return rows(capsys.readouterr().out)[0]

    usual, wide = levels(), levels("--eps-max", "0.001", "--eps-min", "0.0001")
    assert float(wide["sigma_max"]) > float(usual["sigma_max"])
    assert float(wide["sigma_min"]) < float(usual["sigma_min"])
    assert levels("--window")["slope"] != usual["slope"]


def test_a_long_folder_is_summed_up(tmp_path, capsys):
    for i in range(43):
        save(tmp_path / f"{i:02}.png", cloud(8, 8, i))
    assert main([str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "... and 3 more" in told
    assert "39.png" in told
    assert "40.png" not in told


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--eps-max", "1.5"], "--eps-max 1.5 must lie inside"),
        (["--eps-min", "0"], "--eps-min 0.0 must lie inside"),
        (["--size", "4"], "--size 4 must be at least 8"),
        (["--size", "500"], "7 pictures .* smaller than 500 pixels"),
        (["--csv", "."], "is a folder"),
        (["--eps-max", "0.9", "--eps-min", "0.9"], "without a useful range"),
    ],
)
def test_settings_that_cannot_work_are_refused(folder, flags, words):
    with pytest.raises(InputError, match=words):
        main([str(folder), *flags])


def test_exit_codes_and_messages_of_the_command_line(folder, tmp_path, capsys):
    assert cli(["spectrum", str(folder)]) == 0
    empty = tmp_path / "empty"
    empty.mkdir()
    assert cli(["spectrum", str(empty)]) == 2
    assert "holds no pictures" in capsys.readouterr().err
    assert cli(["spectrum", str(tmp_path / "nowhere")]) == 2
    assert "is not a folder" in capsys.readouterr().err
    assert cli(["spectrum", str(folder / "tiny.png")]) == 2
    assert cli(["spectrum"]) == 2
    assert cli(["spectrum", str(folder), "--sizes", "3"]) == 2


def test_a_folder_of_unreadable_files_names_one(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(b"no")
    with pytest.raises(InputError, match=r"3 unreadable; for instance .*0\.png cannot be read"):
        main([str(tmp_path)])
