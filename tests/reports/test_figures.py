from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from PIL import Image

from noisewright.reports import figures
from noisewright.reports.rendering import DARK, save_figure
from noisewright.types import InputError


def _colors(path):
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
    return {to_hex(p / 255) for p in np.unique(pixels, axis=0)}


def test_a_figure_is_rendered_light_and_dark_and_gets_its_colours_back(tmp_path):
    figure, axes = figures.canvas(width=4, height=2)
    figures.line(axes, [0, 1], [0, 1], label="ours", ours=True)
    figures.line(axes, [0, 1], [1, 1], label="plain", spread=[0.1, 0.1])
    axes.set_xlabel("steps")
    figures.label_ends(axes)
    before = [to_hex(one.get_color()) for one in axes.lines]
    size = save_figure(tmp_path, "f", figure)
    assert size == {"width": 400, "height": 200}
    assert [to_hex(one.get_color()) for one in axes.lines] == before
    light, dark = _colors(tmp_path / "f.png"), _colors(tmp_path / "f-dark.png")
    assert {figures.PAPER, figures.OURS} <= light
    assert {DARK[figures.PAPER], DARK[figures.OURS]} <= dark
    assert not {figures.PAPER, figures.OURS} & dark


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        figure, axes = figures.canvas(width=3, height=2)
        figures.bars(axes, {"ours": 1.0, "plain": 2.0}, spread={"ours": 0.1}, ours="ours", unit="m")
        save_figure(tmp_path, name, figure)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_ours_is_blue_and_baselines_are_not():
    _, axes = figures.canvas()
    drawn = [figures.line(axes, [0, 1], [i, i], label=f"b{i}") for i in range(4)]
    assert figures.line(axes, [0, 1], [5, 5], ours=True) == figures.OURS
    assert figures.OURS not in drawn
    assert len(set(drawn)) == 4


def test_names_at_line_ends_do_not_overlap():
    _, axes = figures.canvas()
    for i in range(5):
        figures.line(axes, [0, 1], [0, 1 + 1e-3 * i], label=f"line {i}")
    figures.label_ends(axes, gap=0.07)
    heights = sorted(text.xyann[1] for text in axes.texts)
    assert len(heights) == 5
    assert np.diff(heights).min() >= 0.07 - 1e-6


def test_pictures_keep_their_values_and_sharp_pixels(tmp_path):
    checks = torch.tensor([[[-1.0, 1.0], [1.0, -1.0]]])
    figure = figures.image_grid([[checks, checks]], rows=["x"], columns=["a", "b"])
    shown = [axes.images[0] for axes in figure.axes]
    np.testing.assert_array_equal(shown[0].get_array(), [[0, 1], [1, 0]])
    assert shown[0].get_interpolation() == "nearest"
    figure = figures.image_grid([[checks]], rows=[""], width=2)
    save_figure(tmp_path, "f", figure)
    greys = [c for c in _colors(tmp_path / "f.png") if c not in ("#000000", "#ffffff")]
    with Image.open(tmp_path / "f.png") as image:
        pixels = np.asarray(image.convert("L"))
    # Up to the one line of pixels where cells meet the edge, everything is black or white.
    assert np.isin(pixels, (0, 255)).mean() > 0.97, greys


@pytest.mark.parametrize(
    ("image", "shape"),
    [
        (np.zeros((3, 4, 5)), (4, 5, 3)),
        (np.zeros((4, 5, 3)), (4, 5, 3)),
        (np.zeros((1, 4, 5)), (4, 5)),
        (np.zeros((4, 5)), (4, 5)),
        (torch.zeros(3, 4, 5, dtype=torch.uint8), (4, 5, 3)),
    ],
)
def test_channels_may_stand_first_or_last(image, shape):
    figure = figures.image_grid([[image]], rows=["x"])
    assert figure.axes[0].images[0].get_array().shape == shape


def test_gaps_and_uneven_rows_are_allowed_and_wrong_labels_are_not():
    x = np.zeros((2, 2))
    figure = figures.image_grid([[x, None, x], [x]], rows=["a", "b"])
    assert sum(bool(axes.images) for axes in figure.axes) == 3
    with pytest.raises(InputError, match="1 row labels"):
        figures.image_grid([[x], [x]], rows=["a"])
    with pytest.raises(InputError, match="3 column labels"):
        figures.image_grid([[x]], rows=["a"], columns=["1", "2", "3"])
    with pytest.raises(InputError, match="shape"):
        figures.image_grid([[np.zeros(3)]], rows=["a"])


def test_a_log_axis_shows_the_given_ticks_only():
    _, axes = figures.canvas()
    figures.line(axes, [4, 8, 16], [1, 2, 3], label="l")
    figures.log_axis(axes, "x", [4, 8, 16])
    assert [t.get_text() for t in axes.get_xticklabels()] == ["4", "8", "16"]
    assert len(axes.xaxis.get_minorticklocs()) == 0
