"""Transforms inside transforms: closed over or passed, all of it is differentiated.

Each row takes a scalar that one transform makes of a net, and differentiates it by each
of the others, with respect to parameters in a dict, one flat theta, a tensor caught in
a list, or the input; then once more. The oracle is central differences in float64.
"""

import itertools

import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from conftest import assert_same, randn
from differences import slopes_of
from layers import Columns
from paddle_chainrules import (
    FCNet,
    derivatives,
    hessian,
    hvp,
    jacobian,
    jvp,
    laplacian,
    stateless,
    taylor,
    value_and_grad,
    vjp,
)

X, ALONG = randn([5, 3], "float64", 1), randn([5, 3], "float64", 2)


def fc():
    net = FCNet((3, 4, 1), "tanh", "float64")
    return net, net.init(0)


def columns():
    paddle.seed(0)
    net, params, _ = stateless(Columns().to(dtype="float64"))
    moved = {n: p + 0.3 * randn(p.shape, "float64", 5) for n, p in params.items()}
    return net, moved


NETS = {"fc": fc, "columns": columns}


# Scalars made by one transform of u, a function of x of shape [n, 3] giving [n, 1].


def by_vjp(u, x):
    y, pullback = vjp(u, x)
    return (pullback(paddle.cos(y))[0] ** 2).sum() + (y**3).sum()


def by_value_and_grad(u, x):
    value, grad = value_and_grad(lambda x: (u(x) ** 2).sum())(x)
    return (grad**2).sum() + value


def by_jvp(u, x):
    y, slope = jvp(u, (x,), (ALONG,))
    return (slope**2).sum() + (y * slope).sum()


def by_column(u, x):
    first, rest = x[:, :1], x[:, 1:]
    y, slope = jvp(
        lambda column: u(paddle.concat([column, rest], 1)),
        (first,),
        (paddle.ones_like(first),),
    )
    return (slope**2 * y).sum()


def by_jacobian(u, x):
    return (jacobian(u, x, batched=True).tensor() ** 2).sum()


def by_hvp(u, x):
    return (hvp(lambda x: (u(x) ** 2).sum(), x, ALONG) ** 2).sum()


def by_hessian(u, x):
    return (hessian(lambda z: (u(z.reshape([1, 3])) ** 2).sum())(x[0]) ** 2).sum()


INNER = {
    f.__name__.removeprefix("by_"): f
    for f in (
        *(by_vjp, by_value_and_grad, by_jvp, by_column),
        *(by_jacobian, by_hvp, by_hessian),
    )
}


# The derivative of a scalar function along a direction, by each transform.


def _inner(grad, direction):
    if not isinstance(grad, dict):
        return (grad * direction).sum()
    return sum((g * direction[n]).sum() for n, g in grad.items())


def along_vjp(loss, at, v):
    return _inner(vjp(loss, at)[1](paddle.ones([], "float64"))[0], v)


def along_value_and_grad(loss, at, v):
    return _inner(value_and_grad(loss)(at)[1], v)


def along_jvp(loss, at, v):
    return jvp(loss, (at,), (v,))[1]


def along_jacobian(loss, at, v):
    if isinstance(at, dict):  # of one tensor: by every parameter in turn
        return sum(
            (jacobian(lambda p, n=n: loss({**at, n: p}), at[n])[...] * v[n]).sum()
            for n in at
        )
    return (jacobian(loss, at).tensor() * v).sum()


def along_hvp(loss, at, v):
    """Of half the square, at a point where its value is one: value times slope more."""
    shift = loss(at).detach()
    return _inner(hvp(lambda at: (loss(at) - shift) ** 2 / 2, at, v), v) ** 0.5


OUTER = {
    f.__name__.removeprefix("along_"): f
    for f in (along_vjp, along_value_and_grad, along_jvp, along_jacobian, along_hvp)
}
PLACES = ["dict", "theta", "caught", "passed"]


