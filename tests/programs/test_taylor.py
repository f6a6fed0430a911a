"""Derivatives with respect to the input, against mpmath's at sixty digits.

mpmath differentiates the formula of the net by differences of high precision: nothing
of it is shared with the package.
"""

import itertools

import numpy as np
import paddle
import pytest
from mpmath import mp, mpf
from paddle import nn

from conftest import assert_same, randn
from paddle_chainrules import (
    ACTIVATIONS,
    FCNet,
    derivative,
    derivatives,
    jvp,
    laplacian,
    stateless,
    taylor,
    value_and_grad,
    vjp,
)
from paddle_chainrules.programs.batches import blocks

EXACT = {
    "identity": lambda z: z,
    "sigmoid": lambda z: 1 / (1 + mp.exp(-z)),
    "tanh": mp.tanh,
    "relu": lambda z: max(z, mpf(0)),
    "gelu": lambda z: z * (1 + mp.erf(z / mp.sqrt(2))) / 2,
    "silu": lambda z: z / (1 + mp.exp(-z)),
    "softplus": lambda z: mp.log(1 + mp.exp(z)),
    "elu": lambda z: z if z > 0 else mp.exp(z) - 1,
    "leaky_relu": lambda z: z if z > 0 else z / 100,
    "mish": lambda z: z * mp.tanh(mp.log(1 + mp.exp(z))),
    "sin": mp.sin,
}


@pytest.fixture(autouse=True)
def _sixty_digits():
    with mp.workdps(60):
        yield


def exact_net(activation, values):
    """The net as a function of mpmath numbers, with numpy parameters."""
    layers = [
        (
            [[mpf(float(entry)) for entry in row] for row in weight],
            [mpf(float(entry)) for entry in bias],
        )
        for weight, bias in zip(values[::2], values[1::2], strict=True)
    ]
    act = EXACT[activation]

    def net(x):
        for i, (weight, bias) in enumerate(layers):
            x = [
                sum((xi * row[j] for xi, row in zip(x, weight, strict=True)), bias[j])
                for j in range(len(bias))
            ]
            if i < len(layers) - 1:
                x = [act(z) for z in x]
        return x

    return net


def case(activation, sizes=(2, 4, 3, 2), n=3, seed=1):
    """A net with random parameters, its points, and the same in mpmath."""
    net = FCNet(sizes, activation, "float64")
    rng = np.random.default_rng(seed)
    params = {
        name: paddle.to_tensor(rng.standard_normal(shape))
        for name, shape in zip(net.spec.names, net.spec.shapes, strict=True)
    }
    x = randn([n, sizes[0]], "float64", seed + 1)
    values = [p.numpy() for p in params.values()]
    return net, params, x, exact_net(activation, values)


def assert_exact(found, expected):
    """Within 1e-12 of the largest entry."""
    expected = np.array(expected, dtype=object)
    assert list(found.shape) == list(expected.shape)
    scale = max(abs(e) for e in expected.flat)
    error = max(
        abs(mpf(float(f)) - e)
        for f, e in zip(found.numpy().flat, expected.flat, strict=True)
    )
    assert error <= 1e-12 * scale


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_directional_derivatives_equal_mpmath(activation):
    net, params, x, exact = case(activation)
    directions = randn([3, 2], "float64", 7)
    found = taylor(net, params, x, directions, 4)
    assert len(found) == 5
    assert_same(found[0], net.forward(params, x), rtol=1e-14)
    for order in range(1, 5):
        expected = [
            [
                [
                    mp.diff(
                        lambda t, p=p, v=v, j=j: exact(
                            [mpf(float(p[i])) + t * mpf(float(v[i])) for i in range(2)]
                        )[j],
                        0,
                        order,
                    )
                    for j in range(2)
                ]
                for p in x.numpy()
            ]
            for v in directions.numpy()
        ]
        if activation == "identity" and order > 1:
            assert not found[order].any()
        else:
            assert_exact_or_zero(found[order], expected)
    for k, direction in enumerate(directions):
        for one, all_of_them in zip(
            taylor(net, params, x, direction, 3)[1:], found[1:], strict=False
        ):
            assert_same(one, all_of_them[k], rtol=1e-13, atol=1e-13)


def assert_exact_or_zero(found, expected):
    if max(abs(e) for e in np.array(expected, dtype=object).flat) < 1e-20:
        assert not found.any()
    else:
        assert_exact(found, expected)


