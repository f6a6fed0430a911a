"""A net for parameters of another dtype, and one that shares its buffers."""

import copy

import paddle
import pytest

from conftest import assert_same, assert_unchanged, randn, random_like, snapshot
from paddle_chainrules import FCNet, stateless
from paddle_chainrules.bridge import Handle
from paddle_chainrules.nets.derivatives.derived import Derivative
from paddle_chainrules.nets.derivatives.vjp_jvp_nets import VJP


def normed():
    paddle.seed(0)
    layer = paddle.nn.Sequential(
        paddle.nn.Linear(3, 4),
        paddle.nn.BatchNorm1D(4),
        paddle.nn.Tanh(),
        paddle.nn.Linear(4, 2),
    )
    layer[1]._mean.set_value(randn([4], seed=5))
    layer.eval()
    return layer


def lstm(dtype="float32"):
    paddle.seed(0)
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    try:
        return paddle.nn.LSTM(3, 4)
    finally:
        paddle.set_default_dtype(before)


def doubled(layer):
    """A layer like it in float64, by Paddle alone."""
    if isinstance(layer, paddle.nn.LSTM):  # which Layer.to can't convert
        double = lstm("float64")
        state = layer.state_dict().items()
        double.set_state_dict({n: v.astype("float64") for n, v in state})
        return double
    return copy.deepcopy(layer).to(dtype="float64")


LAYERS = {
    "batch norm": (normed, [6, 3]),
    "bilinear": (lambda: paddle.nn.Bilinear(3, 3, 2), [6, 3]),
    "LSTM": (lstm, [6, 5, 3]),
    "transformer": (lambda: paddle.nn.TransformerEncoderLayer(4, 2, 8, 0.0), [6, 5, 4]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_values_and_gradients_are_those_of_the_converted_layer(name):
    make, shape = LAYERS[name]
    layer = make()
    double, before = doubled(layer), snapshot(layer)
    net, params, buffers = stateless(layer)
    wide = net.in_dtype("float64")
    assert wide.in_dtype("float64") is wide
    assert net.in_dtype("float32") is net
    assert {*wide.spec.dtypes} == {"float64"}
    params64 = {n: p.astype("float64") for n, p in params.items()}
    args = [randn(shape, "float64", seed) for seed in range(1 + (name == "bilinear"))]
    given = [arg.clone() for arg in args]
    for arg in given:
        arg.stop_gradient = False
    expected = double(*given)
    cotangent = random_like(expected)
    leaves = paddle.utils.flatten(expected)
    trained = [p for p in double.parameters() if not p.stop_gradient]
    cotangents = [*paddle.utils.flatten(cotangent)]
    wanted = paddle.grad(leaves, [*trained, *given], cotangents)
    for _ in range(5):  # from the fourth call on it is a program
        assert_same(
            wide.forward(params64, *args), detached(expected), rtol=1e-12, atol=1e-13
        )
        grads, grad_args = wide.vjp(params64, tuple(args), cotangent)
        assert_same([*grads.values(), *grad_args], wanted, rtol=1e-10, atol=1e-12)
    assert_unchanged(layer, before)
    assert_same(dict(net.buffers), buffers)


def detached(tree):
    return paddle.utils.map_structure(lambda value: value.detach(), tree)


def test_derived_nets_and_handles():
    net = FCNet((3, 4, 2), "tanh")
    wide = net.in_dtype("float64")
    assert wide == FCNet((3, 4, 2), "tanh", "float64")
    params, x = wide.init(0), randn([5, 3], "float64")
    for kind, how, args in (
        (Derivative, "laplacian", (x,)),
        (VJP, 1, (None, x, randn([5, 2], "float64"))),
    ):
        found = kind(net, how).in_dtype("float64").forward(params, *args)
        assert_same(found, kind(wide, how).forward(params, *args))
    handle = Handle(net, "a net", 3)
    for made in (
        handle.operator("laplacian"),
        handle.called((0,), {}),
        handle.vjp(1, True, True),
    ):
        again = made.in_dtype("float64")
        assert type(again) is type(made)
        assert {*again.dtypes} == {"float64"}


def test_shared_buffers_are_read_as_they_are():
    layer = normed()
    net, params, buffers = stateless(layer)
    x = randn([6, 3])
    net.share_buffers(buffers)
    moded = net.in_mode(True).in_mode(False)
    for _ in range(5):
        before = net.forward(params, x)
        assert_same(moded.forward(params, x), before)
    buffers["1._mean"].add_(paddle.full([4], 3.0))
    layer[1]._mean.add_(paddle.full([4], 3.0))
    expected = layer(x).detach()
    assert float((expected - before).abs().max()) > 0.1
    for shared in (net, moded):
        assert_same(shared.forward(params, x), expected, rtol=1e-6, atol=1e-6)
    other = copy.deepcopy(net)
    other.share_buffers({n: b.clone() for n, b in buffers.items()})
    buffers["1._mean"].zero_()
    assert_same(other.forward(params, x), expected, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match=r"buffer '1._mean' has shape \[3\]"):
        net.share_buffers({"1._mean": paddle.zeros([3])})
