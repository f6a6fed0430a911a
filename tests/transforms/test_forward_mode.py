"""jvp, jacobian, hessian and hvp, against Paddle's own and finite differences."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from conftest import assert_same, programs_on, randn
from differences import slope_along
from paddle_chainrules import (
    FCNet,
    grad,
    hessian,
    hvp,
    jacobian,
    jvp,
    linearize,
    stateless,
    taylor,
    value_and_grad,
    vjp,
)

TIGHT = {"rtol": 1e-12, "atol": 1e-12}


def wave(x):
    """From three numbers to a matrix, nothing symmetric."""
    a, b, c = x[0], x[1], x[2]
    return paddle.stack(
        [
            paddle.stack([a * b, paddle.sin(c), a**3]),
            paddle.stack([b / (1 + c * c), paddle.exp(a - c), c * b * a]),
        ]
    )


def test_jvp():
    x, v = randn([3], "float64"), randn([3], "float64", 1)
    y, slope = jvp(wave, (x,), (v,))
    assert_same(y, wave(x))
    assert_same(slope, slope_along(wave, x, v), rtol=1e-8, atol=1e-9)
    assert y.stop_gradient
    assert slope.stop_gradient
    assert x.stop_gradient
    assert x.grad is None


def test_jvp_of_trees():
    a, b = randn([2, 3], "float64"), randn([3], "float64", 1)
    da, db = randn([2, 3], "float64", 2), randn([3], "float64", 3)

    def fn(p, ids, scale):
        product = p["a"] * p["b"] * scale
        return {
            "y": product.sum(1),
            "same": p["b"],
            "ids": ids,
            "none": paddle.ones([2]),
        }

    ids = paddle.to_tensor([1, 2])
    primals = ({"a": a, "b": b}, ids, 2.0)
    _, slope = jvp(fn, primals, ({"a": da, "b": db}, None, None))
    assert_same(slope["y"], (2 * (da * b + a * db)).sum(1), **TIGHT)
    assert_same(slope["same"], db, **TIGHT)
    assert slope["ids"] is None
    assert not slope["none"].any()
    _, slope = jvp(fn, primals, ({"a": None, "b": db}, None, None))
    assert_same(slope["y"], (2 * a * db).sum(1), **TIGHT)


def test_jvp_of_nets_equals_taylor():
    net = FCNet((3, 5, 4, 2), "tanh", "float64")
    params, x, v = net.init(0), randn([6, 3], "float64"), randn([3], "float64", 1)
    _, expected = taylor(net, params, x, v, 1)
    _, slope = jvp(lambda x: net.forward(params, x), (x,), (v.expand([6, 3]),))
    assert_same(slope, expected, **TIGHT)


def test_jvp_is_differentiable():
    x, v = randn([3], "float64"), randn([3], "float64", 1)

    def along(x):
        return jvp(lambda x: (x * x * x).sum(), (x,), (v,))[1]

    _, grad = value_and_grad(along)(x)
    assert_same(grad, 6 * x * v, **TIGHT)


def test_jacobian_rows_and_all():
    x = randn([3], "float64")
    J = jacobian(wave, x)
    assert J.shape == [2, 3, 3]
    columns = [slope_along(wave, x, v) for v in paddle.eye(3, dtype="float64")]
    expected = paddle.stack(columns, axis=-1)
    tolerance = {"rtol": 1e-8, "atol": 1e-9}
    assert_same(J[1, 2], expected[1, 2], **tolerance)
    assert len(J._computed_rows) == 1
    assert_same(J[0], expected[0], **tolerance)
    assert len(J._computed_rows) == 4
    assert_same(J[:, 1], expected[:, 1], **tolerance)
    assert_same(J.tensor(), expected, **tolerance)
    assert J[0:0].shape == [0, 3, 3]


@pytest.mark.parametrize(("n", "m"), [(2, 12), (5, 3)])
def test_jacobian_in_both_modes_equals_paddles(n, m):
    weight = randn([n, m], "float64")
    x = randn([n], "float64", 1)

    def fn(x):
        return paddle.tanh(x @ weight) * x.sum()

    calls = []

    def counted(x):
        calls.append(1)
        return fn(x)

    leaf = x.clone()
    leaf.stop_gradient = False
    expected = paddle.autograd.jacobian(fn(leaf), leaf)[:]
    assert_same(jacobian(counted, x).tensor(), expected.detach(), **TIGHT)
    assert len(calls) == (2 if 4 * n < m else 1)


@pytest.mark.parametrize("sizes", [(3, 5, 2), (1, 4, 9)])
def test_jacobian_of_a_batch(sizes):
    net = FCNet(sizes, "tanh", "float64")
    params, x = net.init(0), randn([4, sizes[0]], "float64")
    J = jacobian(lambda x: net.forward(params, x), x, batched=True)
    assert J.shape == [4, sizes[-1], sizes[0]]
    whole = jacobian(lambda x: net.forward(params, x), x).tensor()
    for i in range(4):
        assert_same(J.tensor()[i], whole[i, :, i], **TIGHT)
    assert_same(J[1], whole[range(4), 1, range(4)], **TIGHT)


def test_hessian_and_hvp():
    x, v = randn([4], "float64"), randn([4], "float64", 1)

    def fn(x):
        return (paddle.sin(x) * x.flip([0]) ** 2).sum()

    H = hessian(fn)(x)
    leaf = x.clone()
    leaf.stop_gradient = False
    assert_same(H, paddle.autograd.hessian(fn(leaf), leaf)[:].detach(), **TIGHT)
    assert_same(hvp(fn, x, v), H @ v, **TIGHT)
    assert H.stop_gradient


def test_hvp_of_a_loss_in_its_parameters():
    layer = nn.Sequential(
        *(nn.Linear(3, 4), nn.Silu(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    )
    layer.to(dtype="float64")
    net, params, _ = stateless(layer)
    x = randn([5, 3], "float64")
    v = {name: randn(list(p.shape), "float64", 3) for name, p in params.items()}

    def loss(p):
        return (net.forward(p, x) ** 2).mean()

    found = hvp(loss, params, v)
    step = 1e-5
    plus, minus = (
        value_and_grad(loss)({n: p + s * v[n] for n, p in params.items()})[1]
        for s in (step, -step)
    )
    for name in params:
        assert_same(
            found[name], (plus[name] - minus[name]) / (2 * step), rtol=1e-6, atol=1e-8
        )


def test_hvp_of_what_is_not_used():
    x = {"a": randn([2], "float64"), "b": randn([3], "float64")}
    found = hvp(lambda p: (p["a"] ** 3).sum(), x, x)
    assert_same(found["a"], 6 * x["a"] * x["a"], **TIGHT)
    assert_same(found["b"], paddle.zeros_like(x["b"]))


KINKED = ["relu6", "hardshrink", "softshrink", "hardswish"]


@programs_on
@pytest.mark.parametrize("name", KINKED)
def test_where_a_kernel_is_missing_rules_of_programs_go_on(name):
    act, x = getattr(F, name), randn([3], "float64")
    v = randn([3], "float64")

    def fn(x):
        return act(x) * x * x

    step = 1e-4
    with paddle.no_grad():
        slope = (fn(x + step * v) - fn(x - step * v)) / (2 * step)
        second = (fn(x + step) - 2 * fn(x) + fn(x - step)) / step**2
    close = {"rtol": 1e-5, "atol": 1e-6}
    y, found = jvp(fn, (x,), (v,))
    assert_same(y, fn(x), **TIGHT)
    assert_same(found, slope, **close)
    _, pushforward = linearize(fn, x)
    assert_same(pushforward(v), slope, **close)
    assert_same(hvp(lambda x: fn(x).sum(), x, v), second * v, **close)
    assert_same(hessian(lambda x: fn(x).sum())(x), paddle.diag(second), **close)
    gradient = grad(lambda x: (grad(lambda x: fn(x).sum())(x) * v).sum())(x)
    assert_same(gradient, second * v, **close)


@programs_on
def test_primals_that_were_written_into_since_are_refused():
    x, ones = randn([3], "float64"), paddle.ones([3], "float64")

    def slope(x):
        return grad(lambda x: (paddle.sort(x) ** 3).sum())(x)

    given = x.clone()
    _, pullback = vjp(slope, given)
    _, pushforward = linearize(slope, given)
    given.scale_(-1.0)
    assert_same(pullback(ones)[0], 6 * x)  # it has a copy
    with pytest.raises(RuntimeError, match="has been modified"):
        pushforward(ones)


@pytest.mark.parametrize("name", KINKED)
def test_python_may_decide_by_a_number(name):
    """Of functions whose kernels Paddle can't differentiate twice, too."""
    act, x, v = getattr(F, name), randn([3], "float64"), randn([3], "float64", 1)

    def fn(x):
        return act(x) * (1.0 if x.sum() > 0 else 2.0)

    def slope(of, step=1e-6):
        return (of(x + step * v) - of(x - step * v)) / (2 * step)

    def loss(x):
        return (fn(x) ** 2).sum()

    assert_same(jvp(fn, (x,), (v,))[1], slope(fn), rtol=1e-6, atol=1e-8)
    twice = slope(grad(loss))
    assert_same(hvp(loss, x, v), twice, rtol=1e-6, atol=1e-8)
    assert_same(hessian(loss)(x) @ v, twice, rtol=1e-6, atol=1e-8)


