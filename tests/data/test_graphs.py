"""Graph files of every kind: what is read, and what is refused in words."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.io import mmwrite

from noisewright.data import NotAtHandError, fetch, find, sources
from noisewright.data.graph_sets import drosophila_mb, email_eu_core
from noisewright.data.graphs import GRAPH_SUFFIXES, Graph, read_graph, read_vertex_labels
from noisewright.types import InputError

TRIANGLE = np.array([[0, 2.5, 0], [0, 0, 1], [1, 0, 0]])


def read(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_graph(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("g.csv", "a,b,2.5\nb,c,1\nc,a,1\n"),
        ("g.csv", "source,target,weight\na,b,2.5\nb,c,1\nc,a,1\n"),
        ("g.csv", "Weight,To,From\n2.5,b,a\n1,c,b\n1,a,c\n"),
        ("g.csv", "a;b;2.5\r\nb;c;1\r\nc;a;1\r\n"),
        ("g.csv", '"a","b",2.5\n"b","c",1\n"c","a",1\n'),
        ("g.tsv", "a\tb\t2.5\nb\tc\t1\nc\ta\t1\n"),
        ("g.edges", "% bip weighted\na b 2.5\n\n# comment\nb  c 1\nc a 1"),
        ("g.txt", "\ufeffa b 2.5\nb c 1 \n c a 1\n"),
        ("g.edgelist", "a b 2.5\nb c 0.25\nb c 0.75\nc a 1\na c 0\n"),
    ],
)
def test_edge_rows_are_read(tmp_path, name, text):
    graph = read(tmp_path, name, text)
    assert graph.names.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(graph.adjacency.toarray(), TRIANGLE)


def test_names_with_spaces_and_signs_survive_in_csv(tmp_path):
    graph = read(tmp_path, "g.csv", '"Smith, J.",R&D #2\nR&D #2,NA\n')
    assert graph.names.tolist() == ["Smith, J.", "R&D #2", "NA"]
    assert graph.adjacency.sum() == 2


def test_whole_numbers_are_sorted_as_numbers(tmp_path):
    graph = read(tmp_path, "g.edges", "10 9\n9 100\n")
    assert graph.names.tolist() == ["9", "10", "100"]
    assert graph.adjacency[1, 0] == graph.adjacency[0, 2] == 1


def test_compressed_edge_rows_are_read(tmp_path):
    graph = read(tmp_path, "g.txt.gz", gzip.compress(b"0 1\n1 2\n"))
    assert graph.adjacency.nnz == 2


def test_repeated_edges_are_added_and_mentioned(tmp_path):
    graph = read(tmp_path, "g.csv", "a,b\na,b\nb,b\n")
    assert graph.adjacency[0, 1] == 2
    assert graph.describe() == (
        "g.csv: 2 vertices, 2 directed edges (1 self-loop), weights 1 to 2. 1 repeated edges were "
        "added to their first."
    )


def test_matrices_are_read(tmp_path):
    mmwrite(tmp_path / "g.mtx", sparse.coo_array(TRIANGLE))
    sparse.save_npz(tmp_path / "g.npz", sparse.csr_array(TRIANGLE))
    for name, first in (("g.mtx", "1"), ("g.npz", "0")):
        graph = read_graph(tmp_path / name)
        np.testing.assert_array_equal(graph.adjacency.toarray(), TRIANGLE)
        assert graph.names[0] == first


def test_graphml_keeps_names_weights_and_attributes(tmp_path):
    networkx = pytest.importorskip("networkx")
    made = networkx.DiGraph()
    made.add_weighted_edges_from([("a", "b", 2.5), ("b", "c", 1), ("c", "a", 1)])
    networkx.set_node_attributes(made, {"a": "red", "b": "blue"}, "side")
    networkx.write_graphml(made, tmp_path / "g.graphml")
    graph = read_graph(tmp_path / "g.graphml")
    np.testing.assert_array_equal(graph.adjacency.toarray(), TRIANGLE)
    groups, names = read_vertex_labels("side", graph)
    assert groups.tolist() == [1, 0, -1]
    assert names == ("blue", "red")


GML = """graph [
  directed {directed}
  node [ id 1 label "x" value 0 ]
  node [ id 2 label "y" value 1 ]
  edge [ source 1 target 2 {key} ]
  {more}
]"""


def test_gml_with_repeated_edges_is_read_though_it_declares_no_multigraph(tmp_path):
    pytest.importorskip("networkx")
    again = "edge [ source 1 target 2 ]"
    graph = read(tmp_path, "g.gml", GML.format(directed=1, key="", more=again))
    assert graph.adjacency.toarray().tolist() == [[0, 2], [0, 0]]
    assert graph.names.tolist() == ["x", "y"]
    assert read_vertex_labels("value", graph)[0].tolist() == [0, 1]


def test_undirected_gml_counts_edges_both_ways_and_says_so(tmp_path):
    pytest.importorskip("networkx")
    graph = read(tmp_path, "g.gml", GML.format(directed=0, key="value 3", more=""))
    assert graph.adjacency.toarray().tolist() == [[0, 3], [3, 0]]
    assert "both ways" in graph.describe()
    assert "value was taken as the weight" in graph.describe()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("g.csv", b"", "empty"),
        ("g.csv", b"# only\n% comments\n", "no row besides comments"),
        ("g.csv", b"a,b\nb,c,1\n", "line 2 has 3 columns, the first row 2"),
        ("g.csv", b"a,b,1\nb,c,x\n", "line 2: weight 'x' is no finite number"),
        ("g.csv", b"a,b,1\n#\nb,c,inf\n", "line 3: weight 'inf'"),
        ("g.csv", b"a,b\nb,\n", "line 2: source or target is missing"),
        ("g.csv", b"a,b,1\nb\n", "line 2"),
        ("g.csv", b"a\nb\n", "line 1: one column"),
        ("g.csv", b"source,target\n", "header only"),
        ("g.csv", b"a,b\x00\n", "not a text file"),
        ("g.csv", b'"a,b\nb,c\n', "never closed|EOF"),
        ("g.txt.gz", b"0 1\n", "cannot be read"),
        ("g.mtx", b"hello", "no Matrix Market file"),
        ("g.npz", b"PK\x03\x04", "no sparse matrix"),
        ("g.gml", b"graph [ node", "no GML file"),
        ("g.graphml", b"<graphml>", "no GraphML file"),
        ("g.docx", b"0 1", "unknown kind of graph file '.docx'; known: .csv"),
        ("g", b"0 1", "unknown kind of graph file ''"),
    ],
)
def test_damaged_file_is_refused(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, name, content)


def test_absent_file_and_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_graph(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        read_graph(tmp_path / "folder.csv")


def test_rectangular_and_complex_matrices_are_refused(tmp_path):
    sparse.save_npz(tmp_path / "wide.npz", sparse.csr_array((3, 4)))
    with pytest.raises(InputError, match=r"square, got shape \(3, 4\)"):
        read_graph(tmp_path / "wide.npz")
    mmwrite(tmp_path / "turned.mtx", sparse.coo_array(TRIANGLE * 1j))
    with pytest.raises(InputError, match="complex128"):
        read_graph(tmp_path / "turned.mtx")


PIECES = st.sampled_from(
    ["a", "b", "7", "-1", "1e5", "nan", ",", ";", "\t", " ", "\n", '"', "#", "%", "[", "]", "<",
     ">", "graph", "node", "edge", "id", "source", "target", "label", "%%MatrixMarket matrix "
     "coordinate real general\n", "é", "\x00", "\x1a", "\u2028"]
)  # fmt: skip


@pytest.mark.parametrize("suffix", GRAPH_SUFFIXES)
@given(text=st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=30).map("".join)))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_a_file_holds_it_is_read_or_refused(tmp_path, suffix, text):
    try:
        graph = read(tmp_path, f"g{suffix}", text)
    except InputError:
        return
    assert graph.adjacency.shape == (len(graph.names),) * 2
    assert np.isfinite(graph.adjacency.data).all()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("l.csv", "vertex,label\nc,x\na,y\nb,x\n", [1, 0, 0]),
        ("l.txt", "a 1\nb 2\n", [0, 1, -1]),
        ("l.csv", "y\nx\nx\n", [1, 0, 0]),
        ("l.csv", "label\ny\nx\nx\n", [1, 0, 0]),
    ],
)
def test_labels_are_matched_to_vertices(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    graph = Graph(sparse.csr_array(TRIANGLE), np.array(["a", "b", "c"]))
    assert read_vertex_labels(tmp_path / name, graph)[0].tolist() == expected


@pytest.mark.parametrize(
    ("text", "message"), [("q,1\n", "no vertex of the graph"), ("x\ny\n", "2 labels for 3")]
)
def test_labels_of_another_graph_are_refused(tmp_path, text, message):
    (tmp_path / "l.csv").write_text(text)
    graph = Graph(sparse.csr_array(TRIANGLE), np.array(["a", "b", "c"]))
    with pytest.raises(InputError, match=message):
        read_vertex_labels(tmp_path / "l.csv", graph)
    with pytest.raises(InputError, match="no such file, and no vertex attribute"):
        read_vertex_labels("colour", graph)


def test_email_has_the_published_counts(mirror):
    graph, groups = email_eu_core(mirror("email_eu_core"))
    assert graph.adjacency.shape == (1005, 1005)
    assert graph.adjacency.nnz == 25_571
    assert np.count_nonzero(graph.adjacency.diagonal()) == 642
    assert len(np.unique(groups)) == 42


def test_connectome_has_the_published_counts(mirror):
    graph, groups = drosophila_mb(folder=mirror("drosophila_mb"))
    assert graph.adjacency.shape == (209, 209)
    assert graph.adjacency.nnz == 7425
    assert sorted(np.bincount(groups)) == [21, 29, 58, 101]
    with pytest.raises(InputError, match="'left' or 'right'"):
        drosophila_mb("middle")


def test_set_of_plain_files_is_fetched_as_a_whole(no_data, tmp_path, monkeypatch):
    def download(entry, file, url, checksum):
        path = tmp_path / file
        path.write_text("0 1\n1 0\n" if "adjacency" in file else "K\nI\n")
        return path

    monkeypatch.setattr(sources, "_download", download)
    folder = fetch("drosophila_mb")
    assert folder == find("drosophila_mb")
    assert len(list(folder.iterdir())) == 4
    graph, groups = drosophila_mb("right")
    assert graph.adjacency.nnz == 2
    assert groups.tolist() == [1, 0]


def test_sets_that_are_not_at_hand_say_how_to_get_them(no_data):
    with pytest.raises(NotAtHandError, match="noisewright data fetch drosophila_mb"):
        drosophila_mb()
    for call in (email_eu_core, lambda: fetch("email_eu_core")):
        with pytest.raises(NotAtHandError, match=r"snap\.stanford\.edu.*NOISEWRIGHT_DATA=DIR"):
            call()
