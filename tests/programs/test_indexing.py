"""Programs of indices, order and segments, where values repeat, are equal or zero."""

import numpy as np
import paddle
import pytest

from differential.verdicts import Differences, apart
from paddle_chainrules import (
    CaptureError,
    derivatives,
    explain,
    grad,
    hessian,
    jit,
    make_program,
)
from paddle_chainrules.programs import capture


def tensor(row, dtype="float64"):
    return paddle.to_tensor(row, dtype=dtype)


PLACES = tensor([1, 1, 2], "int64")
REPEATED = {
    "index_put": lambda x, v: paddle.index_put(x, (PLACES,), v),
    "scatter": lambda x, v: paddle.scatter(x, PLACES, v),
    "put_along_axis": lambda x, v: paddle.put_along_axis(x, PLACES, v, 0),
}


@pytest.mark.parametrize("name", REPEATED)
def test_what_is_overwritten_has_no_gradient(name):
    weights = tensor([1.0, 10.0, 100.0, 1000.0])
    fn = REPEATED[name]

    def gradients(values):
        return grad(lambda row: (fn(*row) * weights).sum())(values)

    x, v = tensor([1.0, 2.0, 3.0, 4.0]), tensor([5.0, 6.0, 7.0])
    by_x, by_v = by_rules(gradients, [x, v])
    assert by_x.tolist() == [1.0, 0.0, 0.0, 1000.0]
    assert by_v.tolist() == [0.0, 10.0, 100.0]


def by_rules(fn, values):
    """What the rules give, where Paddle's own may be wrong."""
    return capture(fn, values, check=False).program(*values)


TIES = {
    "max": (lambda x: paddle.max(x, 0), [[1, 1], [1, 0], [0, 0]]),
    "min, all": (paddle.min, [[1, 1], [1, 0], [0, 0]]),
    "median": (
        lambda x: paddle.median(x, 1),
        [[1, 2, 2, 3], [2, 2, 2, 2], [1, 1, 2, 2]],
    ),
    "median, odd": (paddle.median, [[1, 2, 2], [2, 2, 3]]),
    "nanmedian": (lambda x: paddle.nanmedian(x, 1), [[np.nan, 1, 2, 3], [np.nan] * 4]),
    "cummax": (lambda x: paddle.cummax(x, 1)[0], [[1, 2, 2, 1, 3, 3]]),
    "kthvalue": (lambda x: paddle.kthvalue(x, 2, 1)[0], [[1, 2, 2, 1, 3, 3]]),
    "mode": (lambda x: paddle.mode(x, 1)[0], [[1, 2, 2, 1, 3, 3]]),
    "sort": (lambda x: paddle.sort(x, 1), [[1, 2, 2, 1, 3, 3]]),
    "segment_max": (
        lambda x: paddle.geometric.segment_max(x, tensor([0, 0, 1], "int64")),
        [[1], [1], [2]],
    ),
}


@pytest.mark.parametrize("name", TIES)
def test_ties_have_the_gradients_of_the_tape(name):
    fn, row = TIES[name]
    x = tensor(row)
    weights = tensor(np.random.default_rng(0).standard_normal(fn(x).shape))

    def loss(x):
        return (fn(x) * weights).sum()

    np.testing.assert_allclose(
        jit(grad(loss), strict=True)(x).numpy(), grad(loss)(x).numpy()
    )


@pytest.mark.parametrize("name", ["prod", "cumprod"])
def test_products_with_zeros_to_the_third_order(name):
    product = getattr(paddle, name)

    def loss(x):
        found = product(x, 1)
        return (found * found + found).sum()

    def once(x):
        return (grad(loss)(x) ** 2).sum()

    def twice(x):
        return (grad(once)(x) ** 2).sum()

    x = tensor([[1.0, 0.0, 2.0, -1.5], [0.0, 0.0, 3.0, 2.0], [1.0, 2.0, 3.0, 0.5]])
    (found,) = by_rules(lambda values: [grad(twice)(*values)], [x])
    run = jit(twice, strict=True)
    exact = Differences(lambda values: [run(*values)], [x], [0])
    (slope,) = exact.gradients([np.ones(())]).values()
    assert not apart(found, slope, float(np.abs(slope).max()), False)


