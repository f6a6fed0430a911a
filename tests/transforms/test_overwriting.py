"""Writes over what a gradient needs: Paddle's tape refuses, and a program is right."""

import numpy as np
import paddle
import pytest
from paddle import nn

from conftest import assert_same, randn
from differences import slope_along, slopes_of
from paddle_chainrules import (
    grad,
    hvp,
    jit,
    jvp,
    stateless,
    value_and_grad,
    vjp,
    vmap,
)


def assigned(x):
    y = x * x
    for i in range(3):
        y[i] = y[i] * x[i]
    return y


def from_the_last(x):
    y = x * x
    for i in range(1, 3):
        y[i] = y[i - 1] * y[i]
    return y


def added(x):
    y = paddle.tanh(x)
    for _ in range(3):
        y.add_(paddle.sin(y))
    return y


def added_to_zeros(x):
    y = paddle.zeros(x.shape, x.dtype)
    for _ in range(3):
        y.add_(paddle.sin(y) + x)
    return y


def used_before(x):
    y = paddle.tanh(x)
    z = y * y
    y.add_(x)
    return y * z


def squared(x):
    y = paddle.exp(0.3 * x)
    for _ in range(2):
        y.add_(y * y)
    return y


def multiplied(x):
    y = paddle.exp(0.3 * x)
    for _ in range(3):
        y.multiply_(y * x)
    return y


def chained(x):
    y = x * x
    y.scale_(2.0)
    y.sin_()
    y.tanh_()
    return y


def by_a_view(x):
    y = x * 1
    z = y.unsqueeze(-1)
    z.add_(paddle.exp(z))
    return y * y


def rows(x):
    y = paddle.tanh(x)
    for i in range(3):
        y[i:] = paddle.exp(-y[i:]) * x[i:]
    return y


def itself(x):
    x.add_(paddle.sin(x))
    y = x * x
    x.multiply_(y)
    return x * y


def columns(x):
    y = paddle.tanh(x)
    for _ in range(2):
        y[..., 0] = (y * y).sum(-1)
    return y * x


TWICE = paddle.to_tensor([1, 0, 1])


def put_twice(x):
    y = paddle.index_put(paddle.cos(x), (TWICE - 3,), paddle.exp(x))
    return y * paddle.index_put(y, (TWICE, TWICE % 2), x[0, 1])


def put_twice_in_place(x):
    y = paddle.cos(x)
    y.index_put_((TWICE,), y * x)
    return y * x


def scattered_twice(x):
    y = paddle.scatter(paddle.cos(x), TWICE, paddle.exp(x))
    return y * paddle.scatter(y, TWICE.unsqueeze(-1), x * x)


def scattered_twice_in_place(x):
    y = paddle.cos(x)
    y.scatter_(TWICE, y * x)
    return y * x


def put_along_twice(x):
    index = paddle.stack([TWICE, 1 - TWICE % 2], -1)
    return paddle.put_along_axis(paddle.cos(x), index, paddle.exp(x), 0) * x


def sent_twice(x):
    send = paddle.geometric
    sources = paddle.to_tensor([0, 0, 2, 1])
    targets = paddle.to_tensor([1, 1, 1, 2])
    y = send.send_u_recv(paddle.exp(x), sources, targets, "max", 3)
    weights = paddle.exp(x[sources] * 0)
    z = send.send_ue_recv(paddle.sin(x), weights, sources, targets, "mul", "min", 3)
    return y + z * x


ONE = paddle.to_tensor(1)


def of_more_axes(x):
    y = paddle.tanh(x)
    y[ONE] = paddle.exp(x[:1])
    y[0] = (x[2:] * y[1]).unsqueeze(0)
    y[1:] = (y[1:] * y[0]).unsqueeze(0)
    return y * x


WRITES = [
    *(assigned, from_the_last, added, added_to_zeros, used_before, squared),
    *(multiplied, chained, by_a_view, rows, itself, columns),
    *(put_twice, put_twice_in_place, scattered_twice, scattered_twice_in_place),
    *(put_along_twice, sent_twice, of_more_axes),
]
"""Functions of which the last ones write several values at one place, or broadcast."""

