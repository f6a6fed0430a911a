"""Derivatives by the input of nets of many kinds, beside sixty digits of mpmath.

Each net runs on arrays of mpmath's numbers, and is differentiated by differences of a
step that leaves twenty digits.
"""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from mpmath import mp, mpf

from conftest import assert_same, randn
from nets.written_once import NETS, PADDLE, WANTED, drawn
from paddle_chainrules import FCNet, derivative, derivatives, jvp, laplacian, stateless

STEP = mpf(10) ** -10
SINGLE = {c: mpf(float(np.float32(c))) for c in (1e-5, 1.0507009873554805)}
SINGLE |= {c: mpf(float(np.float32(c))) for c in (1.6732632423543772,)}
"""Constants of Paddle's kernels, which have them in single precision."""


def each(function):
    return np.vectorize(function, otypes=[object])


def softmax(x, axis):
    assert axis == -1
    powers = each(mp.exp)(x)
    return powers / powers.sum(-1, keepdims=True)


def normal(x, epsilon):
    x = x - x.mean(-1, keepdims=True)
    return x / each(mp.sqrt)((x * x).mean(-1, keepdims=True) + epsilon)


def convolved(x, weight, bias):
    """Of one channel, with a zero at both ends."""
    ends = np.full((*x.shape[:2], 1), mpf(0), object)
    x = np.concatenate([ends, x, ends], -1)
    windows = np.stack([x[:, 0, i : i + x.shape[-1] - 2] for i in range(3)], -1)
    return np.einsum("nlk,ck->ncl", windows, weight[:, 0]) + bias[:, None]


def attention(q, k, v):
    scores = np.einsum("nik,njk->nij", q, k) / mp.sqrt(q.shape[-1])
    return softmax(scores, -1) @ v