INDICES = [i for i in itertools.product(range(5), repeat=2) if sum(i) <= 4]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_partial_derivatives_equal_mpmath(activation):
    net, params, x, exact = case(activation, n=2)
    for index in INDICES:
        expected = [
            [
                mp.diff(
                    lambda a, b, j=j: exact([a, b])[j],
                    tuple(mpf(float(c)) for c in point),
                    index,
                )
                if any(index)
                else exact([mpf(float(c)) for c in point])[j]
                for j in range(2)
            ]
            for point in x.numpy()
        ]
        assert_exact_or_zero(derivative(net, params, x, index), expected)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_gradients_of_derivatives_equal_mpmath(activation):
    """By every parameter and by the point, of a derivative of order two and three."""
    net, params, x, _ = case(activation, sizes=(2, 3, 1), n=1)
    theta = net.flatten(params)
    flat = [mpf(float(t)) for t in theta.numpy()]
    point = [mpf(float(c)) for c in x.numpy()[0]]

    def exact(parameters, at):
        values, start = [], 0
        for shape in net.spec.shapes:
            size = int(np.prod(shape))
            part = np.array(parameters[start : start + size], dtype=object)
            values.append(part.reshape(shape))
            start += size
        hidden = [
            EXACT[activation](
                sum(c * values[0][i][j] for i, c in enumerate(at)) + values[1][j]
            )
            for j in range(3)
        ]
        return sum(h * values[2][j][0] for j, h in enumerate(hidden)) + values[3][0]

    def partial(parameters, at, index):
        return mp.diff(lambda a, b: exact(parameters, [a, b]), tuple(at), index)

    def slopes(values, of):
        return [
            mp.diff(
                lambda t, i=i: of([*values[:i], values[i] + t, *values[i + 1 :]]), 0
            )
            for i in range(len(values))
        ]

    for index in ((1, 1), (2, 0), (1, 2)):

        def function(theta, x, index=index):
            return derivative(net, theta, x, index)

        y, pullback = vjp(function, theta, x)
        by_theta, by_x = pullback(paddle.ones_like(y))
        if by_theta is None:  # of a derivative that vanishes everywhere
            by_theta = paddle.zeros_like(theta)
        if by_x is None:
            by_x = paddle.zeros_like(x)
        assert_exact_or_zero(
            by_theta, slopes(flat, lambda v, index=index: partial(v, point, index))
        )
        assert_exact_or_zero(
            by_x, [slopes(point, lambda v, index=index: partial(flat, v, index))]
        )


def nested(net, params, x, index):
    """The derivative by nested paddle.grad: exact where Paddle has the kernels."""
    x = x.detach()
    x.stop_gradient = False
    y = net.forward(params, x)
    columns = []
    for j in range(y.shape[1]):
        d = y[:, j].sum()
        for i in [i for i, m in enumerate(index) for _ in range(m)]:
            (g,) = paddle.grad(d, x, create_graph=True)
            part = g[:, i]
            d = part.sum()
        columns.append(part)
    return paddle.stack(columns, axis=1)


