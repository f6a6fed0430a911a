"""Sums of derivatives go through the layers as one, beside Paddle's own gradients."""

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from conftest import randn
from paddle_chainrules import (
    FCNet,
    derivatives,
    forward_laplacian,
    jit,
    value_and_grad,
)
from paddle_chainrules.programs import capture
from paddle_chainrules.programs.compiling.collapsing import collapse_sums

N, WIDTHS = 11, (3, 7, 5, 4, 2)
NAMES = ("x", "y", "t")
PRODUCTS = ("matmul", "linear")

EQUATIONS = {
    "Laplacian": lambda u_xx, u_yy: u_xx + u_yy,
    "of three": lambda u, u_xx, u_yy, u_tt: u_xx - 4.0 * u_yy + 0.3 * u_tt + u,
    "heat": lambda u_t, u_xx, u_yy: u_t - 0.07 * (u_xx + u_yy),
    "Burgers": lambda u, u_t, u_x, u_xx: u_t + u * u_x - 0.01 * u_xx,
    "wave": lambda u_tt, u_xx: (u_tt - 4.0 * u_xx) / 3.0,
    "Schroedinger": lambda v, u_t, v_xx: -u_t + 0.5 * v_xx + v * v * v,
    "plate": lambda u_xxxx, u_xxyy, u_yyyy: u_xxxx + 2.0 * u_xxyy + u_yyyy,
    "both outputs": lambda u_xx, u_yy, v_xx, v_yy: (u_xx + u_yy) * (v_xx + v_yy),
    "each used": lambda u_xx, u_yy: (u_xx + u_yy) * u_xx,
    "far apart": lambda u_xx, u_yy: 1e-9 * u_xx + 1e3 * u_yy,
    "none": lambda u_x, u_y: u_x * u_y,
    "differences": lambda u_xx, u_yy, u_x: u_xx - u_yy - (u_xx - u_x),
}


def terms_of(equation):
    return equation.__code__.co_varnames[: equation.__code__.co_argcount]


def named(term):
    output, _, by = term.partition("_")
    return (output, *by)


def make(activation="tanh", dtype="float64"):
    net = FCNet(WIDTHS, activation, dtype)
    params = {
        n: randn(v.shape, dtype, i) for i, (n, v) in enumerate(net.init(0).items())
    }
    at = {name: randn([N, 1], dtype, 20 + i) for i, name in enumerate(NAMES)}
    return net, params, at, randn([N, 1], dtype, 30)


def fields(net):
    def of(params, at):
        out = net(params, paddle.concat([at[n] for n in NAMES], -1))
        return {"u": out[:, :1], "v": out[:, 1:]}

    return of


def loss_of(net, equation, at, c):
    def loss(params):
        wanted = {t: named(t) for t in terms_of(equation)}
        missed = equation(**derivatives(fields(net), params, at, wanted))
        return (missed * missed * c).mean() + (missed * c).sum()

    return loss


def natively(activation, equation, params, at, c):
    """The same by Paddle's own tape."""
    own = {n: p.detach() for n, p in params.items()}
    at = {n: x.detach() for n, x in at.items()}
    for tensor in (*own.values(), *at.values()):
        tensor.stop_gradient = False
    h = paddle.concat([at[n] for n in NAMES], -1)
    last = len(WIDTHS) - 2
    for i in range(last + 1):
        h = h @ own[f"{i}.weight"] + own[f"{i}.bias"]
        if i < last:
            h = paddle.sin(h) if activation == "sin" else getattr(F, activation)(h)
    found = {}
    for term in terms_of(equation):
        output, *by = named(term)
        value = h[:, :1] if output == "u" else h[:, 1:]
        for name in by:
            (value,) = paddle.grad(value.sum(), [at[name]], create_graph=True)
        found[term] = value
    missed = equation(**found)
    loss = (missed * missed * c).mean() + (missed * c).sum()
    grads = paddle.grad(loss, [*own.values()], allow_unused=True)
    return loss, dict(zip(own, grads, strict=True))


