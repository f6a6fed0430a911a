"""A loop goes on for as long as a condition holds, in programs and for many samples."""

import numpy as np
import paddle
import pytest

from conftest import assert_same, programs_on, randn
from paddle_chainrules import (
    CaptureError,
    cond,
    grad,
    jit,
    jvp,
    make_program,
    scan,
    vmap,
    while_loop,
)

WEIGHT = randn([6, 6], "float64", 3) * 0.3
ROW, ROWS = randn([6], "float64"), randn([4, 6], "float64", 1) * 2.0


def fixed_point(x, w=WEIGHT, loop=while_loop):
    """Return the solution of ``z = tanh(z w + x)``, and the number of turns."""

    def goes_on(value):
        z, before, count = value
        return paddle.logical_and((z - before).abs().max() > 1e-9, count < 200)

    def turn(value):
        z, _, count = value
        return paddle.tanh(z @ w + x), z, count + 1

    start = paddle.zeros_like(x), paddle.ones_like(x), paddle.zeros([], "int64")
    z, _, count = loop(goes_on, turn, start)
    return z, count


def collatz(n, loop=while_loop):
    def turn(value):
        n, count = value
        after = paddle.where(n % 2 == 0, n // 2, 3 * n + 1)
        return after.reshape(n.shape), count + 1

    return loop(lambda value: value[0] > 1, turn, (n, n * 0))[1]


def of_loops(x, loop=while_loop):
    """Two loops, of which one runs in each turn of the other."""

    def turn(value):
        a, b = value
        a, b = loop(
            lambda v: v[0] < a + 3,
            lambda v: (v[0] + 1, v[1] * paddle.sin(v[1] + x)),
            value,
        )
        return a, b + 1

    return loop(lambda value: value[0] < 10, turn, (x * 0, x))


def root_of_each(xs, loop=while_loop):
    """Newton's iteration in each step of a scan."""

    def step(total, x):
        turns = (
            lambda v: (v[0] - v[1]) ** 2 > 1e-20,
            lambda v: ((v[0] + x / v[0]) / 2, v[0]),
        )
        root = loop(*turns, (x, x * 0 + 9.0))[0]
        return total + root, root

    return scan(step, xs[0] * 0, xs)


def in_python(condition, body, value):
    while bool(condition(value)):
        value = body(value)
    return value


CASES = {
    "fixed point": (fixed_point, ROWS),
    "whole numbers": (collatz, paddle.arange(1, 30)),
    "loop in a loop": (of_loops, paddle.to_tensor([0.7, -1.2, 0.1], "float64")),
    "loop in a scan": (root_of_each, ROWS.abs().tile([1, 4]) + 0.3),
}


@pytest.mark.parametrize("name", CASES)
def test_beside_a_loop_of_python(name):
    fn, samples = CASES[name]
    one_by_one = [fn(x, loop=in_python) for x in samples]
    first = samples[0]
    compiled, many = jit(fn, strict=True), vmap(fn)
    fast = jit(many, strict=True)
    for _ in range(3):
        assert_same(compiled(first), one_by_one[0], atol=1e-12)
        for found in (many(samples), fast(samples)):
            for i, expected in enumerate(one_by_one):
                parts = found if isinstance(found, tuple) else (found,)
                part = tuple(part[i] for part in parts)
                given = expected if isinstance(expected, tuple) else (expected,)
                assert_same(part, given, atol=1e-12)


def test_samples_of_what_it_closes_over():
    weights = randn([3, 6, 6], "float64", 5) * 0.3
    found = vmap(vmap(fixed_point, (None, 0)), (0, None))(ROWS, weights)
    for i, x in enumerate(ROWS):
        for j, w in enumerate(weights):
            expected = fixed_point(x, w, in_python)
            assert_same((found[0][i, j], found[1][i, j]), expected, atol=1e-12)


def doubled(x):
    """A loop in a branch, which would never end at numbers that are not above zero."""
    return cond(
        x > 0,
        lambda x: while_loop(lambda v: v < 10, lambda v: v * 2, x),
        lambda x: x,
        x,
    )


def test_a_loop_that_was_not_chosen_does_not_run():
    x = paddle.to_tensor([1.0, -1.0, 0.0, 3.0], "float64")
    expected = [16.0, -1.0, 0.0, 12.0]
    compiled, many, slope = jit(doubled, strict=True), vmap(doubled), grad(doubled)
    rows = jit(lambda xs: scan(lambda c, x: (c, doubled(x)), x[0], xs)[1])
    for _ in range(5):
        assert [float(compiled(each)) for each in x] == expected
        assert [float(slope(each)) for each in x] == [16.0, 1.0, 1.0, 4.0]
        assert many(x).tolist() == expected
        assert rows(x.tile([8])).tolist() == expected * 8


@programs_on
def test_a_program_has_it_as_one_operator():
    program = make_program(fixed_point)(ROW)
    names = [op.operator.name for op in program.ops]
    assert names.count("while_loop") == 1
    assert "tanh" not in names


def test_results_are_the_callers():
    x = ROW.clone()
    found, own = jit(lambda x: (while_loop(lambda v: v.sum() > 99, abs, x), x))(x)
    found.scale_(3.0)
    np.testing.assert_array_equal(own.numpy(), ROW.numpy())
    np.testing.assert_array_equal(x.numpy(), ROW.numpy())


def test_derivatives_are_those_of_the_turns_that_ran():
    """Where values may leave, as everywhere else; otherwise they are refused."""

    def fn(x):
        return (fixed_point(x)[0] ** 2).sum()

    z = fixed_point(ROW, loop=in_python)[0]
    inner = WEIGHT * (1 - z**2)  # of dz = (dz w + dx) (1 - z^2)
    solved = np.linalg.solve(np.eye(6) - inner.numpy(), 2 * z.numpy())
    expected = (1 - z.numpy() ** 2) * solved
    forward = jit(lambda x, v: jvp(fn, (x,), (v,))[1])
    for _ in range(5):
        for slope in (grad(fn), jit(grad(fn))):
            np.testing.assert_allclose(slope(ROW).numpy(), expected, atol=1e-6)
        found = float(forward(ROW, ROWS[0]))
        assert abs(found - float(expected @ ROWS[0].numpy())) < 1e-5
    x = ROW.clone()
    x.stop_gradient = False
    jit(fn)(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), expected, atol=1e-6)
    for fails, given in ((jit(grad(fn), strict=True), ROW), (vmap(grad(fn)), ROWS)):
        with pytest.raises(CaptureError, match="turns .* use fori_loop or scan"):
            fails(given)