@pytest.mark.parametrize("activation", ["tanh", "silu"])
@pytest.mark.parametrize("index", [(2, 0), (1, 1), (0, 3)])
def test_derivatives_equal_nested_paddle_grad(activation, index):
    net, params, x, _ = case(activation, n=5)
    leaves = {name: p.detach() for name, p in params.items()}
    for leaf in leaves.values():
        leaf.stop_gradient = False
    expected = nested(net, leaves, x, index)
    found = derivative(net, params, x, index)
    assert_same(found, expected, rtol=1e-12, atol=1e-12)
    cotangent = randn([5, 2], "float64", 4)
    grads = paddle.grad([expected], [*leaves.values()], [cotangent], allow_unused=True)
    _, pullback = vjp(lambda p: derivative(net, p, x, index), params)
    (by_name,) = pullback(cotangent)
    assert grads[-1] is None
    assert_same(by_name["2.bias"], paddle.zeros_like(params["2.bias"]))
    for name, grad in zip(leaves, grads[:-1], strict=False):
        assert_same(by_name[name], grad, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("shape", [[4, 2], [1, 2], [2], [3, 4, 2], [0, 2], [3, 0, 2]])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("sizes", [(2, 1), (2, 5, 3)])
def test_shapes(shape, activation, sizes):
    net = FCNet(sizes, activation, "float64")
    params, x = net.init(0), randn(shape, "float64")
    theta = net.flatten(params)
    out = [*shape[:-1], sizes[-1]]
    for given in (params, theta):
        assert derivative(net, given, x, (1, 1)).shape == out
        both = derivatives(net, given, x, [(0, 0), (0, 2)])
        assert [value.shape for value in both] == [out, out]
        assert laplacian(net, given, x).shape == out
        one = taylor(net, given, x, paddle.ones([2], "float64"), 2)
        assert [list(t.shape) for t in one] == [out] * 3
        five = taylor(net, given, x, randn([5, 2], "float64"), 2)
        assert [list(t.shape) for t in five] == [out, [5, *out], [5, *out]]
        assert [t.stop_gradient for t in five] == [True] * 3


def test_any_chain_and_float32():
    layer = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    net, params, _ = stateless(layer)
    same = FCNet((3, 5, 2), "tanh")
    x = randn([4, 3])
    expected = derivative(same, same.from_state_dict(layer.state_dict()), x, (1, 0, 1))
    assert_same(derivative(net, params, x, (1, 0, 1)), expected, rtol=1e-6, atol=1e-7)


def test_a_graph_only_where_it_is_asked_for():
    net = FCNet((2, 4, 1), "tanh", "float64")
    params, x = net.init(0), randn([3, 2], "float64")
    before = {name: p.numpy().copy() for name, p in params.items()}
    assert derivative(net, params, x, (2, 0)).stop_gradient
    x.stop_gradient = False
    assert not derivative(net, params, x, (2, 0)).stop_gradient
    with paddle.no_grad():
        assert derivative(net, params, x, (2, 0)).stop_gradient
    assert x.grad is None
    for name, p in params.items():
        assert p.stop_gradient
        np.testing.assert_array_equal(p.numpy(), before[name])


@pytest.mark.parametrize("kind", ["activation", "normalization"])
def test_any_net(kind):
    if kind == "activation":
        net = FCNet((2, 4, 1), paddle.tanh, "float64")
        params = net.init(0)
    else:
        paddle.set_default_dtype("float64")
        layer = nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4), nn.Linear(4, 1))
        paddle.set_default_dtype("float32")
        net, params, _ = stateless(layer)
    x = randn([3, 2], "float64")
    wide = 1e-3 * np.array([[1.0, 0.0], [-1.0, 0.0]])
    up, down = (net.forward(params, x + paddle.to_tensor(step)) for step in wide)
    differences = (up - 2 * net.forward(params, x) + down) / 1e-6
    for found in (
        derivative(net, params, x, (2, 0)),
        derivatives(net, params, x, [(2, 0)])[0],
        laplacian(net, params, x, by=(0,)),
        taylor(net, params, x, paddle.eye(2, dtype="float64")[0], 2)[2],
    ):
        assert_same(found, differences, rtol=1e-3, atol=1e-5)


def by_taylor(net, params, x, index):
    """A partial derivative from directional ones, which the tests above compare.

    They go by a formula of their own, on the graph that Paddle records.
    """
    used = [i for i, m in enumerate(index) for _ in range(m)]
    units = paddle.eye(len(index), dtype=x.dtype)
    if len(used) < 2:
        direction = units[used[0]] if used else units[0]
        return taylor(net, params, x, direction, 1)[len(used)]
    i, j = used
    along = units[i] + units[j]
    second = taylor(net, params, x, along, 2)[2]
    if i == j:
        return second / 4
    squares = (taylor(net, params, x, units[k], 2)[2] for k in used)
    return (second - sum(squares)) / 2


def random_net(activation, sizes):
    net = FCNet(sizes, activation, "float64")
    shapes = enumerate(zip(net.spec.names, net.spec.shapes, strict=True))
    return net, {name: randn(shape, "float64", i) for i, (name, shape) in shapes}


def assert_close(found, expected):
    """Within 1e-11 of the largest entry, None being zero."""
    for one, other in zip(found, expected, strict=True):
        if one is None or other is None:
            given = other if one is None else one
            assert given is None or not given.any()
            continue
        scale = float(1 + other.abs().max()) if other.numel() else 1.0
        assert_same(one, other, rtol=1e-11, atol=1e-11 * scale)


