"""Batch norm by what is stored, for many samples at once."""

import warnings

import numpy as np
import paddle
import pytest

from paddle_chainrules import BatchWarning, grad, jacfwd, jacrev, stateless, vmap

pytestmark = pytest.mark.usefixtures("in_double")
SHAPES = {
    "vectors": ([3], "NCL"),
    "lines": ([3, 5], "NCL"),
    "images": ([3, 2, 4], "NCHW"),
    "channels last": ([2, 4, 3], "NHWC"),
}


def _layer(shape, data_format, affine=True):
    """Return a layer in evaluation mode whose statistics are no ones and zeros."""
    kind = paddle.nn.BatchNorm2D if len(shape) == 3 else paddle.nn.BatchNorm1D
    attr = None if affine else False
    layer = kind(3, weight_attr=attr, bias_attr=attr, data_format=data_format)
    paddle.seed(3)
    layer._mean.set_value(paddle.randn([3]))
    layer._variance.set_value(paddle.rand([3]) + 0.3)
    if affine:
        layer.weight.set_value(paddle.rand([3]) + 0.3)
        layer.bias.set_value(paddle.randn([3]))
    layer.eval()
    return layer


@pytest.fixture(autouse=True)
def no_sample_after_another():
    with warnings.catch_warnings():
        warnings.simplefilter("error", BatchWarning)
        yield


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("case", SHAPES)
def test_jacobians_of_many_samples_are_differences(case, affine):
    shape, data_format = SHAPES[case]
    layer = _layer(shape, data_format, affine)
    net, params, _ = stateless(layer)
    x = paddle.randn([4, *shape])

    def of_one(row):
        return net(params, row.unsqueeze(0))[0].sin()

    def differences(row):
        step, columns = 1e-6, []
        for i in range(row.size):
            move = paddle.zeros([row.size], row.dtype)
            move[i] = step
            move = move.reshape(row.shape)
            ends = [paddle.sin(layer((row + m).unsqueeze(0))[0]) for m in (move, -move)]
            columns.append((ends[0] - ends[1]) / (2 * step))
        return paddle.stack(columns, -1).reshape([*shape, *shape]).numpy()

    expected = np.stack([differences(row) for row in x])
    for transform in (jacrev, jacfwd):
        found = vmap(transform(of_one))(x).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("case", SHAPES)
def test_parameters_may_differ_from_sample_to_sample(case):
    shape, data_format = SHAPES[case]
    net, params, _ = stateless(_layer(shape, data_format))
    x, w = (paddle.randn([4, *shape]) for _ in range(2))
    many = {
        name: paddle.stack([v * i + i for i in range(1, 5)])
        for name, v in params.items()
    }

    def loss(params, row, weights):
        return (net(params, row.unsqueeze(0)) * weights).sin().sum()

    found = vmap(grad(loss))(many, x, w)
    shared = vmap(lambda params: net(params, x))(many)  # the same images for all
    for i in range(4):
        own = {name: v[i] for name, v in many.items()}
        expected = grad(loss)(own, x[i], w[i])
        for name, g in expected.items():
            np.testing.assert_allclose(found[name][i].numpy(), g.numpy(), rtol=1e-9)
        np.testing.assert_allclose(
            shared[i].numpy(), net(own, x).numpy(), rtol=1e-9, atol=1e-12
        )
