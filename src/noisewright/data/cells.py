"""Single cells: AnnData files, and the blood cells that scanpy carries.

An ``.h5ad`` file holds a matrix of counts (cells x genes), annotations of cells (``obs``), and
coordinates of cells in reduced spaces (``obsm``: principal components, UMAP). Needs ``anndata``,
of the extra ``cells``; scanpy itself is never imported.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisewright.data.provenance import Provenance
from noisewright.data.sources import NotAtHandError, find
from noisewright.types import InputError

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["describe_cells", "pbmc68k_reduced", "read_cells"]

PACKAGED = Path("datasets") / "10x_pbmc68k_reduced.h5ad"


def _anndata() -> Any:
    if importlib.util.find_spec("anndata") is None:
        raise InputError(
            "reading cells needs the package 'anndata'; install it with: "
            "pip install 'noisewright[cells]'"
        )
    import anndata

    return anndata


def read_cells(path: str | Path, *, backed: bool = False) -> AnnData:
    """Read an ``.h5ad`` file.

    Args:
        path: The file.
        backed: Leave the matrix of counts on disk; annotations and coordinates are read.

    Raises:
        InputError: If the file is absent, of another kind or damaged, or anndata is missing.
    """
    path = Path(path)
    if path.suffix.lower() != ".h5ad":
        raise InputError(f"{path} is no .h5ad file; write one with adata.write_h5ad(...)")
    if not path.is_file():
        raise InputError(f"{path} does not exist")
    anndata = _anndata()
    try:
        with warnings.catch_warnings():
            # Files of older versions are read as well; their notices are for their writers.
            warnings.simplefilter("ignore")
            return anndata.read_h5ad(path, backed="r" if backed else None)
    except Exception as error:  # h5py and anndata raise many kinds for a damaged file
        raise InputError(
            f"{path} cannot be read as h5ad ({type(error).__name__}: {error}); it may be cut "
            "short or written by a newer anndata"
        ) from error


def pbmc68k_reduced() -> tuple[AnnData, Provenance]:
    """Return 700 blood cells with 765 genes, as packaged by scanpy.

    Peripheral blood mononuclear cells of one donor (Zheng et al. 2017), processed by scanpy's
    authors: ``obs`` has ``bulk_labels`` (10 cell types), ``louvain`` (11 clusters) and ``phase``;
    ``obsm`` has ``X_pca`` (50) and ``X_umap`` (2).

    Returns:
        The cells and where they came from.

    Raises:
        NotAtHandError: If scanpy is not installed or does not carry the file.
    """
    package = find("pbmc68k_reduced")
    path = package / PACKAGED if package is not None else None
    if path is None or not path.is_file():
        raise NotAtHandError(
            "pbmc68k_reduced comes with scanpy, which is not installed (or does not carry the "
            "file); install it with: pip install 'noisewright[cells]'"
        )
    cells = read_cells(path)
    version = importlib.metadata.version("scanpy")
    return cells, Provenance(
        name="pbmc68k_reduced",
        title="blood cells of one donor",
        licence="BSD-3-Clause, as part of scanpy",
        origin="G. Zheng et al., Nature Communications 8, 14049 (2017), reduced by scanpy",
        place=f"scanpy {version}",
        count=cells.n_obs,
        shape=(cells.n_vars,),
        unit="scaled log expression, unitless",
        notes=("Clusters and 50 principal components are those of the file.",),
    )


def describe_cells(cells: AnnData, place: str) -> str:
    """Return one sentence on what a file holds.

    Args:
        cells: The cells.
        place: Where they were read.
    """
    coordinates = ", ".join(f"{name} ({v.shape[1]})" for name, v in cells.obsm.items())
    return (
        f"{place}: {cells.n_obs} cells, {cells.n_vars} genes; annotations "
        f"{', '.join(map(str, cells.obs.columns)) or 'none'}; coordinates {coordinates or 'none'}."
    )
