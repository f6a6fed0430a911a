"""Batches of what acts on each image alone: one call for all of them, exactly."""

import paddle
import paddle.nn.functional as F
import pytest

from conftest import assert_same, randn
from paddle_chainrules import grad, hvp, jit, jvp, vmap

SHAPE = [2, 3, 4, 5]
FILTER = randn([3, 4, 2, 3], "float64", 7)
EACH = randn([3, 1, 2, 3], "float64", 8)
FUNCTIONS = {
    "bilinear": lambda t: F.interpolate(t, size=[5, 7], mode="bilinear"),
    "bicubic": lambda t: F.interpolate(t, size=[5, 7], mode="bicubic"),
    "by area": lambda t: F.interpolate(t, size=[2, 3], mode="area"),
    "patches": lambda t: F.unfold(t, [2, 3]),
    "patches joined": lambda t: F.fold(
        F.unfold(t, [2, 3])[:, :, 1:7] ** 2, [3, 5], [2, 3]
    ),
    "a number around": lambda t: F.pad(t, [1, 2, 0, 1], value=0.5),
    "channels last": lambda t: F.pad(t, [1, 2, 0, 1], data_format="NHWC"),
    "sampled": lambda t: F.grid_sample(
        t, paddle.tanh(t[:, 1:].transpose([0, 2, 3, 1]) * 0.4)
    ),
    "transposed": lambda t: F.conv2d_transpose(t, FILTER, stride=2),
    "transposed by filters": lambda t: F.conv2d_transpose(
        t, FILTER * t.mean(), padding=1
    ),
    "transposed in groups": lambda t: F.conv2d_transpose(t, EACH, groups=3),
    "its channels shuffled": lambda t: F.channel_shuffle(t, 3) ** 2,
    "shifted": lambda t: F.temporal_shift(t, 2, 0.25),
    "power": lambda t: F.lp_pool2d(t.abs(), 2.0, 2),
    "unpooled": lambda t: F.max_unpool2d(*F.max_pool2d(t, 2, return_mask=True), 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_batches_are_as_one_after_another(name):
    fn = FUNCTIONS[name]
    shape = [2, 3, 4, 6] if name == "unpooled" else SHAPE
    c = randn(fn(randn(shape, "float64", 1)).shape, "float64", 2)

    def loss(t):
        return (fn(t) ** 2 * c).sum()

    def one(t, v):
        by_tangent = jvp(fn, (t,), (v,))[1] if name != "sampled" else t
        curved = hvp(loss, t, v) if name != "sampled" else t
        return fn(t), grad(loss)(t), by_tangent, curved

    for sizes in ([3], [2, 3]):
        rows = randn([*sizes, *shape], "float64", 3)
        directions = randn(rows.shape, "float64", 4)
        flat = (t.reshape([-1, *shape]) for t in (rows, directions))
        each = [one(t, v) for t, v in zip(*flat, strict=True)]
        nested = one
        for _ in sizes:
            nested = vmap(nested)
        for call in (nested, jit(nested)):
            for found, *parts in zip(call(rows, directions), *each, strict=True):
                expected = paddle.stack(parts).reshape(found.shape)
                assert_same(found, expected, rtol=1e-11, atol=1e-12)
