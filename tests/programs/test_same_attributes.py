"""Attributes that Paddle's kernels round to float32 have one value at every call."""

import paddle
import paddle.nn.functional as F
import pytest

from conftest import assert_same, randn
from paddle_chainrules import grad, jit

IMAGE, ROW = randn([1, 2, 5, 7], "float64"), randn([1, 2, 5], "float64", 1)
VOLUME, TABLE = randn([1, 1, 3, 4, 5], "float64", 2), randn([3, 5], "float64", 3)
LEFT, RIGHT = randn([3, 4], "float64", 4), randn([4, 5], "float64", 5)


def resampled(mode, layout, **how):
    return lambda x: F.interpolate(x, mode=mode, data_format=layout, **how)


CASES = {
    "linear": (resampled("linear", "NCW", scale_factor=1.7), ROW),
    "bilinear": (resampled("bilinear", "NCHW", size=[7, 9]), IMAGE),
    "bilinear by scale": (resampled("bilinear", "NCHW", scale_factor=1.7), IMAGE),
    "bilinear, one axis stays": (
        resampled("bilinear", "NCHW", scale_factor=[1.3, 1.0]),
        IMAGE,
    ),
    # 3 places stay 3, which a kernel copies only if all other sizes stay too.
    "trilinear": (resampled("trilinear", "NCDHW", scale_factor=1.3), VOLUME),
    "trilinear, all stays": (resampled("trilinear", "NCDHW", scale_factor=1.1), VOLUME),
    "addmm": (
        lambda c: paddle.addmm(c, LEFT + 0.0 * c.sum(), RIGHT, alpha=0.7, beta=0.3),
        TABLE,
    ),
    "addmm, by a factor": (
        lambda x: paddle.addmm(TABLE, x, RIGHT, alpha=0.7, beta=0.3),
        LEFT,
    ),
    "baddbmm": (
        lambda x: paddle.baddbmm(TABLE[None], x[None], RIGHT[None], alpha=0.7),
        LEFT,
    ),
    "increment": (lambda x: paddle.increment(x.sum() * 1.0, 0.3), TABLE),
    "group_norm": (lambda x: F.group_norm(x, 2, epsilon=1e-3), IMAGE),
    "instance_norm": (lambda x: F.instance_norm(x, eps=1e-3), IMAGE),
    "layer_norm": (lambda x: F.layer_norm(x, [7], epsilon=1e-3), IMAGE),
}


@pytest.mark.parametrize("name", CASES)
def test_one_value_at_every_call(name):
    fn, x = CASES[name]
    value, slope = jit(fn), grad(lambda x: (fn(x) ** 3).sum())
    of_slope, first = jit(slope), slope(x)
    assert list(value(x).shape) == list(fn(x).shape)
    for _ in range(40):
        assert_same(value(x), fn(x), rtol=1e-12, atol=1e-12)
        assert_same(slope(x), first, rtol=1e-11, atol=1e-11)
        assert_same(of_slope(x), first, rtol=1e-11, atol=1e-11)