def program_and_values(loss, params, monkeypatch, collapses=True):
    """The program of a loss and its gradients, and what it gives."""
    if not collapses:
        monkeypatch.setattr(
            "paddle_chainrules.programs.capturing.collapse_sums", lambda p: p
        )
    names = [*params]

    def both(leaves):
        value, grads = value_and_grad(loss)(dict(zip(names, leaves, strict=True)))
        return [value, *grads.values()]

    leaves = [*params.values()]
    program = capture(both, leaves).program
    monkeypatch.undo()
    value, *grads = program(*leaves)
    return program, value, dict(zip(names, grads, strict=True))


def products(program):
    """Of matrices, from the first hidden layer on."""
    made = [op for op in program.ops if op.operator.name in PRODUCTS]
    return sum(WIDTHS[0] not in {n for v in op.inputs for n in v.shape} for op in made)


def near(found, expected, part):
    off = np.abs(found.numpy() - expected.numpy()).max()
    return off <= part * np.abs(expected.numpy()).max()


@pytest.mark.parametrize("activation", ["tanh", "sin", "silu", "sigmoid"])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_gradients_beside_paddles_tape(equation, activation, monkeypatch, count_case):
    if equation == "plate" and activation != "tanh":
        pytest.skip("Paddle has no fourth derivative of it")
    of = EQUATIONS[equation]
    net, params, at, c = make(activation)
    loss = loss_of(net, of, at, c)
    program, value, grads = program_and_values(loss, params, monkeypatch)
    expected, theirs = natively(activation, of, params, at, c)
    assert near(value, expected, 1e-12)
    for name, grad in theirs.items():
        if grad is None or not grad.any():
            assert name not in grads or not grads[name].any(), name
        else:
            assert near(grads[name], grad, 1e-11), name
            count_case("gradients of collapsed sums beside Paddle's tape")
    as_code = program.with_loops(*params.values())
    for found, there in zip(as_code, (value, *grads.values()), strict=True):
        assert near(found, there, 1e-12)


FEWER = {
    **{"Laplacian": 9, "of three": 20, "heat": 18, "Burgers": 9, "wave": 9},
    **{"both outputs": 9, "each used": 0, "far apart": 0, "none": 0},
}
"""Products that three layers do without for each, forward, and back twice."""


@pytest.mark.parametrize("equation", FEWER)
def test_how_many_products_there_are(equation, monkeypatch):
    net, params, at, c = make()
    loss = loss_of(net, EQUATIONS[equation], at, c)
    apart, *_ = program_and_values(loss, params, monkeypatch, collapses=False)
    program, *_ = program_and_values(loss, params, monkeypatch)
    assert products(apart) - products(program) == FEWER[equation]


def test_a_laplacian_by_names_has_the_products_of_the_forward_laplacian(monkeypatch):
    net, params, at, c = make()

    def by_forward_laplacian(params):
        x = paddle.concat([at[n] for n in NAMES], -1)
        _, _, total = forward_laplacian(net, params, x)
        missed = total[:, :1]
        return (missed * missed * c).mean() + (missed * c).sum()

    loss = loss_of(net, lambda u_xx, u_yy, u_tt: u_xx + u_yy + u_tt, at, c)
    one, value, _ = program_and_values(loss, params, monkeypatch)
    other, same, _ = program_and_values(by_forward_laplacian, params, monkeypatch)
    assert near(value, same, 1e-12)
    assert products(one) == products(other)


def test_what_is_wanted_itself_stays_and_sums_may_be_long():
    w, count = randn([4, 6], "float64"), 1500

    def fn(leaves):
        made = [leaf @ w for leaf in leaves]
        total = made[0] * 2.0
        for i, each in enumerate(made[1:], 1):
            total = total - each if i % 3 else total + each * 0.5
        return [total, made[7]]

    leaves = [randn([5, 4], "float64", i) for i in range(count)]
    program = capture(fn, leaves).program
    fewer = collapse_sums(program)
    assert products(fewer) == 2
    assert len(fewer.ops) < len(program.ops)
    for found, expected in zip(fewer(*leaves), program(*leaves), strict=True):
        assert near(found, expected, 1e-13)


