"""What picks nothing has gradients of zeros, in programs as on Paddle's graph."""

import numpy as np
import paddle
import pytest

from conftest import randn
from paddle_chainrules import grad, hessian, jit, vmap


def written(x):
    y = x * 2.0
    y[1:1] = y[1:1] * 3.0
    return (y * y).sum()


NOTHING = {
    "slice": lambda x: x[0:0].sum(),
    "columns": lambda x: (x[:, 2:2] ** 2).sum(),
    "gather": lambda x: paddle.gather(x, paddle.zeros([0], "int64")).sum(),
    "of products": lambda x: (x[0:0] * x[1:1]).sum(),
    "matmul": lambda x: (x[:, 0:0] @ x[:, 0:0].T).sum(),
    "flattened": lambda x: paddle.gather(
        x.flatten(), paddle.zeros([0], "int64")
    ).prod(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NOTHING)
def test_gradients_are_zeros_at_each_call(name):
    fn, x = NOTHING[name], randn([5, 3], "float64")
    asked, traced = grad(fn), jit(grad(fn), strict=True)
    for _ in range(5):
        for found in (asked(x), traced(x)):
            np.testing.assert_array_equal(found.numpy(), np.zeros([5, 3]))
    many = vmap(grad(fn))(randn([2, 5, 3], "float64"))
    np.testing.assert_array_equal(many.numpy(), np.zeros([2, 5, 3]))
    np.testing.assert_array_equal(hessian(fn)(x).numpy(), np.zeros([5, 3, 5, 3]))


def test_what_is_written_into_nothing():
    x = randn([2, 5, 3], "float64")
    found = vmap(grad(written))(x)
    np.testing.assert_allclose(found.numpy(), 8.0 * x.numpy(), rtol=1e-14)
    values = vmap(written)(x).numpy()
    np.testing.assert_allclose(values, 4.0 * (x.numpy() ** 2).sum((1, 2)), rtol=1e-14)
