from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from noisewright.nets import MLP, DiT, UNet
from noisewright.random import isolated
from noisewright.types import InputError

NETS = {
    "unet": (partial(UNet, 3, (8, 16), blocks=1, vector=16), (3, 9, 7)),
    "unet-patch": (partial(UNet, 3, (8, 16), blocks=(1, 2), vector=16, patch=2), (3, 9, 7)),
    "dit": (partial(DiT, 3, width=16, depth=2, heads=2), (3, 9, 7)),
    "mlp": (partial(MLP, 5, width=16, depth=2), (5,)),
}

every_net = pytest.mark.parametrize("name", NETS)


def build(name: str, *, seed: int = 0, **options) -> nn.Module:
    """A network with no zero left in it, so that every input can matter."""
    make, _ = NETS[name]
    with isolated(seed):
        net = make(**options)
        for parameter in net.parameters():
            nn.init.normal_(parameter, std=0.2)
    return net


def example(name: str, rows: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    state = torch.randn(rows, *NETS[name][1], generator=generator)
    return state, torch.rand(rows, generator=generator)


@every_net
def test_prediction_is_shaped_like_the_state(name):
    state, t = example(name)
    assert build(name)(state, t).shape == state.shape


@every_net
def test_untrained_network_predicts_zero(name):
    make, _ = NETS[name]
    with isolated(0):
        net = make()
    assert not net(*example(name)).any()


@every_net
def test_rows_do_not_see_each_other(name):
    net = build(name, classes=4, features=2)
    state, t = example(name, rows=4)
    label, features = torch.arange(4), torch.arange(8.0).view(4, 2)
    together = net(state, t, label=label, features=features)
    for row in range(4):
        one = slice(row, row + 1)
        alone = net(state[one], t[one], label=label[one], features=features[one])
        torch.testing.assert_close(together[one], alone, rtol=1e-4, atol=1e-5)


@every_net
def test_one_time_for_all_rows_is_that_time_for_each(name):
    net, (state, _) = build(name), example(name)
    same = net(state, torch.full((len(state),), 0.3))
    torch.testing.assert_close(net(state, torch.tensor(0.3)), same)


@every_net
def test_time_and_conditions_matter_in_each_row(name):
    net = build(name, classes=4, features=2)
    state, t = example(name)
    label, features = torch.zeros(3, dtype=torch.long), torch.zeros(3, 2)
    base = net(state, t, label=label, features=features)
    for change in (
        net(state, t.flip(0), label=label, features=features)[[0, 2]] - base[[0, 2]],
        net(state, t, label=label + 1, features=features) - base,
        net(state, t, label=label, features=features + 1) - base,
        net(state, t, label=label - 1, features=features) - base,
        net(state, t, label=label, features=features, present=torch.zeros(3).bool()) - base,
    ):
        assert (change.flatten(1).abs().amax(dim=1) > 1e-4).all()


@every_net
def test_absent_conditions_are_the_null_token(name):
    net = build(name, classes=4, features=2)
    state, t = example(name)
    none = net(state, t)
    null = net(
        state,
        t,
        label=torch.full((3,), -1),
        features=torch.full((3, 2), 7.0),
        present=torch.zeros(3, dtype=torch.bool),
    )
    assert torch.equal(none, null)


@every_net
def test_every_weight_gets_a_gradient_with_and_without_conditions(name):
    net = build(name, classes=4, features=2)
    state, t = example(name)
    for condition in ({}, {"label": torch.arange(3), "features": torch.ones(3, 2)}):
        net.zero_grad()
        net(state, t, **condition).square().sum().backward()
        without = [key for key, value in net.named_parameters() if value.grad is None]
        assert without == []


@every_net
def test_checkpointing_changes_no_gradient(name):
    state, t = example(name)
    gradients = []
    for checkpointing in (False, True):
        net = build(name, checkpointing=checkpointing, dropout=0.5)
        with isolated(3):
            net(state, t).square().sum().backward()
        gradients.append([parameter.grad for parameter in net.parameters()])
    for plain, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, recomputed, rtol=1e-6, atol=1e-7)


@every_net
def test_saved_and_loaded_network_predicts_the_same_bits(name, tmp_path, capsys):
    net = build(name, classes=4, features=2, time="logsnr").eval()
    net.save_pretrained(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"config.json", "model.safetensors"} <= names
    loaded = type(net).from_pretrained(tmp_path)
    assert capsys.readouterr().out == ""
    assert not loaded.training
    state, t = example(name)
    condition = {"label": torch.arange(3), "features": torch.ones(3, 2)}
    assert torch.equal(net(state, 9 * t, **condition), loaded(state, 9 * t, **condition))


def test_saved_network_with_a_missing_weight_is_refused(tmp_path):
    net = build("mlp")
    net.save_pretrained(tmp_path)
    weights = net.state_dict()
    del weights["stem.bias"]
    safetensors.torch.save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(RuntimeError, match=r"stem\.bias"):
        MLP.from_pretrained(tmp_path)


@every_net
def test_half_precision_weights_keep_the_time_and_the_dtype_of_the_state(name):
    net = build(name).to(torch.bfloat16)
    state, _ = example(name, rows=1)
    exact = torch.tensor([0.7505])
    rounded = exact.bfloat16().float()
    assert rounded != exact
    vector = net.conditioning(exact)
    assert vector.dtype == torch.bfloat16
    assert (vector != net.conditioning(rounded)).any()
    for dtype in (torch.float32, torch.bfloat16):
        assert net(state.to(dtype), exact).dtype == dtype


@every_net
def test_time_in_half_precision_is_refused(name):
    state, t = example(name)
    with pytest.raises(InputError, match=r"bfloat16.*pass t in float32"):
        build(name)(state, t.bfloat16())


@every_net
@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ({"label": torch.zeros(3, dtype=torch.long)}, "classes=0"),
        ({"features": torch.zeros(3, 2)}, "features=0"),
    ],
)
def test_condition_the_network_was_not_built_for_is_refused(name, condition, words):
    with pytest.raises(InputError, match=words):
        build(name)(*example(name), **condition)


@every_net
def test_features_of_the_wrong_length_are_refused(name):
    with pytest.raises(InputError, match=r"\(3, 5\).*\(batch, 2\)"):
        build(name, features=2)(*example(name), features=torch.zeros(3, 5))


@pytest.mark.parametrize("name", ["unet", "mlp"])
def test_mask_is_refused_where_it_has_no_meaning(refuses, name):
    state, t = example(name)
    with refuses("takes no mask"):
        build(name)(state, t, mask=torch.ones(3, 1, dtype=torch.bool))


@pytest.mark.slow
@every_net
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_network_agrees_with_the_plain_one(name, request):
    if request.config.getoption("jaxtyping_packages", default=None):
        # The run-time checks are code that torch.compile cannot trace: do without them, elsewhere.
        here = f"{request.path}::{request.node.name}"
        alone = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", here]
        done = subprocess.run(alone, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
        return
    net = build(name, classes=4, features=2)
    state, t = example(name)
    condition = {"label": torch.tensor([0, -1, 3]), "features": torch.ones(3, 2)}
    compiled = torch.compile(net, fullgraph=True)
    torch.testing.assert_close(
        compiled(state, t, **condition), net(state, t, **condition), rtol=1e-5, atol=1e-5
    )
