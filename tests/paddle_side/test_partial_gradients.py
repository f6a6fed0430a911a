"""Part of the gradients, where Paddle's own kernels fail, crash or are wrong.

A LayerNorm whose scale is not differentiated gets an input gradient that is wrong by
tens of percent; a BatchNorm of which only one of two is, none at all; PReLU crashes.
"""

import itertools

import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

import paddle_chainrules as pc
from conftest import assert_same, assert_unchanged, randn, snapshot
from differences import slope_along, slopes_of
from paddle_chainrules import hvp, stateless, value_and_grad, vjp
from paddle_chainrules.nets.derivatives.vjp_jvp_nets import VJP
from paddle_chainrules.paddle_side.autograd.partial_gradients import ends_the_process
from paddle_chainrules.testing import check_vjp

LAYERS = {
    "LayerNorm": lambda: (nn.LayerNorm(3), [4, 3]),
    "BatchNorm1D": lambda: (nn.BatchNorm1D(3), [4, 3]),
    "BatchNorm2D, evaluation": lambda: (nn.BatchNorm2D(3).eval(), [4, 3, 2, 2]),
    "InstanceNorm2D": lambda: (nn.InstanceNorm2D(3), [4, 3, 5, 2]),
    "GroupNorm": lambda: (nn.GroupNorm(2, 4), [3, 4, 2, 2]),
    "PReLU": lambda: (nn.PReLU(3), [4, 3, 2]),
    "Conv2D": lambda: (nn.Conv2D(3, 2, 2), [4, 3, 5, 4]),
    "Bilinear": lambda: (Twice(nn.Bilinear(3, 3, 2)), [4, 3]),
    "attention": lambda: (Thrice(nn.MultiHeadAttention(4, 2)), [2, 3, 4]),
    "Transformer": lambda: (nn.TransformerEncoderLayer(4, 2, 6, 0.0), [2, 3, 4]),
}


class Of(nn.Layer):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer


class Twice(Of):
    def forward(self, x):
        return self.layer(x, x + 1)


class Thrice(Of):
    def forward(self, x):
        return self.layer(x, 2 * x, x + 1)


def made(name):
    """A layer with parameters unlike those it starts with, its input and cotangent."""
    layer, shape = LAYERS[name]()
    layer = layer.to(dtype="float64")
    for i, p in enumerate(layer.parameters()):
        if not p.stop_gradient:
            p.set_value(randn(p.shape, "float64", i).abs() + 0.5)
    x = randn(shape, "float64", 90)
    return layer, x, randn(layer(x).shape, "float64", 91)