def test_numbers_stay_within_float32():
    a, w = randn([5, 4], "float32"), randn([4, 3], "float32", 1)

    def fn(leaves):
        x, y = leaves
        small, large = (x * 1e-25) @ w, (y * 1e25) @ w
        return [small + large * 1e-25 * 1e-25, (x * 1e-30) @ w * 1e30 + y @ w]

    program = capture(fn, [a, a * 2.0]).program
    fewer = collapse_sums(program)
    for found, expected in zip(fewer(a, a * 2.0), program(a, a * 2.0), strict=True):
        assert near(found, expected, 1e-6)


@pytest.mark.parametrize("more", [0, 1])
def test_shapes_of_what_is_gone_are_of_others_if_there_are_any(more):
    w = randn([4, 6], "float64")

    def fn(leaves):
        x, y, *rest = leaves
        made, other = x @ w, y @ w
        ones = paddle.slice(made, [1], [0], [2]).sum()
        (back,) = paddle.grad(ones, [made])
        return [made + other, back * 1.0, *(z * 2.0 for z in rest)]

    def asked(leaves):
        for leaf in leaves:
            leaf.stop_gradient = False
        return fn(leaves)

    leaves = [randn([5, 4], "float64", i) for i in (2, 3)]
    leaves += [randn([5, 6], "float64", 4)] * more
    program = capture(asked, leaves).program
    fewer = collapse_sums(program)
    assert (products(program), products(fewer)) == (2, 2 - more)
    for found, expected in zip(fewer(*leaves), program(*leaves), strict=True):
        assert near(found, expected, 1e-13)


def test_what_is_divided_alone_stays_as_it_was():
    """49 * (1 / 49) is less than one."""
    w = randn([1, 6], "float64")

    def steps(params, at):
        cell = paddle.floor(at["x"] / 49.0)
        tenth = paddle.floor(at["x"] * 0.1 * 10.0)
        return {"u": (1.0 + cell + tenth) * paddle.tanh(at["x"] * params["w"])}

    at = {"x": paddle.to_tensor([[49.0], [98.0], [3.0], [0.3]], "float64")}

    def loss(params):
        d = derivatives(steps, params, at, {"u": ("u",), "u_x": ("u", "x")})
        return (d["u"] + d["u_x"] / 3.0 + d["u_x"] / 7.0).sum()

    names = {"u": ("u",)}
    found = derivatives(steps, {"w": w}, at, names)["u"]
    assert near(found, steps({"w": w}, at)["u"], 1e-15)
    both = derivatives(steps, {"w": w}, at, names | {"u_x": ("u", "x")})
    assert near(both["u"], found, 1e-15)
    assert np.isfinite(float(jit(loss)({"w": w})))


@pytest.mark.parametrize(("number", "count"), [(0.01, 170), (1e6, 53), (1e-6, 55)])
def test_many_numbers_in_a_row_are_no_number(number, count):
    w = randn([4, 6], "float64")

    def fn(leaves):
        x, y, z = leaves
        for _ in range(count):
            x = x * number
        return [x @ w + y @ w + z @ w]

    leaves = [randn([5, 4], "float64", i) for i in range(3)]
    program = capture(fn, leaves).program
    fewer = collapse_sums(program)
    assert products(fewer) == 1
    (found,), (expected,) = fewer(*leaves), program(*leaves)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)


def test_one_term_that_is_far_off_hinders_no_others():
    v, w = randn([4, 6], "float64"), randn([5, 6], "float64", 1)

    def fn(leaves):
        a, b, c, d, e = leaves
        far = (a * 1e-6) @ v + (b * 1e5) @ v + c @ v
        return [far + d @ w - e @ w]

    leaves = [randn([8, 4], "float64", i) for i in range(3)]
    leaves += [randn([8, 5], "float64", i) for i in (3, 4)]
    program = capture(fn, leaves).program
    fewer = collapse_sums(program)
    assert (products(program), products(fewer)) == (5, 4)
    (found,), (expected,) = fewer(*leaves), program(*leaves)
    assert near(found, expected, 1e-13)
