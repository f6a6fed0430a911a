"""Coordinates and outputs by name, as those who solve equations write them."""

from collections import namedtuple
from typing import NamedTuple

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from conftest import assert_same, randn
from paddle_chainrules import (
    CaptureError,
    FCNet,
    cond,
    derivatives,
    jit,
    laplacian,
    make_program,
    stateless,
    taylor,
    value_and_grad,
)
from paddle_chainrules.programs.batches import blocks

NET = FCNet((2, 6, 5, 2), "tanh", "float64")
PARAMS = NET.init(3)
T, X = randn([7, 1], "float64", 1), randn([7, 1], "float64", 2)
BOTH = paddle.concat([T, X], -1)
INDICES = {"u": (0, 0), "u_t": (1, 0), "u_xx": (0, 2), "u_tx": (1, 1), "u_xxt": (1, 2)}


class Point(NamedTuple):
    t: paddle.Tensor
    x: paddle.Tensor


def of_parts(params, t, x):
    return NET(params, paddle.concat([t, x], -1))


WRITTEN = {
    "a dict, an output's column": (
        lambda p, at: of_parts(p, at["t"], at["x"]),
        {"t": T, "x": X},
        0,
        ("t", "x"),
    ),
    "dicts": (
        lambda p, at: {"u": of_parts(p, at["t"], at["x"])[:, 0:1]},
        {"t": T, "x": X},
        "u",
        ("t", "x"),
    ),
    "a tuple": (
        lambda p, at: (of_parts(p, *at)[:, 0:1], 1),
        (T, X),
        0,
        (0, 1),
    ),
    "a named tuple": (
        lambda p, at: of_parts(p, at.t, at.x)[:, 0:1],
        Point(T, X),
        None,
        ("t", "x"),
    ),
    "one array": (lambda p, at: NET(p, at)[:, :1], BOTH, None, (0, 1)),
    "from its end": (lambda p, at: NET(p, at)[:, :1], BOTH, None, (-2, -1)),
    "a column of an array in a dict": (
        lambda p, at: {"y": NET(p, at["at"])},
        {"at": BOTH, "unused": paddle.ones([3])},
        ("y", 0),
        (("at", 0), ("at", 1)),
    ),
    "without the last dimension": (
        lambda p, at: NET(p, paddle.stack([at["t"], at["x"]], -1))[:, 0],
        {"t": T[:, 0], "x": X[:, 0]},
        None,
        ("t", "x"),
    ),
}


def wanted(output, t, x):
    return {
        name: (output, *[t] * index[0], *[x] * index[1])
        for name, index in INDICES.items()
    }


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("where", ["plainly", "in jit"])
def test_however_it_is_written(kind, where):
    fn, at, output, names = WRITTEN[kind]
    asked = wanted(output, *names)

    def of(params, at):
        return derivatives(fn, params, at, asked)

    found = (jit(of, strict=True) if where == "in jit" else of)(PARAMS, at)
    assert [*found] == [*INDICES]
    expected = derivatives(NET, PARAMS, BOTH, [*INDICES.values()])
    for one, other in zip(found.values(), expected, strict=True):
        other = other[:, 0:1].reshape(one.shape)
        assert_same(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", WRITTEN)
def test_the_order_of_names_does_not_matter(kind):
    fn, at, output, (t, x) = WRITTEN[kind]
    found = derivatives(fn, PARAMS, at, {"a": (output, t, x), "b": (output, x, t)})
    assert_same(found["a"], found["b"])


def test_a_loss_of_them_as_it_is_written_without_jit():
    """A closure, on Paddle's own graph, by an optimizer's parameters."""
    layer = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    net, params, _ = stateless(layer)
    at = {"t": randn([30, 1]), "x": randn([30, 1])}

    def u(params, at):
        x = at["x"]
        return x * (1 - x) * net(params, paddle.concat([at["t"], x], -1))

    def loss(params):
        d = derivatives(
            u,
            params,
            at,
            {"u": (None,), "u_t": (None, "t"), "u_xx": (None, "x", "x")},
        )
        return ((d["u_t"] - 0.1 * d["u_xx"] + d["u"]) ** 2).mean()

    value, grads = value_and_grad(loss)(params)
    leaves = {name: p.detach() for name, p in params.items()}
    for leaf in leaves.values():
        leaf.stop_gradient = False
    same = loss(leaves)
    same.backward()
    assert_same(same.detach(), value, rtol=1e-6)
    for name, grad in grads.items():
        assert_same(leaves[name].grad, grad, rtol=1e-4, atol=1e-6)
    fast = jit(value_and_grad(loss), strict=True)(params)
    assert_same(fast, (value, grads), rtol=1e-4, atol=1e-6)


def test_changed_coordinates_and_parameters_are_seen():
    fn, at, output, names = WRITTEN["dicts"]
    asked = wanted(output, *names)
    derivatives(fn, PARAMS, at, asked)
    moved = {"t": T + 1.0, "x": X * 2.0}
    params = {name: value * 1.5 for name, value in PARAMS.items()}
    found = derivatives(fn, params, moved, asked)
    both = paddle.concat([*moved.values()], -1)
    expected = derivatives(NET, params, both, [*INDICES.values()])
    for one, other in zip(found.values(), expected, strict=True):
        assert_same(one, other[:, 0:1], rtol=1e-12, atol=1e-12)


def test_rows_of_their_own_and_others():
    net, params, _ = stateless(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1D(3)))
    x = randn([5, 2])
    with pytest.raises(ValueError, match=r"depends on other rows.*evaluation mode"):
        derivatives(net, params, x, {"a": (0, 0)})
    still = net.in_mode(False)
    assert derivatives(still, params, x, {"a": (0, 0)})["a"].shape == [5, 1]


