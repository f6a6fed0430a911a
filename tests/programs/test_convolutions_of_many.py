"""Gradients by the images of many samples, through filters that these share."""

import warnings

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from paddle_chainrules import BatchWarning, grad, jacrev, vmap
from paddle_chainrules.programs import capture

HOWS = {
    "plain": ([5, 4, 3, 2], {}),
    "strides and dilations": ([5, 4, 2, 3], {"stride": [2, 1], "dilation": [1, 2]}),
    "groups": ([6, 2, 3, 2], {"groups": 2, "padding": 1}),
    "depthwise": ([4, 1, 3, 3], {"groups": 4, "padding": 1}),
    "channels last": ([5, 4, 3, 2], {"data_format": "NHWC"}),
}


@pytest.mark.parametrize("case", HOWS)
def test_gradients_are_those_of_one_sample_after_another(case):
    sizes, how = HOWS[case]
    paddle.seed(4)
    shape = [1, 7, 6, 4] if "data_format" in how else [1, 4, 7, 6]
    filters, images = paddle.randn(sizes), paddle.randn([3, *shape])
    weights = paddle.randn([3, *F.conv2d(images[0], filters, **how).shape])

    def loss(image, weight):
        return (F.conv2d(image.sin(), filters, **how) * weight).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("error", BatchWarning)
        found = vmap(grad(loss))(images, weights)
    for i in range(3):
        image = images[i].clone()
        image.stop_gradient = False
        (expected,) = paddle.grad(loss(image, weights[i]), image)
        np.testing.assert_allclose(
            found[i].numpy(), expected.numpy(), rtol=1e-4, atol=1e-5
        )


def test_samples_are_no_groups():
    filters = paddle.randn([2, 3, 3, 3])

    def jacobians(rows):
        return [vmap(jacrev(lambda row: F.conv2d(row, filters)))(rows[0])]

    program = capture(jacobians, [paddle.randn([5, 1, 3, 4, 3])]).program
    ways = [op.args[7] for op in program.ops if op.operator.name == "conv2d_grad"]
    assert ways
    assert {*ways} == {1}
