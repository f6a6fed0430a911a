"""Sums so far, the largest and where they are, in machine code as Paddle has them."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from conftest import assert_same, randn
from differences import slopes_of
from paddle_chainrules import make_program, vjp
from programs.fenced import (
    assert_serves_any_number,
    check,
    names_of,
    of_any_number,
    run_fenced,
    with_gradient,
)

RAW = paddle._C_ops


KINDS = [([2, 13, 4], "float64"), ([3, 1, 5], "float32")]
RUNNING = {
    "cumsum": lambda x, axis: paddle.cumsum(x, axis),
    "cumsum from the end": lambda x, axis: RAW.cumsum(x, axis, False, False, True),
    "cumsum before": lambda x, axis: RAW.cumsum(x, axis, False, True, False),
    "cumprod": lambda x, axis: paddle.cumprod(x, axis),
    "cumprod before, from the end": lambda x, axis: RAW.cumprod(x, axis, True, True),
    "logcumsumexp": lambda x, axis: paddle.logcumsumexp(x, axis),
    "logcumsumexp from the end": lambda x, axis: RAW.logcumsumexp(
        x, axis, False, False, True
    ),
    "cummax": lambda x, axis: paddle.cummax(x, axis)[0],
    "cummin": lambda x, axis: paddle.cummin(x, axis)[0],
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("name", RUNNING)
def test_what_is_made_of_all_before(name, kind):
    """Along each axis, with the gradient, and that of a sum of its squares."""

    def fn(x):
        rows = [RUNNING[name](paddle.sin(x * 1.5), axis) for axis in range(-1, 2)]
        return paddle.concat(rows, 1) + 0.5

    def twice(x):
        slopes = with_gradient(fn)
        y, back = vjp(lambda x: (slopes(x)[1] ** 2).sum(), x)
        return *slopes(x), *back(paddle.ones_like(y))

    made = check(twice, randn(*kind), eps=5_000)
    assert names_of(made) == ["region"]


def test_one_row_of_sums():
    def fn(x):
        x = x * 2.0
        rows = [RUNNING[name](x, axis) for name in RUNNING for axis in (0, -1)]
        return paddle.stack(rows) * 1.5

    assert names_of(check(with_gradient(fn), randn([17]))) == ["region"]
    check(with_gradient(fn), randn([1]))  # before which Paddle has it itself


@pytest.mark.parametrize("name", ["cumsum", "logcumsumexp"])
def test_of_all_as_one_row(name):
    fn = getattr(paddle, name)
    made = check(with_gradient(lambda x: fn(x) + 0.5), randn([3, 5]))
    assert names_of(made) == ["region"]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers(dtype):
    x = paddle.to_tensor(np.random.default_rng(0).integers(-9, 9, [3, 11, 4]), dtype)

    def fn(x):
        x = x * 2 + 1
        return (
            *(
                RAW.cumsum(x, 1, False, False, False) + 1,
                RAW.cumprod(x, 1, False, False),
            ),
            *(paddle.argmax(x, 1), paddle.argmin(x), paddle.argmin(x, 2, True)),
            *paddle.cummax(x, 0),
            *paddle.cummin(x, -1),
        )

    made = check(fn, x)
    assert names_of(made) == ["region"]


def rows_with_ties(dtype):
    """Few numbers many times, none and infinite ones among them."""
    rng = np.random.default_rng(3)
    x = rng.integers(-2, 3, [40, 6, 7]).astype(dtype)
    x[10:20][rng.random([10, 6, 7]) < 0.3] = np.nan
    x[20:30][rng.random([10, 6, 7]) < 0.3] = np.inf
    x[25:40][rng.random([15, 6, 7]) < 0.3] = -np.inf
    x[36], x[37], x[38] = np.nan, np.inf, -np.inf
    x[39, :, 0] = np.nan
    return paddle.to_tensor(x)


@pytest.mark.parametrize("axis", [None, 0, 1, 2, -3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_which_of_those_that_are_equal(dtype, axis):
    x = rows_with_ties(dtype)

    def fn(x):
        x = x * 1.0
        found = []
        for name in ("argmax", "argmin"):
            of = getattr(paddle, name)
            found += [of(x, axis), of(x, axis, True, "int32"), of(x.abs() + 1.0, axis)]
        for name in ("cummax", "cummin"):
            found += getattr(paddle, name)(x, axis)
        return found

    made = check(fn, x)
    left = {*names_of(made)} - {"region"}
    assert left <= ({"cummax", "cummin"} if axis is None else set())  # long rows


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_rows_in_their_order(dtype, descending):
    """Of equal numbers each where Paddle has it."""
    x = rows_with_ties("float32")
    long = paddle.concat([x] * 3, 2)
    if dtype == "int64":
        x, long = (paddle.nan_to_num(each, 3.0, 9.0, -9.0) for each in (x, long))
    x, long = x.astype(dtype), long.astype(dtype)

    def fn(x, long):
        x, long = x * 1, long * 1
        how = {"descending": descending}
        found = [paddle.argsort(x, axis, **how) for axis in (1, 2, -1)]
        found += [paddle.sort(x, axis, **how) for axis in (1, 2)]
        found.append(paddle.sort(long, 2, stable=True, **how))
        return [*found, paddle.argsort(long, -1, stable=True, **how)]

    made = check(fn, x, long)
    assert names_of(made) == ["region"]
    check(
        lambda x: paddle.argsort(x * 1, -1, **{"descending": descending}),
        long,
        regions=False,
    )


def test_gradients_of_rows_in_their_order():
    def twice(x):
        def fn(x):
            return paddle.sort(paddle.sin(x * 1.5), 1, descending=True) * 2.0

        y, back = vjp(lambda x: (with_gradient(fn)(x)[1] ** 2).sum(), x)
        return fn(x), *back(paddle.ones_like(y))

    made = check(twice, randn([3, 7, 4]), eps=5_000)
    assert names_of(made) == ["region"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_infinite_numbers(dtype):
    x = paddle.to_tensor(
        [[-np.inf, 1.0, 2.0], [np.inf, 1.0, 3.0], [1e3, -1e3, 1e3]], dtype
    )
    check(lambda x: paddle.logcumsumexp(x * 1.0, 1) * 2.0, x)
    check(lambda x: paddle.cumsum(x * 1.0, 1) * 2.0, x)


def test_any_number_of_samples():
    def fn(x):
        y = paddle.cumsum(x * 2.0, 1) + paddle.cumsum(x, 0) * paddle.cumprod(x, 1)
        z = y + paddle.cummax(x, 0)[0]
        return z, paddle.argmax(z * 1.0, 0), paddle.argmin(z * 2.0, 1)

    found = of_any_number(fn, randn([7, 9]), randn([8, 9]))
    assert_serves_any_number(found, fn)


def mixed(x):
    """Of shape [2, 5, 4], with many of these operators."""
    y = paddle.logcumsumexp(paddle.cumsum(x, 1), 2) + paddle.cumprod(x, 1) * 0.3
    y = y + paddle.flip(paddle.cummax(x, 1)[0], [1]) + paddle.roll(x, 2, 1)
    y = F.pad(y[:, None], [1, 1, 1, 1], mode="reflect")
    last = y.transpose([0, 2, 3, 1])
    last = F.avg_pool2d(last, 3, 2, 1, data_format="NHWC").transpose([0, 3, 1, 2])
    y = F.avg_pool2d(y, 3, 2, 1) + last
    y = F.interpolate(y, scale_factor=2, mode="bilinear")
    return (paddle.sort(y.reshape([2, -1])[:, :12], 1) ** 2).sum() + paddle.prod(
        x, 2
    ).sum()


def test_first_and_second_derivatives_beside_differences():
    x, v = randn([2, 5, 4], "float64"), randn([2, 5, 4], "float64", 1)

    def slopes(x):
        y, back = vjp(mixed, x)
        return back(paddle.ones_like(y))[0]

    def along(x):
        _, back = vjp(slopes, x)
        return back(v)[0]

    for fn, of in ((slopes, mixed), (along, lambda x: (slopes(x) * v).sum())):
        program = make_program(fn)(x)
        (found,), count = run_fenced(program.with_loops, [x])
        assert count
        (expected,) = slopes_of(of, x, step=1e-5)
        assert_same(found, expected, rtol=1e-5, atol=1e-5)
