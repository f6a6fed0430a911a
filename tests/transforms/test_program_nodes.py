"""Programs on graphs that Paddle records: any part of the gradients, however asked."""

import weakref
from itertools import combinations, product

import numpy as np
import paddle
import pytest

from conftest import assert_same, randn
from paddle_chainrules import CaptureError, jit, make_program, vjp, vmap
from paddle_chainrules.paddle_side.dtypes import dtype_name

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


def assert_close(found, expected, within=None):
    """Equal to the rounding of a dtype, which is that of each unless it is given."""
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        assert (x is None) == (y is None)
        if y is not None:
            rtol = 1e-12 if (within or dtype_name(y.dtype)) == "float64" else 1e-5
            scale = float(y.abs().max())
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol, rtol * scale)


@pytest.mark.parametrize("draws", [False, True])
def test_the_function_is_called_once(draws):
    """Its gradients go on with the record of its value."""
    met = []

    def fn(a, b, c, d):
        leaf = paddle.ones([3])
        leaf.stop_gradient = False
        hidden, sums = plain(a, b, c, d)
        met.append(weakref.ref(sums))
        return hidden, sums * leaf + (paddle.rand([3], "float64") if draws else 1.0)

    own, given = leaves(made=("b", "d"))
    paddle.seed(5)
    found = paddle.grad(total(jit(fn, strict=True)(*given)), own)
    assert [ref() for ref in met] == [None]
    paddle.seed(5)
    again = paddle.grad(total(fn(*given)), own)
    assert_close(found, again)


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
            found, expected = grads(run, way), grads(mixed, way)
            assert_close(found, expected, within=min(dtypes))  # c is used as float32


FLAT = [paddle.sign, paddle.round, paddle.floor, paddle.ceil, paddle.trunc]


@pytest.mark.parametrize("flat", FLAT)
def test_what_has_no_slope_has_a_gradient_of_zeros(flat):
    """With which weights decay, as they do natively."""

    def trained(run):
        own, _ = leaves()
        rule = paddle.optimizer.AdamW(0.1, parameters=own, weight_decay=0.1)
        for _ in range(3):
            total(run(*own)).backward()
            rule.step()
            rule.clear_grad()
        (found,) = paddle.grad(total(run(*own)), [own[0]])
        return [*own, found]

    def fn(a, b, c, d):
        return plain(flat(a), b, c, d)

    assert_close(trained(jit(fn)), trained(fn))
    assert trained(jit(fn))[-1].abs().max() == 0


def test_what_a_result_does_not_depend_on_has_no_gradient_in_a_pullback():
    """Also at a first call, on copies, which a program takes packed into one tensor.

    A slope of zero is a gradient; transforms give zeros for both.
    """
    run = jit(lambda a, b, c: (a * b, paddle.sin(c), paddle.sign(b)))
    given = [randn([3], "float64", seed=i) for i in range(3)]

    def of(i):
        return lambda a, b, c: run(a, b, c)[i].sum()

    for i, there in enumerate(["ab", "c", "b"]):
        for _ in range(3):
            _, pullback = vjp(of(i), *given)
            one = paddle.ones([], "float64")
            found, every = pullback.or_none(one), pullback(one)
            assert [g is not None for g in found] == [n in there for n in "abc"]
            for g, every_g, x in zip(found, every, given, strict=True):
                assert_same(every_g, paddle.zeros_like(x) if g is None else g)
    assert not found[1].any()


def test_what_a_second_gradient_does_not_depend_on_has_zeros():
    def fn(a, b, c):
        return (a * a * b + paddle.sin(b) * c).sum()

    def second(run):
        own = [randn([3], "float64", seed=i) for i in range(3)]
        for x in own:
            x.stop_gradient = False
        a, c = paddle.grad(run(*own), own[::2], create_graph=True)
        return paddle.grad((a * c).sum(), own, allow_unused=True)

    assert_close(second(jit(fn)), second(fn))


