"""Derivatives at no points: their shapes, and gradients that are zeros."""

import paddle
import pytest

from conftest import assert_same
from paddle_chainrules import (
    FCNet,
    curl,
    derivatives,
    divergence,
    forward_laplacian,
    grad,
    jit,
    laplacian,
    taylor,
)

NET = FCNet((2, 5, 2), "tanh", "float64")
PARAMS = NET.init(0)
X = paddle.zeros([0, 2], "float64")


def parts(params, at):
    y = NET(params, paddle.concat([at["x"], at["t"]], -1))
    return y, y[:, 1:]


def at(x):
    return {"x": x[:, :1], "t": x[:, 1:]}


ASKED = {
    "value": lambda p, x: derivatives(NET, p, x, {"u": (1,)})["u"],
    "column": lambda p, x: derivatives(NET, p, x, {"u": (1, 0)})["u"],
    "names": lambda p, x: derivatives(parts, p, at(x), {"u": ((0, 0), "x")})["u"],
    "sliced": lambda p, x: derivatives(parts, p, at(x), {"u": (1, "x", "t")})["u"],
    "divergence": lambda p, x: divergence(NET, p, x),
    "curl": lambda p, x: curl(parts, p, at(x), of=((0, 0), 1)),
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("where", ["plainly", "in jit", "in a program"])
def test_gradients_by_names_are_zeros(name, where):
    def loss(params, x):
        found = ASKED[name](params, x)
        assert found.shape == [0, 1]
        return (found**2).sum()

    runs = {
        "plainly": grad(loss),
        "in jit": jit(grad(loss)),  # runs as it is: an argument has no elements
        "in a program": lambda p, x: jit(grad(lambda p: loss(p, x)), strict=True)(p),
    }
    zeros = {n: paddle.zeros_like(p) for n, p in PARAMS.items()}
    assert_same(runs[where](PARAMS, X), zeros)


def test_on_paddles_own_graph():
    params = {n: p.detach() for n, p in PARAMS.items()}
    for p in params.values():
        p.stop_gradient = False
    divergence(NET, params, X).sum().backward()
    for p in params.values():
        assert_same(p.grad, paddle.zeros_like(p))


def test_laplacians_have_shapes():
    assert laplacian(NET, PARAMS, X).shape == [0, 2]
    assert [part.shape for part in forward_laplacian(NET, PARAMS, X)] == [
        [0, 2],
        [0, 2, 2],
        [0, 2],
    ]


@pytest.mark.parametrize(("n", "k"), [(0, 0), (4, 0), (0, 3)])
def test_taylor(n, k):
    x, along = paddle.ones([n, 2], "float64"), paddle.ones([k, 2], "float64")
    for run in (taylor, jit(taylor, (0, 4))):
        y, *rest = run(NET, PARAMS, x, along, 2)
        assert_same(y, NET(PARAMS, x))
        assert [part.shape for part in rest] == [[k, n, 2]] * 2
    by = grad(lambda p: sum(p.sum() for p in taylor(NET, p, x, along, 2)))(PARAMS)
    assert [*by] == [*PARAMS]
    assert_same(by["1.bias"], paddle.full([2], float(n), "float64"))
