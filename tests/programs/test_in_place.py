"""Writes into tensors and their views, in programs that have none."""

import numpy as np
import paddle
import pytest

from conftest import assert_same
from differential.verdicts import Differences, apart
from paddle_chainrules import (
    CaptureError,
    jit,
    make_program,
    value_and_grad,
    vjp,
    vmap,
)
from paddle_chainrules.programs.tracing.operations import Operation


def a_row(x, y):
    a = x * 2
    a[1] = y
    return a


def zeros_filled_by_parts(x, y):
    a = paddle.zeros([3, 4], "float64")
    a[0] = y
    a[1:] = x[:2] * y
    return a


def a_view_that_is_added_to(x, y):
    a = x.clone()
    v = a[1:]
    v.add_(y)
    return a * v.sum()


def views_of_the_whole_and_of_a_part(x, y):
    a = x * 1.5
    v = a.reshape([-1])
    v[2:6] = y
    w = a[0]
    w.multiply_(y)
    return a + v.sum()


def one_after_the_other(x, y):
    a = x * 1.0
    a.tanh_()
    a.scale_(2.0)
    a.add_(y)
    a.clip_(-1.0, 1.7)
    return a


def another_shape(x, y):
    a = x * 1.0
    a.reshape_([4, 3])
    a.unsqueeze_(0)
    a[0, 1] = y[:3]
    return a


def what_was_used_before(x, y):
    a = x * 2
    b = a.transpose([1, 0])
    b[0] = y[:3]
    s = b.sin()
    b.zero_()
    return a + s.transpose([1, 0])


def rows_written_twice(x, y):
    a = x * 2
    a[paddle.to_tensor([0, 2, 0])] = x * y
    return a


def parts_that_are_copies(x, y):
    a = x * 2
    left, _ = a.split(2, axis=1)
    left.add_(y[:2])
    return a * left.sum()


def by_a_mask(x, y):
    a = x * 2
    a[a > 0] = 0.5
    return a * y


def diagonals_and_rows(x, y):
    a = x * 1
    a.unbind(0)[1].fill_(3.0)
    a.fill_diagonal_(2.0)
    return a * y


def sums_in_a_loop(x, y):
    a = paddle.zeros([4], "float64")
    for i in range(3):
        a += x[i] * y
    a -= y
    a *= a
    return a


def assigned(x, y):
    a = x * 1
    b = x * 3
    paddle.assign(x * y, output=a)
    b.copy_(x * y, True)
    return a.sin() + b


def an_older_view(x, y):
    a = x * 1
    v = a[0]
    a[0] = y
    return v * y + a.sum()


def a_view_of_a_view(x, y):
    a = x * 1
    v = a.reshape([4, 3])[1:3]
    w = v.flatten()
    w[1:5] = y
    v.multiply_(v)
    return a


KEPT = paddle.to_tensor([5.0, 6.0, 7.0, 8.0], dtype="float64")
PLACES = paddle.to_tensor([0, 2])


def of_nothing_of_the_program(x, y):
    a = paddle.zeros([4], "float64")
    a[:] = paddle.to_tensor([1.0, 2.0, 3.0, 4.0], dtype="float64")
    a.multiply_(a)
    b = paddle.ones([4], "float64")
    b[PLACES] = 3.0
    b[1] = x[0, 1]
    c = paddle.ones([4], "float64")
    c[KEPT > 6.0] = 0.5
    c.exp_()
    d = paddle.zeros([3, 4], "float64")
    d[0] = KEPT
    d[1] = y
    return (a + b * c) * y + d * x


def a_constant_s_older_view(x, y):
    a = paddle.zeros([3, 4], x.dtype)
    v, w = a[0], a[:, 0:]
    a[0] = x[0]
    return v * y + w + x


def read_and_written(x, y):
    a = paddle.zeros([2, 4], x.dtype)
    a[0] += y
    a[1] += a[0] * a[0]
    b = paddle.zeros([1], x.dtype)
    for row in x:
        b[0] += (row * row).sum()
    return a.sum() * x + b[0]


def used_and_then_filled(x, y):
    a = paddle.zeros([3, 4], x.dtype)
    v = a[0]
    s = v * y + 1.0
    a[0] = 2.0
    return (s + v) * x * y