X = np.array([[0.4, -0.7], [1.1, 0.6], [-0.3, 0.8]])


def at(values, dtype="float64"):
    return paddle.to_tensor(values).astype(dtype)


def differences(fn, bar):
    """The gradient of ``sum(fn(x) * bar)`` at X, by differences."""
    return slopes_of(lambda x: (fn(x) * at(bar)).sum(), at(X))[0].numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fn", WRITES)
def test_transforms(fn, dtype, count_case):
    x, rng = at(X, dtype), np.random.default_rng(1)
    bar, v = (rng.standard_normal(X.shape) for _ in range(2))
    exact = {
        "gradient": at(differences(fn, bar), dtype),
        "along": slope_along(fn, at(X), at(v)).astype(dtype),
    }
    near = {"rtol": 1e-5, "atol": 1e-5 if dtype == "float32" else 1e-7}

    def loss(x):
        return (fn(x) * at(bar, x.dtype)).sum()

    before = x.numpy().tobytes()
    for of in (fn, jit(fn)):
        y, back = vjp(of, x)
        for _ in range(2):
            assert_same(back(at(bar, dtype))[0], exact["gradient"], **near)
        assert_same(y, fn(x.clone()), **near)
        assert_same(jvp(of, (x,), (at(v, dtype),))[1], exact["along"], **near)
        count_case("pairs of vjp and jvp of functions that overwrite")
    assert_same(value_and_grad(loss)(x)[1], exact["gradient"], **near)
    if dtype == "float64":
        second = hvp(loss, x, at(v))
        by_steps = slope_along(grad(jit(loss)), x, at(v), 1e-5)
        assert_same(second, by_steps, rtol=1e-5, atol=1e-6)
        count_case("second derivatives of functions that overwrite")
    assert x.numpy().tobytes() == before


@pytest.mark.parametrize(
    ("jit", "dtype"), [(None, "float64"), (False, "float32"), (True, "float64")]
)
@pytest.mark.parametrize("fn", WRITES)
def test_nets(fn, jit, dtype, count_case):
    class Writes(nn.Layer):
        def __init__(self):
            super().__init__()
            self.scale = self.create_parameter([2], dtype=dtype)
            self.scale.set_value(at([1.3, 0.8], dtype))

        def forward(self, x):
            return fn(x * self.scale)

    net, params, buffers = stateless(Writes(), **({} if jit is None else {"jit": jit}))
    x, bar = at(X, dtype), np.random.default_rng(1).standard_normal(X.shape)
    scale = np.array([1.3, 0.8])
    exact = differences(lambda x: fn(x * at(scale)), bar)
    near = {"rtol": 1e-5, "atol": 1e-5 if dtype == "float32" else 1e-7}
    for call in range(5 if jit is None else 3):
        given = {"buffers": buffers} if call == 2 else {}
        y, back, *_ = net.pullback(params, x, **given)
        by_name, (by_x,) = back(at(bar, dtype))
        assert_same(y, fn(x * params["scale"]), **near)
        assert_same(by_x, at(exact, dtype), **near)
        by_scale = (exact * X).sum(0) / scale
        assert_same(by_name["scale"], at(by_scale, dtype), **near)
        again, _ = back(at(bar, dtype), wrt="params")
        assert_same(again["scale"], at(by_scale, dtype), **near)
        count_case("calls of nets that overwrite")


def test_a_write_after_the_call_is_refused():
    """Also where it leaves the result as it was: no program of other values."""
    w, x = at([2.0, 3.0]), at([0.0, 0.0])

    def closes_over(x):
        return x * w * x.exp()

    for fn in (closes_over, lambda x: closes_over(x).add_(x)):
        _, back = vjp(fn, x)
        w.add_(paddle.ones_like(w))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            back(at([1.0, 1.0]))
    y, back = vjp(lambda x: used_before(x) + x, x)
    x.add_(paddle.ones_like(x))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        back(paddle.ones_like(y))


