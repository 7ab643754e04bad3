"""The experiment in a miniature setting, on a graph of one's own, and its parts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from noisewright import methods
from noisewright.methods.parpic import baselines, directed_sbm, experiment, measures
from noisewright.methods.parpic.baselines import METHODS, available_methods, cluster
from noisewright.methods.parpic.footprint import dense_spectral, measure
from noisewright.methods.parpic.graph_sets import block_model, packaged, scale_graph
from noisewright.methods.parpic.settings import Settings
from noisewright.reports import load_claims
from noisewright.reports.run import Options, execute, room_folder
from noisewright.types import InputError

APART = [[0.3, 0.02, 0.02], [0.02, 0.3, 0.02], [0.02, 0.02, 0.3]]


class Silent:
    def progress(self, done, total, **numbers):
        pass


@pytest.mark.parametrize("method", available_methods())
def test_every_method_finds_plain_groups_or_is_known_not_to(method):
    graph, groups = directed_sbm([60] * 3, APART, random_state=0)
    labels = cluster(method, graph, 3, seed=0)
    score = measures.agreement(groups, labels)["ari"]
    # i (W - W.T) holds directions alone, and these groups have none.
    assert score < 0.2 if method == "hermitian" else score > 0.9
    assert (labels == cluster(method, graph, 3, seed=0)).all()


@pytest.mark.parametrize("method", ["hermitian", "bibliometric"])
def test_spectral_methods_for_directions_find_a_chain(method):
    case = block_model("chain", 0)
    assert measures.agreement(case.groups, cluster(method, case.graph, 3, 0))["ari"] > 0.95


@pytest.mark.parametrize(
    ("method", "probs"),
    [
        ("sc_sym", APART),
        ("dsc", APART),
        ("bibliometric", APART),
        ("hermitian", [[0.05, 0.6, 0], [0.01, 0.05, 0.6], [0, 0.01, 0.05]]),
    ],
)
def test_lanczos_and_dense_eigenvectors_give_the_same_groups(method, probs, monkeypatch):
    graph, _ = directed_sbm([50] * 3, probs, random_state=1)
    dense = cluster(method, graph, 3, 0)
    monkeypatch.setattr(baselines, "DENSE_BELOW", 0)
    assert measures.agreement(dense, cluster(method, graph, 3, 0))["ari"] > 0.99


def test_full_decomposition_finds_what_the_iterative_one_does():
    graph = scale_graph(300, 0)
    ours, theirs = dense_spectral(graph, 3, 0), cluster("sc_sym", graph, 3, 0)
    assert measures.agreement(ours, theirs)["ari"] == 1


def test_unknown_method_gets_the_nearest_name():
    with pytest.raises(InputError, match="did you mean 'louvain'"):
        cluster("louvein", scale_graph(60, 0), 3, 0)


def test_isolated_vertices_are_labelled_apart_by_every_method():
    graph, _ = directed_sbm([30] * 2, [[0.4, 0.02], [0.02, 0.4]], random_state=0)
    graph.resize((62, 62))
    for method in available_methods():
        labels = cluster(method, graph, 2, 0)
        assert (labels[60:] == -1).all()
        assert (labels[:60] >= 0).all()


def test_scale_graphs_keep_their_degree():
    for n in (300, 3000):
        assert scale_graph(n, 0).nnz / n == pytest.approx(15, rel=0.05)


def test_time_and_memory_are_measured():
    found = measure(["parpic", "louvain"], 300, 0, 1) if "louvain" in available_methods() else {}
    for row in found.values():
        assert row["seconds"] > 0
        assert row["peak_mb"] >= 0
        assert row["edges"] == scale_graph(300, 0).nnz


def test_packaged_tables_become_graphs_with_their_degrees():
    case = packaged("iris")
    assert set(case.graph.sum(axis=1)) == {6.0}  # ceil(log 150)
    assert case.n_groups == 3


def test_checks_of_a_block_model_meet_their_bars():
    graph, groups = directed_sbm([50] * 3, APART, random_state=0)
    found = measures.check_walk(Silent(), name="toy", graph=graph, groups=groups, seed=0)
    assert found["balance"] <= 1e-15
    assert max(found["rows"], found["permutation"], found["scale"]) <= 1e-12
    assert found["entropy_exact"] <= 1e-10
    assert found["entropy_probes"] <= 0.05


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 2.0}, "gamma=2.0"),
        ({"gammas": ()}, "gammas"),
        ({"repeats": 0}, "repeats"),
        ({"sizes": (300,)}, "sizes"),
        ({"sizes": (300, 301)}, "sizes"),
        ({"clusters": "x"}, "clusters"),
        ({"labels": "l.csv"}, "goes with graph"),
    ],
)
def test_setting_that_cannot_work_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        Settings(**settings).checked()


def test_own_graph_gets_labels_scores_and_pictures(tmp_path):
    graph, groups = directed_sbm([40] * 3, APART, random_state=0)
    edges = "\n".join(f"p{i} p{j}" for i, j in zip(*graph.nonzero(), strict=True))
    (tmp_path / "g.edges").write_text(edges)
    rows = "\n".join(f"p{i},{'xyz'[group]}" for i, group in enumerate(groups))
    (tmp_path / "known.csv").write_text(f"vertex,label\n{rows}\n")
    settings = Settings(
        graph=str(tmp_path / "g.edges"), labels=str(tmp_path / "known.csv"), clusters="auto"
    )
    result = execute(
        methods.room("parpic"), experiment, settings, Options(out=tmp_path / "run", jobs=1)
    )
    assert result.values["ari.own.parpic"] > 0.95
    assert "3 groups (chosen)" in result.finding
    assert len((tmp_path / "run" / "labels.csv").read_text().splitlines()) == 121
    assert {one.verdict for one in result.judged} == {"not measured"}


@pytest.mark.slow
def test_quick_run_judges_every_claim_it_can(tmp_path, no_data):
    tiny = Settings(sizes=(60, 150), baseline_limit=60, gammas=(0.5,))
    result = execute(
        methods.room("parpic"), experiment, tiny, Options(quick=True, out=tmp_path, jobs=2)
    )
    claims = load_claims(room_folder(methods.room("parpic")) / "claims.toml")
    assert [one.key for one in result.judged] == [claim.key for claim in claims]
    unmeasured = {one.key.split(".")[1] for one in result.judged if one.verdict == "not measured"}
    assert unmeasured == {"drosophila_left", "email", "all_mean", "30000", "3000"}
    metrics = json.loads((tmp_path / "metrics.json").read_text())["values"]
    assert {f"ari.chain.{m}" for m in METHODS if m in available_methods()} <= set(metrics)
    assert metrics["ari.chain.parpic"]["mean"] >= 0.9
    assert np.isfinite(metrics["scaling_exponent"]["mean"])
    assert len(list((tmp_path / "figures").glob("*.png"))) >= 6
    html = (tmp_path / "report.html").read_text()
    assert "noisewright data fetch drosophila_mb" in html
