"""Nets made of nets, in a row: gradients, derivatives along directions, and of these.

By central differences of the net that each is made of.
"""

import optree
import paddle
import pytest
from paddle import nn

from conftest import assert_same, assert_unchanged, randn, snapshot
from layers import Noisy, Several, Smooth
from paddle_chainrules import FCNet, stateless
from paddle_chainrules.nets.derivatives.vjp_jvp_nets import JVP, VJP
from paddle_chainrules.nets.nesting import Nesting
from paddle_chainrules.paddle_side.dtypes import is_differentiable

STEP = 1e-5

pytestmark = pytest.mark.usefixtures("in_double")


def chain():
    net = FCNet((3, 5, 2), "sigmoid", "float64")
    return net, net.init(0), [randn([4, 3], "float64")], None


def layer(make, *leaves, nesting=None, jit=None):
    def made():
        paddle.seed(1)
        net, params, _ = stateless(make(), jit=jit)
        return net, params, [x() if callable(x) else x for x in leaves], nesting

    return made


def numbers(*shape, seed=0):
    return lambda: randn(shape, "float64", seed)


KEYWORDS = Nesting((0,), {"scale": 1})
SEEDED = Nesting((0,), {"seed": 1})
CASES = {
    "chain": chain,
    "smooth": layer(Smooth, numbers(4, 2, 5, 6), numbers(4, 1), nesting=KEYWORDS),
    "program": layer(
        Smooth, numbers(4, 2, 5, 6), numbers(4, 1), nesting=KEYWORDS, jit=True
    ),
    "kernels end": layer(lambda: nn.LSTM(3, 4), numbers(2, 5, 3)),
    "several": layer(Several, numbers(5, 3)),
    "noisy": layer(Noisy, numbers(6, 3), 5, nesting=SEEDED),
    "paddle's own": layer(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU()),
        numbers(5, 3),
    ),
}


def moved_by(x, direction, t):
    return x if direction is None else x + t * direction


def right(net, params, row, moved, calls=1):
    """A JVP's value is the net's, and its derivatives are differences of it."""
    primals = [*params.values(), *row]
    tangents = [
        randn([2, *x.shape], x.dtype.name.lower(), 10 + i) if moves else None
        for i, (x, moves) in enumerate(zip(primals, moved, strict=True))
    ]
    nesting = None if isinstance(net, JVP | VJP) else right.nesting
    pushed = JVP(net, len(row), nesting, moved)
    given = [t for t in tangents if t is not None]
    for _ in range(calls):
        value, slopes = pushed.forward(params, *row, *given)

    def at(k, t):
        there = [
            moved_by(x, None if d is None else d[k], t)
            for x, d in zip(primals, tangents, strict=True)
        ]
        return of_row(net, dict(zip(params, there, strict=False)), there[len(params) :])

    expected = of_row(net, params, row)
    found = optree.tree_leaves(value, none_is_leaf=True)
    each = optree.tree_leaves(slopes, none_is_leaf=True)
    assert len(found) == len(each) == len(expected)
    for i, (y, slope) in enumerate(zip(found, each, strict=True)):
        if not is_differentiable(y):
            assert slope is None
            continue
        assert_same(y, expected[i], rtol=1e-9, atol=1e-11)
        for k in range(2):
            difference = (at(k, STEP)[i] - at(k, -STEP)[i]) / (2 * STEP)
            one = paddle.zeros_like(y) if slope is None else slope[k]
            largest = float(difference.abs().max())
            assert_same(one, difference, atol=2e-6 * max(largest, 1e-2))
    return pushed, [*row, *given]


def of_row(net, params, row):
    if isinstance(net, JVP | VJP) or right.nesting is None:
        return optree.tree_leaves(net.forward(params, *row), none_is_leaf=True)
    args, kwargs = right.nesting.arguments(row)
    return optree.tree_leaves(net.forward(params, *args, **kwargs), none_is_leaf=True)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("moving", ["params", "inputs", "both"])