def spectrum(x):
    n = x.shape[-1]
    angles = 2 * mp.pi * np.outer(np.arange(n), np.arange(n // 2 + 1)) / n
    real, imaginary = (x @ each(f)(angles) for f in (mp.cos, mp.sin))
    return each(mp.sqrt)(real * real + imaginary * imaginary)


def selu(x):
    scale, alpha = (SINGLE[c] for c in (1.0507009873554805, 1.6732632423543772))
    return scale * (x if x > 0 else alpha * mp.expm1(x))


def softplus(x):
    return mp.log1p(mp.exp(x))


EXACT = SimpleNamespace(
    **{n: each(getattr(mp, n)) for n in ("tanh", "sin", "cos", "exp")},
    sigmoid=each(lambda x: 1 / (1 + mp.exp(-x))),
    silu=each(lambda x: x / (1 + mp.exp(-x))),
    gelu=each(lambda x: x * (1 + mp.erf(x / mp.sqrt(2))) / 2),
    softplus=each(softplus),
    mish=each(lambda x: x * mp.tanh(softplus(x))),
    selu=each(selu),
    softmax=softmax,
    einsum=np.einsum,
    concat=np.concatenate,
    cumsum=np.cumsum,
    mean=lambda x, axis: x.mean(axis, keepdims=True),
    norm=lambda x, w, b: normal(x, SINGLE[1e-5]) * w + b,
    group=lambda x, w, b: normal(x.reshape(-1, 2, 3), mpf(1e-5)).reshape(-1, 6) * w + b,
    conv=convolved,
    pool=lambda x: (x[..., :-1:2] + x[..., 1::2]) / 2,
    attention=attention,
    spectrum=spectrum,
)


def exact(net, params, x, out, orders):
    """Column ``out``, differentiated so often by each coordinate."""
    total = 0
    for steps in itertools.product(*(range(order + 1) for order in orders)):
        factor = mpf(1)
        shift = []
        for k, order in zip(steps, orders, strict=True):
            factor *= (-1) ** k * math.comb(order, k)
            shift.append((mpf(order) / 2 - k) * STEP)
        total = total + factor * net(EXACT, params, x + np.array(shift))[:, out]
    return (total / STEP ** sum(orders)).astype(float)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", NETS)
def test_derivatives_equal_mpmath(name, count_case):
    net, params, x = drawn(name)
    found = derivatives(lambda p, x: net(PADDLE, p, x), params, x, WANTED)
    number = each(lambda value: mpf(float(value)))
    with mp.workdps(60):
        numbers = {k: number(v.numpy()) for k, v in params.items()}
        for key, (out, *by) in WANTED.items():
            orders = by.count(0), by.count(1)
            like = exact(net, numbers, number(x.numpy()), out, orders)[:, None]
            near = 1e-11 * np.abs(like).max()
            assert_same(found[key], paddle.to_tensor(like), atol=near)
            count_case("derivatives by the input, beside mpmath")


def test_without_grad_mode_too():
    """Each product of what was differentiated stays on the record."""
    net = FCNet((3, 5, 2), "tanh", "float64")
    params, x = net.init(1), randn([4, 3], "float64")
    every = [i for i in itertools.product(range(5), repeat=3) if sum(i) <= 4]
    expected = derivatives(net, params, x, every)
    with paddle.no_grad():
        found = derivatives(net, params, x, every)
        alone = [derivative(net, params, x, index) for index in every]
    assert all(float(part.abs().max()) > 0 for part in expected)
    for ours, other, theirs in zip(found, alone, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12)
        np.testing.assert_allclose(other.numpy(), theirs.numpy(), rtol=1e-9, atol=1e-9)


def test_coordinates_by_name_of_a_net_of_columns():
    """An FCNet takes one tensor: the error says how, and what it says works."""
    net = FCNet((2, 5, 1), "tanh", "float64")
    params = net.init(0)
    at = {"t": paddle.rand([4, 1], "float64"), "x": paddle.rand([4, 1], "float64")}
    wanted = {"u_t": (0, "t"), "u_xx": (0, "x", "x")}
    with pytest.raises(TypeError, match="got dict; its features are the columns") as e:
        derivatives(net, params, at, wanted)
    joined = eval(str(e.value).partition("such as ")[2], {"net": net, "paddle": paddle})
    found = derivatives(joined, params, at, wanted)
    columns = paddle.concat([*at.values()], -1)
    u_t, u_xx = derivatives(net, params, columns, [(1, 0), (0, 2)])
    assert paddle.allclose(found["u_t"], u_t, atol=1e-14)
    assert paddle.allclose(found["u_xx"], u_xx, atol=1e-14)


def test_nets_without_parameters():
    net, params, _ = stateless(paddle.nn.Tanh())
    x = randn([5, 3], "float64")
    y = paddle.tanh(x)
    second = -2 * y * (1 - y * y)
    found = derivative(net, params, x, (0, 2, 0))
    expected = paddle.zeros_like(x)
    expected[:, 1] = second[:, 1]
    assert_same(found, expected, atol=1e-15)
    assert_same(laplacian(net, params, x), second, atol=1e-15)


@pytest.mark.parametrize("shape", [[6, 3], [1, 3], [2, 4, 3], [3]])
def test_one_row_for_many_goes_through_all_layers(shape):
    """Directions of one row: layers that use them as they are, and others."""
    paddle.seed(0)
    first, second, skip = (paddle.nn.Linear(n, 2) for n in (3, 2, 3))
    silu = paddle.nn.functional.silu

    def function(params, x):
        h = silu(first(x)) + skip(x) * x[..., :1]
        return second(h) + paddle.concat([x, x], -1)[..., 1:3]

    for layer in (first, second, skip):
        layer.to(dtype="float64")
    x = randn(shape, "float64")
    along = paddle.to_tensor([0.0, 1.0, 0.0], "float64").expand(shape)
    slope = jvp(lambda x: function({}, x), (x,), (along,))[1]
    bend = jvp(
        lambda x: jvp(lambda x: function({}, x), (x,), (along,))[1], (x,), (along,)
    )[1]
    assert_same(derivative(function, {}, x, (0, 1, 0)), slope, atol=1e-14)
    assert_same(derivative(function, {}, x, (0, 2, 0)), bend, atol=1e-14)
