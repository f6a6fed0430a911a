"""What derivatives by the input do not depend on: zeros, or None of a net's own."""

import paddle
import pytest

from conftest import assert_same, randn
from paddle_chainrules import (
    FCNet,
    derivative,
    forward_laplacian,
    grad,
    jit,
    laplacian,
    stateless,
    value_and_grad,
    vjp,
)

X = randn([4, 3], "float64")
C = randn([4, 2], "float64", seed=1)


def chain():
    net = FCNet((3, 5, 2), "tanh", "float64")
    return net, net.init(0)


def layer():
    with paddle.utils.unique_name.guard():
        found = paddle.nn.Sequential(
            paddle.nn.Linear(3, 5), paddle.nn.Tanh(), paddle.nn.Linear(5, 2)
        )
    net, params, _ = stateless(found.to(dtype="float64"))
    return net, params


LOSSES = {
    "laplacian": lambda net, p: laplacian(net, p, X),
    "of the jacobian": lambda net, p: forward_laplacian(net, p, X)[1].sum(-1),
    "of all three": lambda net, p: forward_laplacian(net, p, X)[2],
    "derivative": lambda net, p: derivative(net, p, X, (1, 0, 1)),
    "of others": lambda net, p: laplacian(net, {n: v * 2.0 for n, v in p.items()}, X),
}


def pulled(loss):
    def pull(tree):
        y, pullback = vjp(loss, tree)
        return pullback(paddle.ones_like(y))[0]

    return pull


@pytest.mark.parametrize("make", [chain, layer])
@pytest.mark.parametrize("name", LOSSES)
def test_it_is_zero_at_every_call_jitted_or_not(name, make):
    net, params = make()
    tree = {"net": [params], "other": paddle.ones([2], "float64")}

    def loss(tree):
        return (LOSSES[name](net, tree["net"][0]) * C).sum()

    def gradient(tree):
        return value_and_grad(loss)(tree)[1]

    def either(tree):
        y, pullback = vjp(loss, tree)
        return pullback.or_none(paddle.ones_like(y))[0]

    expected = jit(grad(loss))(tree)
    *used, last = params
    zeros = [n for n, g in expected["net"][0].items() if not g.any()]
    assert zeros == [last]
    assert not expected["other"].any()
    assert used
    ways = grad(loss), grad(jit(loss)), pulled(loss), jit(pulled(loss))
    for way in (*ways, gradient, jit(gradient)):
        for _ in range(2):
            assert_same(way(tree), expected, rtol=1e-10)
    expected["net"][0][last] = expected["other"] = None
    for way in (either, jit(either)):
        for _ in range(2):
            assert_same(way(tree), expected, rtol=1e-10)


def test_with_the_value_it_is_a_gradient():
    net, params = chain()

    def loss(params):
        y, _, total = forward_laplacian(net, params, X)
        return ((total + y) * C).sum()

    for way in (grad(loss), jit(grad(loss))):
        for _ in range(2):
            assert_same(way(params)["1.bias"], C.sum(0), rtol=1e-12)
