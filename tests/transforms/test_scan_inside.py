"""Loops within programs, derivatives and batches are one operator, and its rules are
the derivatives of the steps."""

import warnings

import numpy as np
import optree
import paddle
import pytest

from conftest import randn
from paddle_chainrules import (
    CaptureError,
    FCNet,
    fori_loop,
    grad,
    hessian,
    jit,
    jvp,
    laplacian,
    make_program,
    optimizers,
    scan,
    stateless,
    value_and_grad,
    vmap,
)
from paddle_chainrules.programs.compiling.repeated_steps import MAX_EAGER_STEPS as FEW
from paddle_chainrules.transforms.control_flow.scan import MAX_EAGER_SCAN_STEPS
from trees import assert_near as close

COUNT = FEW + 7


def by_python(step, carry, xs, length=None, *, reverse=False):
    """The oracle: a loop of Python's, which Paddle's tape differentiates."""
    count = length or optree.tree_leaves(xs)[0].shape[0]
    order, ys = range(count), {}
    for t in reversed(order) if reverse else order:
        part = optree.tree_map(lambda x, t=t: x[t], xs)
        carry, ys[t] = step(carry, part)
    return carry, optree.tree_map(
        lambda *row: paddle.stack([*row]), *(ys[t] for t in order)
    )


def problem(loop, **how):
    """A scalar of a carry of two, numbers of rows, and what the step closes over."""
    rows = paddle.to_tensor(np.arange(COUNT)[:, None] * [1, 2] % 5)

    def value(start, w, forces):
        def step(carry, x):
            place, count = carry
            force, row = x
            place = (place @ w + force + w[row].mean() * 0.1).tanh()
            with paddle.no_grad():
                size = place.abs().max()
            return (place, count + 1), {"a": place * size, "b": (place**2).sum()}

        start = (start, paddle.zeros([], "int64"))
        (last, count), ys = loop(step, start, (forces, rows), **how)
        weights = paddle.linspace(0.5, 1.5, COUNT, "float64")
        total = (ys["a"].sin() * weights[:, None]).sum() + (ys["b"] * weights).sum()
        return (last**3).sum() + total * count.astype("float64")

    return value