def case(net, params, inner, place):
    """A loss of one argument, and where."""
    if place == "passed":
        return lambda x: inner(lambda x: net.forward(params, x), x), X
    if place == "caught":  # not even an argument of the function in between
        box = []

        def caught(theta):
            box[:] = [theta]
            return inner(lambda x: net.forward(box[0], x), X)

        return caught, net.flatten(params)

    def loss(given):
        return inner(lambda x: net.forward(given, x), X)

    return loss, params if place == "dict" else net.flatten(params)


def moved(at, v, step):
    if isinstance(at, dict):
        return {n: p + step * v[n] for n, p in at.items()}
    return at + step * v


def direction(at, seed):
    if isinstance(at, dict):
        return {
            n: randn(p.shape, "float64", seed + i)
            for i, (n, p) in enumerate(at.items())
        }
    return randn(at.shape, "float64", seed)


def differences(fn, at, v, step=1e-5):
    with paddle.no_grad():
        ends = [fn(moved(at, v, sign * step)) for sign in (1, -1)]
    return (ends[0] - ends[1]) / (2 * step)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("name", NETS)
def test_pairs(name, inner, outer, place, count_case):
    net, params = NETS[name]()
    loss, at = case(net, params, INNER[inner], place)
    v = direction(at, 30)
    found, expected = OUTER[outer](loss, at, v), differences(loss, at, v)
    if outer == "hvp":
        expected = abs(expected)
    assert found.stop_gradient
    assert_same(found, expected, rtol=1e-6, atol=1e-7)
    count_case("pairs")


TRIPLES = [
    *itertools.product(
        ["vjp", "jvp", "hvp"], ["value_and_grad", "jvp"], ["vjp", "jvp"]
    ),
    ("column", "value_and_grad", "value_and_grad"),
    ("jacobian", "jvp", "value_and_grad"),
    ("hessian", "value_and_grad", "jvp"),
    ("value_and_grad", "jvp", "value_and_grad"),
]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("place", ["dict", "theta", "passed"])
@pytest.mark.parametrize("triple", TRIPLES, ids="-".join)
@pytest.mark.parametrize("name", NETS)
def test_triples(name, triple, place, count_case):
    inner, middle, outer = triple
    net, params = NETS[name]()
    loss, at = case(net, params, INNER[inner], place)
    v, w = direction(at, 30), direction(at, 60)

    def slope(at):
        return OUTER[middle](loss, at, v)

    found, expected = OUTER[outer](slope, at, w), differences(slope, at, w)
    assert found.stop_gradient
    assert_same(found, expected, rtol=1e-5, atol=1e-6)
    count_case("triples")