def test_edges_that_are_there_twice_count_once_in_a_maximum():
    source, to = tensor([0, 0, 1], "int64"), tensor([1, 1, 1], "int64")

    def loss(values):
        return [
            grad(lambda x: paddle.geometric.send_u_recv(x, source, to, "max").sum())(
                *values
            )
        ]

    (found,) = by_rules(loss, [tensor([[2.0], [1.0]])])
    assert found.tolist() == [[1.0], [0.0]]


def segments(x, ids):
    return paddle.geometric.segment_mean(x, ids) * 2.0


def test_segments_in_other_numbers_run_as_they_are():
    x = tensor(np.arange(8.0).reshape(4, 2))
    run = jit(segments)
    for ids in ([0, 0, 1, 3], [0, 1, 1, 3], [0, 1, 1, 2], [0, 0, 0, 0]):
        ids = tensor(ids, "int64")
        np.testing.assert_array_equal(run(x, ids).numpy(), segments(x, ids).numpy())
    program = make_program(segments)(x, tensor([0, 0, 1, 3], "int64"))
    with pytest.raises(CaptureError, match="shape depends on values"):
        program(x, tensor([0, 0, 0, 0], "int64"))


def cubed_slopes(x):
    """Of the sum of cubes of what is large."""
    return grad(lambda x: (paddle.masked_select(x, x > 0.5) ** 3).sum())(x)


def ones_that_are_large(x):  # of a program that masks only on the way back
    return grad(lambda x: paddle.masked_select(x, x > 0.5).sum())(x)


@pytest.mark.parametrize(
    ("function", "slopes"),
    [(cubed_slopes, lambda x: 3 * x**2), (ones_that_are_large, np.ones_like)],
    ids=["cubes", "sum"],
)
def test_masks_of_other_numbers_run_as_they_are(function, slopes):
    run = jit(function)
    rows = [[0.1, 0.7, 0.9], [0.8, 0.2, 0.6], [0.1, 0.2, 0.9], [0.7, 0.8, 0.9]]
    for row in map(np.array, rows):
        found = run(tensor(row)).numpy()
        np.testing.assert_allclose(found, slopes(row) * (row > 0.5), rtol=1e-15)
    program = capture(lambda v: [function(*v)], [tensor(rows[0])], check=False).program
    with pytest.raises(CaptureError, match="masked_select g"):
        program(tensor(rows[2]))


def test_distances_of_pairs_to_the_second_order():
    def energy(x):
        return (paddle.pdist(x) ** 3).sum()

    x = np.random.default_rng(6).standard_normal((4, 3))
    apart = x[:, None] - x
    length = np.linalg.norm(apart, axis=-1, keepdims=True)
    slopes = jit(grad(energy), strict=True)(tensor(x)).numpy()
    np.testing.assert_allclose(slopes, (3 * length * apart).sum(1), 1e-10, 1e-10)
    unit = apart / np.where(length, length, 1)
    outer = unit[..., :, None] * unit[..., None, :]
    block = 3 * length[..., None] * (np.eye(3) + outer)
    expected = np.einsum("ikab,ij->iajb", block, np.eye(4)) - block.swapaxes(1, 2)
    bends = jit(hessian(energy), strict=True)(tensor(x)).numpy()
    np.testing.assert_allclose(bends, expected, rtol=1e-10, atol=1e-12)


def test_numbers_in_a_row_of_another_count_run_as_they_are():
    def row(x, count):
        return paddle.linspace(x[0], x[1], count)

    run, ends = jit(row), tensor([0.3, 2.0])
    for count in (5, 5, 3):
        found = run(ends, tensor(count, "int32")).numpy()
        np.testing.assert_allclose(found, np.linspace(0.3, 2.0, count), rtol=1e-6)


