"""Gradients where a number on the way to them is too large, or exactly zero."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from mpmath import mp, mpf

from conftest import randn
from paddle_chainrules import grad, hvp, jit, jvp
from paddle_chainrules import settings as switch

POINTS = [
    -1e20,
    -1000.0,
    -720.0,
    -100.0,
    -89.0,
    -1.5,
    0.0,
    2.0,
    89.0,
    100.0,
    800.0,
    1e20,
]
EXACT = {
    "silu": lambda x: (1 + mp.exp(-x) * (1 + x)) / (1 + mp.exp(-x)) ** 2,
    "swish": lambda x: (1 + mp.exp(-x) * (1 + x)) / (1 + mp.exp(-x)) ** 2,
    "celu": lambda x: min(mpf(1), mp.exp(x / mpf("1.25"))),
}
ACTIVATIONS = {"silu": F.silu, "swish": F.swish, "celu": lambda x: F.celu(x, 1.25)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EXACT)
def test_slopes_far_out(name, dtype):
    act, x = ACTIVATIONS[name], paddle.to_tensor(POINTS, dtype)
    slope = grad(lambda x: act(x).sum())
    with mp.workdps(30):
        expected = np.array([float(EXACT[name](mpf(p))) for p in POINTS])
    near = {"rtol": 0, "atol": 2e-7 if dtype == "float32" else 1e-15}
    for found in (
        slope(x),
        jit(slope, strict=True)(x),
        jvp(act, (x,), (paddle.ones_like(x),))[1],
    ):
        np.testing.assert_allclose(found.numpy(), expected, **near)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_of_logits_that_are_zero(reduction, weighted):
    """As those of a head that begins with zeros have it."""
    labels = paddle.to_tensor([0.0, 1.0, 0.0, 0.25])
    x = paddle.to_tensor([0.0, 0.0, 1.0, 0.0])
    weight = randn([4], "float32").abs() if weighted else None

    def loss(x):
        found = F.binary_cross_entropy_with_logits(x, labels, weight, reduction)
        return found.sum()

    scale = 0.25 if reduction == "mean" else 1.0
    scale = scale * (weight.numpy() if weighted else 1.0)
    sigmoid = 1 / (1 + np.exp(-x.numpy()))
    for slope in (grad(loss), jit(grad(loss), strict=True)):
        expected = scale * (sigmoid - labels.numpy())
        np.testing.assert_allclose(slope(x).numpy(), expected, atol=1e-7)
    bend = hvp(loss, x, paddle.ones_like(x)).numpy()
    np.testing.assert_allclose(bend, scale * sigmoid * (1 - sigmoid), atol=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_slope_of_digamma_left_of_zero(dtype):
    x = paddle.to_tensor([-10.3, -35.4, -103.9, -1000.3, -0.2, 2.5], dtype)
    slope = grad(lambda x: paddle.digamma(x).sum())
    with mp.workdps(30):
        expected = np.array([float(mp.psi(1, mpf(p))) for p in x.tolist()])
    for found in (
        slope(x),
        jit(slope, strict=True)(x),
        jvp(paddle.digamma, (x,), (paddle.ones_like(x),))[1],
    ):
        # A digit of the argument is many of the slope near a pole.
        np.testing.assert_allclose(found.numpy(), expected, 1e-4)


INFINITE = paddle.to_tensor([float("inf"), float("-inf"), float("nan"), 1.0, -0.2])
AT_INFINITY = {
    "softshrink": F.softshrink,
    "thresholded_relu": F.thresholded_relu,
    "hardshrink": F.hardshrink,
    "kl_div": lambda x: F.kl_div(x, x * 0.0 + 0.5, reduction="none"),
    "hardswish": F.hardswish,
    "softsign": F.softsign,
    "mish": F.mish,
}


@pytest.mark.parametrize("name", AT_INFINITY)
def test_infinities_are_the_same_at_every_call(name, monkeypatch):
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 1)
    fn = AT_INFINITY[name]
    run, expected = jit(fn), fn(INFINITE).numpy()
    for _ in range(4):
        np.testing.assert_allclose(run(INFINITE).numpy(), expected, 1e-6)


SLOPES = {
    "softshrink": F.softshrink,
    "softsign": F.softsign,
    "asinh": paddle.asinh,
    "acosh": paddle.acosh,
    "i0e": paddle.i0e,
    "i1e": paddle.i1e,
    "logit": paddle.logit,
    "logit with a bound": lambda x: paddle.logit(x, 0.1),
    "copysign": lambda x: paddle.copysign(x, paddle.full_like(x, -2.0)),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(
        x, paddle.full_like(x, 0.25), reduction="none"
    ),
}


@pytest.mark.parametrize("size", [1e-5, 1e-10, 1e-15])
@pytest.mark.parametrize("norm", ["whole", "fro"])
def test_slopes_of_norms_of_short_vectors(norm, size):
    def fn(x):
        if norm == "whole":
            return x.norm()
        return paddle.norm(x.reshape([1, 2]), p="fro", axis=[0, 1])

    x = paddle.to_tensor([0.3 * size, -0.4 * size], "float64")
    for slope in (grad(fn), jit(grad(fn))):
        np.testing.assert_allclose(slope(x).numpy(), [0.6, -0.8], rtol=1e-12)


@pytest.mark.parametrize("fn", [paddle.log2, paddle.log10, paddle.log])
def test_slopes_of_logarithms_keep_the_sign_of_zero(fn):
    x = paddle.to_tensor([-0.0, 0.0])
    slope = grad(lambda x: fn(x).sum())
    for found in (slope(x), jit(slope)(x), jvp(fn, (x,), (x * 0.0 + 1.0,))[1]):
        np.testing.assert_array_equal(found.numpy(), [-np.inf, np.inf])


@pytest.mark.parametrize("name", SLOPES)
def test_slopes_at_infinities_are_the_same_however_they_are_asked_for(
    name, monkeypatch
):
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 1)
    fn = SLOPES[name]
    values = [float("inf"), float("-inf"), 1.5, -0.2, 0.3, 1e200, -1e30]
    x = paddle.to_tensor(values, "float64")
    slope = grad(lambda x: fn(x).sum())
    expected, by_code = slope(x).numpy(), jit(slope)
    for _ in range(4):
        np.testing.assert_allclose(by_code(x).numpy(), expected, 1e-9)
    _, tangent = jvp(fn, (x,), (paddle.ones_like(x),))
    np.testing.assert_allclose(tangent.numpy(), expected, 1e-9)