def test_derivatives_along_directions(name, moving):
    net, params, row, right.nesting = CASES[name]()
    before = snapshot(net._layer) if name != "chain" else None
    by_params, by_inputs = moving != "inputs", moving != "params"
    moved = [by_params] * len(params)
    moved += [by_inputs and is_differentiable(x) for x in row]
    pushed, wide = right(net, params, row, moved, calls=5)
    if name != "kernels end":  # whose programs are captured at every call
        moved = [True] * len(params) + [is_differentiable(x) for x in wide]
        right(pushed, params, wide, moved)
    if before is not None:
        assert_unchanged(net._layer, before)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("moving", ["params", "inputs", "cotangents", "all"])
def test_derivatives_of_gradients_along_directions(name, moving):
    net, params, row, right.nesting = CASES[name]()
    nesting = right.nesting
    outputs = of_row(net, params, row)
    cotangents = [
        randn(y.shape, "float64", 30 + i) if is_differentiable(y) else None
        for i, y in enumerate(outputs)
    ]
    vjp = VJP(net, len(row), nesting)
    moved = [moving in ("params", "all")] * len(params)
    moved += [False]
    moved += [moving in ("inputs", "all") and is_differentiable(x) for x in row]
    moved += [moving in ("cotangents", "all") and c is not None for c in cotangents]
    right(vjp, params, [None, *row, *cotangents], moved, calls=5)


def test_only_the_gradients_asked_for():
    net, params, (x,), _ = chain()
    cotangent, direction = randn([4, 2], "float64", 1), randn([1, 4, 3], "float64", 2)
    whole = VJP(net, 1).forward(params, None, x, cotangent)
    flags = (False, True, False, False)
    vjp = VJP(net, 1, params=flags, inputs=False)
    found = vjp.forward(params, None, x, cotangent)
    assert [g is None for g in found] == [True, False, True, True, True]
    # What is in a loop of the one may be Paddle's in the other, some bits apart.
    assert_same(found[1], whole[1], rtol=1e-14)
    moved = [False] * 5 + [True, False]
    every = JVP(VJP(net, 1), 3, None, moved).forward(
        params, None, x, cotangent, direction
    )
    some = JVP(vjp, 3, None, moved).forward(params, None, x, cotangent, direction)
    for one, other in zip(some, every, strict=True):
        assert [g is None for g in one] == [True, False, True, True, True]
        assert_same(one[1], other[1], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("made", [JVP, VJP])
def test_random_numbers_are_drawn_from_what_is_given(made):
    """A seed among the keyword arguments, which is no part of a program."""
    paddle.seed(1)
    layer = nn.Sequential(nn.Linear(3, 50), nn.Dropout(0.5)).to(dtype="float64")
    net, params, _ = stateless(layer, jit=True)
    x = randn([6, 3], "float64")
    nested = Nesting((0,), {"seed": 1})
    along = [randn([6, 50], "float64", 1)]
    if made is JVP:
        moved = [False, False, True, False]
        pushed, head = JVP(net, 2, nested, moved), []
        along = [randn([1, 6, 3], "float64", 1)]
    else:
        pushed, head = VJP(net, 2, nested), [None]

    def found(seed):
        return optree.tree_leaves(
            pushed.forward(params, *head, x, seed, *along), none_is_leaf=True
        )

    state = paddle.get_rng_state()
    first, other = found(3), found(4)
    assert_same(found(3), first)
    drawn = next(i for i, y in enumerate(first) if y is not None)
    assert not paddle.equal_all(first[drawn], other[drawn])
    if made is JVP:
        assert_same(first[0], net.forward(params, x, seed=3))
    else:
        expected, (by_x,) = net.vjp(params, (x,), *along, seed=3)
        assert_same(first, [*expected.values(), by_x, None], rtol=1e-12, atol=1e-13)
        # Or a state, as it was before a call.
        source = [("cpu", state)]
        y = net.forward(params, x)
        paddle.set_rng_state(state)
        assert_same(net.forward(params, x), y)
        given = pushed.forward(params, source, x, None, *along)
        paddle.set_rng_state(state)
        expected, (by_x,) = net.vjp(params, (x,), *along)
        assert_same(list(given), [*expected.values(), by_x, None], rtol=1e-12)
