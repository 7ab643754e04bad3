"""Archives unpacked without trust: nothing lands outside the folder, nothing but plain files.

A tar or zip may come from anywhere. Refused are absolute members, members that climb out with
``..``, links, devices, and archives that unpack to more than a stated number of bytes. Whatever
the bytes are, the outcome is a folder, or an :class:`InputError` and no folder.
"""

from __future__ import annotations

import errno
import gzip
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from noisewright.storage import atomic_folder
from noisewright.types import InputError

__all__ = ["MAX_BYTES", "read_members", "unpack"]

MAX_BYTES = 8 * 2**30
"""Most bytes an archive may unpack to."""

_BLOCK = 1 << 20

_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    IndexError,
    OverflowError,
    NotImplementedError,  # an unknown compression
    RuntimeError,  # an encrypted member
    FileExistsError,  # a member that is a file here and a folder there
    NotADirectoryError,
    IsADirectoryError,
)


@contextmanager
def _blaming(archive: Path) -> Iterator[None]:
    """Turn whatever a damaged archive raises into an InputError that names it."""
    try:
        yield
    except InputError:
        raise
    except _BROKEN as error:
        raise InputError(_damaged(archive, error)) from error
    except OSError as error:
        if error.errno in (None, errno.EINVAL):  # a seek to nowhere, a broken stream
            raise InputError(_damaged(archive, error)) from error
        raise  # the disk, not the archive


def _damaged(archive: Path, error: Exception) -> str:
    reason = str(error) or type(error).__name__
    return f"{archive} cannot be unpacked ({reason}); fetch or make it again"


def _safe(archive: Path, name: str) -> str:
    """Return the member's name if it stays inside, or refuse it."""
    parts = name.replace("\\", "/").split("/")
    outside = name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or "\0" in name
    if not name or outside:
        raise InputError(
            f"{archive} holds a member {name!r} that points outside its folder; refused"
        )
    return "/".join(part for part in parts if part not in ("", "."))


def _tar_members(archive: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    with tarfile.open(archive) as tar:
        for member in tar:
            name = _safe(archive, member.name)
            if member.isdir():
                continue
            file = tar.extractfile(member) if member.isreg() else None
            if file is None:
                raise InputError(
                    f"{archive} holds {member.name!r}, a link or a device; only files are unpacked"
                )
            with file:
                yield name, member.size, file
        _finish(archive, tar)


def _finish(archive: Path, tar: tarfile.TarFile) -> None:
    """Read on to the end of the stream: only there does gzip compare its checksum."""
    for _ in range(1024):
        if tar.fileobj is None or not tar.fileobj.read(_BLOCK):
            return
    raise InputError(f"{archive} goes on for more than 1 GiB after its last member; refused")


def _zip_members(archive: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    with zipfile.ZipFile(archive) as pack:
        for member in pack.infolist():
            name = _safe(archive, member.filename)
            if member.is_dir():
                continue
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG):
                raise InputError(
                    f"{archive} holds {name!r}, a link or a device; only files are unpacked"
                )
            with pack.open(member) as file:
                yield name, member.file_size, file


def _members(archive: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    yield from (_zip_members if zipfile.is_zipfile(archive) else _tar_members)(archive)


def _counted(
    archive: Path, members: Iterator[tuple[str, int, IO[bytes]]], max_bytes: int
) -> Iterator[tuple[str, IO[bytes]]]:
    total = 0
    for name, size, file in members:
        total += size
        if total > max_bytes:
            raise InputError(f"{archive} unpacks to more than {max_bytes} bytes; refused")
        yield name, file


def read_members(
    archive: str | Path, *, suffix: str | tuple[str, ...] = "", max_bytes: int = MAX_BYTES
) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of the files in a tar or zip, in the order they are stored.

    Args:
        archive: A zip, or a tar with or without gzip, bzip2 or xz.
        suffix: Only names that end so, upper or lower case.
        max_bytes: Refuse archives that unpack to more.

    Raises:
        InputError: If the archive is damaged, or holds something refused.
    """
    archive = Path(archive)
    with _blaming(archive):
        for name, file in _counted(archive, _members(archive), max_bytes):
            if name.lower().endswith(suffix):
                yield name, file.read()


def unpack(archive: str | Path, folder: str | Path, *, max_bytes: int = MAX_BYTES) -> Path:
    """Unpack a tar or zip into ``folder``, which is replaced as a whole or stays as it was.

    Args:
        archive: A zip, or a tar with or without gzip, bzip2 or xz.
        folder: Where the files go.
        max_bytes: Refuse archives that unpack to more.

    Returns:
        The folder.

    Raises:
        InputError: If the archive is damaged, or holds something refused.
        OSError: If the disk is full.
    """
    archive = Path(archive)
    with atomic_folder(folder) as part, _blaming(archive):
        for name, file in _counted(archive, _members(archive), max_bytes):
            target = part / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as out:
                while block := file.read(_BLOCK):
                    out.write(block)
    return Path(folder)
