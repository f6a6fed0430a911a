"""Loops over vectors, the elements left over, and places apart, between fences."""

import os
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest

from conftest import randn, run_code
from paddle_chainrules import jit, make_program
from programs.fenced import assert_near, check, of_any_number, run_fenced

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 50, 64, 65, 100)
"""Below, at and above the lanes of all vectors, and with any number left over."""


def bits(found, expected):
    """Tell whether both have the same elements."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def assert_bits(fn, *tensors):
    program = check(fn, *tensors)
    (found,), count = run_fenced(program, tensors)
    assert count
    bits(found, fn(*tensors))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("size", SIZES)
def test_arithmetic_of_any_size(size, dtype):
    x, y = (10 * randn([3, size], seed=k) for k in range(2))
    assert_bits(lambda x, y: (x * y + x) * 2 - y, x.astype(dtype), y.astype(dtype))


@pytest.mark.parametrize("size", SIZES)
def test_rows_columns_and_numbers_beside_matrices(size):
    x, row = randn([3, size]), randn([size], seed=1)
    column, one = randn([3, 1], seed=2), randn([], seed=3)
    assert_bits(lambda x, r, c, o: (x * r + c) * o - r, x, row, column, one)


@pytest.mark.parametrize("size", SIZES)
def test_truths_and_choices(size):
    x, y = (randn([3, size], seed=k) for k in range(2))
    bools = x > 0.3, y > 0

    def choose(x, y, a, b):
        found = paddle.logical_xor(a | (x < y), ~b)
        return paddle.where(found & (y <= 1.0), x, y * 2)

    assert_bits(choose, x, y, *bools)
    assert_bits(lambda a, b: (a ^ b) | ~a, *bools)


@pytest.mark.parametrize("size", SIZES)
def test_several_dtypes_in_one_loop(size):
    x, n = randn([3, size]), paddle.arange(3 * size, dtype="int64").reshape([3, size])

    def mixed(x, n):
        wide = x.astype("float64") * n.astype("float64")
        return (wide + (x > 0).astype("float64")).astype("float32")

    assert_bits(mixed, x, n)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("step", [2, 3, 4, 5, -1, -2])
@pytest.mark.parametrize("size", [1, 2, 4, 7, 8, 9, 17, 32, 33])
def test_elements_apart(size, step, dtype):
    x, y = randn([3, 1 + (size - 1) * abs(step)]), randn([3, size], seed=1)
    x, y = x.astype(dtype), y.astype(dtype)
    assert_bits(lambda x, y: x[:, ::step] * y + y, x, y)
    assert_bits(lambda x, y: (x[:, ::step] > y) & (y > 0), x, y)


@pytest.mark.parametrize("size", SIZES)
def test_results_with_places_between(size):
    x, y, z = (randn([2, size], seed=k) for k in range(3))
    assert_bits(lambda x, y: paddle.stack([x * y + y, y * x - x], -1) * 1.5, x, y)
    assert_bits(lambda x, y, z: paddle.stack([x + y, y * z, x - z], -1), x, y, z)
    assert_bits(lambda x, y, z: paddle.stack([x > z, y > x], -1), x, y, z)
    assert_bits(lambda x, y: (x * y).t() + x.t() * 2.0, x, y)


REDUCED = {
    "sum": lambda x, axis: (x * x).sum(axis),
    "mean": lambda x, axis: (x * x).mean(axis),
    "product": lambda x, axis: (1 + x / 30).prod(axis),
    "largest": lambda x, axis: (x * 2).max(axis),
    "least": lambda x, axis: (x * 2).min(axis),
    "count": lambda x, axis: (x > 0).sum(axis),
    "count of integers": lambda x, axis: (x > -1).astype("int64").sum(axis),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("how", REDUCED)
@pytest.mark.parametrize("size", SIZES)
def test_reductions(size, how, dtype):
    x = randn([3, size], dtype)
    for axis in (None, 0, 1):
        check(lambda x, axis=axis: REDUCED[how](x, axis), x)


READ_ONLY_WHAT_IS_THERE = """
import paddle
from programs.fenced import Fenced, check
Fenced.is_guarded = True
for dtype in ("float32", "float64", "int32"):
    for step in (2, 3, 4, 5, -1):
        for size in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 31, 32):
            x = paddle.arange(3.0 * (1 + (size - 1) * abs(step))).reshape([3, -1])
            check(lambda x: x[:, ::step] * 2 + 1, x.astype(dtype))
