"""Formulas in the place of Paddle's operators: as Paddle where it is right."""

import math

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from conftest import assert_same, programs_on, randn, run_code
from differential.verdicts import Differences
from paddle_chainrules import grad, jit, jvp, stateless, value_and_grad, vjp
from paddle_chainrules.paddle_side.listener import programs_disabled

X = paddle.to_tensor([1.0, 2.0, 3.0, 4.0])


def assigned(x, index):
    y = x * 1
    y[index] = x[:1] * 3
    return y


def erased(part, x):
    part.zero_()
    return x * 2


def convolved(x):
    return F.conv2d(x[:0].reshape([0, 1, 2, 2]), paddle.ones([1, 1, 2, 2]))


EDGES = {
    "pad with -inf": lambda x: F.relu(F.pad(x, [1, 1], value=-math.inf)),
    "a division by zero": lambda x: paddle.atan(x / (x - 1)),
    "pad by another name": lambda x: F.pad(input=x, pad=[1, 1]),
    "no place in a mask": lambda x: assigned(x, paddle.zeros([4], "bool")),
    "prod of a number": lambda x: paddle.prod(x[0].reshape([]), axis=-1),
    "prod by a tensor": lambda x: paddle.prod(x, axis=paddle.to_tensor(0)),
    "unstack written to": lambda x: erased(x.reshape([2, 2]).unstack(0)[0], x),
    "no batch": convolved,
}


@pytest.mark.parametrize("name", EDGES)
def test_the_value_is_paddles(name):
    fn = EDGES[name]
    assert_same(vjp(fn, X)[0], fn(X), rtol=1e-6)
    try:
        deep = jvp(fn, (X,), (paddle.ones_like(X),))[0]
    except NotImplementedError:  # a kernel that ends
        return
    assert_same(deep, fn(X), rtol=1e-6)


@pytest.mark.parametrize("fn", [F.selu, F.mish, F.softsign, F.celu])
def test_activations_have_paddles_constants_where_derivatives_nest(fn):
    x = randn([7, 5], "float64") * 3
    with programs_disabled():
        value, slope = jvp(fn, (x,), (paddle.ones_like(x),))
    assert_same(value, fn(x), rtol=1e-14)
    step = 1e-6
    # The slope of selu's kernel has a product of constants that its value rounds less.
    rounding = 3e-8 if fn is F.selu else 1e-9
    slopes = (fn(x + step) - fn(x - step)) / (2 * step)
    assert_same(slope, slopes, rtol=1e-8, atol=rounding)


WRONG = {
    "stack": lambda x: paddle.stack([x, x[:1]]),
    "split": lambda x: paddle.split(x, 3),
    "split by sizes": lambda x: paddle.split(x, [1, 2]),
    "concat": lambda x: paddle.concat([x.reshape([2, 2]), x[:1].reshape([1, 1])], 1),
    "dot": lambda x: paddle.dot(x[:1], x[:3]),
    "mv": lambda x: paddle.mv(x.reshape([2, 2]), x[:1]),
    "prod": lambda x: paddle.prod(x.reshape([2, 2]), axis=5),
    "unstack": lambda x: paddle.unstack(x, 0, 3),
}


def test_log_sigmoid_far_from_zero_in_a_program():
    """Its slope, 1 / (1 + exp(x)), to rounding where softplus would be its argument."""
    x = paddle.to_tensor([-60.0, -25.0, -20.5, -19.5, 21.0, 40.0], "float64")
    found = jit(grad(lambda x: F.log_sigmoid(x).sum()))(x)
    expected = 1.0 / (1.0 + np.exp(x.numpy()))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-14)


@pytest.mark.parametrize("name", WRONG)
def test_what_paddle_refuses_is_refused(name):
    fn = WRONG[name]
    for call in (lambda: fn(X), lambda: vjp(fn, X), lambda: jvp(fn, (X,), (X,))):
        with pytest.raises((ValueError, IndexError, RuntimeError, OSError)):
            call()


