"""Pooling in machine code gives what Paddle's kernels give, and its way back."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from conftest import assert_same, randn
from paddle_chainrules import grad, hvp, jit
from programs.fenced import check, with_gradient

IMAGE, VOLUME, ROW = [2, 3, 8, 6], [2, 3, 4, 5, 6], [3, 2, 11]
CASES = {
    "largest": (IMAGE, lambda x: F.max_pool2d(x, 2)),
    "largest, padded": (IMAGE, lambda x: F.max_pool2d(x, 3, 2, 1)),
    "largest, padded on some sides": (IMAGE, lambda x: F.max_pool2d(x, 3, 2, [1, 0])),
    "largest, overlapping": (IMAGE, lambda x: F.max_pool2d(paddle.round(x), 3, 1, 1)),
    "largest, beyond the end": (
        IMAGE,
        lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    ),
    "largest of columns": (IMAGE, lambda x: F.max_pool2d(paddle.round(x), [8, 2])),
    "largest in one dimension": (ROW, lambda x: F.max_pool1d(x, 3, 2)),
    "largest in three": (VOLUME, lambda x: F.max_pool3d(x, 2, 2, 1)),
    "means": (IMAGE, lambda x: F.avg_pool2d(x, 2)),
    "means, overlapping": (IMAGE, lambda x: F.avg_pool2d(x, 3, 1)),
    "means of all": (IMAGE, lambda x: F.adaptive_avg_pool2d(x, 1)),
    "means of so many parts": (IMAGE, lambda x: F.adaptive_avg_pool2d(x, [4, 3])),
    "means in one dimension": (ROW, lambda x: F.avg_pool1d(x, 3, 2)),
    "means in three": (VOLUME, lambda x: F.avg_pool3d(x, 2)),
    "means, padded": (IMAGE, lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "means, padded on some sides": (IMAGE, lambda x: F.avg_pool2d(x, 3, 2, [1, 0])),
    "means, padded unevenly": (IMAGE, lambda x: F.avg_pool2d(x, 3, 2, [0, 1, 1, 0])),
    "means, with what is padded": (
        IMAGE,
        lambda x: F.avg_pool2d(x, 3, 2, 1, exclusive=False),
    ),
    "means, beyond the end": (IMAGE, lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True)),
    "means, beyond the padding": (
        IMAGE,
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, exclusive=False),
    ),
    "means, as many as steps": (IMAGE, lambda x: F.avg_pool2d(x, 3, 2, "SAME")),
    "means, padded, in one dimension": (ROW, lambda x: F.avg_pool1d(x, 3, 2, 1)),
    "means, padded, in three": (VOLUME, lambda x: F.avg_pool3d(x, 3, 2, 1)),
    "largest, channels last": (IMAGE, lambda x: F.max_pool2d(x, 2, data_format="NHWC")),
    "means, channels last": (
        IMAGE,
        lambda x: F.avg_pool2d(x, 3, 2, 1, data_format="NHWC"),
    ),
    "means in three, channels last": (
        VOLUME,
        lambda x: F.avg_pool3d(x, 2, 2, 1, data_format="NDHWC"),
    ),
}
WITH_PADDLE = {
    "means of parts of two sizes": lambda x: F.adaptive_avg_pool2d(x, [5, 3]),
    "the largest of all": lambda x: F.max_pool2d(x, [8, 6]),
    "with places": lambda x: F.max_pool2d(x, 2, return_mask=True)[0],
}


def fused(fn):
    """The value and gradient of a function amid other arithmetic."""
    return with_gradient(lambda x: fn(x) * 2.0 + 1.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, dtype):
    shape, fn = CASES[name]
    made = check(fused(fn), randn(shape, dtype))
    assert [op.operator.name for op in made.ops] == ["region"]


@pytest.mark.parametrize("name", WITH_PADDLE)
def test_what_stays_with_paddle(name):
    made = check(fused(WITH_PADDLE[name]), randn(IMAGE))
    assert "region" in {op.operator.name for op in made.ops}
    assert len(made.ops) > 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_that_are_none_and_infinite_ones(dtype):
    x = randn([2, 3, 8, 9], dtype).numpy()
    x[0, 0, :3, :4] = -np.inf
    x[0, 1, ::2, 1::3] = np.nan
    x[1, 2, 4:, :2] = np.inf
    x = paddle.to_tensor(x)
    for fn in (
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda x: F.max_pool2d(x, [1, 1], [2, 2], ceil_mode=True),
        lambda x: F.max_pool2d(x, [3, 2], [2, 4], ceil_mode=True),
        lambda x: F.max_pool2d(x, [2, 1], [1, 1], [1, 0]),
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.avg_pool2d(x, 3, 2, 1),
    ):
        check(fused(fn), x)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_windows_without_a_pixel(axes):
    """Paddle's gradient writes past its memory there; PyTorch has no such windows."""
    pool = getattr(F, f"max_pool{axes}d")
    x = randn([1, 2, *(5, 4, 3)[:axes]], "float64")
    attrs = {"kernel_size": 2, "stride": 2, "padding": 1, "ceil_mode": True}

    def loss(x):
        values, places = pool(x, return_mask=True, **attrs)
        return (paddle.where(places >= 0, values, 0 * values) ** 2).sum()

    is_largest = paddle.zeros_like(x).flatten(2)
    places = pool(x, return_mask=True, **attrs)[1].flatten(2)
    assert int((places < 0).sum())
    for sample, place in np.ndindex(2, places.shape[-1]):
        if (index := int(places[0, sample, place])) >= 0:
            is_largest[0, sample, index] += 1
    expected = 2 * x * is_largest.reshape(x.shape)
    for run in (*[grad(loss)] * 4, *[jit(grad(loss))] * 2):
        assert_same(run(x), expected, rtol=1e-12)
    product = hvp(loss, x, paddle.ones_like(x))
    assert_same(product, 2 * is_largest.reshape(x.shape), rtol=1e-12)
