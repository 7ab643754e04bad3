"""CellStateRatio on AnnData, and the command on files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from noisewright.cli import main
from noisewright.methods.density_ratio import CellStateRatio
from noisewright.methods.density_ratio.cells import coordinates
from noisewright.types import InputError

anndata = pytest.importorskip("anndata", reason="the extra cells is not installed")

FLOW = {"hidden": (16, 16), "steps": 150, "batch_size": 64, "cv": 2, "lr": 5e-3, "random_state": 0}


def cells(n: int = 120, size: int = 4, seed: int = 0):
    """Cells of two types; in type T the treated ones are shifted."""
    rng = np.random.default_rng(seed)
    treatment, kind = np.tile(["ctrl", "stim"], n // 2), np.repeat(["B", "T"], n // 2)
    points = rng.standard_normal((n, size)) + 4.0 * (kind == "T")[:, None]
    points[(kind == "T") & (treatment == "stim")] += 2.0
    made = anndata.AnnData(np.zeros((n, 3), dtype=np.float32))
    made.obs["treatment"] = pd.Categorical(treatment)
    made.obs["cell_type"] = pd.Categorical(kind)
    made.obs["donor"] = pd.Categorical(np.tile(["d1", "d1", "d2", "d2", "d3", "d3"], n // 6))
    made.obsm["X_pca"] = points.astype(np.float32)
    return made


@pytest.fixture(scope="module")
def scored():
    made = cells()
    model = CellStateRatio(made, "treatment", n_dims=4, **FLOW).fit()
    model.score("stim", "ctrl", n_steps=5)
    return made, model


def test_scores_are_written_and_survive_a_file(scored, tmp_path):
    made, _ = scored
    made.write_h5ad(tmp_path / "scored.h5ad")
    back = anndata.read_h5ad(tmp_path / "scored.h5ad")
    r = back.obs["log_density_ratio"]
    assert r.dtype == np.float32
    np.testing.assert_array_equal(r, made.obs["log_density_ratio"])
    record = back.uns["log_density_ratio"]
    assert record["numerator"] == "stim"
    assert int(record["seed"]) == 0
    assert 0 < float(record["diagnostics"]["auc"]) <= 1


def test_effect_is_found_in_the_type_that_moved(scored):
    made, model = scored
    table = model.treatment_effect("stim", "ctrl", "cell_type")
    assert table["n"].to_dict() == {"B": 60, "T": 60}
    assert (table["low"] <= table["mean"]).all()
    assert (table["mean"] <= table["high"]).all()
    r = made.obs["log_density_ratio"].to_numpy()
    treated = (made.obs["treatment"] == "stim").to_numpy()
    moved = (made.obs["cell_type"] == "T").to_numpy()
    assert r[moved & treated].mean() > r[moved & ~treated].mean() + 0.3


def test_intervals_over_samples_count_samples(scored):
    table = scored[1].treatment_effect("stim", "ctrl", "cell_type", sample_key="donor")
    assert table["samples"].tolist() == [3, 3]
    assert (table["sample_sd"] >= 0).all()


def test_synergy_of_a_control_with_itself_is_minus_the_part(scored):
    _, model = scored
    synergy = model.synergy("stim", ["ctrl"], "ctrl")
    assert synergy.index.equals(model.adata.obs.index)
    r = model.flow.log_ratio(model.points, "stim", "ctrl", along="ctrl")
    np.testing.assert_allclose(synergy, r, atol=1e-5)


def test_batch_score_has_a_row_for_each_type_and_batch():
    made = cells()
    model = CellStateRatio(
        made, "treatment", n_dims=4, cell_type_key="cell_type", batch_key="treatment", **FLOW
    ).fit()
    table = model.batch_score()
    assert len(table) == 4
    assert table["n"].tolist() == [30] * 4
    assert model.batch_ratio.shape == (120,)
    with pytest.raises(InputError, match="batch_key"):
        CellStateRatio(made, "treatment", n_dims=4, **FLOW).batch_score()


def test_view_is_copied_and_the_original_stays():
    made = cells()
    view = made[:60]
    model = CellStateRatio(view, "treatment", n_dims=4, **FLOW)
    assert not model.adata.is_view
    assert "log_density_ratio" not in made.obs


def test_missing_keys_list_what_exists():
    made = cells()
    with pytest.raises(KeyError, match="X_pca"):
        CellStateRatio(made, "treatment", rep="X_scvi")
    with pytest.raises(KeyError, match="treatment"):
        CellStateRatio(made, "treatmnt", n_dims=4)
    with pytest.raises(InputError, match="4 coordinates, n_dims=20"):
        CellStateRatio(made, "treatment")


def test_sparse_expression_is_dense_up_to_a_limit():
    made = cells()
    made.X = sparse.csr_matrix(np.eye(120, 3, dtype=np.float32))
    assert coordinates(made, "X", 20).shape == (120, 3)

    class Huge:
        X = sparse.csr_matrix((200_000, 1000))
        obsm = ()

    with pytest.raises(InputError, match="too many to be dense"):
        coordinates(Huge(), "X", 20)


def test_backed_file_is_scored(tmp_path):
    cells().write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    model = CellStateRatio(backed, "treatment", n_dims=4, **FLOW).fit()
    assert np.isfinite(model.score("stim", "ctrl", n_steps=3)).all()
    backed.file.close()


def test_command_scores_a_file(tmp_path, capsys):
    cells().write_h5ad(tmp_path / "cells.h5ad")
    out = tmp_path / "scored.h5ad"
    flags = "--n-dims 4 --hidden 8 --steps 5 --cv 2 --n-steps 2 --groupby cell_type"
    files = ["--h5ad", str(tmp_path / "cells.h5ad"), "--out", str(out)]
    assert main(["density_ratio", *files, "--condition", "treatment", *flags.split()]) == 0
    said = capsys.readouterr().out
    assert "120 cells" in said
    assert "log p(stim) / p(ctrl)" in said
    assert "log_density_ratio" in anndata.read_h5ad(out).obs
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cells.h5ad", "scored.h5ad"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--condition", "drug"], "obs has no 'drug'"),
        (["--condition", "donor"], "3 conditions"),
        (["--condition", "treatment", "--rep", "X_scvi"], "X_scvi"),
        (["--condition", "treatment", "--numerator", "x", "--denominator", "ctrl"], "no 'x'"),
    ],
)
def test_command_refuses_what_cannot_work(tmp_path, capsys, flags, words):
    cells().write_h5ad(tmp_path / "cells.h5ad")
    files = ["--h5ad", str(tmp_path / "cells.h5ad"), "--out", str(tmp_path / "out.h5ad")]
    assert main(["density_ratio", *files, "--n-dims", "4", *flags]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out.h5ad").exists()
