"""Layers of Paddle's own as plain values, and made anew from them."""

import json

import paddle
import pytest
from paddle import nn
from paddle.vision import models

from differential import layers
from differential.inputs import arrays_of
from paddle_chainrules import stateless
from paddle_chainrules.bridge import described, fcnet, layer, of_description
from paddle_chainrules.nets.layers.stateless import constructed
from trees import tensors_of


def is_paddles(module):
    return all(
        type(part).__module__.startswith("paddle.nn.")
        and not part._forward_pre_hooks
        and not part._original_funcs
        for part in module.sublayers(True)
    )


CASES = {n: case for n, case in layers.TABLE.items() if is_paddles(case.make())}


def made_anew(net):
    facts, held = net.described()
    again = constructed(json.loads(json.dumps(facts)), [t.clone() for t in held])
    assert again.spec == net.spec
    assert again.described()[0] == facts
    return again


@pytest.mark.parametrize("name", CASES)
def test_a_described_layer_is_made_anew(name):
    case = CASES[name]
    module = case.make()
    module.train() if case.training else module.eval()
    net, params, buffers = stateless(module, frozen=case.frozen)
    again = made_anew(net)
    arrays = arrays_of(name, case.inputs)
    args = [
        paddle.to_tensor(x.astype("float32") if x.dtype.kind == "f" else x)
        for x in arrays
    ]
    value, other = (
        tensors_of(n.forward(params, *args, buffers=buffers, seed=7))
        for n in (net, again)
    )
    assert len(value) == len(other) > 0
    for a, b in zip(value, other, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        assert a.numpy().tobytes() == b.numpy().tobytes()


@pytest.mark.parametrize("name", ["resnet18", "googlenet", "mobilenet_v2"])
def test_models_of_vision(name):
    net, params, _ = stateless(getattr(models, name)().eval())
    x = paddle.randn([1, 3, 224, 224])
    value, other = (tensors_of(n.forward(params, x)) for n in (net, made_anew(net)))
    assert all(a.equal_all(b) for a, b in zip(value, other, strict=True))


def test_mode_dtype_ties_and_what_is_frozen_stay():
    shared = nn.Linear(3, 3)
    module = nn.Sequential(shared, nn.Dropout(0.5), shared, nn.BatchNorm1D(3))
    module.to(dtype="float64").eval()
    net, params, _ = stateless(module, frozen="0.bias", jit=True)
    again = made_anew(net)
    assert again.training is False
    assert [*again.buffers] == [*net.buffers]
    assert again.in_mode(True).training is True
    x = paddle.randn([5, 3], dtype="float64")
    assert bool(again.forward(params, x).equal_all(net.forward(params, x)))
    _, pullback = again.pullback(params, x)
    _, expected = net.pullback(params, x)
    grads, _ = pullback(x)
    assert [*grads] == ["0.weight", "3.weight", "3.bias"]
    for name, grad in expected(x)[0].items():
        assert grads[name].numpy().tobytes() == grad.numpy().tobytes()


def test_a_handle_and_its_buffers():
    handle, _ = layer(nn.BatchNorm1D(3))
    text, held = described(handle)
    again = of_description(text, held)
    assert again.facts == handle.facts
    kept = again.net.buffers["_mean"]
    assert not any(kept is tensor for tensor in held)
    handle, _ = fcnet((3, 4, 2), "tanh", "float64", 0)
    again = of_description(*described(handle))
    assert again.facts == handle.facts
    assert again.net == handle.net