TOGETHER = {
    "mean": lambda x: F.relu(x.mean() - 0.5) * x[:, :1] ** 2,
    "roll": lambda x: paddle.roll(F.relu(x[:, :1] - 0.5) ** 2, 1, 0),
    "flip": lambda x: F.relu(x[:, :1] - 0.5).flip(0) ** 2,
    "cumsum": lambda x: paddle.cumsum(F.relu(x[:, :1] - 0.5) ** 2, 0),
    "where": lambda x: paddle.where(x[:, :1] > 0.5, x.sum() * x[:, :1], x[:, :1] * 0.0),
    "cond": lambda x: cond(
        (x > 0.5).any(), lambda x: x.sum() * x[:, :1], lambda x: x[:, :1] * 0.0, x
    ),
    "row": lambda x: F.relu(x[2, 0] - 0.5) * x[:, :1],
    "gather": lambda x: F.relu(x[:, :1] - 0.5)
    * paddle.gather(x[:, :1], (x[:, 0] > 0.5).astype("int64") * 3),
}  # fmt: skip


@pytest.mark.parametrize("joined", TOGETHER)
def test_rows_that_other_values_bring_together(joined):
    """No program serves them: each call looks whether a row depends on others."""

    class Together(nn.Layer):
        def forward(self, x):
            return x[:, :1] ** 2 + TOGETHER[joined](x)

    net, params, _ = stateless(Together())
    apart = paddle.linspace(0.1, 0.3, 10).reshape([5, 2])
    together = apart + 0.5
    compiled = jit(lambda x: laplacian(net, params, x))
    for take in (lambda x: laplacian(net, params, x), compiled):
        for _ in range(12):
            assert_same(take(apart), paddle.full([5, 1], 2.0))
        with pytest.raises(ValueError, match="depends on other rows"):
            take(together)
    strict = jit(lambda x: laplacian(net, params, x), strict=True)
    with pytest.raises(CaptureError, match="joins rows"):
        strict(apart)


def test_a_net_whose_rows_only_the_numbers_tell_apart_is_a_program():
    layer = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Tanh(), nn.Linear(3, 1))
    net, params, _ = stateless(layer)
    x = randn([5, 2])
    run = jit(lambda params, x: laplacian(net, params, x), strict=True)
    for _ in range(40):
        assert_same(run(params, x), laplacian(net, params, x), rtol=1e-5, atol=1e-6)


def extremes(x):
    return (x - x.min()) / (x.max() - x.min())