def test_a_kernel_that_leaves_out_a_gradient():
    """That of the mask, where there is none: a tensor without a dtype."""
    x, offset = randn([2, 3, 5, 6], "float64"), randn([2, 8, 4, 5], "float64", 1)
    weight = randn([4, 3, 2, 2], "float64", 2)

    def fn(x):
        return paddle.vision.ops.deform_conv2d(x, offset, weight)

    v = randn(x.shape, "float64", 3)
    slope = (fn(x + 1e-6 * v) - fn(x - 1e-6 * v)) / 2e-6
    assert_same(jvp(fn, (x,), (v,))[1], slope, rtol=1e-6, atol=1e-8)


def test_control_flow_and_changing_shapes():
    def fn(x):
        y = x
        for _ in range(int(x.shape[0])):
            y = paddle.where(y.sum() > 0, paddle.sin(y), y * y)
        return y.sum()

    for n in (2, 3, 5):
        x, v = randn([n], "float64", n), randn([n], "float64", n + 1)
        _, slope = jvp(fn, (x,), (v,))
        (grad,) = vjp(fn, x)[1](paddle.to_tensor(1.0, dtype="float64"))
        assert_same(slope, (grad * v).sum(), **TIGHT)
        assert np.isfinite(hessian(fn)(x).numpy()).all()
