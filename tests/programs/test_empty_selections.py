"""What picks nothing has gradients of zeros, in programs as on Paddle's graph."""

import numpy as np
import paddle
import pytest
from paddle import nn

from conftest import assert_same, randn
from paddle_chainrules import grad, hessian, jit, stateless, vmap
from paddle_chainrules.paddle_side.autograd.engine import gradients


def written(x):
    y = x * 2.0
    y[1:1] = y[1:1] * 3.0
    return (y * y).sum()


NOTHING = {
    "slice": lambda x: x[0:0].sum(),
    "columns": lambda x: (x[:, 2:2] ** 2).sum(),
    "gather": lambda x: paddle.gather(x, paddle.zeros([0], "int64")).sum(),
    "of products": lambda x: (x[0:0] * x[1:1]).sum(),
    "another shape": lambda x: (
        x[:, 1:1].reshape([0, 7]).reshape([3, 0, 2]).sum(1).sum()
    ),
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


NONE = paddle.zeros([0], "int64")
BRACKETS = {
    "rows": lambda x: x[NONE],
    "elements": lambda x: x[NONE, NONE],
    "of a column": lambda x: x[NONE, 0],
    "of a row": lambda x: x[0, NONE],
    "no pairs": lambda x: x[paddle.zeros([0, 2], "int64")],
    "pairs of none": lambda x: x[paddle.zeros([2, 0], "int64")],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BRACKETS)
def test_empty_tensors_in_brackets_of_many_samples(name):
    fn, x = BRACKETS[name], randn([2, 5, 3], "float64")
    shape = np.zeros([5, 3])[_numpy(name)].shape
    assert fn(x[0]).shape == [*shape]
    for transform in (vmap, lambda fn: jit(vmap(fn), strict=True)):
        assert transform(fn)(x).shape == [2, *shape]
    slopes = vmap(grad(lambda x: fn(x).sum() + (x**3).sum()))(x)
    np.testing.assert_allclose(slopes.numpy(), 3.0 * x.numpy() ** 2, rtol=1e-13)


def _numpy(name):
    none = np.zeros(0, int)
    return {
        "rows": none,
        "elements": (none, none),
        "of a column": (none, 0),
        "of a row": (0, none),
        "no pairs": np.zeros([0, 2], int),
        "pairs of none": np.zeros([2, 0], int),
    }[name]


@pytest.mark.parametrize("shape", [(4, 0), (0, 3), (2, 0, 5)])
def test_layers_called_with_nothing(shape):
    layer = nn.Linear(shape[-1], 2)
    net, params, _ = stateless(layer)
    x, rows = paddle.zeros(shape), float(np.prod(shape[:-1]))
    params["bias"] = randn([2])

    def loss(params):
        return (net.forward(params, x) ** 2).sum()

    def squares(params):
        return (grad(loss)(params)["bias"] ** 2).sum()

    factors = {loss: 2 * rows, squares: 8 * rows**2}
    for fn, factor in factors.items():
        for found in (grad(fn)(params), jit(grad(fn))(params)):
            assert_same(found["weight"], paddle.zeros([shape[-1], 2]))
            assert_same(found["bias"], factor * params["bias"])


def test_attention_over_nothing():
    net, params, _ = stateless(nn.MultiHeadAttention(4, 2))
    x = paddle.zeros([0, 3, 4])

    def loss(params):
        return net.forward(params, x).sum()

    zeros = {name: paddle.zeros_like(value) for name, value in params.items()}
    assert_same(grad(loss)(params), zeros)
    assert_same(jit(grad(loss))(params), zeros)


def test_what_paddle_refuses_of_nothing_is_said():
    w = paddle.ones([3, 2])
    w.stop_gradient = False
    y = paddle.zeros([0, 3]) @ w
    with pytest.raises(NotImplementedError, match="of tensors without elements"):
        gradients([y], [w], [paddle.zeros([0, 2])], False)