@programs_on
@pytest.mark.parametrize(
    "view", [lambda y: paddle.as_strided(y, [2], [1]), lambda y: y.unfold(0, 2, 2)]
)
@pytest.mark.parametrize(
    "write", [lambda v: v.zero_(), lambda v: v.__setitem__(0, 7.0)]
)
def test_a_write_into_a_copy_for_a_view(view, write):
    def fn(x):
        y = x * 1
        write(view(y))
        return y

    value, pullback = vjp(fn, X)  # by rules
    with paddle.no_grad():
        assert_same(value, fn(X))
    kept = (fn(X) - fn(X + 1)).abs() > 0.5
    assert_same(pullback(paddle.ones_like(X))[0], kept.astype(X.dtype))


def test_losses_where_probabilities_are_zero_or_one():
    x, one_hot = paddle.to_tensor([[1.0, 0.0]]), paddle.to_tensor([[1.0, 0.0]])
    loss, grad = value_and_grad(
        lambda x: F.cross_entropy(x, one_hot, soft_label=True, use_softmax=False)
    )(x)
    assert float(loss) == 0.0
    assert_same(grad, paddle.to_tensor([[-1.0, 0.0]]))
    z, y = paddle.to_tensor([300.0, -300.0, 1.0]), paddle.to_tensor([0.0, 1.0, 1.0])

    def each(z, y):
        return F.binary_cross_entropy(F.sigmoid(z), y, reduction="none")

    found, back = vjp(each, z, y)
    assert_same(found, each(z, y), rtol=1e-6)
    assert all(bool(g.isfinite().all()) for g in back(paddle.ones_like(found)))


