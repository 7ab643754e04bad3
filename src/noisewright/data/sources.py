"""The registry of named data: what it is, whose it is, where it lies, how it is fetched.

A set is looked for in the folder that ``NOISEWRIGHT_DATA`` names (laid out as ``DIR/<set>/...``,
an offline mirror), then in the cache of earlier downloads. Nothing is downloaded unless
:func:`fetch` is called. A new set is one entry in ``SOURCES`` and one loader beside this file.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs

from noisewright.data.archives import unpack
from noisewright.storage import atomic_folder
from noisewright.types import InputError, nearest_name

__all__ = ["MIRROR", "SOURCES", "NotAtHandError", "Source", "fetch", "find", "source"]

MIRROR = "NOISEWRIGHT_DATA"
"""Name of the environment variable that points to a folder of sets."""


class NotAtHandError(InputError):
    """A named set is neither in the mirror nor in the cache, or cannot be fetched now."""


@dataclass(frozen=True)
class Source:
    """One named set of data.

    Attributes:
        name: Name on the command line.
        title: What it is, in a few words.
        licence: Licence, or what its owner says in place of one.
        licence_url: Where that stands.
        origin: Citation.
        kind: ``"packaged"``: inside an installed dependency; ``"download"``: fetched when asked.
        files: File name, address, checksum as ``"md5:..."`` or ``"sha256:..."``: one archive, or
            plain files. None: the set is put into the mirror by hand, as ``note`` says.
        folders: Names its folder may have in a mirror, first found wins.
        size: Bytes to download.
        package: For packaged sets, the module that carries them.
        note: What else a user should know.
    """

    name: str
    title: str
    licence: str
    licence_url: str
    origin: str
    kind: Literal["packaged", "download"]
    files: tuple[tuple[str, str, str], ...] = ()
    folders: tuple[str, ...] = ()
    size: int = 0
    package: str = ""
    note: str = ""

    def notice(self) -> str:
        """Return what is shown before a download: title, licence, origin, size.

        Example:
            >>> SOURCES["cifar10"].notice().splitlines()[0]
            'CIFAR-10, 60,000 colour images of 32 x 32 pixels in ten classes (170 MB)'
        """
        size = f" ({self.size / 1e6:.0f} MB)" if self.size else ""
        return (
            f"{self.title}{size}\nLicence: {self.licence} ({self.licence_url})\n"
            f"Origin: {self.origin}"
        )


_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz")

_CONNECTOME = (
    "https://raw.githubusercontent.com/graspologic-org/graspologic/"
    "0aab4e0dd9a3387b0d761b4a0bb7ffd2a1a5ea25/graspologic/datasets/drosophila"
)
_TRANSFORMERS = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small"
_PAGE = "https://www.cs.toronto.edu/~kriz"

SOURCES: dict[str, Source] = {
    entry.name: entry
    for entry in (
        Source(
            name="photos",
            title="crops of photographs packaged in scikit-image and scikit-learn",
            licence="public domain, CC0 or CC BY 2.0, stated for each photograph",
            licence_url="https://scikit-image.org/docs/stable/api/skimage.data.html",
            origin="the sample pictures of scikit-image and scikit-learn",
            kind="packaged",
            package="skimage",
            note="split by photograph; see noisewright.data.PHOTOGRAPHS for authors",
        ),
        Source(
            name="digits",
            title="handwritten digits, 1,797 grey images of 8 x 8 pixels",
            licence="CC BY 4.0",
            licence_url="https://archive.ics.uci.edu/dataset/80",
            origin="E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI, 1998",
            kind="packaged",
            package="sklearn",
            note="the copy that scikit-learn carries: the test part of the original",
        ),
        Source(
            name="pbmc68k_reduced",
            title="700 blood cells x 765 genes with clusters and principal components",
            licence="BSD-3-Clause, as part of scanpy",
            licence_url="https://github.com/scverse/scanpy/blob/main/LICENSE",
            origin="G. Zheng et al., Nature Communications 8, 14049 (2017), reduced by scanpy",
            kind="packaged",
            package="scanpy",
            note="an h5ad file, read with anndata; scanpy itself is not imported",
        ),
        Source(
            name="cifar10",
            title="CIFAR-10, 60,000 colour images of 32 x 32 pixels in ten classes",
            licence="none stated; published for research",
            licence_url=f"{_PAGE}/cifar.html",
            origin="A. Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009",
            kind="download",
            files=(
                (
                    "cifar-10-binary.tar.gz",
                    f"{_PAGE}/cifar-10-binary.tar.gz",
                    "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                ),
            ),
            folders=("cifar10", "cifar10_subset"),
            size=170_052_171,
            note="the binary version: the other one is a pickle, which is never loaded",
        ),
        Source(
            name="drosophila_mb",
            title="mushroom body of a fly larva, 209 and 213 neurons joined by counted synapses",
            licence="MIT",
            licence_url="https://github.com/graspologic-org/graspologic/blob/main/LICENSE",
            origin="K. Eichler et al.: The complete connectome of a learning and memory centre in "
            "an insect brain, Nature 548, 2017; files of graspologic",
            kind="download",
            files=tuple(
                (file, f"{_CONNECTOME}/{file}", f"sha256:{checksum}")
                for file, checksum in (
                    (
                        "left_adjacency.csv",
                        "f23ba630f10dff95164ddbbdccf7d4fe1ac01a9a8ed77db26069af4a6248a1cf",
                    ),
                    (
                        "left_cell_labels.csv",
                        "a733652a33d5dde5c7cbdc9d8c0e679680cd000dc11edf3ea762a4da43b764c9",
                    ),
                    (
                        "right_adjacency.csv",
                        "b9684d323e3f91ac5bf8c3691ff3e0635ef40fa2dee8e048161633760c84791d",
                    ),
                    (
                        "right_cell_labels.csv",
                        "80547ac9df6b3fc5abe5844c04bc5da56b48c7cac5eb13ab3cc2f8695cd6de1d",
                    ),
                )
            ),
            folders=("drosophila_mb",),
            size=180_000,
        ),
        Source(
            name="ett",
            title="ETTh1 and ETTh2, 17,420 hours of loads and oil temperature of two transformers",
            licence="CC BY-ND 4.0: unmodified, with attribution",
            licence_url="https://github.com/zhouhaoyi/ETDataset/blob/main/LICENSE",
            origin="H. Zhou et al.: Informer, AAAI 2021, arXiv:2012.07436",
            kind="download",
            files=tuple(
                (file, f"{_TRANSFORMERS}/{file}", f"sha256:{checksum}")
                for file, checksum in (
                    (
                        "ETTh1.csv",
                        "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
                    ),
                    (
                        "ETTh2.csv",
                        "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b",
                    ),
                )
            ),
            folders=("ett",),
            size=5_100_000,
            note="splits and scalings are made at run time; the files are never changed or shipped",
        ),
        Source(
            name="statsmodels_series",
            title="sunspots, CO2, sea surface temperature and Nile flow, as statsmodels has them",
            licence="public domain or BSD-3-Clause, stated for each series by statsmodels",
            licence_url="https://www.statsmodels.org/stable/datasets/index.html",
            origin="statsmodels.datasets",
            kind="packaged",
            package="statsmodels",
        ),
        Source(
            name="email_eu_core",
            title="who mailed whom in a European institution, 1,005 people of 42 departments",
            licence="none stated; published for research",
            licence_url="https://snap.stanford.edu/data/email-Eu-core.html",
            origin="H. Yin, A. R. Benson, J. Leskovec, D. F. Gleich: Local higher-order graph "
            "clustering, KDD 2017",
            kind="download",
            folders=("email_eu_core",),
            note="download email-Eu-core.txt.gz and email-Eu-core-department-labels.txt.gz from "
            "https://snap.stanford.edu/data/email-Eu-core.html, unpack them into "
            f"DIR/email_eu_core/ and set {MIRROR}=DIR",
        ),
    )
}


def source(name: str) -> Source:
    """Return the registered set of that name.

    Raises:
        InputError: If there is none; the nearest name is offered.

    Example:
        >>> source("cifar10").kind
        'download'
    """
    if name not in SOURCES:
        raise InputError(f"no data set {name!r}{nearest_name(name, SOURCES)}")
    return SOURCES[name]


def _cache() -> Path:
    return platformdirs.user_cache_path("noisewright") / "data"


def _filled(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def find(name: str) -> Path | None:
    """Return the folder that holds a set, or None when it is not at hand.

    Args:
        name: A registered name. The mirror comes first, then the cache; for a packaged set it is
            the folder of the package.

    Raises:
        InputError: If the name is unknown, or ``NOISEWRIGHT_DATA`` is set and no folder.
    """
    entry = source(name)
    if entry.kind == "packaged":
        spec = importlib.util.find_spec(entry.package)
        places = list(spec.submodule_search_locations or ()) if spec else []
        return Path(places[0]) if places else None
    mirror = os.environ.get(MIRROR)
    if mirror and not Path(mirror).is_dir():
        raise InputError(f"{MIRROR}={mirror} is not a folder; correct it or unset it")
    places = [Path(mirror) / folder for folder in entry.folders] if mirror else []
    return next(filter(_filled, [*places, _cache() / name]), None)


def fetch(name: str, *, tell: Callable[[str], object] | None = None) -> Path:
    """Return the folder of a set, downloading it from its official address if need be.

    The file is checked against its registered checksum and unpacked without trust.

    Args:
        name: A registered name.
        tell: Called with the notice (title, licence, origin) before a download starts.

    Returns:
        The folder that holds the set.

    Raises:
        NotAtHandError: If there is no network or the server does not answer.
        InputError: If the name is unknown, or what came does not match the checksum.
        OSError: If the disk is full; nothing is left behind.
    """
    found = find(name)
    if found is not None:
        return found
    entry = source(name)
    if entry.kind == "packaged":
        raise NotAtHandError(f"{name} comes with {entry.package!r}, which is not installed")
    if tell is not None:
        tell(entry.notice())
    if not entry.files:
        raise NotAtHandError(f"{name} has no download with a known checksum; {entry.note}")
    return _placed([_download(entry, *file) for file in entry.files], _cache() / name)


def _placed(downloads: list[Path], folder: Path) -> Path:
    """Fill the folder of a set: unpack its one archive, or move its plain files there."""
    if len(downloads) == 1 and downloads[0].suffix in _ARCHIVES:
        unpack(downloads[0], folder)
        downloads[0].unlink()
        return folder
    with atomic_folder(folder) as part:
        for path in downloads:
            shutil.move(path, part / path.name)
    return folder


def _download(entry: Source, file: str, url: str, checksum: str) -> Path:
    """Fetch one file into the cache, with its checksum verified."""
    import pooch

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # the caller speaks to the user, through ``tell``
    try:
        path = pooch.retrieve(url, checksum, fname=file, path=_cache() / "downloads")
    except ValueError as error:
        if "does not match" not in str(error):
            raise
        raise InputError(
            f"{file} from {url} does not match its registered checksum {checksum}: it was cut "
            f"short or altered, and is discarded; try again, or put the set into "
            f"{MIRROR}/{entry.folders[0]}"
        ) from error
    except OSError as error:  # requests' errors are OSErrors
        if error.errno is not None:
            raise  # the disk, not the network
        raise NotAtHandError(
            f"{entry.name} cannot be fetched from {url} ({type(error).__name__}); without a "
            f"network, set {MIRROR} to a folder that holds {' or '.join(entry.folders)}/"
        ) from error
    finally:
        logger.setLevel(level)
    return Path(path)
