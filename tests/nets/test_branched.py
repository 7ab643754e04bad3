"""The branched network: labels enter late and change nothing in the trunk."""

from __future__ import annotations

import pytest
import torch

from noisewright.nets import BranchedMLP
from noisewright.random import isolated
from noisewright.types import InputError


def _net(**sizes) -> BranchedMLP:
    with isolated(0):
        net = BranchedMLP(3, **({"width": 16, "depth": 2, "classes": (2, 3)} | sizes))
        for weight in net.parameters():
            torch.nn.init.normal_(weight, std=0.3)
    return net.eval()


STATE = torch.linspace(-1, 1, 12).reshape(4, 3)
LABELS = torch.tensor([[0, 2], [1, -1], [-1, 0], [-1, -1]])


def test_trunk_and_branch_together_are_the_network():
    net, t = _net(), torch.full((4,), 0.3)
    whole = net(STATE, t, label=LABELS)
    torch.testing.assert_close(net.branch(net.trunk(STATE, t), t, LABELS), whole)


def test_one_time_for_all_rows_equals_a_time_per_row():
    net = _net()
    torch.testing.assert_close(
        net(STATE, torch.tensor([0.3]), label=LABELS),
        net(STATE, torch.full((4,), 0.3), label=LABELS),
    )


def test_rows_with_mixed_labels_equal_rows_alone():
    net, t = _net(), torch.tensor([0.1, 0.4, 0.6, 0.9])
    together = net(STATE, t, label=LABELS)
    for row in range(4):
        rows = slice(row, row + 1)
        torch.testing.assert_close(net(STATE[rows], t[rows], label=LABELS[rows]), together[rows])


def test_every_label_and_its_absence_differ():
    net, t = _net(), torch.tensor([0.5])
    cases = [[a, b] for a in (-1, 0, 1) for b in (-1, 0, 1, 2)]
    with torch.no_grad():
        outputs = torch.stack([net(STATE, t, label=torch.tensor([case])) for case in cases])
    distances = torch.cdist(outputs.flatten(1), outputs.flatten(1))
    assert float(distances[~torch.eye(len(cases), dtype=torch.bool)].min()) > 1e-3


def test_no_label_means_all_absent():
    net, t = _net(), torch.tensor([0.5])
    torch.testing.assert_close(net(STATE, t), net(STATE, t, label=torch.full((4, 2), -1)))


def test_saved_and_read_back_gives_the_same_output(tmp_path):
    net, t = _net(out=5), torch.tensor([0.5])
    net.save_pretrained(tmp_path)
    back = BranchedMLP.from_pretrained(tmp_path)
    assert torch.equal(back(STATE, t, label=LABELS), net(STATE, t, label=LABELS))


@pytest.mark.parametrize("wrong", [{"branch": 0}, {"branch": 3}, {"classes": ()}])
def test_sizes_that_cannot_work_are_refused(wrong):
    with pytest.raises(InputError):
        BranchedMLP(3, **({"depth": 2} | wrong))


def test_labels_of_another_network_are_refused(refuses):
    with refuses("2 labels"):
        _net()(STATE, torch.tensor([0.5]), label=LABELS[:, :1])


def test_pushed_derivatives_are_those_of_autograd():
    net, t, label = _net(out=6, depth=3), torch.tensor([0.4]), torch.tensor([[1, 2]])
    directions = torch.eye(3)[:, None]
    hidden, pushed = net.push_trunk(STATE, t, directions)
    output, diagonal = net.push_branch(hidden, pushed, t, label, directions)
    torch.testing.assert_close(output, net(STATE, t, label=label))
    for row in range(4):

        def one(point):
            return net(point[None], t, label=label)[0]

        jacobian = torch.autograd.functional.jacobian(one, STATE[row])
        torch.testing.assert_close(diagonal[:, row], jacobian[:3].diag(), rtol=1e-4, atol=1e-5)


def test_probes_per_row_give_products_with_the_jacobian():
    net, t, label = _net(depth=1), torch.tensor([0.4]), torch.tensor([[0, -1]])
    probes = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    hidden, pushed = net.push_trunk(STATE, t, probes)
    _, products = net.push_branch(hidden, pushed, t, label, probes)
    for row in range(4):
        jacobian = torch.autograd.functional.jacobian(
            lambda point: net(point[None], t, label=label)[0], STATE[row]
        )
        expected = torch.stack([v[row] @ jacobian @ v[row] for v in probes])
        torch.testing.assert_close(products[:, row], expected, rtol=1e-4, atol=1e-5)