def test_random_numbers_are_those_of_the_call():
    def noisy(x):
        return used_before(paddle.tanh(x) + paddle.rand(x.shape, x.dtype))

    x, c = randn([3], "float64"), randn([3], "float64", 2)
    paddle.seed(5)
    noise = paddle.rand(x.shape, x.dtype)
    after = paddle.rand([2])

    def out_of_place(x):
        v = paddle.tanh(x) + noise
        y = paddle.tanh(v)
        return (y + v) * y * y

    expected, exact = vjp(out_of_place, x)
    paddle.seed(5)
    y, back = vjp(noisy, x)
    assert_same((y, back(c)), (expected, exact(c)), rtol=1e-12)
    assert_same(back(2 * c)[0], 2 * exact(c)[0], rtol=1e-12)
    assert_same(paddle.rand([2]), after)


@pytest.mark.parametrize("calls", [1, 3, 40])
@pytest.mark.parametrize("more", [1, 2])
def test_values_of_more_axes_at_tensors(more, calls):
    """Paddle's kernel ends the process."""
    x, value = at(X), randn([2, 2], "float64")
    rows, columns = paddle.to_tensor([2, 0]), paddle.to_tensor([0, 1])

    def written(x, value):
        y = x * 2
        y[rows] = value
        y[:, columns] = y[:, columns] * value.sum()
        return y * x

    def loss(x, value):
        return (written(x, value) ** 2).sum()

    expected = loss(x, value), *grad(loss, (0, 1))(x, value)
    value = value.reshape([*[1] * more, *value.shape])
    of_both = jit(value_and_grad(loss, (0, 1)))
    for _ in range(calls):
        result, (by_x, by_value) = of_both(x, value)
    assert_same(result, expected[0], rtol=1e-10)
    assert_same(by_x, expected[1], rtol=1e-10)
    assert_same(by_value.reshape(expected[2].shape), expected[2], rtol=1e-10)
    direct = grad(loss, (0, 1))(x, value)
    assert_same(direct[1], by_value, rtol=1e-10)


def detached(s, base, y):
    y[0] = s[0] ** 2
    return y


def detached_view(s, base, y):
    y[:2][1] = s[1] ** 3
    return y


def detached_twice(s, base, y):
    y[0] = s[0] ** 2
    y[1] = y[0] * s[1]
    return y


def detached_in_place(s, base, y):
    y.add_(s * s)
    return y


def detached_and_base(s, base, y):
    y[0] = s[0] ** 2
    return base * y


@pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")
@pytest.mark.parametrize("of", ["detach", "data", "detach_"])
@pytest.mark.parametrize(
    "write",
    [
        detached,
        detached_view,
        detached_twice,
        detached_in_place,
        detached_and_base,
    ],
)
def test_a_write_into_a_detached_tensor_of_the_functions_own(write, of):
    """The written one has the gradient, and what it was detached from has none."""
    constant, s = (randn(3).astype("float64") for _ in range(2))

    def fn(s):
        base = constant.clone()
        y = base.data if of == "data" else getattr(base, of)()
        return (write(s, base, y) * s).sum()

    def by_hand(s):
        old = [constant[i] for i in range(3)]
        kept = [t.detach() for t in s]
        y, base = [*old], [*old]
        if write is detached_view:
            y[1] = s[1] ** 3
        elif write is detached_in_place:
            y = [a + b * b for a, b in zip(old, s, strict=True)]
        else:
            y[0] = s[0] ** 2
            base[0] = s[0] ** 2 if of == "detach_" else kept[0] ** 2
        if write is detached_twice:
            y[1] = y[0] * s[1]
        if write is detached_and_base:
            y = [a * b for a, b in zip(base, y, strict=True)]
        return sum(a * b for a, b in zip(y, s, strict=True))

    expected = grad(by_hand)(s)
    for found in (
        grad(fn)(s),
        jit(grad(fn))(s),
        vmap(grad(fn))(paddle.stack([s, s]))[1],
        paddle.stack([jvp(fn, (s,), (e,))[1] for e in paddle.eye(3, dtype=s.dtype)]),
    ):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)