DEPENDENT = {
    "largest": lambda x: (x / x.max()) ** 2,
    "both ends": lambda x: extremes(x) ** 2,
    "mean": lambda x: x * x.mean(),
    "mean and random numbers": lambda x: (
        (x - x.mean()) ** 2 + 0 * paddle.rand([1], x.dtype)
    ),
    "a little attention": lambda x: x + 0.01 * F.softmax(x @ x.t(), -1) @ x,
    "a mean of every other row of its block": lambda x: (
        x.reshape([-1, 3, 2, 1]) * x.reshape([-1, 3, 2, 1]).mean(1, keepdim=True)
    ).reshape(x.shape),
    "partners": lambda x: x * x.reshape([-1, 2, 1]).flip(1).reshape(x.shape),
    "another row alone": lambda x: paddle.roll(x, 1, 0) ** 2,
    "all rows turned round": lambda x: paddle.flip(x, 0) ** 2,
    "little beside a large row": lambda x: paddle.exp(12 * x) + x.mean(),
    "little beside an offset": lambda x: 300 + 1e-3 * x * x.mean(),
    "little beside a large column": lambda x: paddle.concat(
        [1e7 * x, x * x.mean()], -1
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [6, 300])
@pytest.mark.parametrize("name", DEPENDENT)
def test_rows_that_depend_on_others_are_refused_on_any_grid(name, n, dtype):
    for x in (paddle.linspace(0, 1, n, dtype=dtype), randn([n], dtype, 1)):
        with pytest.raises(ValueError, match="depends on other rows"):
            derivatives(
                lambda _, x: DEPENDENT[name](x), {}, x[:, None], {"x": (None, 0)}
            )


def test_points_of_a_sample_that_depend_on_each_other_are_refused():
    x = randn([2, 5, 3], "float64")
    with pytest.raises(ValueError, match="depends on other rows"):
        derivatives(lambda _, x: x * x.mean(1, keepdim=True), {}, x, [(1, 0, 0)])
    (found,) = derivatives(lambda _, x: (x**3).sum(-1), {}, x, [(1, 0, 0)])
    assert_same(found, 3 * x[:, :, 0] ** 2, rtol=1e-12)


def test_rows_that_do_not_depend_on_others_are_not_refused():
    """Whatever their sizes, and beside columns of other sizes."""
    w, v = randn([2, 64], "float32", 1), randn([64, 1], "float32", 2)
    for n in (1, 2, 7, 1000):
        x = randn([n, 2], "float32", 3)

        def fn(_, x):
            u = paddle.tanh(x @ w) @ v
            return paddle.concat([u, 1e7 + u, 1e-7 * u, x[:, :1] * 0, x[:, 1:]], -1)

        assert derivatives(fn, {}, x, [(1, 0)])[0].shape == [n, 5]


@pytest.mark.parametrize("columns", [False, True])
def test_derivatives_by_names_go_in_blocks(columns, small_blocks, monkeypatch):
    w, v = randn([2, 7], "float64", 1), randn([7, 3], "float64", 2)
    at = randn([531, 2], "float64", 3)
    wanted = {"xx": (0, "x", "x"), "t": (2, "t"), "u": (0,), "xt": (1, "x", "t")}

    def loss(w, at):
        def net(_, at):
            return paddle.tanh(paddle.concat([at["x"], at["t"]], 1) @ w) @ v

        coords = {"x": at[:, :1], "t": at[:, 1:]}
        if not columns:
            coords, names = at, {"x": 0, "t": 1}
            of_names = {k: (n, *map(names.get, by)) for k, (n, *by) in wanted.items()}
            found = derivatives(lambda _, x: paddle.tanh(x @ w) @ v, {}, at, of_names)
        else:
            found = derivatives(net, {}, coords, wanted)
        return ((found["t"] + found["u"] * found["xx"] - found["xt"]) ** 2).mean()

    found = jit(value_and_grad(loss, (0, 1)))(w, at)
    assert [64, 531 % 64] in small_blocks
    monkeypatch.setattr(blocks, "WHOLE", 1 << 40)
    small_blocks.clear()
    assert_same(found, jit(value_and_grad(loss, (0, 1)))(w, at), atol=1e-12)
    assert not small_blocks


def test_steps_of_many_rows_that_fit_the_memory_are_one_program():
    net, params, _ = stateless(
        nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1))
    )
    program = make_program(lambda x: laplacian(net, params, x))(randn([3000, 2]))
    assert "blocks" not in {op.operator.name for op in program.ops}


@pytest.mark.usefixtures("small_blocks")
def test_a_function_that_asks_for_all_rows_is_not_taken_in_blocks():
    table = {2000: 3.0}
    (found,) = derivatives(
        lambda _, x: table[x.shape[0]] * x**2, {}, paddle.ones([2000, 1]), [(1,)]
    )
    assert_same(found, paddle.full([2000, 1], 6.0))