REFUSED = {
    "a new axis beside a tensor": lambda x, i: grad(lambda x: x[i, None].sum())(x),
    "depend on values": lambda x, i: paddle.topk(x, i[0])[0],
    "an index by a mask": lambda x, i: x[x > 0],
    "reach beyond a tensor": lambda x, i: paddle.as_strided(x[1:], [3, 3], [2, 2]),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused(reason):
    why = explain(REFUSED[reason], paddle.rand([3, 2]), tensor([1, 0], "int64"))
    assert reason in why


def test_scattering_in_place():
    def function(x, v):
        y = x * 2.0
        y.put_along_axis_(PLACES, v, 0, "add")
        return paddle.scatter_(y, tensor([0], "int64"), v[:1])

    x, v = tensor([1.0, 2.0, 3.0, 4.0]), tensor([5.0, 6.0, 7.0])
    found = jit(function, strict=True)(x, v)
    assert found.tolist() == [5.0, 15.0, 13.0, 8.0]


T, F = True, False
LISTS = {
    "first": lambda x: x[[2, 0]],
    "negative": lambda x: x[[-1, 2], :, 1],
    "nested": lambda x: x[[[0, 1], [3, 3]]],
    "pairs": lambda x: x[[0, 1], [2, 3]],
    "inside": lambda x: x[:, [0, 2, 2]],
    "last": lambda x: x[..., [0, 2]],
    "last bools": lambda x: x[..., [T, F, F, T, F], 1:3],
    "range": lambda x: x[:, range(1, 4)],
    "bools": lambda x: x[[T, F, T, F]],
    "bools inside": lambda x: x[1, [T, F, F, T, F], 2:],
    "bools of two axes": lambda x: x[[[T, F, F, T, F]] * 3 + [[F] * 5]],
}


def written(x):
    y = x * 1.0
    y[[0, 2]] = 3.0
    y[:, [1, 4, 0]] += x[:, [0, 1, 2]]
    y[[T, F, F, T]] *= 2.0
    return y


@pytest.mark.parametrize("name", [*LISTS, "written"])
def test_lists_in_brackets(name):
    fn = LISTS.get(name, written)
    x = paddle.arange(120, dtype="float64").reshape([4, 5, 6]) / 7.0
    found = jit(fn, strict=True)(x)
    assert found.tolist() == fn(x).tolist()
    c = paddle.cos(paddle.arange(found.size, dtype="float64")).reshape(found.shape)
    total = lambda x: (fn(x) * fn(x) * c).sum()  # noqa: E731
    slope = jit(grad(total), strict=True)(x)
    h = paddle.eye(120, dtype="float64").reshape([120, 4, 5, 6]) * 0.01
    ends = [float(total(x + e) - total(x - e)) for e in h]  # of a square, exact
    expected = np.reshape(ends, x.shape) / 0.02
    np.testing.assert_allclose(slope.numpy(), expected, atol=1e-8)


def test_lists_in_a_net_of_columns():
    def u(w, at):
        h = paddle.tanh(at @ w)
        return (h[:, [0, 2]] * h[:, [1, 3]]).sum(1, keepdim=True)

    def sliced(w, at):
        h = paddle.tanh(at @ w)
        return h[:, 0:1] * h[:, 1:2] + h[:, 2:3] * h[:, 3:4]

    w, at = paddle.rand([2, 4], "float64"), paddle.rand([7, 2], "float64")
    orders = [(2, 0), (1, 1), (0, 3)]
    wanted = derivatives(u, w, at, orders), derivatives(sliced, w, at, orders)
    for found, expected in zip(*wanted, strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-10)


def test_a_slice_to_a_number_of_elements_is_a_program():
    """As in DeepXDE's integral equations, for any number of elements."""

    def loss(x, y):
        return (x[: paddle.numel(y)] ** 3 * y).sum()

    step = jit(grad(loss, argnums=(0, 1)), strict=True)
    for size in (3, 5, 7):
        x, y = tensor(np.arange(1.0, 8.0)), tensor(np.arange(2.0, 2.0 + size))
        by_x, by_y = step(x, y)
        rows, weights = x.numpy()[:size], y.numpy()
        expected = [*(3 * rows**2 * weights), *[0.0] * (7 - size)]
        np.testing.assert_allclose(by_x.numpy(), expected, rtol=1e-12)
        np.testing.assert_allclose(by_y.numpy(), rows**3, rtol=1e-12)
