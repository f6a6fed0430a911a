"""Tensors without elements, batches without samples, and slices that take nothing."""

import paddle
import paddle.nn.functional as F
import pytest

from conftest import assert_same, randn
from paddle_chainrules import grad, jit, jvp, vmap

pytestmark = pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")

NONE = paddle.zeros([0, 3], "float64")


@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (vmap(lambda x: 2.0 * x), [0, 3]),
        (vmap(lambda x: x.sum()), [0]),
        (vmap(grad(lambda x: (x**2).sum())), [0, 3]),
        (vmap(lambda x: 2.0 * x, out_axes=1), [3, 0]),
        (vmap(lambda x: paddle.ones([4])), [0, 4]),
        (vmap(lambda x: x > 0), [0, 3]),
        (vmap(lambda x: 3.0), [0]),
        (vmap(vmap(lambda x: x * x)), [0, 3]),
        (vmap(lambda x: x.sum(), chunk_size=2), [0]),
        (jit(vmap(lambda x: 2.0 * x)), [0, 3]),
    ],
)
def test_a_batch_without_samples(fn, shape):
    assert fn(NONE).shape == shape


def test_gradients_of_what_no_sample_uses():
    w = randn([3], "float64")
    loss = lambda w: vmap(lambda x: (x * w).sum())(NONE).sum()  # noqa: E731
    assert_same(grad(loss)(w), paddle.zeros_like(w))
    assert_same(jit(grad(loss))(w), paddle.zeros_like(w))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: paddle.median(x, axis=1),
        lambda x: F.label_smooth(x.T),
        lambda x: F.glu(paddle.concat([x, x], 1), axis=1),
        lambda x: x[:, 1:-7:3] * 2.0,
        lambda x: paddle.cummax(x, axis=0)[0],
        lambda x: paddle.split(x, 3, 1)[1],
        lambda x: paddle.multiplex([x, 2.0 * x], (x[:, :1] > 0).astype("int32")),
    ],
)
def test_functions_of_nothing(fn):
    value = fn(NONE)
    assert jvp(fn, (NONE,), (NONE,))[1].shape == value.shape
    assert grad(lambda x: fn(x).sum())(NONE).shape == [0, 3]
    many = vmap(fn)(paddle.zeros([2, 0, 3], "float64"))
    assert many.shape == [2, *value.shape]
    assert many.dtype == value.dtype


@pytest.mark.parametrize(
    "index",
    [
        (slice(None), [0, 2], slice(0, 1, 30)),
        (slice(None, None, 2), [1, 1]),
        (slice(0, 3), [0, 2], slice(1, 4, 2)),
        ([0, -1], slice(0, 3, 2)),
        (..., [0, 2, 2], slice(0, 4, 3)),
    ],
)
def test_slices_with_steps_beside_lists(index):
    """Paddle takes other elements for some of these, also from beyond the tensor."""
    x = randn([4, 3, 5], "float64")
    expected = paddle.to_tensor(x.numpy()[index])
    fn = lambda x: 1.0 * x[index]  # noqa: E731
    assert_same(jit(fn)(x), expected)
    c = randn(expected.shape, "float64", 1)
    slope = x.numpy() * 0.0
    for k, part in enumerate(x.numpy().ravel()):
        del part
        one = x.numpy() * 0.0
        one.ravel()[k] = 1.0
        slope.ravel()[k] = (one[index] * c.numpy()).sum()
    loss = lambda x: (fn(x) * c).sum()  # noqa: E731
    for gradient in (grad(loss), jit(grad(loss))):
        assert_same(gradient(x), paddle.to_tensor(slope), rtol=1e-12, atol=1e-12)
    rows = paddle.stack([x, 2.0 * x])
    assert_same(vmap(fn)(rows), paddle.stack([expected, 2.0 * expected]))


def test_slices_backwards_beside_a_list():
    x = randn([4, 3, 5], "float64")
    expected = paddle.to_tensor(x.numpy()[:, [0, 2], ::-1].copy())
    assert_same(jit(lambda x: 1.0 * x[:, [0, 2], ::-1])(x), expected)


def write_by_new_axes(x):
    y = 1.0 * x
    y[None, -2:, None].add_(x.sum() * paddle.ones([1, 2, 1, 3], "float64"))
    y[None, None].scale_(0.5)
    y[None, 0].tanh_()
    return y


def test_writes_through_views_with_new_axes():
    def plain(x):
        y = paddle.concat([x[:-2], x[-2:] + x.sum()]) * 0.5
        return paddle.concat([y[:1].tanh(), y[1:]])

    x, c = randn([4, 3], "float64"), randn([4, 3], "float64", 1)
    slope = grad(lambda x: (plain(x) * c).sum())(x)
    loss = lambda x: (write_by_new_axes(x) * c).sum()  # noqa: E731
    assert_same(jit(write_by_new_axes)(x), plain(x), rtol=1e-12)
    assert_same(grad(loss)(x), slope, rtol=1e-12)
    assert_same(jit(grad(loss))(x), slope, rtol=1e-12)
    rows = paddle.stack([x, 2.0 * x])
    each = paddle.stack([plain(x), plain(2.0 * x)])
    assert_same(vmap(write_by_new_axes)(rows), each, rtol=1e-12)


@pytest.mark.parametrize("fn", [paddle.linalg.inv, paddle.linalg.cholesky])
def test_no_sample_of_what_not_all_matrices_have(fn):
    assert vmap(fn)(paddle.zeros([0, 2, 2])).shape == [0, 2, 2]
