from __future__ import annotations

import pytest
import torch
from torch import nn

from noisewright.random import isolated
from noisewright.storage import load_record, save_record
from noisewright.training import Average
from noisewright.types import InputError


def network() -> nn.Module:
    with isolated(0):
        return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))


def shift(module: nn.Module, by: float) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += by


def snapshot(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(left: dict, right: dict) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left)


def stepped() -> tuple[nn.Module, Average]:
    net = network()
    average = Average(net, decay=0.9)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(8, 2, generator=generator)).square().sum().backward()
        optimizer.step()
        average.update()
    return net, average


def test_previewing_the_average_overwrites_the_live_weights():
    net, average = stepped()
    live = snapshot(net)
    with average.applied() as module:
        assert module is net
        assert not same(live, net.state_dict())
    assert same(live, net.state_dict())
    with pytest.raises(KeyError), average.applied():
        raise KeyError
    assert same(live, net.state_dict())


def test_buffers_changed_by_a_preview_come_back():
    net, average = stepped()
    live = snapshot(net)
    with average.applied():
        net(torch.ones(4, 2))
    assert same(live, net.state_dict())


def test_nested_previews_restore_the_live_weights():
    net, average = stepped()
    live = snapshot(net)
    with average.applied(), average.applied():
        averaged = snapshot(net)
    assert same(live, net.state_dict())
    assert same(averaged, average.averaged().state_dict())


def test_update_during_a_preview_is_refused():
    _, average = stepped()
    with average.applied(), pytest.raises(RuntimeError, match="set aside"):
        average.update()


def test_average_is_the_closed_form_sum():
    net = nn.ParameterList([torch.zeros(1)])
    average = Average(net, decay=0.5, warmup=False)
    expected = 0.0
    for _ in range(5):
        shift(net, 1.0)
        average.update()
        expected = 0.5 * expected + 0.5 * net[0].item()
    assert average.values["0"].item() == expected


def test_warmup_lets_early_weights_fade():
    average = Average(network(), decay=0.999)
    decays = []
    for _ in range(3):
        decays.append(average.current_decay)
        average.update()
    assert decays == [1 / 10, 2 / 11, 3 / 12]
    average.updates = 10**6
    assert average.current_decay == 0.999


def test_constant_weights_stay_exact():
    net = network()
    start = snapshot(net)
    average = Average(net, decay=0.9)
    for _ in range(50):
        average.update()
    assert same(start, average.averaged().state_dict())


def test_buffers_are_averaged_and_counters_copied():
    net, average = stepped()
    assert average.values["1.num_batches_tracked"] == net[1].num_batches_tracked == 3
    assert (average.values["1.running_mean"] != net[1].running_mean).any()


def test_decay_counter_survives_saving(tmp_path):
    net, average = stepped()
    save_record(tmp_path / "average", average.state_dict())
    again = Average(net, decay=0.5)
    again.load_state_dict(load_record(tmp_path / "average"))
    assert (again.updates, again.decay) == (3, 0.9)
    for one in (average, again):
        one.update()
    assert same(average.values, again.values)


def test_half_precision_weights_are_averaged_in_float32():
    net = network().to(torch.bfloat16)
    average = Average(net, decay=0.99, warmup=False)
    start = average.values["0.weight"].clone()
    with torch.no_grad():
        net[0].weight += 0.125
    for _ in range(10):
        average.update()
    moved = (average.values["0.weight"] - start) / (net[0].weight.float() - start)
    torch.testing.assert_close(moved, torch.full_like(moved, 1 - 0.99**10), rtol=1e-3, atol=0)
    with average.applied():
        assert net[0].weight.dtype == torch.bfloat16


def test_values_follow_the_module_to_its_device():
    net = network()
    average = Average(net)
    net.to("meta")
    average.update()
    assert {value.device.type for value in average.values.values()} == {"meta"}


def test_average_of_another_network_is_refused():
    _, average = stepped()
    with isolated(0):
        other = Average(nn.Linear(2, 2))
    with pytest.raises(InputError, match="another network"):
        other.load_state_dict(average.state_dict())


@pytest.mark.parametrize("decay", [-0.1, 1.0, 1.5])
def test_decay_outside_its_range_is_refused(decay):
    with pytest.raises(InputError, match=f"decay={decay}"):
        Average(nn.Identity(), decay=decay)
