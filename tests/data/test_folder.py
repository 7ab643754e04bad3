from __future__ import annotations

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from noisewright.data import decode_picture, image_folder, open_images
from noisewright.data.decode import to_tensor
from noisewright.types import InputError


def save(path, colour=(10, 200, 30), size=(40, 40), mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path, **options)
    return path


def test_reads_each_accepted_kind(tmp_path):
    for suffix in ("png", "JPG", "jpeg", "webp", "bmp", "tif", "TIFF"):
        save(tmp_path / f"picture.{suffix}")
    (tmp_path / "notes.txt").write_text("not a picture")
    save(tmp_path / ".hidden.png")
    pictures = image_folder(tmp_path, size=16)
    assert pictures.images.shape == (7, 3, 16, 16)
    assert pictures.labels is None
    colour = pictures.images.float().mean((2, 3)) - torch.tensor([10.0, 200.0, 30.0])
    assert float(colour.abs().max()) < 6


def test_sub_folders_name_the_classes(tmp_path):
    for name in ("dog", "cat"):
        for number in range(2):
            save(tmp_path / name / "deep" / f"{number}.png")
    pictures = image_folder(tmp_path, size=8)
    assert pictures.label_names == ("cat", "dog")
    assert pictures.labels.tolist() == [0, 0, 1, 1]
    assert image_folder(tmp_path, size=8, classes=False).labels is None
    save(tmp_path / "loose.png")
    assert image_folder(tmp_path, size=8).labels is None
    with pytest.raises(InputError, match=r"loose\.png lies in no sub-folder"):
        image_folder(tmp_path, size=8, classes=True)


def test_middle_is_kept_and_shrinking_does_not_alias(tmp_path):
    wide = Image.new("RGB", (120, 40), "red")
    wide.paste("white", (40, 0, 80, 40))
    wide.save(tmp_path / "a_wide.png")
    board = Image.new("L", (64, 64))
    board.putdata([255 * ((x + y) % 2) for y in range(64) for x in range(64)])
    board.save(tmp_path / "b_board.png")
    middle, grey = image_folder(tmp_path, size=16).images.float()
    assert float(middle.min()) == 255
    assert float((grey - 127.5).abs().max()) < 3


def test_small_pictures_are_counted_and_left_out(tmp_path):
    save(tmp_path / "small.png", size=(40, 10))
    save(tmp_path / "large.png")
    pictures = image_folder(tmp_path, size=32)
    assert len(pictures) == 1
    assert "1 pictures smaller than 32 pixels" in pictures.provenance.describe()
    with pytest.raises(InputError, match="choose a smaller size"):
        image_folder(tmp_path, size=64)


def test_one_unreadable_picture_is_counted_by_name(tmp_path):
    for number in range(3):
        save(tmp_path / f"{number}.png")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n rubbish")
    pictures = image_folder(tmp_path)
    assert len(pictures) == 3
    assert "1 unreadable pictures" in pictures.provenance.describe()
    assert "broken.png" in pictures.provenance.describe()


def test_many_unreadable_pictures_are_an_error_that_names_them(tmp_path):
    for number in range(8):
        save(tmp_path / f"{number}.png")
    for number in range(2):
        (tmp_path / f"broken{number}.png").write_bytes(b"rubbish")
    with pytest.raises(InputError, match=r"2 of 10 pictures .*broken0\.png"):
        image_folder(tmp_path)


@pytest.mark.parametrize("make", [lambda p: p.mkdir(), lambda p: p.write_text("x"), lambda p: None])
def test_empty_missing_or_no_folder_names_path_and_accepted_files(tmp_path, make):
    make(tmp_path / "data")
    with pytest.raises(InputError, match=r"data .*\.png, \.jpg"):
        image_folder(tmp_path / "data")


def test_a_loop_of_links_is_walked_once(tmp_path):
    save(tmp_path / "inner" / "picture.png")
    os.symlink(tmp_path, tmp_path / "inner" / "loop", target_is_directory=True)
    os.symlink(tmp_path / "nowhere", tmp_path / "dangling.png")
    assert len(image_folder(tmp_path)) == 1


