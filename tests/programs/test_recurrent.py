"""Recurrent layers on sequences of several lengths, beside differences and Paddle."""

import optree
import paddle
import pytest
from paddle import nn

from conftest import assert_same, randn
from differences import slopes_of
from paddle_chainrules import jit, stateless, value_and_grad

LAYERS = {
    "tanh": lambda **more: nn.SimpleRNN(3, 2, **more),
    "relu": lambda **more: nn.SimpleRNN(3, 2, activation="relu", **more),
    "LSTM": lambda **more: nn.LSTM(3, 2, **more),
    "GRU": lambda **more: nn.GRU(3, 2, **more),
}
KINDS = {
    "one layer": {},
    "two layers": {"num_layers": 2},
    "time first": {"num_layers": 2, "time_major": True},
}


@pytest.fixture(autouse=True)
def _double():
    paddle.set_default_dtype("float64")
    yield
    paddle.set_default_dtype("float32")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LAYERS)
def test_lengths_in_two_directions(name, kind):
    paddle.seed(3)
    layer = LAYERS[name](direction="bidirect", **KINDS[kind])
    net, params, _ = stateless(layer)
    steps, n = 5, 4
    shape = [steps, n, 3] if KINDS[kind].get("time_major") else [n, steps, 3]
    x = randn(shape, "float64")
    lengths = paddle.to_tensor([5, 2, 1, 4], "int32")
    count = 2 * KINDS[kind].get("num_layers", 1)
    states = [randn([count, n, 2], "float64", seed) for seed in range(1, 3)]
    states = tuple(states) if name == "LSTM" else states[0]
    like = [out.shape for out in paddle.utils.flatten(layer(x, states, lengths))]
    weights = [randn(shape, "float64", 7 + k) for k, shape in enumerate(like)]

    def loss(params, x, states):
        outputs = paddle.utils.flatten(net(params, x, states, lengths))
        return paddle.add_n(
            [(out * w).sum() for out, w in zip(outputs, weights, strict=True)]
        )

    found = value_and_grad(loss, (0, 1, 2))(params, x, states)
    leaves, nesting = optree.tree_flatten((params, x, states))
    expected = slopes_of(lambda *leaves: loss(*nesting.unflatten(leaves)), *leaves)
    gradients = optree.tree_leaves(found[1])
    for gradient, difference in zip(gradients, expected, strict=True):
        assert_same(gradient, difference, rtol=1e-6, atol=1e-7)
    native = paddle.utils.flatten(layer(x, states, lengths))
    compiled = jit(lambda *args: net(*args, lengths))
    for _ in range(4):
        outputs = paddle.utils.flatten(compiled(params, x, states))
        assert_same(outputs, [out.detach() for out in native], rtol=1e-12, atol=1e-14)
    again = jit(value_and_grad(loss, (0, 1, 2)))
    for _ in range(4):
        assert_same(again(params, x, states), found, rtol=1e-10, atol=1e-12)