CARRIED = {
    "laplacian": lambda net, p, x: laplacian(net, p, x),
    "derivatives": lambda net, p, x: sum(
        derivatives(net, p, x, [(0, 0, 0), (1, 0, 0), (0, 2, 0), (1, 0, 1)])
    ),
    "taylor": lambda net, p, x: sum(taylor(net, p, x, ALONG[0], 3)),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("place", ["dict", "theta", "passed"])
@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("name", CARRIED)
def test_carried_derivatives_in_transforms(name, outer, place, count_case):
    net, params = fc()

    def scalar(p, x):
        return (CARRIED[name](net, p, x) ** 2).sum()

    if place == "passed":
        loss, at = (lambda x: scalar(params, x)), X
    else:
        loss = lambda p: scalar(p, X)  # noqa: E731
        at = params if place == "dict" else net.flatten(params)
    v = direction(at, 30)
    found, expected = OUTER[outer](loss, at, v), differences(loss, at, v)
    expected = abs(expected) if outer == "hvp" else expected
    assert_same(found, expected, rtol=1e-6, atol=1e-7)
    count_case("derivatives in transforms")


def test_what_paddle_itself_differentiates_reaches_through():
    """A trainable layer of the caller's, closed over, and Paddle's own backward."""
    paddle.seed(0)
    layer = Columns().to(dtype="float64")

    def residual():
        _, pullback = vjp(layer, X)
        return (pullback(paddle.ones([5, 1], "float64"))[0] ** 2).mean()

    residual().backward()
    for param in layer.parameters():
        grad, v = param.grad, randn(param.shape, "float64", 3)
        start, ends = param.numpy().copy(), []
        for sign in (1, -1):
            param.set_value(start + sign * 1e-6 * v.numpy())
            ends.append(residual().detach())
        param.set_value(start)
        slope = (ends[0] - ends[1]) / 2e-6
        got = paddle.zeros([], "float64") if grad is None else (grad * v).sum()
        assert_same(got, slope, rtol=1e-5, atol=1e-7)


FUNCTIONS = {
    "stack": lambda a: paddle.stack([a, a * 2], 0),
    "unbind": lambda a: paddle.unbind(a, 1)[0],
    "split": lambda a: paddle.split(a, 2, 1)[1],
    "quotient": lambda a: 1 / (a * a + 2) + (a + 1) / (a * a + 3),
    "powers": lambda a: (a * a + 1) ** 1.7 + a**3,
    "statistics": lambda a: a.mean(0) / a.std(0),
    "losses": lambda a: F.mse_loss(a, a * a),
    "indices": lambda a: a[:, 0] * a[1:4].sum(),
    "where": lambda a: paddle.where(a > 0, a * a, a),
    "flatten": lambda a: paddle.flatten(a * a),
    **{n: getattr(paddle, n) for n in ("atan", "cosh", "sinh", "expm1", "erf", "sin")},
    **{n: getattr(F, n) for n in ("gelu", "silu", "swish", "softplus", "elu")},
    **{n: getattr(F, n) for n in ("softmax", "log_softmax", "log_sigmoid", "sigmoid")},
    "logs": lambda a: paddle.log(a * a + 1) + paddle.sqrt(a * a + 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_third_derivatives(name, count_case):
    """The gradient of a product with a Hessian, by a factor that is closed over."""
    x, v = randn([5, 4], "float64"), randn([5, 4], "float64", 1)
    factor = paddle.to_tensor(0.7, dtype="float64")

    def steep(factor):
        y = FUNCTIONS[name](x)
        weight = randn(y.shape, "float64", 2)
        found = hvp(lambda x: (FUNCTIONS[name](x * factor) * weight).sum(), x, v)
        return (found**2).sum()

    assert float(steep(factor)) > 0 or name in ("stack", "unbind", "split")
    slope = (steep(factor + 1e-5) - steep(factor - 1e-5)) / 2e-5
    found = value_and_grad(steep)(factor)[1]
    assert_same(found, slope, rtol=1e-6, atol=1e-7)
    count_case("third derivatives")


def test_an_activation_that_closes_over_what_is_differentiated():
    x, box = X, []
    net = FCNet((3, 4, 1), lambda z: paddle.tanh(z * box[-1]), "float64")
    params = net.init(0)

    def forward(beta):
        box.append(beta)
        return net.forward(params, x).sum()

    def pullback(beta):
        box.append(beta)
        y, back = net.pullback(params, x)
        grads, (by_x,) = back(paddle.ones_like(y))
        return (by_x**2).sum() + (grads["0.weight"] ** 2).sum() + y.sum()

    beta = paddle.to_tensor(0.8, dtype="float64")
    for loss in (forward, pullback):
        slope = (loss(beta + 1e-6) - loss(beta - 1e-6)) / 2e-6
        assert_same(value_and_grad(loss)(beta)[1], slope, rtol=1e-7)
    trainable = beta.clone()
    trainable.stop_gradient = False
    forward(trainable).backward()
    assert trainable.grad is not None


def test_a_constant_within_is_cut_off():
    """What depends on nothing that an enclosing transform differentiates by."""
    net, params = fc()

    def loss(p):
        scale = value_and_grad(lambda x: net.forward(params, x).sum())(X)[1]
        assert scale.stop_gradient
        return (p["0.weight"] * scale[:4].transpose([1, 0])).sum()

    _, grads = value_and_grad(loss)(params)
    assert grads["0.weight"].any()
    assert not grads["1.weight"].any()


CONVOLUTIONS = {
    "conv1d": (lambda x, w: F.conv1d(x, w), [1, 2, 5], [3, 2, 2]),
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=[1, 0]), [1, 2, 4, 3], [3, 2, 2, 2]),
    "strided": (
        lambda x, w: F.conv2d(x, w, stride=2, dilation=[1, 2], groups=2),
        *([1, 4, 4, 5], [2, 2, 2, 2]),
    ),
    "same": (lambda x, w: F.conv2d(x, w, padding="SAME"), [1, 2, 3, 4], [1, 2, 2, 3]),
    "channels last": (
        lambda x, w: F.conv2d(x, w, data_format="NHWC"),
        *([1, 3, 4, 2], [3, 2, 2, 2]),
    ),
    "conv3d": (lambda x, w: F.conv3d(x, w), [1, 2, 2, 3, 2], [2, 2, 2, 2, 1]),
    "transposed": (
        lambda x, w: F.conv2d_transpose(x, w, stride=2, output_padding=1),
        *([1, 2, 2, 3], [2, 3, 2, 2]),
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_the_third_order(name):
    """Paddle's own second derivatives come off the graph without a word."""
    conv, x_shape, w_shape = CONVOLUTIONS[name]
    x, v, w = (
        randn(s, "float64", i) for i, s in enumerate((x_shape, x_shape, w_shape))
    )

    def loss(w, v=v):
        return (jvp(lambda x: paddle.tanh(conv(x, w)), (x,), (v,))[1] ** 2).sum()

    found = value_and_grad(loss, (0, 1))(w, v)[1]
    expected = slopes_of(loss, w, v, step=1e-5)
    assert_same([*found], expected, rtol=1e-6, atol=1e-7)

    def linear(w):
        return (jvp(lambda x: conv(x, w), (x,), (v,))[1] ** 2).sum()

    (expected,) = slopes_of(linear, w, step=1e-5)
    assert_same(value_and_grad(linear)(w)[1], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("activation", ["tanh", "sin", "gelu"])
def test_a_laplacian_differentiated_by_the_input_and_then_by_the_parameters(activation):
    net = FCNet((2, 4, 1), activation, "float64")
    theta = net.flatten(net.init(0))
    x, ones = randn([3, 2], "float64", 3), paddle.ones([3, 1], "float64")

    def loss(theta):
        _, back = vjp(lambda x: laplacian(net, net.unflatten(theta), x), x)
        return (back(ones)[0] ** 2).sum()

    found = value_and_grad(loss)(theta)[1]
    assert_same(found, slopes_of(loss, theta, step=1e-5)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cut", ["slices", "split", "clones"])
def test_columns_and_parameters_that_paddle_trains(cut):
    """The script of anyone with a PINN: one vjp, then ``backward``."""
    net, params, _ = stateless(
        nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1)).to(dtype="float64")
    )
    xy = randn([4, 2], "float64")
    x, y = {
        "slices": lambda: (xy[:, :1], xy[:, 1:]),
        "split": lambda: paddle.split(xy, 2, 1),
        "clones": lambda: (xy[:, :1].clone(), xy[:, 1:].clone()),
    }[cut]()

    def loss(theta):
        params = net.unflatten(theta)
        u, back = vjp(lambda x: net.forward(params, paddle.concat([x, y], 1)), x)
        return (back(paddle.ones_like(u))[0] ** 2).sum()

    theta = net.flatten(params)
    expected = slopes_of(loss, theta, step=1e-5)[0]
    theta.stop_gradient = False
    loss(theta).backward()
    assert_same(theta.grad, expected, rtol=1e-5, atol=1e-6)
