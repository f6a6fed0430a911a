"""Batch normalization in training of one value for each channel: Paddle leaves it."""

import paddle
import paddle.nn.functional as F

from conftest import assert_same, randn
from paddle_chainrules import grad, hessian, hvp, jit, jvp


def cubes(x, scale=None, shift=None):
    moved = paddle.zeros([2], "float64"), paddle.ones([2], "float64")
    return (F.batch_norm(x, *moved, scale, shift, training=True) ** 3).sum()


def test_derivatives_are_those_of_what_paddle_does():
    x, along = randn([1, 2], "float64"), randn([1, 2], "float64", 1)
    for transformed in (lambda fn: fn, jit):
        assert_same(transformed(grad(cubes))(x), 3.0 * x**2, rtol=1e-12)
        assert_same(hvp(cubes, x, along), 6.0 * x * along, rtol=1e-12)
        found = transformed(hessian(cubes))(x).reshape([2, 2])
        assert_same(found, paddle.diag((6.0 * x).reshape([-1])), rtol=1e-12)
    _, slope = jvp(cubes, (x,), (along,))
    assert_same(slope, (3.0 * x**2 * along).sum(), rtol=1e-12)


def test_scale_and_shift_have_none():
    x, scale, shift = (
        randn([1, 2], "float64"),
        randn([2], "float64"),
        randn([2], "float64", 1),
    )
    for gradient in (grad(cubes, (0, 1, 2)), jit(grad(cubes, (0, 1, 2)))):
        of_x, *rest = gradient(x, scale, shift)
        assert_same(of_x, 3.0 * x**2, rtol=1e-12)
        assert [t.tolist() for t in rest] == [[0.0, 0.0], [0.0, 0.0]]


def test_two_samples_are_normalized():
    x = randn([2, 2], "float64")
    found = jit(grad(lambda x: cubes(x)))(x)
    assert_same(found, grad(cubes)(x), rtol=1e-9, atol=1e-12)
    assert float((found - 3.0 * x**2).abs().max()) > 1e-3
