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
