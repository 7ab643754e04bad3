from __future__ import annotations

import dataclasses
import hashlib
import http.server
import io
import tarfile
import threading
from functools import partial

import pytest

from noisewright.data import SOURCES, NotAtHandError, Source, cifar10, fetch, find, source
from noisewright.types import InputError


def test_every_entry_says_licence_origin_and_how_it_is_checked():
    for name, entry in SOURCES.items():
        assert name == entry.name
        assert entry.licence
        assert entry.licence_url.startswith("https://")
        assert entry.origin
        if entry.kind == "download":
            assert entry.folders
            assert all(check.startswith(("sha256:", "md5:")) for _, _, check in entry.files)
            assert all(url.startswith("https://") for _, url, _ in entry.files)
        elif (folder := find(name)) is not None:  # its package may not be installed here
            assert folder.is_dir()
            assert fetch(name) == folder


def test_a_misspelt_set_is_offered_the_nearest_name():
    with pytest.raises(InputError, match="did you mean 'cifar10'"):
        source("cifar-10")


def test_mirror_comes_before_the_cache_and_empty_folders_do_not_count(
    no_data, tmp_path, monkeypatch
):
    assert find("cifar10") is None
    cached = no_data / "noisewright" / "data" / "cifar10"
    cached.mkdir(parents=True)
    assert find("cifar10") is None
    (cached / "test_batch.bin").write_bytes(b"")
    assert find("cifar10") == cached
    monkeypatch.setenv("NOISEWRIGHT_DATA", str(tmp_path / "mirror"))
    with pytest.raises(InputError, match="is not a folder"):
        find("cifar10")
    (tmp_path / "mirror" / "cifar10_subset").mkdir(parents=True)
    assert find("cifar10") == cached
    (tmp_path / "mirror" / "cifar10_subset" / "file").write_bytes(b"")
    assert find("cifar10") == tmp_path / "mirror" / "cifar10_subset"


def test_a_set_that_is_not_at_hand_says_how_to_fetch_it(no_data):
    with pytest.raises(NotAtHandError, match=r"noisewright data fetch cifar10.*NOISEWRIGHT_DATA"):
        cifar10()


def archive_bytes():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        member = tarfile.TarInfo("toy/readme.txt")
        member.size = 5
        tar.addfile(member, io.BytesIO(b"hello"))
    return out.getvalue()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def served(tmp_path):
    """Serve a folder on this machine; return the folder and its address."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def toy(monkeypatch):
    """Register a set of one archive with a given address and checksum."""

    def register(url, checksum):
        entry = Source(
            "toy",
            "a toy",
            "CC0",
            "https://example.org/licence",
            "made for a test",
            "download",
            files=(("toy.tar.gz", url, checksum),),
            folders=("toy",),
        )
        monkeypatch.setitem(SOURCES, "toy", entry)
        return entry

    return register


def test_fetch_shows_the_licence_checks_unpacks_and_then_needs_no_network(no_data, served, toy):
    folder, address = served
    content = archive_bytes()
    (folder / "toy.tar.gz").write_bytes(content)
    toy(f"{address}/toy.tar.gz", f"sha256:{hashlib.sha256(content).hexdigest()}")
    told = []
    place = fetch("toy", tell=told.append)
    assert (place / "toy" / "readme.txt").read_bytes() == b"hello"
    assert len(told) == 1
    assert "Licence: CC0" in told[0]
    (folder / "toy.tar.gz").unlink()
    assert fetch("toy", tell=told.append) == place
    assert len(told) == 1


def test_an_altered_download_is_refused_and_discarded(no_data, served, toy):
    folder, address = served
    (folder / "toy.tar.gz").write_bytes(archive_bytes()[:-9])
    toy(f"{address}/toy.tar.gz", "sha256:" + "0" * 64)
    with pytest.raises(InputError, match=r"toy\.tar\.gz .* does not match .*checksum"):
        fetch("toy")
    assert [path for path in no_data.rglob("*") if path.is_file()] == []
    assert find("toy") is None


def test_fetch_without_a_network_names_the_mirror_variable(no_data, served, toy):
    _, address = served
    toy(f"{address}/missing.tar.gz", "sha256:" + "0" * 64)
    with pytest.raises(NotAtHandError, match=r"cannot be fetched .* set NOISEWRIGHT_DATA"):
        fetch("toy")
    toy("http://127.0.0.1:9/toy.tar.gz", "sha256:" + "0" * 64)
    with pytest.raises(NotAtHandError, match=r"NOISEWRIGHT_DATA to a folder that holds toy/"):
        fetch("toy")


def test_a_packaged_set_without_its_package_says_so(monkeypatch):
    entry = dataclasses.replace(SOURCES["digits"], package="not_installed_anywhere")
    monkeypatch.setitem(SOURCES, "digits", entry)
    assert find("digits") is None
    with pytest.raises(NotAtHandError, match="not_installed_anywhere"):
        fetch("digits")
