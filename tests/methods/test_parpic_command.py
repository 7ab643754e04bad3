"""``noisewright parpic``: a user's own file in, labels out."""

from __future__ import annotations

import csv
import subprocess
import sys

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from noisewright.methods.parpic import ROOM, directed_sbm
from noisewright.methods.parpic.command import main
from noisewright.types import InputError

# tyro, which parses the flags, cleans its cache at random times of the global stream.
pytestmark = pytest.mark.global_stream

CHAIN = [[0.05, 0.6, 0], [0.01, 0.05, 0.6], [0, 0.01, 0.05]]


@pytest.fixture
def edges(tmp_path):
    graph, groups = directed_sbm([60, 60, 60], CHAIN, random_state=0)
    rows = "\n".join(f"v{i},v{j}" for i, j in zip(*graph.nonzero(), strict=True))
    path = tmp_path / "edges.csv"
    path.write_text(f"from,to\n{rows}\n")
    return path, {f"v{i}": int(group) for i, group in enumerate(groups)}


def test_labels_are_written_against_the_names_of_the_file(edges, tmp_path, capsys):
    path, truth = edges
    out = tmp_path / "new" / "labels.csv"
    assert main([str(path), "--out", str(out), "--clusters", "3"]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert {row["vertex"] for row in rows} == set(truth)
    found = [int(row["label"]) for row in rows]
    assert adjusted_rand_score([truth[row["vertex"]] for row in rows], found) > 0.85
    assert "180 vertices" in capsys.readouterr().out


def test_two_calls_write_the_same_file(edges, tmp_path):
    path, _ = edges
    for name in ("a.csv", "b.csv"):
        main([str(path), "--out", str(tmp_path / name), "--clusters", "auto"])
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_isolated_parts_are_mentioned_and_kept(tmp_path, capsys):
    path = tmp_path / "g.edges"
    path.write_text("1 2\n2 3\n3 1\n7 8\n8 9\n9 7\n")
    main([str(path), "--out", str(tmp_path / "l.csv"), "--clusters", "2"])
    labels = np.loadtxt(tmp_path / "l.csv", delimiter=",", skiprows=1, dtype=int)
    assert labels[:, 0].tolist() == [1, 2, 3, 7, 8, 9]
    assert len(set(labels[:3, 1])) == len(set(labels[3:, 1])) == 1
    assert "2 weak components" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--clusters", "many"], "positive integer or auto"),
        (["--clusters", "0"], "positive integer or auto"),
        (["--clusters", "1000"], "exceeds"),
        (["--time", "-3"], "--time"),
        (["--gamma", "2"], "gamma"),
    ],
)
def test_setting_that_cannot_work_is_refused(edges, tmp_path, flags, message):
    path, _ = edges
    with pytest.raises(InputError, match=message):
        main([str(path), "--out", str(tmp_path / "l.csv"), *flags])
    assert not (tmp_path / "l.csv").exists()


def test_out_that_is_a_folder_is_refused(edges, tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        main([str(edges[0]), "--out", str(tmp_path)])


def test_importing_the_room_is_light():
    code = (
        "import sys, noisewright.methods.parpic as room; room.ROOM; "
        "print([m for m in ('numpy', 'scipy', 'sklearn', 'torch') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_using_the_estimator_loads_no_torch():
    code = (
        "import sys; from noisewright.methods.parpic import ParPIC, directed_sbm; "
        "ParPIC(2).fit(directed_sbm([20, 20], [[.5, .1], [.1, .5]])[0]); "
        "print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_names_of_the_specification_are_importable():
    import noisewright.methods.parpic as room

    wanted = ["ParPIC", "reversible_walk", "vertex_measure"]
    wanted += ["walk_entropy", "find_knee", "directed_sbm"]
    assert set(wanted) <= set(dir(room))
    assert all(callable(getattr(room, name)) for name in wanted)
    assert ROOM.commands == {"parpic": "noisewright.methods.parpic.command:main"}