def gradients(function, params, x, cotangent):
    """Values, then gradients by each parameter and by x."""
    found, pullback = vjp(function, params, x)
    by_params, by_x = pullback(cotangent)
    values = found if isinstance(found, tuple) else [found]
    return [*values, *by_params.values(), by_x]


DEPTHS = [(3, 2), (3, 4, 2), (3, 5, 4, 2), (3, 4, 2, 5, 1)]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("sizes", DEPTHS)
def test_the_laplacian_and_its_gradients(activation, sizes):
    net, params = random_net(activation, sizes)
    x, cotangent = randn([6, 3], "float64", 9), randn([6, sizes[-1]], "float64", 8)

    def by_parts(p, x):
        twice = [tuple(2 * int(i == j) for j in range(3)) for i in range(3)]
        return sum(by_taylor(net, p, x, index) for index in twice)

    assert_close(
        gradients(lambda p, x: laplacian(net, p, x), params, x, cotangent),
        gradients(by_parts, params, x, cotangent),
    )
    assert_close([laplacian(net, params, x)], [by_parts(params, x)])


SEVERAL = [
    [(0, 0, 0)],
    [(0, 0, 1)],
    [(0, 2, 0)],
    [(1, 0, 1)],
    [(0, 1, 0), (0, 0, 0)],
    [(0, 0, 0), (1, 0, 0), (0, 0, 1), (0, 0, 2), (1, 0, 1), (2, 0, 0)],
]


@pytest.mark.thinned(7)
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("sizes", DEPTHS)
@pytest.mark.parametrize("indices", SEVERAL, ids=str)
def test_several_derivatives_and_their_gradients(activation, sizes, indices):
    net, params = random_net(activation, sizes)
    x = randn([6, 3], "float64", 9)
    cotangents = tuple(
        randn([6, sizes[-1]], "float64", 20 + i) for i in range(len(indices))
    )

    def one_by_one(p, x):
        return tuple(by_taylor(net, p, x, index) for index in indices)

    assert_close(
        gradients(lambda p, x: derivatives(net, p, x, indices), params, x, cotangents),
        gradients(one_by_one, params, x, cotangents),
    )
    assert_close(derivatives(net, params, x, indices), one_by_one(params, x))


def test_several_derivatives_of_higher_order():
    net, params, x, _ = case("tanh")
    indices = [(0, 0), (1, 2), (0, 1), (4, 0)]
    found = derivatives(net, params, x, indices)
    for index, value in zip(indices, found, strict=True):
        assert_close([value], [derivative(net, params, x, index)])


@pytest.mark.parametrize("n", [512, 513, 800])
@pytest.mark.parametrize("kind", ["derivatives", "laplacian"])
def test_many_points_go_in_blocks(n, kind, small_blocks, monkeypatch):
    net, params = random_net("tanh", (3, 5, 4, 2))
    x, indices = randn([n, 3], "float64", 9), SEVERAL[-1]
    cotangents = tuple(randn([n, 2], "float64", 20 + i) for i in range(len(indices)))

    def function(p, x):
        if kind == "derivatives":
            return derivatives(net, p, x, indices)
        return laplacian(net, p, x)

    def both():
        net._programs.derivatives.clear()
        seeds = cotangents if kind == "derivatives" else cotangents[0]
        found = gradients(function, params, x, seeds)
        leaf = x.detach()
        leaf.stop_gradient = False
        values = function(params, leaf)
        value = values[0] if kind == "derivatives" else values
        (slope,) = paddle.grad([value], [leaf], [cotangents[0]], create_graph=True)
        return [*found, slope, *paddle.grad([(slope**2).sum()], [leaf])]

    monkeypatch.setattr(blocks, "PROBE", 10**9)
    expected = both()
    assert not small_blocks
    monkeypatch.setattr(blocks, "PROBE", 256)
    assert_close(both(), expected)
    rest = n % 64 or 32
    assert [64, rest] in small_blocks


