"""Elements in other places, and put at places, in machine code as Paddle has them."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from conftest import products_on, randn
from paddle_chainrules import jit, make_program, vjp
from paddle_chainrules import settings as switch
from paddle_chainrules.programs.compiling.source import compile_program
from programs.fenced import (
    assert_near,
    assert_serves_any_number,
    check,
    names_of,
    of_any_number,
    run_fenced,
    with_gradient,
)
from programs.test_indices import _error

ROW, MATRIX, CUBE, IMAGE = [7], [5, 7], [2, 5, 3], [2, 3, 5, 4]
PLACED = {
    "turned round": (CUBE, lambda x: paddle.flip(x, [0, -1])),
    "one row turned round": (ROW, lambda x: paddle.flip(x, 0)),
    "turned by a right angle": (MATRIX, lambda x: paddle.rot90(x, 1, [0, 1])),
    "slices backwards": (MATRIX, lambda x: x[::-1, 5:1:-2]),
    "steps": (CUBE, lambda x: x[:, 1::2, ::2]),
    "steps of a part": (
        MATRIX,
        lambda x: paddle.strided_slice(x, [0, 1], [3, 1], [0, 7], [-1, 3]),
    ),
    "rolled": (CUBE, lambda x: paddle.roll(x, [3, -1], [1, 2])),
    "rolled as one row": (CUBE, lambda x: paddle.roll(x, 4)),
    "rolled twice along one": (MATRIX, lambda x: paddle.roll(x, [3, 2], [1, 1])),
    "rolled by all": (MATRIX, lambda x: paddle.roll(x, 7, 1)),
    "repeated": (CUBE, lambda x: paddle.repeat_interleave(x, 3, 1)),
    "repeated from the last": (CUBE, lambda x: paddle.repeat_interleave(x, 2, -1)),
    "grids": (ROW, lambda x: paddle.concat(paddle.meshgrid(x[:2], x[2:5], x[3:]), 1)),
    "broadcast": (
        MATRIX,
        lambda x: paddle.concat(paddle.broadcast_tensors([x, x[:1], x[0]]), 1),
    ),
    "expanded": (MATRIX, lambda x: paddle.expand_as(x[:1], x)),
    "diagonals": (CUBE, lambda x: paddle.diagonal(x, 1, 1, 2)),
    "diagonals below": (CUBE, lambda x: paddle.diagonal(x, -2, -1, 0)),
    "a diagonal": (MATRIX, lambda x: paddle.diag(x, -1)),
    "on a diagonal": (ROW, lambda x: paddle.diag(x, 2)),
    "on diagonals": (CUBE, lambda x: paddle.diag_embed(x, -1, 0, 2)),
    "windows of a row": (MATRIX, lambda x: paddle.unfold(x, 1, 3, 2)),
    "patches": (IMAGE, lambda x: F.unfold(x, [3, 2], [2, 1], [1, 0, 0, 2], [1, 2])),
    "patches added up": ([2, 12, 12], lambda x: F.fold(x, [5, 4], 2)),
    "patches added up, padded": (
        [2, 12, 12],
        lambda x: F.fold(x, [6, 5], 2, 2, [1, 1, 1, 0]),
    ),
}


@pytest.mark.parametrize("name", PLACED)
def test_what_is_elsewhere_and_its_gradients(name):
    shape, fn = PLACED[name]
    dtype = ("float32", "float64")[[*PLACED].index(name) % 2]

    def both(x):
        y, by_x = with_gradient(lambda x: fn(x * 1.5) * 2.0 + 1.0)(x)
        return y, by_x + 1.0

    made = check(both, randn(shape, dtype))
    assert names_of(made) == ["region"]


def test_results_that_lie_backwards():
    def fn(x):
        y = paddle.flip(x * 2.0 + 1.0, [0])
        return y, y.reshape([-1]), paddle.flip(y + x, [1])

    made = check(fn, randn(MATRIX))
    assert "flip" not in names_of(made)


def test_integers_and_truths_elsewhere():
    def fn(x):
        whole, there = paddle.cast(x * 9.0, "int32"), x > 0.0
        return [
            of(each)
            for each in (
                whole + 1,
                whole.astype("int64") * 2,
                paddle.logical_not(there),
            )
            for of in (
                lambda x: paddle.flip(x, [1]),
                lambda x: paddle.roll(x, 2, 0),
                lambda x: paddle.logical_not(x) if x.dtype == paddle.bool else x * 2,
            )
        ]

    check(fn, randn(MATRIX))


@products_on
def test_products_of_what_lies_backwards():
    check(
        lambda x: paddle.flip(x, [0]) @ paddle.flip(x, [1]).T + x[:, ::-1][:, :5],
        randn(MATRIX),
    )


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_rows_with_a_one(dtype):
    x, index = (
        randn([3, 4, 6]),
        paddle.to_tensor([[0, 5, 1, 1], [2, 3, 4, 5], [5, 5, 0, 2]], dtype),
    )
    made = check(lambda x, i: F.one_hot(i, 6) * (x + 1.0) + 2.0, x, index)
    assert names_of(made) == ["region"]


@pytest.mark.parametrize("bad", [6, -1, 2**40])
def test_classes_out_of_range_are_paddles_error(bad):
    x, good = randn([4, 6]), paddle.to_tensor([3, 0, 5, 2])
    program = make_program(lambda x, i: F.one_hot(i, 6) * (x + 1.0) + 2.0)(x, good)
    run, plain = (
        compile_program(program, lambda: program.with_loops),
        compile_program(program),
    )
    for _ in range(2 * switch.CALLS_BEFORE_CODE):
        run(x, good)
    index = good.clone()
    index[2] = bad
    assert _error(run, x, index) == _error(plain, x, index) is not None
    assert_near(run(x, good)[0], plain(x, good)[0])


def test_any_number_of_samples():
    def fn(x):
        y = paddle.flip(x * 2.0, [0, 1]) + paddle.roll(x, 2, 1) + x[:, ::-1]
        return paddle.repeat_interleave(y, 2, 1) * 3.0, paddle.unfold(y, 1, 3, 2) + 1.0

    # With 7 samples a part of a rolled row, and what repeats, would look like these.
    for of in (
        lambda x: paddle.roll(x * 2.0, 2, 1) + 1.0,
        lambda x: paddle.repeat_interleave(x * 2.0, 7, 1) + 1.0,
    ):
        found = of_any_number(of, randn([7, 9]), randn([8, 9]))
        assert_near(run_fenced(found, [x := randn([2, 9])], 2)[0][0], of(x))
    found = of_any_number(fn, randn([11, 9]), randn([12, 9]))
    assert_serves_any_number(found, fn)


def _written(place, made_first):
    """What is written is computed within, before what it is written into or after, and
    the whole is a result, in whose memory parts are computed."""

    def fn(x, y):
        value = paddle.tanh(y) * 1.5 if made_first else None
        z = x * 1.5
        z[place] = paddle.tanh(y) * 1.5 if value is None else value
        return z, z * z

    return fn


@pytest.mark.parametrize("made_first", [True, False])
@pytest.mark.parametrize(
    ("place", "shape"),
    [
        (1, [4]),
        (1, [1]),
        ((slice(None), 2), [3]),
        ((slice(1, 3), slice(0, 2)), [2, 2]),
        ((slice(1, 3), slice(0, 2)), [1, 2]),
        ((slice(1, 3),), [2, 4]),
        ((slice(1, 3),), [1]),
        ((slice(None, None, 2),), [2, 4]),
        ((slice(None),), [3, 4]),
    ],
    ids=str,
)
def test_what_is_written_into_a_result_is_all_there_after_it(place, shape, made_first):
    fn = _written(place, made_first)
    x, y = randn([3, 4], "float64"), randn(shape, "float64", seed=1)
    check(fn, x, y)
    z = 1.5 * x.numpy()
    z[place] = 1.5 * np.tanh(y.numpy())
    for a, b in zip(make_program(fn)(x, y).with_loops(x, y), (z, z * z), strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-13)
    seeds = randn([3, 4], "float64", seed=2), randn([3, 4], "float64", seed=3)
    given = []
    for function in (jit(fn), fn):
        _, back = vjp(function, x, y)
        given.append(back(seeds))
    for a, b in zip(*given, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)


def test_parts_beside_each_other_are_computed_in_their_places():
    """Without memory in between, where nothing is written over."""

    def fn(x):
        return paddle.concat([paddle.tanh(x), paddle.sin(x)], 0)

    program = make_program(fn)(randn([5, 7]))
    (region,) = program.with_loops.regions
    assert not region.work