def test_a_linked_folder_is_read(tmp_path):
    save(tmp_path / "elsewhere" / "picture.png")
    (tmp_path / "data").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "data" / "link", target_is_directory=True)
    assert len(image_folder(tmp_path / "data")) == 1


def test_sixteen_bit_grey_spans_the_range(tmp_path):
    picture = Image.new("I;16", (2, 1))
    picture.putpixel((0, 0), 65535)
    picture.putpixel((1, 0), 257 * 100)
    picture.save(tmp_path / "deep.png")
    assert to_tensor(decode_picture(tmp_path / "deep.png"))[:, 0].tolist() == [[255, 100]] * 3


def test_palette_is_expanded_and_alpha_blends_over_white(tmp_path):
    save(tmp_path / "clear.png", (255, 0, 0, 0), (4, 4), "RGBA")
    assert decode_picture(tmp_path / "clear.png").getpixel((0, 0)) == (255, 255, 255)
    Image.new("RGB", (4, 4), (7, 99, 201)).quantize(4).save(tmp_path / "palette.png")
    assert decode_picture(tmp_path / "palette.png").getpixel((0, 0)) == (7, 99, 201)


def test_orientation_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.new("RGB", (20, 10)).save(tmp_path / "turned.jpg", exif=exif)
    assert decode_picture(tmp_path / "turned.jpg").size == (10, 20)


def test_float_and_wide_integer_pixels_are_refused(tmp_path):
    Image.new("F", (4, 4), 0.5).save(tmp_path / "float.tif")
    with pytest.raises(InputError, match="no stated range"):
        decode_picture(tmp_path / "float.tif")
    Image.new("I", (4, 4), 70000).save(tmp_path / "wide.tif")
    with pytest.raises(InputError, match="do not fit 16 bits"):
        decode_picture(tmp_path / "wide.tif")


def test_a_decompression_bomb_is_refused_before_decoding(tmp_path):
    header = b"BM" + (0).to_bytes(4, "little") * 2 + (54).to_bytes(4, "little")
    side = (60_000).to_bytes(4, "little")
    info = (40).to_bytes(4, "little") + side + side + b"\x01\x00\x18\x00" + bytes(24)
    (tmp_path / "bomb.bmp").write_bytes(header + info)
    with pytest.raises(InputError, match=r"bomb\.bmp cannot be read"):
        decode_picture(tmp_path / "bomb.bmp")


def whole_pictures():
    import io

    made = []
    for suffix, options in [("PNG", {}), ("JPEG", {}), ("TIFF", {}), ("WEBP", {}), ("BMP", {})]:
        ramp = Image.linear_gradient("L").resize((24, 24)).convert("RGB")
        out = io.BytesIO()
        ramp.save(out, suffix, **options)
        made.append(out.getvalue())
    return made


WHOLE = whole_pictures()


@settings(max_examples=300)
@given(st.sampled_from(WHOLE), st.data())
def test_damaged_pictures_give_a_picture_or_an_input_error(content, data):
    damaged = bytearray(content[: data.draw(st.integers(0, len(content)))])
    for _ in range(data.draw(st.integers(0, 8))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        outcome = decode_picture(bytes(damaged)).mode
    except InputError as error:
        outcome = str(error)
    assert outcome == "RGB" or "cannot be read as a picture" in outcome


def test_a_folder_is_split_the_same_way_each_time_or_by_its_own_parts(tmp_path):
    for number in range(20):
        save(tmp_path / "own" / f"{number:02}.png", (number, 0, 0))
    parts = [open_images(tmp_path / "own", split=part, size=8) for part in ("train", "test", "all")]
    assert [len(part) for part in parts] == [18, 2, 20]
    again = open_images(str(tmp_path / "own"), split="test", size=8, seed=5)
    assert torch.equal(parts[1].images, again.images)
    for part in ("train", "test"):
        save(tmp_path / "parted" / part / "a.png", (len(part), 0, 0))
    assert int(open_images(tmp_path / "parted", split="test").images[0, 0, 0, 0]) == 4
    assert len(open_images(tmp_path / "parted", split="all")) == 2


def test_a_missing_path_is_named():
    with pytest.raises(InputError, match="no/such/place is not a folder"):
        open_images("no/such/place")