def test_only_what_is_asked_for_is_differentiated():
    """A gradient of one input or parameter, or none, on Paddle's own graph."""
    net, params = random_net("silu", (3, 5, 4, 2))
    x, c = randn([6, 3], "float64", 9), randn([6, 2], "float64", 8)
    expected = gradients(lambda p, x: laplacian(net, p, x), params, x, c)
    for i, name in enumerate(net.spec.names[:-1]):
        leaves = {key: value.detach() for key, value in params.items()}
        leaves[name].stop_gradient = False
        (found,) = paddle.grad([laplacian(net, leaves, x)], [leaves[name]], [c])
        assert_close([found], [expected[1 + i]])
    leaf = x.detach()
    leaf.stop_gradient = False
    (found,) = paddle.grad([laplacian(net, params, leaf)], [leaf], [c])
    assert_close([found], expected[-1:])
    leaves = {key: value.detach() for key, value in params.items()}
    leaves["2.bias"].stop_gradient = False
    assert laplacian(net, leaves, x).stop_gradient


def test_the_laplacian_may_be_differentiated_twice():
    """Second-order optimisers: the gradient of a gradient."""
    net = FCNet((2, 4, 1), "tanh", "float64")
    params, x = net.init(0), randn([5, 2], "float64")

    def carried(p):
        return laplacian(net, p, x)

    def by_parts(p):
        return by_taylor(net, p, x, (2, 0)) + by_taylor(net, p, x, (0, 2))

    def sharpness(kind):
        def gradient(p):
            _, grad = value_and_grad(lambda p: (kind(p) ** 2).sum())(p)
            return (grad["0.weight"] ** 2).sum()

        return value_and_grad(gradient)(params)

    found, expected = sharpness(carried), sharpness(by_parts)
    assert_same(found[0], expected[0], rtol=1e-12)
    assert_same(found[1]["0.weight"], expected[1]["0.weight"], rtol=1e-11, atol=1e-12)


def test_second_derivatives_differentiated_twice_by_the_input():
    net, params = random_net("silu", (2, 4, 3, 1))
    x = randn([5, 2], "float64", 9)
    x.stop_gradient = False
    d = derivative(net, params, x, (1, 1))
    for _ in range(2):
        (d,) = paddle.grad([d], [x], create_graph=True)
        d = d[:, 1:]
    assert_close([d], [derivative(net, params, x.detach(), (1, 3))])


@pytest.mark.parametrize("name", ["0.weight", "0.bias", "1.weight", "1.bias"])
def test_one_gradient_of_a_gradient(name):
    net, params = random_net("tanh", (3, 4, 2))
    x = randn([5, 3], "float64", 9)

    def twice(function):
        leaves = {key: value.detach() for key, value in params.items()}
        leaf = leaves[name]
        leaf.stop_gradient = False
        values = function(leaves, x)
        loss = sum((value**3).sum() for value in values)
        (grad,) = paddle.grad([loss], [leaf], create_graph=True)
        return paddle.grad([(grad**2).sum()], [leaf])

    indices = [(0, 0, 0), (0, 1, 0), (1, 0, 1)]
    found = twice(lambda p, x: derivatives(net, p, x, indices))
    expected = twice(lambda p, x: [by_taylor(net, p, x, index) for index in indices])
    assert_close(found, expected)


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor:UserWarning")
@pytest.mark.parametrize("optimizer", ["Adam", "SGD", "LBFGS"])
def test_training_on_second_derivatives(optimizer):
    """-u'' = pi^2 sin(pi x) on [0, 1], with zero at both ends, in dynamic graph."""
    net = FCNet((1, 12, 12, 1), "tanh", "float64")
    params = {
        name: paddle.create_parameter(
            list(value.shape),
            "float64",
            default_initializer=nn.initializer.Assign(value),
        )
        for name, value in net.init(3).items()
    }
    x = paddle.linspace(0, 1, 21, dtype="float64").reshape([21, 1])
    ends = paddle.to_tensor([[0.0], [1.0]], dtype="float64")
    source = np.pi**2 * paddle.sin(np.pi * x)

    def loss():
        inside = ((laplacian(net, params, x) + source) ** 2).mean()
        return inside + 50 * (net.forward(params, ends) ** 2).mean()

    start = float(loss())
    if optimizer == "LBFGS":
        opt = paddle.optimizer.LBFGS(
            0.5, max_iter=40, line_search_fn="strong_wolfe", parameters=params.values()
        )

        def closure():
            opt.clear_grad()
            value = loss()
            value.backward()
            return value

        opt.step(closure)
    else:
        rate = {"Adam": 0.01, "SGD": 1e-4}[optimizer]
        opt = getattr(paddle.optimizer, optimizer)(rate, parameters=params.values())
        for _ in range(150):
            value = loss()
            value.backward()
            opt.step()
            opt.clear_grad()
    assert float(loss()) < {"LBFGS": 0.1, "Adam": 0.3, "SGD": 0.99}[optimizer] * start


