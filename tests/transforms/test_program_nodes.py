"""Programs on graphs that Paddle records: any part of the gradients, however asked."""

from itertools import combinations

import numpy as np
import paddle
import pytest

from conftest import randn
from paddle_chainrules import jit

SIZES = {"a": [3, 4], "b": [4], "c": [4, 2], "d": [3, 1]}
SUBSETS = [names for n in range(1, 5) for names in combinations(SIZES, n)]


def plain(a, b, c, d):
    hidden = paddle.tanh(a * b + d)
    return hidden @ c, (hidden * hidden).sum(1)


def leaves(dtypes=("float64",) * 4, made=()):
    """Leaves that require gradients, and what the function is called with."""
    found, given = [], []
    for i, (name, shape) in enumerate(SIZES.items()):
        leaf = randn(shape, dtypes[i], seed=i + 1)
        leaf.stop_gradient = False
        found.append(leaf)
        given.append(leaf * 1.5 if name in made else leaf)
    return found, given


def total(results):
    return sum((y.astype("float64") ** 3).sum() for y in results)


def assert_close(found, expected):
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        assert (x is None) == (y is None)
        if y is not None:
            rtol = 1e-12 if y.dtype == paddle.float64 else 1e-5
            scale = float(y.abs().max())
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol, rtol * scale)


@pytest.mark.parametrize("made", [(), ("b",), ("a", "d")])
@pytest.mark.parametrize("names", SUBSETS, ids="".join)
def test_any_part_of_the_gradients(names, made):
    """Of leaves, and of what is computed of them."""
    places = [[*SIZES].index(name) for name in names]
    found = {}
    for fn in (plain, jit(plain)):
        for _ in range(2):
            own, given = leaves(made=made)
            y = total(fn(*given))
            first = paddle.grad(y, [own[i] for i in places], retain_graph=True)
            direct = paddle.grad(y, [given[i] for i in places], retain_graph=True)
            deep = paddle.grad(y, [own[i] for i in places], create_graph=True)
            second = paddle.grad(
                sum((g * g).sum() for g in deep), own, allow_unused=True
            )
            found[fn] = [*first, *direct, *deep, *second]
    expected, ours = found.values()
    assert_close(ours, expected)


@pytest.mark.parametrize(
    "dtypes", [("float64",) * 4, ("float32", "float32", "float64", "float32")]
)
def test_backward_gives_all_of_them(dtypes):
    def grads(fn, backward):
        own, _ = leaves(dtypes)
        backward(fn(*own))
        return [x.grad for x in own]

    def mixed(a, b, c, d):
        y, z = plain(a, b, c.astype(a.dtype), d)
        return y, z

    run = jit(mixed)
    ways = [
        lambda ys: total(ys).backward(),
        lambda ys: paddle.autograd.backward([*ys], [*map(paddle.sin, ys)]),
        lambda ys: ys[1].sum().backward(),
    ]
    for way in ways:
        for _ in range(2):
            assert_close(grads(run, way), grads(mixed, way))


def test_what_takes_no_part_has_no_gradient():
    run = jit(plain)
    for _ in range(2):
        own, _ = leaves()
        run(*own)[1].sum().backward()
        assert own[2].grad is None
        own, _ = leaves()
        (_, y) = run(*own)
        assert paddle.grad(y, [own[2]], allow_unused=True) == [None]


def test_a_leaf_frozen_or_asked_for_within_a_hook():
    run = jit(plain)
    for _ in range(2):
        own, _ = leaves()
        y = total(run(*own))
        own[1].stop_gradient = True
        y.backward()
        expected, _ = leaves()
        total(plain(*expected)).backward()
        assert_close([own[0].grad], [expected[0].grad])

    own, _ = leaves()
    inner, _ = leaves()
    noted = []

    def hook(grad):
        if not noted:
            total(run(*inner)).backward()
            noted.append(inner[3].grad)
        return grad

    results = run(*own)
    results[0].register_hook(hook)
    (found,) = paddle.grad(total(results), [own[0]])
    assert_close([found, *noted], [expected[0].grad, expected[3].grad])
