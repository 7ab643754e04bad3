"""Cells from files: the packaged set, and files that cannot be read."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

from noisewright.data import describe_cells, pbmc68k_reduced, read_cells
from noisewright.types import InputError

anndata = pytest.importorskip("anndata", reason="the extra cells is not installed")


@pytest.fixture(scope="module")
def packaged():
    if importlib.util.find_spec("scanpy") is None:
        pytest.skip("scanpy, which carries the cells, is not installed")
    return pbmc68k_reduced()


def test_packaged_cells_are_those_of_the_paper(packaged):
    cells, provenance = packaged
    assert cells.shape == (700, 765)
    assert cells.obsm["X_pca"].shape == (700, 50)
    assert cells.obsm["X_umap"].shape == (700, 2)
    sizes = cells.obs["louvain"].value_counts()
    assert (sizes["1"], sizes["2"]) == (123, 117)
    assert provenance.count == 700
    assert "BSD" in provenance.licence


def test_reading_the_packaged_cells_does_not_import_scanpy():
    code = (
        "import sys; from noisewright.data import pbmc68k_reduced; pbmc68k_reduced(); "
        "sys.exit('scanpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_description_names_what_a_file_holds(packaged):
    text = describe_cells(packaged[0], "a.h5ad")
    assert "700 cells, 765 genes" in text
    assert "louvain" in text
    assert "X_pca (50)" in text


def test_file_that_was_written_comes_back(tmp_path):
    cells = anndata.AnnData(np.eye(4, dtype=np.float32))
    cells.obs["condition"] = ["a", "b", "a", "b"]
    cells.write_h5ad(tmp_path / "cells.h5ad")
    back = read_cells(tmp_path / "cells.h5ad")
    assert back.obs["condition"].tolist() == ["a", "b", "a", "b"]
    np.testing.assert_array_equal(np.asarray(back.X), np.eye(4))


@pytest.mark.parametrize("content", [b"", b"no h5ad", b"\x89HDF\r\n\x1a\n" + bytes(200)])
def test_damaged_file_is_refused_by_name(tmp_path, content):
    path = tmp_path / "cells.h5ad"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"cells\.h5ad cannot be read as h5ad"):
        read_cells(path)


def test_file_cut_short_is_refused(tmp_path):
    path = tmp_path / "cells.h5ad"
    anndata.AnnData(np.ones((50, 40), dtype=np.float32)).write_h5ad(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match="cannot be read"):
        read_cells(path)


def test_absent_file_and_another_kind_are_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_cells(tmp_path / "none.h5ad")
    with pytest.raises(InputError, match="is no"):
        read_cells(tmp_path / "table.csv")