def test_a_constant_of_a_wider_dtype_widens_derivatives():
    c = paddle.to_tensor([[0.25], [0.75]], "float64")
    x = paddle.to_tensor([[0.5, 2.0, 1.0], [1.5, -1.0, 3.0]])

    def fn(params, x):
        return paddle.concat([x - c, c - x, (x * c) * (x + c)], 1)

    found = derivatives(fn, {}, x, [(1, 0, 0), (2, 0, 0)])
    first = x[:, 0].astype("float64").numpy()
    scale = c.numpy()[:, 0]
    for part, column, expected in (
        *((found[0], 0, np.ones(2)), (found[0], 3, -np.ones(2))),
        *((found[0], 6, scale * (2 * first + scale)), (found[1], 6, 2 * scale)),
    ):
        assert part.dtype == paddle.float64
        np.testing.assert_allclose(part.numpy()[:, column], expected, rtol=1e-12)


LINEAR = {
    "gather": lambda h: paddle.gather(h, paddle.to_tensor([1, 3, 1]), axis=1),
    "index_select": lambda h: paddle.index_select(h, paddle.to_tensor([2, 0]), axis=1),
    "gather_nd": lambda h: paddle.gather_nd(h, paddle.to_tensor([[0, 3], [2, 1]])),
    "index_sample": lambda h: paddle.index_sample(
        h, paddle.to_tensor([[1, 2], [0, 0], [4, 3]])
    ),
    "strided_slice": lambda h: h[:, ::2],
    "cumsum": lambda h: h.cumsum(1),
    "mean of all": lambda h: h.mean(),
    "stack": lambda h: paddle.stack([h, h * 2.0, paddle.ones_like(h)], 1),
    "concat": lambda h: paddle.concat([h, paddle.ones_like(h[:, :2]), h * h], 1),
    "split": lambda h: paddle.split(h, [2, 3], axis=1)[1],
    "unbind": lambda h: paddle.unbind(h, 1)[3] * paddle.unbind(h, 1)[0],
    "quotient": lambda h: h / (2.0 + paddle.ones_like(h).cumsum(1)),
    "quotient of two": lambda h: h / (2.0 + h[:, ::-1]),
    "tile": lambda h: paddle.tile(h, [2, 3]),
    "triangle": lambda h: paddle.tril(h) + paddle.triu(h, 1) * 3.0,
    "flip and roll": lambda h: paddle.roll(h.flip(1), 2, 1),
    "transposed": lambda h: h.T @ h,
    "add_n": lambda h: paddle.add_n([h, h * h, paddle.ones_like(h)]),
    "expand_as": lambda h: h[:1].expand_as(h),
    "narrower": lambda h: h.astype("float32").astype("float64"),
    "interpolate": lambda h: paddle.nn.functional.interpolate(
        h.reshape([1, 1, 3, 5]), scale_factor=2, mode="bilinear"
    ),
    "diagonal": lambda h: paddle.diagonal(h, 1),
}


@pytest.mark.parametrize("name", LINEAR)
def test_series_through_linear_operators(name):
    """Series to the third order equal forward derivatives of forward derivatives."""
    x, v = randn([3, 2], "float64", 1), randn([2], "float64", 2)
    weight = randn([2, 5], "float64", 5)

    def f(_, x):
        result = LINEAR[name](paddle.tanh(x @ weight))
        return paddle.expand(result.reshape([1, -1]), [3, -1])

    expected, derivative_of = [], lambda x: f(None, x)
    for _ in range(4):
        expected.append(derivative_of(x))
        derivative_of = forward_derivative(derivative_of, v)
    found = taylor(f, {}, x, v, 3)
    for each, exact in zip(found, expected, strict=True):
        tolerance = 1e-4 if name == "narrower" else 1e-10
        assert_same(each, exact, rtol=tolerance, atol=tolerance)


def forward_derivative(f, v):
    """The derivative of a function along a direction, the same at all points."""
    return lambda x: jvp(f, (x,), (v.expand_as(x),))[1]
