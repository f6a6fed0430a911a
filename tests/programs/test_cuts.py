"""Tensors cut and joined along others than their first axis, by strided copies."""

import numpy as np
import paddle
import pytest

from conftest import randn
from paddle_chainrules import make_program
from paddle_chainrules.programs.operators.manipulation.shapes import MANY_ROWS

N = MANY_ROWS + 3
CUTS = {
    "sections": lambda x: paddle.split(x, [1, 2, 3], axis=1),
    "sections, one open": lambda x: paddle.split(x, [1, -1, 3], axis=1),
    "from the end": lambda x: paddle.split(x, [2, 4], axis=-1),
    "a number": lambda x: paddle.split(x, 3, axis=-1),
    "chunks": lambda x: paddle.chunk(x, 2, axis=1),
    "along the first": lambda x: paddle.split(x, [N - 2, 2], axis=0),
    "higher": lambda x: paddle.split(x.reshape([N, 2, 3]), 3, axis=2),
    "between": lambda x: paddle.split(x.reshape([N, 2, 3]), [1, 1], axis=1),
}
JOINTS = {
    "rows": lambda x, y: paddle.concat([x, y, x]),
    "columns": lambda x, y: paddle.concat([x, y, x], axis=1),
    "from the end": lambda x, y: paddle.concat([x, y], axis=-1),
    "of unequal widths": lambda x, y: paddle.concat([x[:, :2], y], axis=1),
    "alone": lambda x, y: paddle.concat([x], axis=1),
    "between": lambda x, y: paddle.concat(
        [x.reshape([N, 2, 3]), y.reshape([N, 2, 3])], axis=1
    ),
    "numbers of two kinds": lambda x, y: paddle.concat([x > 0, y > 0], axis=1),
}


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_cuts(name, dtype):
    x = (randn([N, 6]) * 100).astype(dtype)
    program = make_program(CUTS[name])(x)
    found = program(x)
    for a, b in zip(found, CUTS[name](x), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert a.is_contiguous()
        assert not a._is_shared_buffer_with(x)
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    by_rows = name == "along the first"
    assert ("slices(" in program.python()) != by_rows


@pytest.mark.parametrize("name", JOINTS)
def test_joints(name):
    x, y = randn([N, 6]), randn([N, 6], seed=1)
    program = make_program(JOINTS[name])(x, y)
    (found,), expected = program(x, y), JOINTS[name](x, y)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
    plain = name in ("rows", "of unequal widths", "alone")
    assert ("stacked(" in program.python()) != plain


def test_few_rows_are_left_to_paddle():
    x = randn([3, 6])
    program = make_program(lambda x: paddle.concat(paddle.split(x, 3, axis=1), 1))(x)
    assert "slices" not in program.python()
    assert "stacked" not in program.python()