def test_leaves_that_leave_the_graph_after_the_call():
    run = jit(plain)
    expected, _ = leaves()
    total(plain(*expected)).backward()
    own, _ = leaves()
    y = total(run(*own))
    own[0].detach_()
    assert_close(paddle.grad(y, [own[1]]), [expected[1].grad])
    own, _ = leaves()
    found = paddle.grad(
        total(run(*own)), [own[0], own[1]], no_grad_vars=[own[1]], allow_unused=True
    )
    assert_close(found, [expected[0].grad, None])
    own, _ = leaves()
    y = total(run(*own))
    own[1].stop_gradient = True
    with pytest.raises(OSError, match="NotImplementedError.*frozen after the call"):
        paddle.grad(y, [own[1]], create_graph=True)


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


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    "flags", [flags for n in (1, 2, 3) for flags in product((False, True), repeat=n)]
)
def test_a_tensor_that_is_frozen_for_a_while(flags, first):
    """Gradients come of where it was not, as of tensors that stand for the others."""
    p, x = randn([3], "float64", seed=3), randn([4, 3], "float64", seed=4)

    def fn(x):
        out = 1.0
        for power, flag in enumerate(flags, 2):
            p.stop_gradient = not flag
            out = out * (paddle.sin(p**power) * x).sum()
        return out

    def expected_of(x):
        out = 1.0
        for power, flag in enumerate(flags, 2):
            out = out * (paddle.sin((p if flag else p.detach()) ** power) * x).sum()
        return out

    def found_of(fn, first=True):
        p.stop_gradient = not first
        result = fn(x)
        p.stop_gradient = False
        if result.stop_gradient:
            return [result]
        (slope,) = paddle.grad(result, p, create_graph=True, allow_unused=True)
        if slope is None or slope.stop_gradient:
            return [result, slope]
        return [result, slope, *paddle.grad((slope * slope).sum(), p)]

    expected = found_of(expected_of)
    jitted = jit(fn)
    for _ in range(3):
        assert_close(found_of(jitted, first), expected)


def test_what_ends_frozen_is_no_program():
    p = paddle.ones([3])
    p.stop_gradient = False

    def fn(x):
        p.stop_gradient = False
        y = (p * x).sum()
        p.stop_gradient = True
        return y

    with pytest.raises(CaptureError, match="set stop_gradient back"):
        jit(fn, strict=True)(paddle.ones([3]))


def test_rules_run_on_what_was_frozen():
    """Though it is not when the gradient is taken."""
    q = randn([4, 2], "float64", seed=5)
    q.stop_gradient = False

    def penalty(x, q):
        y = paddle.tanh(x) @ q
        (slope,) = paddle.grad(y.sum(), x, create_graph=True)
        return (slope * slope).sum()

    def fn(x):
        x = x.detach()
        x.stop_gradient = False
        q.stop_gradient = True
        y = paddle.tanh(x) @ q
        q.stop_gradient = False
        (slope,) = paddle.grad(y.sum(), x, create_graph=True)
        return (slope * slope).sum() + q.sum()

    x = randn([3, 4], "float64", seed=6)
    fn_of_x = jit(fn, strict=True)
    found = fn_of_x(x)
    (slope,) = paddle.grad(found, q)
    leaf = x.detach()
    leaf.stop_gradient = False
    expected = penalty(leaf, q.detach()) + q.sum()
    assert_close([found, slope], [expected, paddle.ones_like(q)])


@pytest.mark.parametrize("strict", [False, True])
def test_flags_are_as_before_where_there_is_no_program(strict):
    p = randn([3], "float64", seed=5)

    def fn(x):
        y = (x * p).sum()
        p.stop_gradient = True
        z = float((x * p).sum())
        p.stop_gradient = False
        return y * z

    x = randn([3], "float64", seed=6)
    jitted = jit(fn, strict=strict)
    for _ in range(3):
        p.stop_gradient = False
        if strict:
            with pytest.raises(CaptureError, match="a value leaves the program"):
                jitted(x)
        else:
            (slope,) = paddle.grad(jitted(x), p)
            expected = x * float((x * p).sum())
            assert_close([slope], [expected])
        assert not p.stop_gradient
    with pytest.raises(CaptureError, match="a value leaves"):
        make_program(fn)(x)
    assert not p.stop_gradient


def test_flags_are_as_before_where_a_sample_can_not_be_recorded():
    p = randn([3], "float64", seed=5)
    p.stop_gradient = False

    def fn(x):
        p.stop_gradient = True
        z = float((x * p).sum())
        p.stop_gradient = False
        return (x * p).sum() * z

    for transformed in (vmap(fn), jit(vmap(fn)), jit(vmap(jit(fn)))):
        with pytest.raises(CaptureError, match="a value leaves"):
            transformed(randn([4, 3], "float64", seed=6))
        assert not p.stop_gradient