class Ordered(nn.Layer):
    def __init__(self):
        super().__init__()
        self.w = self.create_parameter([1])

    def forward(self, at):
        if isinstance(at, paddle.Tensor):
            return self.w * (at**2 * paddle.arange(1.0, at.shape[-1] + 1)).sum(
                -1, keepdim=True
            )
        return self.w * at.x**3 * at.y


def test_the_same_names_of_other_columns_are_others():
    """What is kept with a net is of its columns, not of their names."""
    net, _, _ = stateless(Ordered(), jit=True)
    params = {"w": paddle.ones([1])}
    for d in (2, 3):
        found = derivatives(net, params, paddle.ones([4, d]), {"last": (None, -1)})
        assert_same(found["last"], paddle.full([4, 1], 2.0 * d))
    x, y = paddle.full([1, 1], 2.0), paddle.full([1, 1], 5.0)
    for kind in (namedtuple("XY", "x y"), namedtuple("YX", "y x")):
        found = derivatives(net, params, kind(x=x, y=y), {"u_x": (None, "x")})
        assert found["u_x"].item() == 60


@pytest.mark.usefixtures("small_blocks")
def test_rows_in_blocks_are_where_they_stand():
    """Where a function knows the place of a row, blocks would give it another."""
    w, v = randn([2, 64], "float64", 1), randn([64, 1], "float64", 2)
    x = randn([9000, 2], "float64", 3)
    first = (paddle.arange(9000) < 1000).astype("float64").unsqueeze(-1)

    def fn(_, x):
        inside = first[: x.shape[0]]
        here = (paddle.arange(x.shape[0]) < 1000).astype("float64").unsqueeze(-1)
        edge, rest = paddle.sin(x @ w) @ v, paddle.cos(x @ w) @ v
        return (inside + here) * edge + (2 - inside - here) * rest

    squares = (w * w).sum(0)
    edge, rest = (-(f(x @ w) * squares) @ v for f in (paddle.sin, paddle.cos))
    expected = 2 * (first * edge + (1 - first) * rest)
    assert_same(laplacian(fn, {}, x), expected, atol=1e-10)


@pytest.mark.usefixtures("small_blocks")
def test_random_numbers_of_many_rows():
    drop = paddle.nn.Dropout(0.3)
    w, x = randn([2, 64], "float64", 1), randn([1500, 2], "float64", 3)
    paddle.seed(3)
    found = laplacian(lambda _, x: drop(paddle.sin(x @ w)), {}, x)
    paddle.seed(3)
    kept = drop(paddle.ones([1500, 64], "float64"))
    assert_same(found, -kept * paddle.sin(x @ w) * (w * w).sum(0), atol=1e-12)


def test_numbers_of_numpy_are_numbers():
    x = randn([5, 2], "float64", 1)
    scale, power = np.float64(2.0), np.int64(3)
    found = derivatives(lambda _, x: scale * x**power, {}, x, {"x": (None, 1)})["x"]
    assert_same(found[:, 1], 6.0 * x[:, 1] ** 2, rtol=1e-12)


def test_one_point():
    x = paddle.to_tensor([0.5, 0.3], "float64")
    found = derivatives(
        lambda _, x: paddle.sin(x[:1] * x[1:]), {}, x, {"x": (None, 0)}
    )["x"]
    assert_same(found, 0.3 * paddle.cos(x[:1] * x[1:]), rtol=1e-12)


def test_functions_by_multi_indices():
    x = randn([5, 2], "float64", 1)
    value, slope = derivatives(lambda _, x: x**3, {}, x, [(0, 0), (1, 0)])
    assert_same((value, slope[:, 0]), (x**3, 3 * x[:, 0] ** 2), rtol=1e-12)
    along = paddle.to_tensor([1.0, 2.0], "float64")
    found = taylor(lambda _, x: x**3, {}, x, along, 2)
    assert_same(found[2], 6 * x * along**2, rtol=1e-12)


@pytest.mark.usefixtures("small_blocks")
def test_a_constant_of_all_rows_keeps_them_together():
    """Though all of its rows are alike when the program is made."""
    w, v = randn([2, 8], "float64", 1), randn([8, 1], "float64", 2)
    x, weights = randn([700, 2], "float64", 3), paddle.ones([700, 1], "float64")

    def net(_, x):
        return paddle.tanh(x @ w) @ v * weights[: x.shape[0]]

    step = jit(lambda x: derivatives(net, {}, x, [(0, 0)])[0])
    step(x)
    weights.set_value(randn([700, 1], "float64", 4))
    assert_same(step(x), net({}, x), atol=1e-14)
