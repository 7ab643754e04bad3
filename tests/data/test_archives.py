from __future__ import annotations

import errno
import io
import pathlib
import stat
import tarfile
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noisewright.data import read_members, unpack
from noisewright.types import InputError


def tar_with(path, name, content=b"x", kind=tarfile.REGTYPE, link=""):
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.size = kind, link, len(content)
        tar.addfile(member, io.BytesIO(content))
    return path


def zip_with(path, name, content=b"x", mode=0):
    with zipfile.ZipFile(path, "w") as pack:
        member = zipfile.ZipInfo(name)
        member.external_attr = mode << 16
        pack.writestr(member, content)
    return path


@pytest.mark.parametrize("make", [tar_with, zip_with])
def test_plain_files_arrive(tmp_path, make):
    archive = make(tmp_path / "archive", "./inner/file.txt", b"hello")
    folder = unpack(archive, tmp_path / "out")
    assert (folder / "inner" / "file.txt").read_bytes() == b"hello"
    assert list(read_members(archive, suffix=".txt")) == [("inner/file.txt", b"hello")]
    assert list(read_members(archive, suffix=".bin")) == []


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", "..\\evil", "C:/evil", ".."])
@pytest.mark.parametrize("make", [tar_with, zip_with])
def test_members_that_point_outside_are_refused(tmp_path, make, name):
    archive = make(tmp_path / "archive", name)
    with pytest.raises(InputError, match="points outside its folder"):
        unpack(archive, tmp_path / "in" / "out")
    assert {path.name for path in tmp_path.rglob("*")} <= {"archive", "in"}
    with pytest.raises(InputError, match="points outside"):
        list(read_members(archive))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path, kind):
    archive = tar_with(tmp_path / "a.tar.gz", "name", b"", kind, "/etc/passwd")
    with pytest.raises(InputError, match="a link or a device"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_link_in_a_zip_is_refused(tmp_path):
    archive = zip_with(tmp_path / "a.zip", "name", b"/etc/passwd", stat.S_IFLNK | 0o777)
    with pytest.raises(InputError, match="a link or a device"):
        unpack(archive, tmp_path / "out")


@pytest.mark.parametrize("make", [tar_with, zip_with])
def test_an_archive_that_grows_too_large_is_refused(tmp_path, make):
    archive = make(tmp_path / "archive", "zeros", bytes(100_000))
    with pytest.raises(InputError, match="more than 1000 bytes"):
        unpack(archive, tmp_path / "out", max_bytes=1000)


def test_a_member_under_a_file_is_refused_and_the_old_folder_stays(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("old")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as pack:
        pack.writestr("name", "file")
        pack.writestr("name/below", "file")
    with pytest.raises(InputError, match="cannot be unpacked"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["old"]


def whole(make, **kwargs):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        return make(Path(folder) / "archive", "file.bin", bytes(range(256)) * 4).read_bytes()


WHOLE = [whole(tar_with), whole(zip_with)]


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(WHOLE), st.data())
def test_damaged_archives_unpack_or_give_an_input_error(tmp_path, content, data):
    damaged = bytearray(content[: data.draw(st.integers(0, len(content)))])
    for _ in range(data.draw(st.integers(0, 8))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    archive = tmp_path / "archive"
    archive.write_bytes(damaged)
    try:
        outcome = unpack(archive, tmp_path / "out", max_bytes=10_000).name
    except InputError as error:
        outcome = str(error)
    assert outcome == "out" or str(archive) in outcome


def test_a_full_disk_is_not_blamed_on_the_archive_and_leaves_nothing(tmp_path, monkeypatch):
    archive = tar_with(tmp_path / "a.tar.gz", "file.bin", bytes(5000))

    class Full(io.BytesIO):
        def write(self, block):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "open", lambda self, mode="r": Full())
    with pytest.raises(OSError, match="No space left"):
        unpack(archive, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]
