"""Functions of pieces, where these meet: every order, and every way to it."""

import mpmath
import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from conftest import assert_same
from paddle_chainrules import (
    derivative,
    grad,
    hessian,
    hvp,
    jit,
    jvp,
    laplacian,
    stateless,
    vjp,
)

DTYPES = ["float32", "float64"]


class Layer(nn.Layer):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


def nested(fn, order):
    """The derivative of this order of an elementwise function."""
    for _ in range(order):
        fn = grad(lambda x, of=fn: of(x).sum())
    return fn


SELU = 1.0507009873554804934193349852946 * 1.6732632423543772848170429916717

# Of the piece that is there at zero, which is that below.
AT_ZERO = {
    "elu": (lambda x: F.elu(x), (1, 1, 1)),
    "elu, 1.5": (lambda x: F.elu(x, 1.5), (1.5, 1.5, 1.5)),
    "elu in place": (lambda x: F.elu_(x * 1.0, 1.5), (1.5, 1.5, 1.5)),
    "selu": (lambda x: F.selu(x), (SELU, SELU, SELU)),
    "celu": (lambda x: F.celu(x), (1, 1, 1)),
    "celu, 2": (lambda x: F.celu(x, 2.0), (1, 1 / 2, 1 / 4)),
    "sinc": (lambda x: paddle.sinc(x), (0, -(np.pi**2) / 3, 0)),
    "a method": (lambda x: x.sinc(), (0, -(np.pi**2) / 3, 0)),
    "logaddexp": (lambda x: paddle.logaddexp(x, x * 0), (1 / 2, 1 / 4, 0)),
    "of methods": (lambda x: (x * 0).logaddexp(x), (1 / 2, 1 / 4, 0)),
    "softplus": (lambda x: F.softplus(x), (1 / 2, 1 / 4, 0)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", AT_ZERO)
def test_at_zero(name, dtype, count_case):
    fn, exact = AT_ZERO[name]
    x, one = paddle.zeros([1, 1], dtype), paddle.ones([1, 1], dtype)
    net, params, _ = stateless(Layer(fn))

    def loss(x):
        return fn(x).sum()

    def slope(x):
        return jvp(fn, (x,), (one,))[1]

    found = {
        "grad": [nested(fn, k)(x) for k in (1, 2, 3)],
        "derivative": [derivative(net, params, x, (k,)) for k in (1, 2, 3)],
        "jvp": [slope(x), jvp(slope, (x,), (one,))[1]],
    }
    if dtype == "float64":
        found |= {
            "grad of jit": [nested(jit(fn), k)(x) for k in (1, 2)],
            "jit of grad": [jit(nested(fn, k))(x) for k in (1, 2)],
            "and hvp": [vjp(fn, x)[1](one)[0], hvp(loss, x, one)],
            "and hessian": [grad(loss)(x), hessian(loss)(x).reshape([1, 1])],
            "and laplacian": [slope(x), laplacian(net, params, x)],
        }
    for way, row in found.items():
        for order, value in enumerate(row):
            np.testing.assert_allclose(
                float(value.sum()), exact[order], rtol=1e-6, atol=1e-6, err_msg=way
            )
            count_case("derivatives where pieces meet")


@pytest.mark.parametrize("dtype", DTYPES)
def test_sinc_beside_many_digits(dtype, count_case):
    points = [0, 1e-30, 1e-9, 1e-5, 1e-4, -3e-3, 0.1, 0.49999, 0.50001, -0.7]
    points += [1, 1.3, -2, 3.7, 20]
    x = paddle.to_tensor(np.array(points, dtype)[:, None])
    net, params, _ = stateless(Layer(lambda x: paddle.sinc(x)))

    def exactly(at, order):
        if abs(at) > 0.8:
            with mpmath.workdps(40):
                return float(mpmath.diff(lambda x: mpmath.sincpi(x), at, order))
        with mpmath.workdps(40):
            return float(
                sum(
                    (-1) ** k
                    * mpmath.pi ** (2 * k)
                    / (2 * k + 1)
                    / mpmath.factorial(2 * k - order)
                    * mpmath.mpf(at) ** (2 * k - order)
                    for k in range((order + 1) // 2, 40)
                )
            )

    for order in range(5):
        exact = np.array([[exactly(float(at), order)] for at in x.numpy()[:, 0]])
        found = [vjp(paddle.sinc, x)[0]] if not order else []
        if order:
            found.append(nested(lambda x: paddle.sinc(x), order)(x))
            found.append(jit(nested(lambda x: paddle.sinc(x), order))(x))
            found.append(derivative(net, params, x, (order,)))
        near = 1e-6 if dtype == "float32" else 1e-14
        for value in found:
            far = np.abs(value.numpy() - exact).max()
            assert far <= near * np.abs(exact).max()
            count_case("derivatives of sinc")


TIES = {
    "maximum": (lambda x, y: paddle.maximum(x, y), 0.5),
    "minimum": (lambda x, y: paddle.minimum(x, y), 0.5),
    "fmax": (lambda x, y: paddle.fmax(x, y), None),
    "max": (lambda x, y: paddle.stack([x, y]).max(0), None),
    "amax": (lambda x, y: paddle.stack([x, y]).amax(0), 0.5),
    "logaddexp": (lambda x, y: paddle.logaddexp(x, y), 0.5),
    "leaky_relu": (lambda x, y: F.leaky_relu(x - y, 0.3), None),
    "relu": (lambda x, y: F.relu(x - y), None),
    "abs": (lambda x, y: paddle.abs(x - y), None),
    "elu": (lambda x, y: F.elu(x - y), None),
    "selu": (lambda x, y: F.selu(x - y), None),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TIES)
def test_jvp_is_the_transpose_of_vjp_at_ties(name, dtype, count_case):
    fn, share = TIES[name]
    rng = np.random.default_rng(3)
    values = rng.standard_normal((3, 4))
    others = np.where(rng.uniform(size=(3, 4)) < 0.6, values, values.round())
    x, y = (paddle.to_tensor(v.astype(dtype)) for v in (values, others))
    u, v, bar = (
        paddle.to_tensor(rng.standard_normal((3, 4)).astype(dtype)) for _ in range(3)
    )
    for of in (fn, jit(fn)):
        _, back = vjp(of, x, y)
        by_x, by_y = back(bar)
        along = jvp(of, (x, y), (u, v))[1]
        total = (by_x * u).sum() + (by_y * v).sum()
        assert_same((along * bar).sum(), total, rtol=1e-5, atol=1e-5)
        if share is not None:
            tie = (x == y).astype(dtype)
            assert_same(by_x * tie, bar * tie * share, rtol=1e-6, atol=1e-7)
        count_case("transposes at ties")


def test_values_are_paddles():
    far = [0.0, 1e-8, 0.3, -0.6, 2.5, 80.0, -700.0, np.inf, -np.inf, np.nan]
    x, y = (paddle.to_tensor(np.array(v)) for v in (far, far[::-1]))
    for fn in (paddle.maximum, paddle.minimum, paddle.logaddexp):
        native = fn(x, y)
        value = jvp(lambda x, y, fn=fn: fn(x, y), (x, y), (x * 0 + 1, y * 0 + 1))[0]
        np.testing.assert_allclose(value.numpy(), native.numpy(), rtol=1e-14)
    finite = paddle.to_tensor(np.array(far[:7]))
    value = jvp(lambda x: paddle.sinc(x), (finite,), (finite,))[0]
    np.testing.assert_allclose(value.numpy(), paddle.sinc(finite).numpy(), atol=1e-15)
    whole = paddle.to_tensor([[1], [2]])
    mixed = vjp(lambda x: paddle.logaddexp(whole, whole) * x, paddle.ones([2, 1]))[0]
    assert mixed.shape == [2, 1]
    one, row = paddle.to_tensor([[1.0], [2.0]]), paddle.to_tensor([[1.0, 2.0, 3.0]])
    for fn in (paddle.maximum, paddle.minimum, paddle.logaddexp):
        _, back = vjp(lambda a, b, fn=fn: fn(a, b), one, row)
        by_one, by_row = back(paddle.ones([2, 3]))
        assert (by_one.shape, by_row.shape) == ([2, 1], [1, 3])
        second = hessian(lambda a, fn=fn: (fn(a, row) ** 2).sum())(one)
        assert second.shape == [2, 1, 2, 1]
