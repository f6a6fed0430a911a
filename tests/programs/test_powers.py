"""Derivatives of powers, whose exponents Paddle's kernels round to float32."""

import numpy as np
import paddle
import pytest

from conftest import programs_on
from paddle_chainrules import grad, jit, make_program


def derivative(fn, order):
    """Of a function of each entry alone."""
    for _ in range(order):
        fn = grad(lambda x, fn=fn: fn(x).sum())
    return fn


def as_program(fn):
    return lambda x: make_program(fn)(x)(x)[0]


def expected(x, exponent, order):
    factor = np.prod([exponent - k for k in range(order)])
    return factor * x ** (exponent - order)


@pytest.mark.parametrize("program", [lambda f: f, as_program], ids=["tape", "program"])
@pytest.mark.parametrize("exponent", [-1.7, -0.3, 0.3, 0.7, 2.3, 3.5])
def test_exponents_below_are_not_rounded_once_more(exponent, program):
    x = paddle.to_tensor([0.2, 0.7, 1.4, 2.5], "float64")
    single = float(np.float32(exponent))
    for order in range(5):
        found = program(derivative(lambda x: x**exponent, order))(x).numpy()
        like = expected(x.numpy(), single, order)
        np.testing.assert_allclose(found, like, rtol=1e-12)


@programs_on
@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0])
def test_whole_powers_of_zero_have_derivatives(exponent):
    x = paddle.to_tensor([0.0, 0.5, -2.0], "float64")
    power = paddle.to_tensor(exponent, "float64")
    for order in range(5):
        found = jit(derivative(lambda x: x**power, order))(x).numpy()
        below = max(exponent - order, 0.0)
        factor = np.prod([exponent - k for k in range(order)])
        np.testing.assert_allclose(found, factor * x.numpy() ** below, rtol=1e-14)


@pytest.mark.parametrize(
    "fn",
    [lambda x, y: x**y, lambda x, y: y**x, paddle.atan2],
    ids=["power", "exponent", "atan2"],
)
def test_gradients_of_two_dtypes_are_computed_in_the_wider(fn):
    x = paddle.to_tensor([1.1, 0.3, 2.7], "float64")
    y = paddle.to_tensor([2.3, 0.7, 5.3], "float32")
    slope = grad(lambda x, y: fn(x, y).sum())
    expected = slope(x, y.astype("float64")).numpy()
    for found in (slope(x, y), jit(slope)(x, y)):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-14)


@pytest.mark.parametrize("order", [2.5, 3, 4, 10])
@pytest.mark.parametrize(
    "norm",
    [
        lambda x, p: paddle.linalg.norm(x, p, axis=1).sum(),
        lambda x, p: paddle.linalg.norm(x.flatten(), p),
        lambda x, p: paddle.dist(x, paddle.zeros_like(x), p),
        lambda x, p: paddle.cdist(x, paddle.zeros([2, 3], x.dtype), p).sum(),
    ],
    ids=["rows", "all", "dist", "cdist"],
)
def test_gradients_of_norms_of_short_vectors_are_those_of_long_ones(norm, order):
    long = paddle.to_tensor([[3.0, -4.0, 0.5], [1.0, 2.0, -0.7]], "float64")
    step, expected = 1e-6, np.empty([2, 3])
    for i in np.ndindex(2, 3):
        move = np.zeros([2, 3])
        move[i] = step
        ends = [norm(long + paddle.to_tensor(s * move), order).item() for s in (1, -1)]
        expected[i] = (ends[0] - ends[1]) / (2 * step)
    slope = grad(lambda x: norm(x, order))
    for size in (1.0, 1e-2, 1e-6):
        for f in (slope, jit(slope)):
            found = f(long * size).numpy()
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)


def test_medians_of_close_numbers():
    """``==`` of Paddle takes numbers for equal that are 2.2e-16 apart."""
    x = paddle.to_tensor([1e-17, 0.0, 1.0], "float64")
    slope = grad(paddle.median)
    for f in (slope, jit(slope)):
        assert f(x).tolist() == [1.0, 0.0, 0.0]
    largest = grad(lambda x: paddle.amax(x[:2]))
    assert jit(largest)(x).tolist() == [1.0, 0.0, 0.0]
