"""Embeddings, gathers and what is put at places in machine code, as Paddle has them."""

import struct

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from conftest import randn
from paddle_chainrules import grad, make_program, scan, stateless, vjp
from paddle_chainrules import settings as switch
from paddle_chainrules.programs.codegen.fused_kernels.region import NEVER
from paddle_chainrules.programs.compiling.source import compile_program
from programs.fenced import assert_near, check, of_any_number, run_fenced, with_gradient


def numbers(shape, size, dtype="int64", seed=0, least=0):
    rng = np.random.default_rng(seed)
    return paddle.to_tensor(rng.integers(least, size, shape), dtype)


def tuples(sizes, shape, dtype="int64", least=False):
    each = [
        numbers(shape, n, dtype, k, -n if least else 0) for k, n in enumerate(sizes)
    ]
    return paddle.stack(each, -1)


TAKEN = {
    "rows": ([5, 3], numbers([7], 5, least=-5), lambda x, i: paddle.gather(x, i)),
    "columns": ([4, 5], numbers([6], 5), lambda x, i: paddle.gather(x, i, axis=1)),
    "of the middle": (
        [2, 5, 3],
        numbers([4], 5, "int32"),
        lambda x, i: paddle.gather(x, i, axis=1),
    ),
    "selected": (
        [2, 5, 3],
        numbers([4], 3),  # below zero Paddle's gradient is of other places
        lambda x, i: paddle.index_select(x, i, axis=2),
    ),
    "embedded": ([5, 3], numbers([2, 7], 5), lambda x, i: F.embedding(i, x)),
    "along rows": (
        [4, 5],
        numbers([4, 3], 5, least=-5),
        lambda x, i: paddle.take_along_axis(x, i, 1, broadcast=False),
    ),
    "along columns": (
        [4, 5],
        numbers([6, 5], 4),
        lambda x, i: paddle.take_along_axis(x, i, 0, broadcast=False),
    ),
    "along the middle": (
        [2, 4, 3],
        numbers([2, 5, 3], 4, "int32"),
        lambda x, i: paddle.take_along_axis(x, i, 1, broadcast=False),
    ),
    "by tuples": (
        [4, 5, 3],
        tuples([4, 5], [2, 3], least=True),
        lambda x, i: paddle.gather_nd(x, i),
    ),
    "by whole tuples": (
        [4, 5, 3],
        tuples([4, 5, 3], [6], "int32"),
        lambda x, i: paddle.gather_nd(x, i),
    ),
    "of samples": ([4, 5], numbers([4, 7], 5), lambda x, i: paddle.index_sample(x, i)),
    "in brackets": ([5, 3], numbers([2, 4], 5, least=-5), lambda x, i: x[i]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken_and_its_gradients(name, dtype):
    shape, index, fn = TAKEN[name]
    both = with_gradient(lambda x, i: fn(x * 1.5, i) * 2.0 + 1.0)
    made = check(both, randn(shape, dtype), index)
    if name != "in brackets":  # whose gradient numbers all rows
        assert [op.operator.name for op in made.ops] == ["region"]


PUT = {
    "added to rows": (
        [5, 3],
        numbers([7], 5, least=-5),
        [7, 3],
        lambda x, i, p: paddle.index_add(x, i, 0, p),
    ),
    "added to columns": (
        [4, 5],
        numbers([6], 5),
        [4, 6],
        lambda x, i, p: paddle.index_add(x, i, 1, p),
    ),
    "added by tuples": (
        [4, 5, 3],
        tuples([4, 5], [6]),
        [6, 3],
        lambda x, i, p: paddle.scatter_nd_add(x, i, p),
    ),
    "added along rows": (
        [4, 5],
        numbers([4, 7], 5),
        [4, 7],
        lambda x, i, p: paddle.put_along_axis(x, i, p, 1, reduce="add"),
    ),
    "written along columns": (
        [6, 5],
        numbers([4, 5], 6, least=-6),
        [4, 5],
        lambda x, i, p: paddle.put_along_axis(x, i, p, 0),
    ),
    "written over rows": (
        [5, 3],
        paddle.to_tensor([3, 0, -1]),
        [3, 3],
        lambda x, i, p: paddle.scatter(x, i, p),
    ),
    "put at rows": (
        [5, 3],
        numbers([7], 5),
        [7, 3],
        lambda x, i, p: paddle.index_put(x, [i], p, accumulate=True),
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PUT)
def test_what_is_put_leaves_its_arguments_as_they_are(name, dtype):
    """What is written into is used again, before and after."""
    shape, index, of, fn = PUT[name]

    def both(x, i, p):
        before, part = x * 2.0, p.sin()
        y = fn(before, i, part)
        return y * 3.0, before * y.sum(), part * 0.5 + 1.0

    made = check(both, randn(shape, dtype), index, randn(of, dtype, 1))
    assert [op.operator.name for op in made.ops] == ["region"]


LOSSES = {
    "of classes": lambda x, y: F.cross_entropy(x, y),
    "one by one": lambda x, y: F.cross_entropy(x, y, reduction="none"),
    "with a column of labels": lambda x, y: F.cross_entropy(x, y[:, None]),
    "of probabilities": lambda x, y: F.cross_entropy(
        F.softmax(x), y, use_softmax=False
    ),
    "of shares": lambda x, y: F.cross_entropy(
        x, (F.one_hot(y, 6) * 0.75 + 0.25 / 6).astype(x.dtype), soft_label=True
    ),
    "smoothed": lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LOSSES)
def test_cross_entropies(name, dtype):
    loss = LOSSES[name]
    x, y = randn([5, 6], dtype), paddle.to_tensor([3, 0, 5, 1, 1])

    def both(x, y):
        out, back = vjp(lambda x: loss(x * 2.0, y) * 0.5, x)
        return out, *back(paddle.ones_like(out) * 0.75)

    made = check(both, x, y, eps=2_000)
    names = [op.operator.name for op in made.ops]
    assert "cross_entropy_with_softmax" not in names


def test_labels_that_do_not_count():
    """Whatever is in their rows."""
    x, y = randn([5, 6]), paddle.to_tensor([3, -100, 5, 2, 2])
    x[1, 2], x[1, 3] = float("nan"), float("inf")

    def both(x, y):
        out, back = vjp(lambda x: F.cross_entropy(x * 2.0, y, reduction="none"), x)
        again, other = vjp(
            lambda x: F.cross_entropy(x * 2.0, y % 6, ignore_index=2, reduction="none"),
            x,
        )
        return out, *back(paddle.ones_like(out)), again, *other(paddle.ones_like(again))

    check(both, x, y)


def test_segmentation():
    """Classes along the second axis, a label a pixel."""
    x, y = randn([2, 4, 3, 5]), numbers([2, 3, 5], 4)

    def both(x, y):
        out, back = vjp(lambda x: F.cross_entropy(x * 2.0, y, axis=1), x)
        return out, *back(paddle.ones_like(out))

    made = check(both, x, y)
    assert [op.operator.name for op in made.ops] == ["region"]


BAD = {
    "gather": ([5, 3], lambda x, i: paddle.gather(x, i)),
    "index_select": ([5, 3], lambda x, i: paddle.index_select(x, i)),
    "embedding": ([5, 3], lambda x, i: F.embedding(i, x)),
    "take_along_axis": (
        [5, 1],
        lambda x, i: paddle.take_along_axis(x, i[:, None], 0, broadcast=False),
    ),
    "gather_nd": ([5, 3], lambda x, i: paddle.gather_nd(x, i[:, None])),
    "index_sample": ([1, 5], lambda x, i: paddle.index_sample(x, i[None])),
    "index_add": ([5, 3], lambda x, i: paddle.index_add(x, i, 0, x[:4])),
    "scatter": ([5, 3], lambda x, i: paddle.scatter(x, i, x[:4])),
    "cross_entropy": (
        [4, 5],
        lambda x, i: F.cross_entropy(x, i, reduction="none")[:, None],
    ),
}


@pytest.mark.parametrize("bad", [5, -6, 2**40, -(2**62)], ids=str)
@pytest.mark.parametrize("name", BAD)
def test_numbers_out_of_range_are_paddles_errors(name, bad):
    """The same error, call after call, and right again with numbers that are."""
    shape, fn = BAD[name]
    x, good = randn(shape), paddle.to_tensor([3, 0, 4, 2])
    program = make_program(lambda x, i: fn(x * 2.0, i) * 2.0 + 1.0)(x, good)
    (region,) = program.with_loops.regions
    assert region.may_bail_out
    run, plain = (
        compile_program(program, lambda: program.with_loops),
        compile_program(program),
    )
    for _ in range(2 * switch.CALLS_BEFORE_CODE):
        run(x, good)
    for place in range(4):
        index = good.clone()
        index[place] = bad
        found, expected = (_error(fn, x, index) for fn in (run, plain))
        assert found == expected
        # Paddle takes labels by their lower half.
        assert expected or (name == "cross_entropy" and abs(bad) > 2**32)
        for a, b in zip(run(x, good), plain(x, good), strict=True):
            assert_near(a, b)


def _error(fn, *args):
    try:
        fn(*args)
    except (IndexError, ValueError) as error:
        return type(error), str(error).partition("[Hint:")[2]
    return None


def test_nothing_is_written_where_a_number_is_out_of_range():
    """Nor read: the function says that it was left, its results are as they were."""
    program = make_program(lambda x, i: F.embedding(i, x * 2.0) * 3.0)(
        randn([5, 3]), numbers([4], 5)
    )
    (region,) = program.with_loops.regions
    x, out = randn([5, 3]).numpy(), np.full([4, 3], 7.0, np.float32)
    work = np.zeros(1024)
    for bad in (5, -1, 2**62):
        i = np.array([0, 1, 2, bad])
        places = [
            (out if v not in program.inputs else x if len(v.shape) == 2 else i)
            for v in region.order
        ]
        given = [a.ctypes.data for a in (*places, work)]
        assert region.code(struct.pack(f"{2 + len(given)}q", 0, NEVER, *given))
        assert (out == 7.0).all()


def test_any_number_of_samples():
    """Of rows that are taken, and of rows that they are taken from."""

    def batches(x, i):
        return paddle.gather(x * 2.0, i) * 3.0

    found = of_any_number(
        lambda x: batches(x, paddle.argsort(x[:, 0])) * 1.0,
        randn([7, 9]),
        randn([8, 9]),
    )
    for n in (2, 7, 13, 64):
        x = randn([n, 9], seed=n)
        (out,), count = run_fenced(found, [x], n)
        assert count
        assert_near(out, batches(x, paddle.argsort(x[:, 0])))


class Classifier(paddle.nn.Layer):
    def __init__(self, sparse=False, padding=None):
        super().__init__()
        self.embedding = paddle.nn.Embedding(11, 6, padding, sparse)
        self.norm = paddle.nn.LayerNorm(6)
        self.last = paddle.nn.Linear(6, 5)

    def forward(self, ids, labels):
        x = self.norm(self.embedding(ids)).mean(1)
        return F.cross_entropy(F.gelu(self.last(x)), labels, reduction="none")


@pytest.mark.parametrize("kind", [(False, None), (True, None), (False, 3)], ids=str)
def test_a_net_of_words_at_every_call(kind, monkeypatch):
    """Batches and lengths of many sizes, before and after it is machine code."""
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 1)
    paddle.seed(0)
    layer = Classifier(*kind)
    net, params, _ = stateless(layer, jit=True)
    for n in (3, 5, 2, 11, 5, 6, 16, 1):
        ids, labels = numbers([n, 7], 11, seed=n), numbers([n], 5, seed=n)
        c = randn([n, 1], seed=n)
        for _ in range(3):
            y, back = net.pullback(params, ids, labels)
            grads, _ = back(c.reshape(y.shape))
            layer.clear_gradients()
            expected = layer(ids, labels)
            (expected * c.reshape(expected.shape)).sum().backward()
            assert_near(y, expected)
            for key, p in layer.named_parameters():
                g = p.grad
                g = g.to_dense() if hasattr(g, "to_dense") and not g.is_dense() else g
                assert_near(dense(grads[key]), dense(g), 5_000)


def dense(g):
    if isinstance(g, paddle.Tensor) and g.is_dense():
        return g
    rows = getattr(g, "to_dense", None)
    return rows() if rows else paddle.to_tensor(np.asarray(g))


def test_a_net_of_words_whose_words_are_out_of_range(monkeypatch):
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 1)
    layer = Classifier()
    net, params, _ = stateless(layer, jit=True)
    labels = numbers([4], 5)
    for _ in range(4):
        net(params, numbers([4, 7], 11), labels)
        net.pullback(params, numbers([4, 7], 11), labels)
    with pytest.raises(ValueError, match="ids"):
        net(params, numbers([4, 7], 11) + 5, labels)
    with pytest.raises(ValueError, match="ids"):
        net.pullback(params, numbers([4, 7], 11) + 5, labels)
    with pytest.raises(IndexError, match="lbl"):
        net(params, numbers([4, 7], 11), labels + 3)
    expected = layer(numbers([4, 7], 11), labels)
    assert_near(net(params, numbers([4, 7], 11), labels), expected)


def test_long_functions_are_left_too(monkeypatch):
    """Of which each step is a function that others share."""

    def fn(x, i):
        for k in range(50):
            x = paddle.gather(x, i) * (1.0 + 0.01 * k) + x.sum(0)
        return x

    x, good = randn([5, 3]), numbers([5], 5)
    program = make_program(fn)(x, good)
    (region,) = program.with_loops.regions
    assert ".step." in region.text
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 0)
    run, plain = (
        compile_program(program, lambda: program.with_loops),
        compile_program(program),
    )
    assert_near(run(x, good)[0], plain(x, good)[0])
    bad = good.clone()
    bad[2] = 5
    assert _error(run, x, bad) == _error(plain, x, bad) is not None


@pytest.mark.parametrize("label", [-1, -3, -7, 3, 8])
@pytest.mark.parametrize("loss", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("gives", ["value", "gradient"])
def test_a_label_that_is_no_class(loss, label, gives):
    """It is refused in machine code, where gradients alone are asked for, too."""
    x, of = randn([4, 3]), getattr(F, loss)

    def value(w, labels):
        scores = x @ w
        return of(scores if loss == "cross_entropy" else F.log_softmax(scores), labels)

    def step(w, labels):
        if gives == "value":
            return w, value(w, labels)
        return w - 0.1 * grad(value)(w, labels), None

    w = expected = randn([3, 3], seed=1)
    labels = paddle.to_tensor([[0, 1, 2, -100]] * 24)
    for row in labels:
        expected, _ = step(expected, row)
    found, _ = scan(step, w, labels)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=1e-5)
    labels[5, 2] = label
    with pytest.raises((IndexError, ValueError), match="label|lbl|index"):
        scan(step, w, labels)