@pytest.mark.parametrize("shape", [[2, 3, 4, 5], [7, 3], [1, 3]], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_ignored_labels(reduction, shape):
    """Paddle's kernel writes past its memory there."""
    x, labels = randn(shape, "float64"), [shape[0], *shape[2:]]
    label = paddle.arange(math.prod(labels)).reshape(labels) * 2 % 3

    def loss(x):
        return F.nll_loss(x, label, ignore_index=1, reduction=reduction)

    chosen = F.one_hot(label, 3).astype(x.dtype).moveaxis(-1, 1)
    there = (label != 1).astype(x.dtype).unsqueeze(1)
    grad = -chosen * there
    if reduction == "mean":
        grad = grad / there.sum()
    compute = value_and_grad(loss)
    for run in (*[compute] * 4, *[jit(compute)] * 2):
        value, found = run(x)
        assert_same(found, grad, rtol=1e-12)
        assert_same(value, (grad * x).sum(), rtol=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_labels_that_are_all_ignored(reduction):
    x, label = randn([5, 3], "float64"), paddle.ones([5], "int64")

    def loss(x):
        return F.nll_loss(x, label, ignore_index=1, reduction=reduction)

    for run in (grad(loss), jit(loss), jit(grad(loss))):
        assert float(run(x).abs().sum()) == 0.0


class Stateful(nn.Layer):
    """Keeps something in its attributes, in one of several ways."""

    def __init__(self, how):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.how, self.state, self.count, self.history = how, None, 0, []
        self.named = {}

    def forward(self, x):
        y = self.linear(x)
        if self.how == "state" and self.state is not None:
            y = y + self.state[0]
        if self.how == "history" and self.history:
            y = y + sum(self.history)
        if self.how == "named":
            y = y + self.named.get("last", 0.0)
        self.count += 1
        self.state = y, y
        self.history.append(y)
        self.named["last"] = y
        return y * self.count if self.how == "count" else y


@pytest.mark.parametrize("how", ["state", "history", "named", "count"])
def test_a_layer_with_a_state_gives_the_same_each_time(how):
    net, params, _ = stateless(Stateful(how))
    x = randn([3, 2])
    expected = net.forward(params, x)
    for _ in range(3):
        assert_same(net.forward(params, x), expected)
        assert_same(net.pullback(params, x)[0], expected)


@pytest.mark.parametrize("value", ["traced", "constant"])
def test_to_assign_to_a_part_of_a_part(value):
    x, v = randn([2, 3], "float64"), randn([2], "float64", 1)

    def fn(x, v):
        y = x * 1
        y[0][1] = v[0] if value == "traced" else 9.0
        return (y * y).sum()

    def into_zeros(x, v):
        y = paddle.zeros([2, 3], "float64")
        y[0][1] = v[0]
        return (y * x).sum()

    _, pullback = vjp(fn, x, v)
    by_x, by_v = pullback(paddle.ones([], "float64"))
    expected = 2 * x
    expected[0, 1] = 0.0
    assert_same(by_x, expected)
    if value == "traced":
        assert_same(by_v, paddle.stack([2 * v[0], 0 * v[1]]))
    _, pullback = vjp(into_zeros, x, v)
    by_x, by_v = pullback(paddle.ones([], "float64"))
    expected = paddle.zeros_like(x)
    expected[0, 1] = v[0]
    assert_same(by_x, expected)
    assert_same(by_v, paddle.stack([x[0, 1], 0 * v[1]]))


def differences(fn, z):
    """``dL/dRe + i dL/dIm`` of a real number."""
    by_steps = Differences(lambda given: [fn(*given)], [z], [0])
    return paddle.to_tensor(by_steps.gradients([np.ones([])])[0])


COMPLEX = {
    "softsign": F.softsign,
    "matrix_power": lambda z: paddle.linalg.matrix_power(z, 3),
    "matrix_power, even": lambda z: paddle.linalg.matrix_power(z, 2),
    "matrix_power of the inverse": lambda z: paddle.linalg.matrix_power(z, -1),
    "slogdet": paddle.linalg.slogdet,
}


@pytest.mark.parametrize("name", COMPLEX)
def test_gradients_of_complex_numbers_that_paddle_gets_wrong(name):
    parts = randn([2, 2, 3, 3], "float64")
    z = paddle.complex(parts[0], parts[1])
    out = COMPLEX[name](z)
    weights = randn([2, *out.shape], "float64", 1)

    def loss(z):
        w = COMPLEX[name](z)
        return (w.real() * weights[0] + w.imag() * weights[1]).sum()

    expected = differences(loss, z)
    scale = float(expected.abs().max())
    assert_same(vjp(COMPLEX[name], z)[0], out, rtol=1e-12, atol=1e-12 * scale)
    for grad_of in (grad(loss), jit(grad(loss))):
        assert_same(grad_of(z), expected, atol=1e-8 * scale)

    along = paddle.complex(*randn([2, 2, 3, 3], "float64", 2))

    def slope(z):
        return (grad(loss)(z) * along.conj()).real().sum()

    expected = differences(slope, z)
    assert_same(jit(grad(slope))(z), expected, atol=1e-7 * float(expected.abs().max()))


def test_a_singular_matrix_of_complex_numbers_has_the_logarithm_of_zero():
    z = paddle.zeros([2, 2], "complex128")
    assert_same(vjp(paddle.linalg.slogdet, z)[0], paddle.linalg.slogdet(z))


NORMS = {
    "layer_norm": (nn.LayerNorm(7), [5, 7]),
    "group_norm": (nn.GroupNorm(2, 4), [3, 4, 5]),
    "instance_norm": (nn.InstanceNorm1D(4), [3, 4, 5]),
    "batch_norm": (nn.BatchNorm1D(7), [5, 7]),
    "batch_norm, stored": (nn.BatchNorm1D(7, use_global_stats=True), [5, 7]),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_are_those_of_the_kernels_to_rounding_where_derivatives_nest(name):
    """Which take epsilon in single precision, of float64 too."""
    layer, shape = NORMS[name]
    net, params, buffers = stateless(layer, jit=False)
    net = net.in_dtype("float64")
    params, buffers = (
        {n: t.astype("float64") for n, t in of.items()} for of in (params, buffers)
    )
    # Small numbers, beside which epsilon is not.
    x, v = 0.01 * randn(shape, "float64"), randn(shape, "float64", 1)

    def value(x):
        return net.forward(params, x, buffers=buffers)[0]

    with programs_disabled():
        found = jvp(value, (x,), (v,))[0]
    assert_same(found, value(x), atol=1e-14)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_recurrent_layer_of_no_samples_has_zero_gradients(mode):
    """Paddle's are memory that nobody has written."""
    layer = nn.SimpleRNN(6, 5)
    getattr(layer, mode)()
    net, params, _ = stateless(layer)
    x = paddle.zeros([0, 4, 6])
    junk = [paddle.full([30], math.nan) for _ in range(50)]
    del junk
    for _ in range(3):
        (y, h), pullback = net.pullback(params, x)
        by_params, (by_x,) = pullback((paddle.ones_like(y), paddle.ones_like(h)))
        assert_same((y, h), (paddle.zeros([0, 4, 5]), paddle.zeros([1, 0, 5])))
        assert_same(by_params, {n: paddle.zeros_like(p) for n, p in params.items()})
        assert_same(by_x, x)


UNUSED = """
import paddle
from paddle import nn
from paddle_chainrules import cond, jit, scan, stateless, vmap

x = paddle.to_tensor([[0.3, -0.7], [1.1, 0.4]], stop_gradient=False)
PARTS = [
    lambda x: paddle.unstack(x, 1)[0],
    lambda x: paddle.broadcast_tensors([x, x[:1].detach()])[0],
    lambda x: paddle.meshgrid(x[0], x[1].detach())[0],
    lambda x: paddle.linalg.qr(x)[0],
    lambda x: paddle.linalg.qr(x, "complete")[0],
]

class Weighted(nn.Layer):
    def __init__(self, f):
        super().__init__()
        self.f, self.w = f, self.create_parameter([2, 2])

    def forward(self, x):
        return self.f(x * self.w)

for f in PARTS:
    net, params, _ = stateless(Weighted(f))
    for p in params.values():
        p.stop_gradient = False
    for call in (
        lambda: scan(lambda c, a: (c * f(x).sum() * a, c), x[0, 0], x[0])[0],
        lambda: jit(lambda x: f(x) * float(x.sum()))(x),
        lambda: cond(x.sum() > 0, f, f, x),
        lambda: vmap(f)(paddle.stack([x, x])),
        lambda: net(params, x),
    ):
        x.clear_gradient()
        call().sum().backward()
        print("alive" if bool(x.grad.isfinite().all()) else x.grad)
"""


def test_unused_parts_on_graphs_of_the_callers():
    """Paddle ends the process there, in the caller's ``backward``."""
    done = run_code(UNUSED)
    assert done.stdout.split() == ["alive"] * 25, done.stdout + done.stderr


INFINITE = {
    "norm": lambda x, p: paddle.linalg.norm(x, p),
    "norm of rows": lambda x, p: paddle.linalg.norm(x, p, axis=1, keepdim=True),
    "vector norm of columns": lambda x, p: paddle.linalg.vector_norm(x, p, axis=0),
    "dist": lambda x, p: paddle.dist(x, paddle.zeros_like(x), p),
    "pairwise distance": lambda x, p: F.pairwise_distance(x, 0 * x, p, epsilon=0.0),
    "cdist": lambda x, p: paddle.cdist(x, paddle.zeros([1, x.shape[1]], x.dtype), p=p),
}


@pytest.mark.parametrize(
    ("name", "order"),  # Paddle has no cdist of the smallest
    [
        (n, p)
        for p in (math.inf, -math.inf)
        for n in INFINITE
        if (n, p > 0) != ("cdist", 0)
    ],
)
def test_entries_of_one_size_share_the_gradient(name, order):
    """Of norms of infinite order, as of the largest entry itself."""
    norm = INFINITE[name]
    x = paddle.to_tensor([[2.0, -2.0, 1.0, 2.0], [0.5, 2.0, -0.5, 3.0]], "float64")
    axis = {"norm of rows": 1, "vector norm of columns": 0}.get(name)
    axis = 1 if name in ("pairwise distance", "cdist") else axis

    def extreme(x):
        return (paddle.amax if order > 0 else paddle.amin)(x.abs(), axis)

    expected = grad(lambda x: extreme(x).sum())(x)
    compute = grad(lambda x: norm(x, order).sum())
    for run in (*[compute] * 4, *[jit(compute)] * 2):
        assert_same(run(x), expected)
    run = jit(norm)
    assert_same(run(x, order), norm(x, order))
    total = float(extreme(paddle.ones_like(x)).sum())
    np.testing.assert_allclose(float(expected.abs().sum()), total, rtol=1e-12)
