"""Samples of as many axes as Paddle's kernels take, which batches have one more of."""

import paddle
import paddle.nn.functional as F
import pytest

from conftest import assert_same, randn
from paddle_chainrules import grad, hvp, jit, jvp, vmap

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


NESTED = {
    "transpose": (lambda t: t.transpose([2, 0, 3, 1]), [2, 3, 4, 5]),
    "all axes reversed": (lambda t: t.transpose([3, 2, 1, 0]), [2, 3, 4, 5]),
    "zeros around": (lambda t: F.pad(t, [1, 0, 2, 1], value=0.5), [2, 3, 4, 5]),
    "reflected": (lambda t: F.pad(t, [1, 1, 2, 0], mode="reflect"), [2, 3, 4, 5]),
    "every second": (lambda t: t[::-1, 1:, ::2], [3, 3, 4, 2]),
    "one": (lambda t: t[1, :, -1], [2, 3, 4, 5]),
    "a new axis": (lambda t: t[:, None, 1:, 0], [2, 3, 4, 5]),
    "chosen": (lambda t: t[:, paddle.to_tensor([2, 0, 2])], [2, 3, 4, 5]),
    "chosen of slices": (lambda t: t[1:, paddle.to_tensor([2, 0])], [2, 3, 4, 5]),
    "cut": (lambda t: paddle.split(t, [1, 3], axis=2)[1], [2, 3, 4, 5]),
    "pixels": (lambda t: F.interpolate(t, scale_factor=2), [2, 3, 4, 5]),
    "between": (lambda t: paddle.lerp(t, t * t, t[:1]), [2, 3, 4, 5]),
    "largest": (
        lambda t: t * (paddle.argmax(t, axis=1, keepdim=True) + 1.0),
        [2, 3, 4, 5],
    ),
    "least": (lambda t: t[0] * (paddle.argmin(t, axis=0) + 1.0), [2, 3, 4, 5]),
    "repeated": (lambda t: t.expand([2, 2, 3, 4, 5]), [2, 3, 4, 5]),
    "mean": (lambda t: t.mean([0, 2]), [2, 3, 4, 5]),
}


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("name", NESTED)
def test_batches_of_batches_of_them(name, depth):
    fn, shape = NESTED[name]
    sizes = [2, 1, 3][:depth]
    rows = randn([*sizes, *shape], "float64", 1)
    v = randn(rows.shape, "float64", 2)
    nested = fn
    for _ in sizes:
        nested = vmap(nested)

    def looped(rows):
        each = rows.reshape([-1, *shape]).unbind(0)
        results = paddle.stack([*map(fn, each)])
        return results.reshape([*sizes, *results.shape[1:]])

    expected = looped(rows)
    for _ in range(2):
        assert_same(nested(rows), expected, rtol=1e-13, atol=1e-15)
    c = randn(expected.shape, "float64", 3)
    loss, expected_loss = (
        lambda rows, of=of: (of(rows) ** 2 * c).sum() for of in (nested, looped)
    )
    gradient = grad(expected_loss)(rows)
    for transformed in (grad(loss), jit(grad(loss))):
        assert_same(transformed(rows), gradient, rtol=1e-13)
    curved = hvp(expected_loss, rows, v)
    assert_same(hvp(loss, rows, v), curved, rtol=1e-12, atol=1e-13)