for size in (1, 2, 3, 7, 8, 9, 15, 17, 33):
    x, y = paddle.rand([3, size]), paddle.rand([size])
    check(lambda x, y: (x * y + 1).sum(0), x, y)
    check(lambda x, y: (x * y + 1).max(1), x, y)
    check(lambda x, y: paddle.where(x > y, paddle.tanh(x), y), x, y)
    check(lambda x: paddle.stack([x * 2, x + 1], -1), x)
print("done")
"""


def test_nothing_behind_a_tensor_is_read():
    where = os.pathsep.join([*sys.path, str(Path(__file__).parents[1])])
    done = run_code(READ_ONLY_WHAT_IS_THERE, PYTHONPATH=where)
    assert done.stdout.split()[-1:] == ["done"], done.stdout + done.stderr


EMPTY = {
    "results": ([2, 8], lambda x: [x[:2] * 2, x[2:] * 3]),
    "results in rows": ([5, 4], lambda x: [x * 2, x[:, 2:2] * 3]),
    "sums": ([5, 4], lambda x: [((x[:, 2:2] * 3).sum(1) + x.sum(1) * 2) * 3]),
    "sums of columns": ([5, 4], lambda x: [(x[2:2] * 3).sum(0) + x.sum(0) * 2]),
    "counts": ([5, 3], lambda x: [x * 2, (x[:, 3:] > 0.5).astype("int64").sum(1)]),
    "products": ([5, 3], lambda x: [(x[:, 3:] * 2).prod(1) + x[:, 0]]),
    "casts": ([3, 4], lambda x: [x + 1, (x[3:3] * 2).astype("float64")]),
}


def _writes(x):
    y = x.clone()
    y[1:] = y[1:] * 2 + 1
    return [y * 3]


EMPTY["parts written to"] = [1, 5], _writes


@pytest.mark.parametrize("what", EMPTY)
def test_of_nothing_nothing_is_read_or_written(what):
    shape, fn = EMPTY[what]
    x = randn(shape)
    program = check(fn, x, regions=None)
    found, _ = run_fenced(program, [x])
    step = jit(fn)
    for _ in range(40):
        called = step(x)
    for a, b, c in zip(found, called, fn(x), strict=True):
        assert_near(a, c, eps=8)
        assert_near(b, c, eps=8)


@pytest.mark.parametrize("size", [3, 8, 17, 33])
@pytest.mark.parametrize("place", range(3))
def test_a_lane_without_a_number_makes_no_other_one_so(size, place):
    x = randn([2, size])
    x[1, place] = float("nan")
    assert_bits(lambda x: x * 2 + 1, x)
    for name in ("largest", "least"):
        found, _ = run_fenced(
            make_program(lambda x, how=REDUCED[name]: how(x, 1))(x).with_loops, [x]
        )
        np.testing.assert_array_equal(np.isnan(found[0].numpy()), [False, True])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 3, 8, 17, 33])
def test_lanes_that_another_function_computes(size, dtype):
    """Sines of huge numbers come from the C library, their neighbours' do not."""
    x = randn([2, size], dtype)
    x[1, size // 2], x[0, 0] = 1e18, -3e17
    check(lambda x: paddle.sin(x) + paddle.cos(x) * 2, x, eps=4)


@pytest.mark.parametrize("width", [1, 3, 8, 16, 20])
def test_programs_of_any_number_of_samples(width):
    def fn(x):
        return paddle.tanh(x) * x + x.sum(1, keepdim=True) * 2

    found = of_any_number(fn, randn([5, width]), randn([7, width]))
    for n in (1, 2, 3, 8, 9, 33):
        x = randn([n, width], seed=n)
        (outputs,), count = run_fenced(found, [x], n)
        assert count
        np.testing.assert_allclose(outputs.numpy(), fn(x).numpy(), 1e-5, 1e-5)
