"""Repeated derivatives by the input, which functions for their kind serve."""

import numpy as np
import paddle
import pytest

from conftest import assert_same, on_threads, programs_on, randn
from paddle_chainrules import (
    FCNet,
    derivative,
    derivatives,
    forward_laplacian,
    laplacian,
    taylor,
)

pytestmark = programs_on

NET = FCNet((3, 7, 2), "tanh", "float64")
PARAMS = NET.init(0)
OF_COLUMNS = FCNet((2, 5, 1), "tanh", "float64")


def split(params, coords):
    return OF_COLUMNS(params, paddle.concat([coords["x"], coords["t"]], 1))


CALLS = {
    "laplacian": lambda net, x: laplacian(net, PARAMS, x),
    "weights": lambda net, x: laplacian(net, PARAMS, x, [1.0, -2.0, 0.5]),
    "a matrix": lambda net, x: laplacian(net, PARAMS, x, np.diag([1.0, 2.0, 3.0])),
    "by": lambda net, x: laplacian(net, PARAMS, x, by=(0, 2)),
    "estimated": lambda net, x: laplacian(
        net, PARAMS, x, estimator="hutchinson", probes=2, seed=3
    ),
    "forward": lambda net, x: forward_laplacian(net, PARAMS, x),
    "derivatives": lambda net, x: derivatives(
        net, PARAMS, x, [(0, 0, 0), (1, 0, 1), (0, 2, 0)]
    ),
    "derivative": lambda net, x: derivative(net, PARAMS, x, (1, 1, 0)),
    "by name": lambda net, x: derivatives(net, PARAMS, x, {"u_xx": (0, 0, 0)}),
    "taylor": lambda net, x: taylor(net, PARAMS, x, x[0] * 0.5, order=2),
}


@pytest.mark.parametrize("name", CALLS)
def test_each_call_gives_what_the_first_one_of_another_net_gives(name):
    net, call = FCNet((3, 7, 2), "tanh", "float64"), CALLS[name]
    for k, n in enumerate([5] * 42 + [4, 1, 9, 5, 0, 5]):
        x = randn([n, 3], "float64", seed=k) if name != "taylor" or n else None
        if x is None:
            continue
        found = call(net, x)
        if k > 38 or k % 9 == 0:
            wanted = call(FCNet((3, 7, 2), "tanh", "float64"), x)
            assert_same(found, wanted, rtol=1e-10, atol=1e-12)


def served(net, name, *args, **kwargs):
    return net._programs.guarded_derivatives[name].result(args, kwargs) is not None


def test_what_serves_and_what_does_not():
    net, x = FCNet((3, 7, 2), "tanh", "float64"), randn([5, 3], "float64")
    for _ in range(40):
        laplacian(net, PARAMS, x)
        laplacian(net, PARAMS, x, [1.0, 2.0, 3.0])
        laplacian(net, PARAMS, x, paddle.to_tensor([1.0, 2.0, 3.0]))
    assert served(net, "laplacian", PARAMS, x)
    assert served(net, "laplacian", PARAMS, x, [1.0, 2.0, 3.0])
    assert not served(net, "laplacian", PARAMS, x, [1.0, 2.0, 2.0])
    weights = paddle.to_tensor([1.0, 2.0, 3.0])
    assert not served(net, "laplacian", PARAMS, x, weights)  # whose values decide
    required = x.clone()
    required.stop_gradient = False
    assert not served(net, "laplacian", PARAMS, required)
    assert not served(net, "laplacian", PARAMS, x.astype("float32"))
    assert not served(net, "laplacian", PARAMS, x[:, :2])
    assert not served(net, "laplacian", dict(reversed(PARAMS.items())), x)


def test_weights_in_a_tensor_are_followed():
    net, x = FCNet((3, 7, 2), "tanh", "float64"), randn([5, 3], "float64")
    weights = paddle.to_tensor([1.0, 2.0, 3.0], dtype="float64")
    for k in range(40):
        weights.set_value(paddle.to_tensor([1.0, 2.0, 1.0 + k], dtype="float64"))
        found = laplacian(net, PARAMS, x, weights)
    wanted = laplacian(NET, PARAMS, x, [1.0, 2.0, 40.0])
    assert_same(found, wanted, rtol=1e-10, atol=1e-12)


def test_columns_that_are_one_tensor():
    params = OF_COLUMNS.init(0)
    x, t = randn([5, 1], "float64"), randn([5, 1], "float64", 1)
    wanted = {"u_xt": (None, "x", "t"), "u_tt": (None, "t", "t")}
    for k in range(45):
        coords = {"x": x, "t": x if k % 3 == 2 else t}
        found = derivatives(split, params, coords, wanted)
        again = derivatives(
            split, params, {n: v.clone() for n, v in coords.items()}, wanted
        )
        assert_same(found, again, rtol=1e-10, atol=1e-12)


def test_a_gradient_of_a_laplacian_is_a_gradient_at_each_call():
    net, x = FCNet((3, 7, 2), "tanh", "float64"), randn([5, 3], "float64")
    for k in range(42):
        laplacian(net, PARAMS, x)
        if k % 20 == 1:
            leaf = x.clone()
            leaf.stop_gradient = False
            laplacian(net, PARAMS, leaf).sum().backward()
            step = 1e-5
            for at in ((0, 1), (3, 2)):
                ends = []
                for sign in (1, -1):
                    moved = x.numpy().copy()
                    moved[at] += sign * step
                    total = laplacian(net, PARAMS, paddle.to_tensor(moved)).sum()
                    ends.append(float(total))
                slope = (ends[0] - ends[1]) / (2 * step)
                assert float(leaf.grad[at]) == pytest.approx(slope, rel=1e-5, abs=1e-7)


def test_threads_are_served_alike():
    net, x = FCNet((3, 7, 2), "tanh", "float64"), randn([5, 3], "float64")
    wanted = laplacian(NET, PARAMS, x)

    results = []

    def run(net, x):
        for _ in range(60):
            found = laplacian(net, PARAMS, x)
        results.append(found)

    on_threads(run, [(net, x)] * 3)
    assert len(results) == 3
    for found in results:
        assert_same(found, wanted, rtol=1e-10, atol=1e-12)