@pytest.mark.parametrize("name", LAYERS)
def test_any_part_of_the_gradients(name):
    layer, x, cotangent = made(name)
    check_vjp(layer, None, (x,), dtypes=["float64"])
    net, params, _ = stateless(layer)
    _, pullback = net.pullback(params, x)
    full, (by_x,) = pullback(cotangent)
    names = list(params)[:3]
    for wanted in itertools.chain.from_iterable(
        itertools.combinations(names, k) for k in range(len(names) + 1)
    ):
        found, by_args = pullback(cotangent, wrt=[*wanted, "args"])
        assert_same(by_args, (by_x,), rtol=1e-10, atol=1e-12)
        assert found is None or all(found[n] is None for n in params if n not in wanted)
        if wanted:
            alone, none = pullback(cotangent, wrt=wanted)
            assert none is None
            for n in wanted:
                assert_same(found[n], full[n], rtol=1e-10, atol=1e-12)
                assert_same(alone[n], full[n], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("natively", [False, True])
def test_frozen_parameters(name, natively):
    layer, x, cotangent = made(name)
    before = snapshot(layer)
    net, params, _ = stateless(layer)
    full, (by_x,) = net.pullback(params, x)[1](cotangent)
    named = dict(layer.named_parameters())
    names = list(params)
    for frozen in ([n] for n in names[:3]) if len(names) > 1 else [names]:
        for n in frozen:
            named[n].stop_gradient = natively
        net, rest, buffers = stateless(layer, () if natively else frozen)
        assert list(rest) == [n for n in names if n not in frozen]
        found, (by_input,) = net.pullback(rest, x)[1](cotangent)
        assert_same(by_input, by_x, rtol=1e-10, atol=1e-12)
        for n in rest:
            assert_same(found[n], full[n], rtol=1e-10, atol=1e-12)
        if not any(n.endswith("_mean") for n in buffers):
            _, pullback, _ = net.pullback(rest, x, buffers=buffers)
            assert_same(pullback(cotangent)[1][0], by_x, rtol=1e-10, atol=1e-12)
        for n in frozen:
            named[n].stop_gradient = False
    net, none, _ = stateless(layer, "*")
    found, (by_input,) = net.pullback(none, x)[1](cotangent)
    assert found == {}
    assert_same(by_input, by_x, rtol=1e-10, atol=1e-12)
    assert_unchanged(layer, before)


FUNCTIONS = {
    "cross": (lambda x, a: paddle.cross(x, a, axis=1), [4, 3], [4, 3]),
    "grid_sample": (lambda x, a: F.grid_sample(x, a / 4), [2, 3, 4, 4], [2, 5, 5, 2]),
    "prelu": (F.prelu, [4, 3], [1]),
    "solve": (lambda x, a: paddle.linalg.solve(a, x), [3, 2], [3, 3]),
    "triangular_solve": (
        lambda x, a: paddle.linalg.triangular_solve(a, x),
        [3, 2],
        [3, 3],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_part_of_a_functions_gradients(name):
    function, *shapes = FUNCTIONS[name]
    x, a = (randn(shape, "float64", i) for i, shape in enumerate(shapes))
    if "solve" in name:
        a = a + 5 * paddle.eye(3, dtype="float64")
    y, pullback = vjp(function, x, a)
    cotangent = randn(y.shape, "float64", 7)
    by_x, by_a = pullback(cotangent)
    assert_same(pullback(cotangent, wrt=[0]), (by_x, None))
    assert_same(pullback(cotangent, wrt=[1]), (None, by_a))


@pytest.mark.parametrize("name", ["cross", "grid_sample", "prelu", "solve"])
@pytest.mark.parametrize("how", ["vjp", "net"])
def test_what_would_crash_with_a_constant_is_right(name, how):
    function, *shapes = FUNCTIONS[name]
    x, a = (randn(shape, "float64", i) for i, shape in enumerate(shapes))
    if name == "solve":
        a = a + 5 * paddle.eye(3, dtype="float64")
    y, pullback = vjp(function, x, a)
    cotangent = randn(y.shape, "float64", 7)
    by_x, by_a = pullback(cotangent)

    class Holds(nn.Layer):
        def __init__(self, constant, call):
            super().__init__()
            self.register_buffer("constant", constant)
            self.call = call

        def forward(self, value):
            return self.call(value, self.constant)

    for value, constant, call, expected in (
        (x, a, function, by_x),
        (a, x, lambda a, x: function(x, a), by_a),
    ):
        if how == "vjp":

            def fixed(value, constant=constant, call=call):
                return call(value, constant)

            found = vjp(fixed, value)[1](cotangent)
        else:
            net, params, _ = stateless(Holds(constant, call), jit=False)
            _, found = net.pullback(params, value)[1](cotangent)
            leaf = value.clone()
            leaf.stop_gradient = False
            (by_paddle,) = paddle.grad([net.forward(params, leaf)], [leaf], [cotangent])
            assert_same(by_paddle, expected, rtol=1e-12, atol=1e-12)
        assert_same(found, (expected,), rtol=1e-12, atol=1e-12)


def test_a_layer_norm_with_a_constant_scale():
    x, scale = randn([4, 3], "float64"), randn([3], "float64", 1)
    shift = randn([3], "float64", 2)
    layer = nn.LayerNorm(3).to(dtype="float64")
    layer.weight.set_value(scale)
    layer.bias.set_value(shift)

    def loss(x, scale=scale):
        return (F.layer_norm(x, [3], scale, shift) ** 3).sum()

    _, (by_x, by_scale) = value_and_grad(loss, (0, 1))(x, scale)
    expected = slopes_of(loss, x, scale, step=1e-5)
    assert_same([by_x, by_scale], expected, rtol=1e-8, atol=1e-8)
    for function in (loss, lambda x: (layer(x) ** 3).sum()):
        assert_same(value_and_grad(function)(x)[1], by_x, rtol=1e-10, atol=1e-12)
    net, params, _ = stateless(layer, "*")
    y, pullback = net.pullback(params, x)
    found = pullback(3 * y * y, wrt=["args"])[1]
    assert_same(found, (by_x,), rtol=1e-10, atol=1e-12)
    plain = value_and_grad(lambda x: (F.layer_norm(x, [3]) ** 3).sum())
    assert plain(x)[1].shape == [4, 3]


def test_another_branch_at_a_later_call():
    """What the first call was like says nothing about the next."""
    x, scale = randn([4, 3], "float64"), randn([3], "float64", 1)

    def loss(x, normal):
        y = F.layer_norm(x, [3], scale) if normal else x
        return (y**3).sum()

    gradient = value_and_grad(loss)
    gradient(x, False)
    found = gradient(x, True)[1]
    v = randn(x.shape, "float64", 3)
    slope = slope_along(lambda x: loss(x, True), x, v)
    assert_same((found * v).sum(), slope, rtol=1e-8)


@pytest.mark.parametrize("kind", ["batch_norm", "instance_norm", "group_norm"])
def test_any_part_of_a_norm(kind):
    x, scale, shift = (
        randn(s, "float64", i) for i, s in enumerate([[3, 4, 2, 5], [4], [4]])
    )

    def norm(x, scale, shift):
        if kind == "instance_norm":
            return F.instance_norm(x, weight=scale, bias=shift)
        if kind == "group_norm":
            return F.group_norm(x, 2, weight=scale, bias=shift)
        mean, variance = paddle.zeros([4], "float64"), paddle.ones([4], "float64")
        return F.batch_norm(x, mean, variance, scale, shift, training=True)

    cotangent, every = randn(x.shape, "float64", 5), (x, scale, shift)
    for chosen in itertools.product([True, False], repeat=3):
        for absent in [(), *([i] for i in (1, 2) if not chosen[i]), [1, 2]]:
            if not any(chosen) or any(chosen[i] for i in absent):
                continue

            def fixed(*given, chosen=chosen, absent=absent):
                given = iter(given)
                full = [
                    next(given) if c else None if i in absent else every[i]
                    for i, c in enumerate(chosen)
                ]
                return norm(*full)

            primals = [p for p, c in zip(every, chosen, strict=True) if c]
            found = vjp(fixed, *primals)[1](cotangent)
            for i, grad in enumerate(found):
                v, at = randn(primals[i].shape, "float64", 9), [*primals]

                def value(moved, at=at, i=i, fixed=fixed):
                    return (fixed(*at[:i], moved, *at[i + 1 :]) * cotangent).sum()

                slope = slope_along(value, at[i], v)
                assert_same((grad * v).sum(), slope, rtol=1e-6, atol=1e-8)


SECOND = {
    "Conv2D": lambda: (nn.Conv2D(3, 2, 2), [4, 3, 5, 4]),
    "Conv1D": lambda: (nn.Conv1D(3, 2, 2), [4, 3, 5]),
    "BatchNorm2D": lambda: (nn.BatchNorm2D(3), [4, 3, 5, 2]),
    "InstanceNorm2D": lambda: (nn.InstanceNorm2D(3), [4, 3, 5, 2]),
    "Linear": lambda: (nn.Linear(3, 2), [4, 3]),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_by_any_part(name):
    """By every choice of what is constant, against differences of first gradients."""
    layer, shape = SECOND[name]()
    layer = layer.to(dtype="float64")
    net, params, _ = stateless(layer)
    params = {n: randn(p.shape, "float64", 5).abs() + 0.5 for n, p in params.items()}
    x = randn(shape, "float64", 90)
    cotangent = randn(layer(x).shape, "float64", 91)
    everything, before = {**params, "x": x}, snapshot(layer)

    def loss(tree):
        *given, x = [{**everything, **tree}[name] for name in everything]
        y = net.forward(dict(zip(params, given, strict=True)), x)
        return (paddle.tanh(y) * cotangent).sum()

    for names in itertools.chain.from_iterable(
        itertools.combinations(everything, k) for k in range(1, len(everything) + 1)
    ):
        point = {n: everything[n] for n in names}
        vs = {n: randn(v.shape, "float64", 7) for n, v in point.items()}
        found = hvp(loss, point, vs)
        step = 1e-5
        ends = [
            value_and_grad(loss)(
                {**everything, **{n: point[n] + sign * step * vs[n] for n in names}}
            )[1]
            for sign in (1, -1)
        ]
        for n in names:
            slope = (ends[0][n] - ends[1][n]) / (2 * step)
            one = paddle.zeros_like(slope) if found[n] is None else found[n]
            assert_same(one, slope, rtol=1e-6, atol=1e-7)
    assert_unchanged(layer, before)


@pytest.mark.parametrize("make", [nn.BatchNorm1D, nn.InstanceNorm1D])
@pytest.mark.parametrize("frozen", [(), 0, 1, (0, 1)])
def test_second_derivatives_of_half_frozen_norms(make, frozen):
    layer = nn.Sequential(nn.Linear(5, 5), make(3), nn.Tanh()).to(dtype="float64")
    names = [name for name, p in layer.named_parameters() if not p.stop_gradient]
    chosen = (frozen,) if isinstance(frozen, int) else frozen
    net, params, _ = stateless(layer, [names[2 + i] for i in chosen])
    x, cotangent = randn([4, 3, 5], "float64"), randn([4, 3, 5], "float64", 1)
    vs = [randn(p.shape, "float64", 2 + i) for i, p in enumerate(params.values())]
    by_x = randn(x.shape, "float64", 9)
    _, pullback = VJP(net, 1).pullback(params, None, x, cotangent)
    grads, (_, grad_x, _) = pullback((*vs, by_x))

    def inner(params, x):
        grads, (grad_x,) = net.pullback(params, x)[1](cotangent)
        total = (grad_x * by_x).sum()
        return total + sum(
            (g * v).sum() for g, v in zip(grads.values(), vs, strict=True)
        )

    v = randn(x.shape, "float64", 30)
    slope = slope_along(lambda x: inner(params, x), x, v)
    assert_same((grad_x * v).sum(), slope, rtol=1e-6)
    for name, grad in grads.items():
        v = randn(grad.shape, "float64", 31)
        slope = slope_along(
            lambda p, name=name: inner({**params, name: p}, x), params[name], v
        )
        assert_same((grad * v).sum(), slope, rtol=1e-5)


EYE = 3.0 * paddle.eye(3, dtype="float64")
INNER = {
    "cross": (paddle.cross, (4, 3), (4, 3)),
    "solve, left": (lambda x, c: paddle.linalg.solve(x + EYE, c), (3, 3), (3, 2)),
    "solve, right": (lambda x, c: paddle.linalg.solve(c + EYE, x), (3, 2), (3, 3)),
    "cholesky_solve": (
        lambda x, c: paddle.linalg.cholesky_solve(x, c + EYE),
        (3, 2),
        (3, 3),
    ),
    "grid_sample": (
        lambda x, c: F.grid_sample(x, 0.5 * c - 0.2),
        (1, 2, 4, 5),
        (1, 3, 3, 2),
    ),
}


@pytest.mark.parametrize("name", INNER)
def test_gradients_within_ask_for_what_kernels_need(name):
    """Paddle's own ``paddle.grad`` ends the process, since ``c`` is constant."""
    operator, *shapes = INNER[name]
    x, c = (paddle.rand(shape, dtype="float64") for shape in shapes)

    def fn(x):
        z = x * x
        weights = paddle.linspace(1.0, 2.0, z.size, dtype="float64").reshape(z.shape)
        inner = paddle.grad(operator(z, c).sum(), z)[0]
        return (inner * x * weights).sum()

    found = pc.grad(fn)(x)
    assert_same(found, pc.jit(pc.grad(fn))(x), rtol=1e-9, atol=1e-12)
    z = (x * x).detach()
    by_rules = pc.grad(lambda z: operator(z, c).sum())(z)
    weights = paddle.linspace(1.0, 2.0, z.size, dtype="float64").reshape(z.shape)
    assert_same(found, by_rules * weights, rtol=1e-9, atol=1e-12)


def test_graphs_that_end_the_process_are_known():
    x = paddle.to_tensor([0.5, 2.0, 3.0], "float64", stop_gradient=False)
    v = paddle.ones_like(x)
    v.stop_gradient = False
    slope = paddle.grad([1 / (x + 1)], [x], [v], create_graph=True)
    assert ends_the_process(slope, [v])
    assert not ends_the_process(slope, [x, v])
    assert not ends_the_process([(x * v).sum()], [v])


def test_gradients_within_of_kernels_that_have_none():
    """Rules take over where Paddle can't differentiate its own gradient."""

    def fn(x):
        x = x * 1.0
        (slope,) = paddle.grad((F.layer_norm(x, [4]) ** 3).sum(), x, create_graph=True)
        return (slope**2).sum()

    x = randn([2, 4], "float64")
    found = pc.grad(fn)(x)
    assert_same(found, pc.jit(pc.grad(fn))(x), rtol=1e-9, atol=1e-12)
    along = randn([2, 4], "float64", 1)
    inner = lambda x: (F.layer_norm(x, [4]) ** 3).sum()  # noqa: E731
    expected = 2.0 * hvp(inner, x, pc.grad(inner)(x))
    assert_same((found * along).sum(), (expected * along).sum(), rtol=1e-8)