def given(seed=0):
    return (
        randn([5], "float64", seed),
        randn([5, 5], "float64", seed + 1) * 0.4,
        randn([COUNT, 5], "float64", seed + 2),
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("place", ["in jit", "outside"])
def test_values_and_gradients(place, reverse):
    args = given()
    fn = value_and_grad(problem(scan, reverse=reverse), (0, 1, 2))
    expected = value_and_grad(problem(by_python, reverse=reverse), (0, 1, 2))(*args)
    fn = jit(fn, strict=True) if place == "in jit" else fn
    for _ in range(2):
        close(fn(*args), expected)


def test_the_loop_is_one_operator_whatever_its_length():
    def total(x, count):
        return scan(lambda c, _: (c * 0.5 + x.sin(), None), x, length=count)[0].sum()

    counts = {}
    for count in (MAX_EAGER_SCAN_STEPS + 1, 10 * MAX_EAGER_SCAN_STEPS):
        program = make_program(value_and_grad(lambda x, n=count: total(x, n)))(
            randn([4], "float64")
        )
        counts[count] = [op.operator.name for op in program.ops]
        assert counts[count].count("steps") == 2
    assert len({tuple(names) for names in counts.values()}) == 1
    few = make_program(lambda x: total(x, FEW))(randn([4]))
    assert "steps" not in [op.operator.name for op in few.ops]


def test_second_derivatives_and_forward_mode():
    start, w, forces = given(1)
    tangent = randn([5, 5], "float64", 7)

    def by(loop):
        return lambda w: problem(loop)(start, w, forces)

    close(jit(hessian(by(scan)), strict=True)(w), hessian(by(by_python))(w), 1e-9)
    close(
        jit(lambda w: jvp(by(scan), (w,), (tangent,)), strict=True)(w),
        jvp(by(by_python), (w,), (tangent,)),
    )
    third = [
        grad(lambda w, by=by, loop=loop: jvp(by(loop), (w,), (tangent,))[1])
        for loop in (scan, by_python)
    ]
    close(jit(third[0], strict=True)(w), third[1](w))


def test_by_taylor_series():
    net = FCNet((2, 6, 2), "tanh", "float64")
    params = net.init(0)

    def flow(loop):
        def value(params, x):
            def step(c, _):
                return c + 0.1 * net(params, c), None

            return loop(step, x, None, COUNT)[0][..., :1]

        return value

    x = randn([3, 2], "float64")
    found = jit(lambda p, x: laplacian(flow(scan), p, x), strict=True)(params, x)
    for row, of_row in zip(x, found, strict=True):
        matrix = hessian(lambda x: flow(by_python)(params, x).sum())(row)
        close(of_row, matrix.diagonal().sum().reshape([1]), 1e-9)


@pytest.mark.parametrize("axes", [(0, None, None), (None, 0, None), (0, 0, 0)])
def test_many_samples(axes):
    args = [
        paddle.stack([given(10 * k)[i] for k in range(4)]) if axis == 0 else given()[i]
        for i, axis in enumerate(axes)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = jit(vmap(value_and_grad(problem(scan), (0, 1, 2)), axes), strict=True)(
            *args
        )
        summed = jit(
            grad(lambda *a: vmap(problem(scan), axes)(*a).sum(), (0, 1, 2)), strict=True
        )(*args)
    each = [
        value_and_grad(problem(by_python), (0, 1, 2))(
            *(x[k] if axis == 0 else x for x, axis in zip(args, axes, strict=True))
        )
        for k in range(4)
    ]
    expected = optree.tree_map(lambda *row: paddle.stack([*row]), *each)
    close(found, expected)
    whole = [
        g if axis == 0 else g.sum(0) for g, axis in zip(expected[1], axes, strict=True)
    ]
    close([*summed], whole)


def test_loops_within_loops():
    def double(loop):
        def value(x, w):
            def inner(c, k):
                return (c * w + k).sin(), c.sum()

            def outer(c, row):
                c, ys = loop(inner, c, row)
                return c, (ys * ys).mean()

            rows = paddle.linspace(-1.0, 1.0, COUNT * (FEW + 2), "float64")
            c, ys = loop(outer, x, rows.reshape([COUNT, FEW + 2]))
            return c.sum() + ys.sum()

        return value_and_grad(value, (0, 1))

    args = randn([3], "float64"), randn([3], "float64", 1)
    found = jit(double(scan), strict=True)
    close(found(*args), double(by_python)(*args))


def test_training_by_the_rate_at_which_it_goes():
    """The derivative of a trained net's loss by the learning rate."""
    net = FCNet((2, 7, 1), "tanh", "float64")
    x = randn([11, 2], "float64")
    start = net.init(3)

    def trained(rate):
        adam = optimizers.adam(rate)

        def step(carry, _):
            params, state = carry
            grads = grad(lambda p: ((net(p, x) - x[:, :1]) ** 2).mean())(params)
            updates, state = adam.update(grads, state, params)
            return (optimizers.apply_updates(params, updates), state), None

        (params, _), _ = scan(step, (start, adam.init(start)), length=60)
        return ((net(params, x) - x[:, :1]) ** 2).mean()

    rate, far = paddle.to_tensor(0.01, "float64"), 1e-6
    value, slope = jit(value_and_grad(trained), strict=True)(rate)
    difference = (trained(rate + far) - trained(rate - far)) / (2 * far)
    assert abs(float(slope - difference)) < 1e-6 * abs(float(slope))
    assert abs(float(value - trained(rate))) < 1e-12


def test_carries_are_kept_for_the_way_back_alone():
    w = randn([3], "float64")
    w.stop_gradient = False

    def last(x):
        return scan(lambda c, x: (c * w + x, c.sum()), paddle.zeros_like(w), x)[0]

    x = randn([COUNT, 3], "float64", 1)
    program = make_program(last)(x)
    (op,) = [op for op in program.ops if op.operator.name == "steps"]
    assert [v.shape for v in op.outputs] == [(3,), (COUNT,)]
    found = last(x)
    found.sum().backward()
    expected = grad(
        lambda w: by_python(lambda c, x: (c * w + x, c), w * 0.0, x)[0].sum()
    )(w.detach())
    close(w.grad, expected)


class Recurrent(paddle.nn.Layer):
    """A net whose forward is a loop."""

    def __init__(self):
        super().__init__()
        self.inner = paddle.nn.Linear(6, 6)
        self.last = paddle.nn.Linear(6, 2)

    def forward(self, x, loop=scan):
        start = paddle.zeros([x.shape[0], 6])

        def step(c, x):
            return (self.inner(c) + x).tanh(), None

        return self.last(loop(step, start, paddle.moveaxis(x, 1, 0))[0])


def test_a_net_with_a_loop():
    paddle.seed(0)
    layer = Recurrent()
    net, params, _ = stateless(layer, jit=True)
    x = randn([4, COUNT, 6])
    ct = randn([4, 2], seed=1)
    output = layer(x, by_python)
    grads = paddle.grad(output, [*layer.parameters()], ct)
    for _ in range(2):
        y, back = net.pullback(params, x)
        found = back(ct)[0]
        close(y, output, 1e-5)
        close([found[n] for n, _ in layer.named_parameters()], grads, 1e-5)
    native = paddle.grad(layer(x), [*layer.parameters()], ct)  # the loop on the tape
    close(native, grads, 1e-5)


def test_numbers_from_a_few_steps_on():
    def power(x, n):
        return fori_loop(0, n, lambda i, c: c * x + i.astype("float64") * 0.1, x)

    x = paddle.to_tensor(0.9, "float64")
    for n in (1, FEW, FEW + 1, MAX_EAGER_SCAN_STEPS + 1):
        expected = grad(
            lambda x, n=n: by_python(
                lambda c, i: (c * x + i.astype("float64") * 0.1, i), x, paddle.arange(n)
            )[0]
        )(x)
        close(jit(grad(lambda x, n=n: power(x, n)), strict=True)(x), expected)
        close(grad(lambda x, n=n: power(x, n))(x), expected)


def test_the_step_of_a_program_serves_many_calls():
    """Of jit(step) the loop's gradients are captured once."""
    calls = []

    def step(c, x):
        calls.append(1)
        return (c * x).sin(), None

    held, xs = jit(step), randn([COUNT, 3], "float64")
    start = randn([3], "float64", 1)
    expected = grad(lambda xs: by_python(step, start, xs)[0].sum())(xs)
    close(grad(lambda xs: scan(held, start, xs)[0].sum())(xs), expected)
    calls.clear()
    close(grad(lambda xs: scan(held, start, xs)[0].sum())(xs), expected)
    assert not calls


def test_what_can_not_be_one_operator():
    def noisy(x):
        return scan(
            lambda c, _: (paddle.nn.functional.dropout(c, 0.5), None), x, length=COUNT
        )[0]

    program = make_program(noisy)(paddle.ones([64]))
    names = [op.operator.name for op in program.ops]
    assert names.count("dropout") == COUNT

    def deciding(c, _):
        return (c if float(c.sum()) > 0 else -c), None

    with pytest.raises(CaptureError, match="a value leaves the program"):
        jit(lambda x: scan(deciding, x, length=COUNT), strict=True)(randn([3]))
    loop = jit(lambda x: scan(deciding, x, length=COUNT)[0])
    close(loop(-paddle.ones([3])), paddle.ones([3]))

    def writing(c, _):
        return c.add_(paddle.ones([3])), None

    for length in (FEW, COUNT):
        with pytest.raises(NotImplementedError, match="writes in place"):
            jit(lambda x, n=length: scan(writing, x, length=n)[0])(randn([3]))


@pytest.mark.parametrize("way", ["outside", "in jit"])
def test_what_nothing_depends_on_has_a_gradient_of_zeros(way):
    """And of what comes through detach."""

    def fn(p, loop=scan):
        def step(c, x):
            return (c[0].detach() * 1.0, c[1] * x, c[2] * 0.5), None

        return loop(step, p, paddle.ones([COUNT], "float64"))[0][1].sum()

    params = tuple(randn([2], "float64", k) for k in range(3))
    found = (jit(grad(fn)) if way == "in jit" else grad(fn))(params)
    expected = grad(lambda p: fn(p, by_python))(params)
    assert [bool(g.any()) for g in expected] == [False, True, False]
    close(found, expected)
