"""Numbers that leave Paddle while a function is differentiated."""

import warnings

import numpy as np
import paddle
import pytest

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

WAYS = {
    "numpy": lambda x: (paddle.to_tensor(np.sin(x.numpy())) * x).sum(),
    "array": lambda x: (paddle.to_tensor(np.asarray(x)) * x).sum(),
    "float": lambda x: (x * float(x.mean())).sum(),
    "complex": lambda x: (x * complex(x.mean()).real).sum(),
    "int": lambda x: (x * int(10 * x.mean())).sum(),
    "item": lambda x: (x * x.mean().item()).sum(),
    "tolist": lambda x: (x * sum(x.tolist())).sum(),
}


@pytest.mark.parametrize("name", WAYS)
def test_each_is_named_where_it_stands(name):
    fn = WAYS[name]
    for call in (
        lambda: grad(fn)(X),
        lambda: value_and_grad(fn)(X),
        lambda: vjp(fn, X),
        lambda: jvp(fn, (X,), (X,)),
        lambda: hvp(fn, X, X),
        lambda: jit(grad(fn))(X),
    ):
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
