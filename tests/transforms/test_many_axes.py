"""Samples of as many axes as Paddle's kernels take, which batches have one more of."""

import paddle
import pytest

from conftest import assert_same, randn
from paddle_chainrules import grad, jvp, vmap

FUNCTIONS = {
    "expand": (lambda t: t.expand([2, 3, 2, 3, 5, 3]), [2, 1, 2, 1, 1, 3]),
    "tile": (lambda t: t.tile([2, 1, 3, 2, 1, 2]), [1, 2, 2, 1, 3, 1]),
    "tile to more": (lambda t: t.tile([2, 1, 3, 2, 1, 2]), [2, 2]),
    "logsumexp": (lambda t: paddle.logsumexp(t, axis=[0, 2]), [2, 3, 2, 5]),
    "logsumexp of all": (paddle.logsumexp, [2, 3, 2, 5]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_batch_of_them(name):
    fn, shape = FUNCTIONS[name]
    each = [randn(shape, "float64", k) for k in range(3)]
    directions = [randn(shape, "float64", k) for k in range(3, 6)]
    rows, v = paddle.stack(each), paddle.stack(directions)
    assert_same(vmap(fn)(rows), paddle.stack([*map(fn, each)]), rtol=1e-14)
    c = randn(fn(each[0]).shape, "float64", 9)
    gradient = grad(lambda t: (fn(t) * c).sum())
    expected = paddle.stack([*map(gradient, each)])
    assert_same(vmap(gradient)(rows), expected, rtol=1e-13)
    assert_same(vmap(gradient, chunk_size=2)(rows), expected, rtol=1e-13)
    tangents = vmap(lambda t, v: jvp(fn, (t,), (v,))[1])(rows, v)
    sums = (tangents * c).reshape([3, -1]).sum(1)
    assert_same(sums, (expected * v).reshape([3, -1]).sum(1), rtol=1e-12)
    curved = vmap(lambda t, v: jvp(gradient, (t,), (v,))[1])(rows, v)
    pairs = zip(each, directions, strict=True)
    looped = [jvp(gradient, (t,), (d,))[1] for t, d in pairs]
    assert_same(curved, paddle.stack(looped), rtol=1e-12, atol=1e-15)
