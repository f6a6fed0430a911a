"""Memory for what is in between, which calls of machine code leave to later ones."""

import resource

import numpy as np
import paddle
import pytest

from conftest import assert_same, loops_on, on_threads, randn
from paddle_chainrules import jit, laplacian, stateless, value_and_grad
from paddle_chainrules.paddle_side import workspace
from paddle_chainrules.paddle_side.workspace import (
    borrow_memory,
    empty_cache,
    return_memory,
)


@pytest.fixture(autouse=True)
def nothing_kept():
    empty_cache()
    yield
    empty_cache()


def test_memory_is_the_same_as_long_as_it_is_large_enough():
    first = borrow_memory(100)
    assert list(first[1].shape) == [100]
    return_memory(first)
    assert borrow_memory(70) is first
    return_memory(first)
    larger = borrow_memory(101)
    assert larger is not first
    assert list(larger[1].shape) == [101]
    return_memory(larger)
    assert borrow_memory(100) is larger


def test_nobody_has_what_another_has():
    one, other = borrow_memory(100), borrow_memory(100)
    assert one[1].data_ptr() != other[1].data_ptr()
    return_memory(one)
    return_memory(other)
    assert {id(borrow_memory(100)), id(borrow_memory(100))} == {id(one), id(other)}


def test_what_is_too_large_is_not_kept(monkeypatch):
    monkeypatch.setattr(workspace, "MAX_CACHED_BYTES", 1000)
    large = borrow_memory(1001)
    return_memory(large)
    assert not workspace._free
    return_memory(borrow_memory(1000))
    assert len(workspace._free) == 1


def leaves(found):
    value, grads = found
    return [value, *grads.values()]


def step_of(width=24):
    paddle.seed(1)
    layer = paddle.nn.Sequential(
        paddle.nn.Linear(2, width), paddle.nn.Tanh(), paddle.nn.Linear(width, 1)
    )
    net, params, _ = stateless(layer, jit=True)

    def loss(params, x):
        return ((laplacian(net, params, x) + net.forward(params, x)) ** 2).mean()

    return jit(value_and_grad(loss)), params


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr("paddle_chainrules.settings.CALLS_BEFORE_CODE", 0)


@loops_on
@pytest.mark.usefixtures("at_once")
def test_steps_touch_no_new_pages():
    step, params = step_of()
    x = randn([20_000, 2])
    for _ in range(3):
        step(params, x)
    assert sum(size for size, _ in workspace._free) > 1 << 22
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        step(params, x)
    touched = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert touched < 1000  # 10,000 and more where each call has memory of its own


@pytest.mark.usefixtures("at_once")
def test_what_others_have_left_is_not_read():
    step, params = step_of()
    x = randn([700, 2])
    expected = step(params, x)
    for size in (1 << 24, 5):
        empty_cache()
        memory = size, paddle.full([size], 255, "uint8")  # none of which is a number
        return_memory(memory)
        found = step(params, x)
        assert np.isfinite(found[0].numpy())
        assert_same(found, expected)


@loops_on
@pytest.mark.usefixtures("at_once")
def test_threads_have_memory_of_their_own():
    step, params = step_of()
    xs = [randn([n, 2], seed=n) for n in (900, 1100, 1300)]
    for x in xs:
        step(params, x)  # until one program serves all of these numbers
    expected = [step(params, x) for x in xs]
    wrong = []

    def is_near(a, b):
        return bool((a - b).abs().max() <= 1e-5 * b.abs().max())

    def work(k):
        for _ in range(60):
            found = step(params, xs[k])
            pairs = zip(leaves(found), leaves(expected[k]), strict=True)
            if not all(is_near(a, b) for a, b in pairs):
                wrong.append(k)

    on_threads(work, [(k,) for k in range(3)])
    assert not wrong
    assert 1 <= len(workspace._free) <= 3
