"""Results are written over what nobody needs any more, and over nothing else."""

import numpy as np
import paddle
import pytest

from conftest import assert_same, randn
from paddle_chainrules import jit, make_program, vjp
from paddle_chainrules.programs import capture
from paddle_chainrules.programs import captured as program_cache
from paddle_chainrules.programs.operators.table import TABLE
from paddle_chainrules.transforms.as_programs.program_cache import ProgramCache
from programs.sampled import made
from programs.samples import SAMPLES
from programs.samples.tensors import t

OVERWRITING = [(name, k) for name in TABLE for k in TABLE[name].in_place]


@pytest.mark.parametrize(("name", "place"), OVERWRITING)
def test_operators_that_overwrite_give_the_same_bits(name, place, count_case):
    entry = TABLE[name]
    run, order = entry.in_place[place]
    seen = 0
    for row in SAMPLES.get(name) or [(t(3, 4), t(3, 4), t(3, 4))]:
        args = [
            value.clone() if isinstance(value, paddle.Tensor) else value
            for value in (lambda tensors, fill: fill(tensors))(*made(row))
        ]
        expected = entry.run(*args)
        if not isinstance(expected, paddle.Tensor):
            continue
        if expected.shape != args[place].shape:
            continue
        overwritten = args[place]
        found = run(*(args[i] for i in order))
        assert found._is_shared_buffer_with(overwritten)
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
        seen += 1
    assert seen
    count_case("operators that overwrite")


def a_view_of_it_is_used_later(x):
    y = x * 2.0
    z = y.reshape([4, 3])
    return paddle.tanh(y).sum() + z.sum()


def its_view_goes_with_it(x):
    y = (x * 2.0).reshape([4, 3])
    return paddle.tanh(y) + y.T.reshape([4, 3])


def it_is_an_argument(x):
    return paddle.tanh(x) * x


def a_view_of_an_argument(x):
    return paddle.tanh(x.reshape([12]))


def it_is_a_result(x):
    y = x * 2.0
    return y, paddle.tanh(y)


def twice_in_one_operator(x):
    y = x * 2.0
    return y * y


def broadcast(x):
    y = paddle.sum(x, 0) * 2.0
    return x * 1.0 + y, y.exp() + x


def of_other_types(x):
    y = x * 2.0
    return y * (x > 0).astype("float64"), (x * 3.0).astype("float64") + x


KEPT = randn([3, 4])


def a_constant(x):
    return paddle.tanh(KEPT) + x


def parts_of_one(x):
    a, b = paddle.split(x * 2.0, 2, axis=1)
    return paddle.exp(a) + b, paddle.exp(b)


def windows_of_an_argument(x):
    return paddle.sin(x.unfold(1, 2, 1))


def windows_that_overlap(x):
    y = (x * 2.0).unfold(1, 2, 1)
    return paddle.exp(y), paddle.tanh((x * 3.0).unfold(0, 3, 1))


def strides_that_overlap(x):
    return paddle.exp(paddle.as_strided(x * 2.0, [2, 2], [1, 1])) + x[:2, :2]


FUNCTIONS = [
    windows_of_an_argument,
    windows_that_overlap,
    strides_that_overlap,
    a_view_of_it_is_used_later,
    its_view_goes_with_it,
    it_is_an_argument,
    a_view_of_an_argument,
    it_is_a_result,
    twice_in_one_operator,
    broadcast,
    of_other_types,
    a_constant,
    parts_of_one,
]


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_nothing_else_is_overwritten(fn):
    x = randn([3, 4])
    before = x.numpy(), KEPT.numpy()
    captured = capture(lambda leaves: _listed(fn(*leaves)), [x], check=False)
    expected = [out.clone() for out in _listed(fn(x))]
    for _ in range(2):
        for found, like in zip(captured.program(x), expected, strict=True):
            assert_same(found, like)
        np.testing.assert_array_equal(x.numpy(), before[0])
        np.testing.assert_array_equal(KEPT.numpy(), before[1])


def _listed(found):
    return [*found] if isinstance(found, tuple) else [found]


def test_what_may_be_overwritten_is():
    def fn(x):
        y = paddle.tanh(paddle.exp(x) * 2.0)
        return x + (y + x)

    program = make_program(fn)(randn([3, 4]))
    source = program.python()
    assert "tanh_(" in source
    assert source.count("add_(") == 2
    assert program.peak_bytes == 2 * 3 * 4 * 4  # of exp and of the product


def test_what_becomes_the_same_as_another_is_there_for_the_way_back():
    def fn(a, b, w):
        return (a - b) * w, (-b + a) * w * w

    args = [randn([3, 4], seed=i) for i in range(3)]
    program = jit(fn)
    program(*args)
    cotangents = randn([3, 4], seed=3), randn([3, 4], seed=4)
    found, expected = (vjp(f, *args)[1](cotangents) for f in (program, fn))
    assert_same(found, expected, atol=1e-6)
    forward = make_program(fn)(*args)
    assert [op.operator.name for op in forward.ops].count("subtract") == 1


def test_what_is_cheap_and_large_is_made_again_on_the_way_back(monkeypatch):
    monkeypatch.setattr(program_cache, "loops_are_on", lambda: False)

    def gate(leaves):
        f = paddle.tanh(leaves[0])
        return [f * leaves[1] + (1 - f) * leaves[2]], None

    for n in (3, 600):
        x, u, v = (randn([n, 128], "float64", seed=i) for i in range(3))
        cache = ProgramCache(gate)
        _, _, recording = cache.record([x, u, v])
        kept = len(recording.compiled.forward_backward.forward.outputs) - 1
        assert kept == (4 if n == 3 else 3)  # tanh, u, v, and 1 - tanh
        cotangent = randn([n, 128], "float64", seed=4)
        f, g = np.tanh(x.numpy()), cotangent.numpy()
        expected = g * (u - v).numpy() * (1 - f * f), g * f, g * (1 - f)
        for found, like in zip(recording.gradients([cotangent]), expected, strict=True):
            np.testing.assert_allclose(found.numpy(), like, rtol=1e-10, atol=1e-12)