FUNCTIONS = [
    a_constant_s_older_view,
    read_and_written,
    used_and_then_filled,
    of_nothing_of_the_program,
    a_row,
    zeros_filled_by_parts,
    a_view_that_is_added_to,
    views_of_the_whole_and_of_a_part,
    one_after_the_other,
    another_shape,
    what_was_used_before,
    rows_written_twice,
    parts_that_are_copies,
    by_a_mask,
    diagonals_and_rows,
    sums_in_a_loop,
    assigned,
    an_older_view,
    a_view_of_a_view,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients_of_what_is_written(function, count_case):
    rng = np.random.default_rng(3)
    x, y = (paddle.to_tensor(rng.standard_normal(s)) for s in ([3, 4], [4]))
    before = x.numpy(), y.numpy()
    value = function(x, y)
    cotangent = paddle.to_tensor(rng.standard_normal(value.shape))

    def gradients(x, y, cotangent):
        value, pullback = vjp(function, x, y)
        return value, *pullback(cotangent)

    program = make_program(gradients)(x, y, cotangent)
    found, *grads = program(x, y, cotangent)
    # Functions in loops are up to 2 ulp from the true values, and Paddle's too.
    np.testing.assert_allclose(found.numpy(), value.numpy(), 2.0**-50, 2.0**-50)
    exact = Differences(lambda given: [function(*given)], [x, y], [0, 1])
    slopes = exact.gradients([cotangent.numpy()])
    for i, grad in enumerate(grads):
        assert not apart(grad, slopes[i], 1.0, False)
    np.testing.assert_array_equal(x.numpy(), before[0])
    np.testing.assert_array_equal(y.numpy(), before[1])
    count_case("functions that write in place")


def at_random(seed):
    """A function that reads and writes constants and views of them."""

    def fn(x):
        rng = np.random.default_rng(seed)
        whole, other = paddle.zeros([3, 4], x.dtype), paddle.ones([3, 4], x.dtype)
        views, y = [], x.sum() * 0.5
        for _ in range(rng.integers(4, 10)):
            kind, i, j = (int(rng.integers(n)) for n in (10, 3, 4))
            s, v = (
                x[int(rng.integers(3))],
                views[int(rng.integers(99)) % (len(views) or 1) :][:1],
            )
            base = whole if rng.random() < 0.7 else other
            if kind == 0:
                base[i] += s
            elif kind == 1:
                views.append(base[i])
            elif kind == 2:
                base[i, j] = s**2
            elif kind == 3:
                base[:, j] = base[:, (j + 1) % 4] + s
            elif kind == 4:
                views.append(base[:, j:])
            elif kind == 5:
                base[i] = base[(i + 1) % 3] * base[i] + s
            elif kind == 6:
                y = y + base.sum() * s
            elif kind == 7:
                base[0] = 2.0
                views.append(base.reshape([4, 3])[1])
            elif kind == 8 and v:
                v[0][0] = s
            elif v:
                y = y + (v[0] * s).sum()
                v[0].add_(s)
        weights = paddle.arange(12.0, dtype=x.dtype).reshape([3, 4])
        y = y + (whole * whole).sum() + (other * weights).sum()
        return sum(((v**2).sum() * x[0] for v in views), y)

    return fn


@pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")
@pytest.mark.parametrize(
    "seed",
    [pytest.param(k, marks=() if k < 25 else pytest.mark.slow) for k in range(200)],
)
def test_constants_that_are_read_and_written(seed):
    """Beside differences: on the tape, in programs, of many samples."""
    fn, x = at_random(seed), paddle.to_tensor([0.3, 0.7, -0.4], "float64")
    slope = Differences(lambda given: [fn(*given)], [x], [0]).gradients([np.ones([])])
    value, rows = fn(x), paddle.stack([x, 2 * x])
    both = value_and_grad(fn)
    for found in (
        both(x),
        jit(both, strict=True)(x),
        [t[0] for t in vmap(both)(rows)],
    ):
        np.testing.assert_allclose(found[0], value, rtol=1e-12)
        assert not apart(found[1], slope[0], 1.0, False)


def into_an_argument(x):
    x[0] = 1.0
    return x * 2


def past_the_gradient(x):
    a = x * 1
    a.detach().add_(x)
    return a


def under_no_grad(x):
    a = x * 1
    with paddle.no_grad():
        a.add_(x)
    return a


def copied_of_another_shape(x):
    a = x * 2
    a.copy_(x.mean(), True)
    return a


def an_alias_of_another_shape(x):
    a = x * 2
    b = a[...]
    a.reshape_([4, 3])
    return a.sum() + b


REFUSED = {
    copied_of_another_shape: "takes that shape",
    an_alias_of_another_shape: "gives another the new shape too",
    into_an_argument: "into a tensor that the function has not made",
    past_the_gradient: "past the gradient",
    under_no_grad: "past the gradient",
}


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_refused_writes(function):
    x = paddle.randn([3, 4], "float64")

    def pulled(x):
        value, pullback = vjp(function, x)
        return pullback(paddle.ones_like(value))

    fn = function if function is into_an_argument else pulled
    with pytest.raises(CaptureError, match=REFUSED[function]):
        make_program(fn)(x.clone())


def test_statistics_are_written_as_paddle_writes_them():
    layer = paddle.nn.BatchNorm1D(4)
    x = paddle.randn([5, 4])

    def trained(x, mean, variance):
        mean, variance = mean.clone(), variance.clone()
        y = paddle.nn.functional.batch_norm(
            x, mean, variance, layer.weight, layer.bias, training=True
        )
        z = paddle.nn.functional.batch_norm(
            y, mean, variance, layer.weight, layer.bias, training=True
        )
        return z, mean, variance

    given = x, paddle.randn([4]), paddle.rand([4])
    before = [g.numpy() for g in given]
    program = make_program(trained)(*given)
    assert_same(program(*given), [*trained(*given)])
    for tensor, kept in zip(given, before, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), kept)


def test_a_write_costs_no_copy_where_what_it_was_is_not_needed():
    def fn(x):
        a = x * 2
        a[1] = 3.0
        return a

    program = make_program(fn)(paddle.randn([3, 4]))
    items = [op for op in program.ops if "setitem" in op.operator.name]
    assert isinstance(items[0], Operation)
    assert set(items) <= set(program.reused)


def test_a_function_that_writes_is_the_same_under_jit():
    x, y = paddle.randn([3, 4], "float64"), paddle.randn([4], "float64")
    for function in FUNCTIONS:
        fn = jit(function, strict=True)
        for scale in (1.0, -0.7):
            found, expected = fn(x * scale, y).numpy(), function(x * scale, y).numpy()
            # Some of the functions are up to 2 ulp from the true values in loops.
            np.testing.assert_allclose(found, expected, 2.0**-50, 2.0**-50)
