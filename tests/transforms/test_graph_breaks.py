"""Numbers that leave Paddle while a function is differentiated."""

import re
import warnings

import numpy as np
import paddle
import pytest

from conftest import assert_same
from paddle_chainrules import (
    ConstantWarning,
    grad,
    hvp,
    jit,
    jvp,
    stateless,
    value_and_grad,
    vjp,
)

X = paddle.to_tensor([0.3, 0.7], "float64")

ARRAYS = {
    "x.numpy()": lambda x: (paddle.to_tensor(np.sin(x.numpy())) * x).sum(),
    "np.asarray(x)": lambda x: (paddle.to_tensor(np.asarray(x)) * x).sum(),
    "x.tolist()": lambda x: (x * sum(x.tolist())).sum(),
}
WAYS = {
    "float": lambda x: (x * float(x.mean())).sum(),
    "complex": lambda x: (x * complex(x.mean()).real).sum(),
    "int": lambda x: (x * int(10 * x.mean())).sum(),
    "item": lambda x: (x * x.mean().item()).sum(),
}


def calls_of(fn):
    return (
        lambda: grad(fn)(X),
        lambda: value_and_grad(fn)(X),
        lambda: vjp(fn, X),
        lambda: jvp(fn, (X,), (X,)),
        lambda: hvp(fn, X, X),
        lambda: jit(grad(fn))(X),
    )


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_refused_where_it_is_taken(name):
    fn = ARRAYS[name]
    expected = rf"^{re.escape(name)} .*{re.escape(__file__)}:\d+.*x\.detach\(\)\.numpy"
    for call in calls_of(fn):
        with pytest.raises(TypeError, match=expected):
            call()
    assert_same(jit(fn)(X), fn(X))


def test_an_array_in_a_layer_is_refused():
    class Shifted(paddle.nn.Linear):
        def forward(self, x):
            h = super().forward(x)
            return h + float(h.numpy().mean())

    net, params, _ = stateless(Shifted(2, 3))
    x = paddle.ones([4, 2])
    assert net(params, x).shape == [4, 3]
    with pytest.raises(TypeError, match=r"x\.numpy\(\) of a tensor"):
        net.pullback(params, x)


def test_an_array_of_what_is_detached_is_a_constant():
    def fn(x):
        with paddle.no_grad():
            scale = float(x.numpy().mean())
        return (x * scale + x * x.detach().numpy().mean()).sum()

    for _ in range(2):
        assert_same(grad(fn)(X), paddle.full([2], 1.0, "float64"))


@pytest.mark.parametrize("name", WAYS)
def test_each_is_named_where_it_stands(name):
    for call in calls_of(WAYS[name]):
        with pytest.warns(ConstantWarning, match=rf"^{name}\(\).*detach\(\)") as said:
            call()
        assert {one.filename for one in said} == {__file__}


def test_in_a_layer():
    class Scaled(paddle.nn.Linear):
        def forward(self, x):
            h = super().forward(x)
            return h * float(h.mean())

    net, params, _ = stateless(Scaled(2, 3))
    for _ in range(2):
        with pytest.warns(ConstantWarning, match=r"float\(\)"):
            net.pullback(params, paddle.ones([4, 2]))


def printed(x):
    print(x, f"{x.sum()}")
    return (x * x).sum()


def without_gradients(x):
    with paddle.no_grad():
        scale = float(x.mean())
    return (x * scale).sum()


@pytest.mark.parametrize(
    "fn",
    [
        printed,
        without_gradients,
        lambda x: (x * float(x.detach().mean())).sum(),
        lambda x: (x * x).sum() if x.sum() > 0 else x.sum(),
        lambda x: paddle.nn.functional.dropout(x, 0.5).sum(),
    ],
)
def test_what_is_meant_is_not(fn):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grad(fn)(X)
        vjp(fn, X)


def test_nor_outside():
    grad(lambda x: x.sum())(X)
    trained = X.clone()
    trained.stop_gradient = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(trained.sum()) == trained.numpy().sum() == 1.0
