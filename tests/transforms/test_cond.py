"""A choice runs one of two functions, and has the derivatives of the one that ran."""

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional

from conftest import assert_same, loops_on, randn
from differences import jacobian_of, slopes_of
from paddle_chainrules import (
    cond,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jit,
    jvp,
    scan,
    value_and_grad,
    vmap,
)

X = paddle.to_tensor([1.3, 2.1, 0.4], "float64")
MATRIX = paddle.to_tensor([[1.5, 0.0], [0.0, 0.0]], "float64")


def nested(x):
    """Four branches, of which each is no number where another is chosen."""
    return cond(
        x[0] > 0,
        lambda x: cond(
            x[1] > 0,
            lambda x: (x**3).sum() + paddle.log(x[0] * x[1]),
            lambda x: paddle.sqrt(-x[1]) * x[0],
            x,
        ),
        lambda x: cond(
            x[1] > 0,
            lambda x: paddle.log(x[1]) * x[0],
            lambda x: paddle.sqrt(x[0] * x[1]) * x[2],
            x,
        ),
        x,
    )


def closed(x):
    """Branches that take no operands."""
    first, second = NETS
    return cond(x[0] > x[1], lambda: first(x).sum(), lambda: second(x).sum())


def net(width):
    layers = nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 1)
    return nn.Sequential(*layers).to(dtype="float64")


NETS = net(5), net(7)


POINTS = paddle.to_tensor(
    [
        *([1.3, 2.1, 0.4], [1.3, -2.1, 0.4], [-1.3, 2.1, 0.4], [-1.3, -2.1, 0.4]),
        [0.7, 1.1, -3.0],
    ],
    "float64",
)


FUNCTIONS = {"nested": nested, "closed": closed}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_beside_differences(name):
    fn = FUNCTIONS[name]
    expected = np.stack([slopes_of(fn, x)[0] for x in POINTS])
    compiled = jit(grad(fn), strict=True)
    found = {
        "grad": np.stack([grad(fn)(x) for x in POINTS]),
        "jit": np.stack([compiled(x) for x in POINTS]),
        "vmap of grad": vmap(grad(fn))(POINTS),
        "grad of vmap": grad(lambda rows: vmap(fn)(rows).sum())(POINTS),
        "grad of more": grad(lambda rows: (rows + vmap(fn)(rows)[:, None]).sum())(
            POINTS
        )
        / 3
        - 1 / 3,
        "jacfwd": vmap(jacfwd(fn))(POINTS),
        "jacrev": vmap(jacrev(fn))(POINTS),
        "vmap of vmap": vmap(vmap(grad(fn)))(paddle.stack([POINTS, POINTS]))[1],
    }
    for label, value in found.items():
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-8, err_msg=label)
    along = np.stack([jvp(fn, (x,), (X,))[1] for x in POINTS])
    np.testing.assert_allclose(along, expected @ X.numpy(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_beside_differences(name):
    fn = FUNCTIONS[name]
    expected = np.stack([jacobian_of(grad(fn), x) for x in POINTS])
    compiled = jit(hessian(fn), strict=True)
    for found in (
        np.stack([hessian(fn)(x) for x in POINTS]),
        np.stack([compiled(x) for x in POINTS]),
        vmap(hessian(fn))(POINTS),
        vmap(jacfwd(jacfwd(fn)))(POINTS),
        vmap(jacfwd(jacrev(fn)))(POINTS),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_weights_that_samples_share():
    """The branch that a sample has not chosen gives their sums no NaN."""
    weight = randn([2, 3], "float64")

    def fn(weight):
        def of_one(x):
            return cond(
                x.sum() > 0,
                lambda x: (weight @ x).tanh().sum(),
                lambda x: paddle.log(-x.sum()) * (weight**2).sum(),
                x,
            )

        return vmap(of_one)(POINTS).sum()

    (expected,) = slopes_of(fn, weight)
    for found in (grad(fn)(weight), jit(grad(fn), strict=True)(weight)):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    second = hessian(fn)(weight)
    assert np.isfinite(second.numpy()).all()
    assert_same(second, jacfwd(grad(fn))(weight), rtol=1e-12, atol=1e-12)


def failing(name):
    """A branch that fails at MATRIX, beside one that does not."""
    fails = {
        "inverse": lambda a: paddle.inverse(a).sum(),
        "cholesky": lambda a: paddle.linalg.cholesky(-a).sum(),
        "solve": lambda a: paddle.linalg.solve(a, a[:, :1]).sum(),
    }[name]
    return lambda a: cond(a.sum() < 0, fails, lambda a: (a**2).sum(), a)


@pytest.mark.parametrize("name", ["inverse", "cholesky", "solve"])
def test_a_branch_that_would_fail_does_not_run(name):
    fn = failing(name)
    for _ in range(5):
        assert_same(grad(fn)(MATRIX), 2 * MATRIX)
    assert_same(jit(grad(fn), strict=True)(MATRIX), 2 * MATRIX)
    if name == "solve":
        return  # one sample after another, with a warning
    other = -MATRIX - paddle.to_tensor([[0.5, 0.1], [0.1, 0.7]], "float64")
    found = vmap(grad(fn))(paddle.stack([MATRIX, other, MATRIX]))
    expected = paddle.stack([2 * MATRIX, grad(fn)(other), 2 * MATRIX])
    assert_same(found, expected, rtol=1e-12, atol=1e-12)


def drawing(x):
    return cond(
        x.sum() > 0,
        lambda x: (x * paddle.rand([3], "float64")).sum(),
        lambda x: (
            (x**2 * paddle.rand([3, 3], "float64")[1]).sum()
            + paddle.rand([1], "float64")[0]
        ),
        x,
    )


def dropping(x):
    return cond(
        x.sum() > 0,
        lambda x: (functional.dropout(x, 0.4) ** 3).sum(),
        lambda x: functional.dropout(x.sin(), 0.7).sum(),
        x,
    )


@pytest.mark.parametrize("fn", [drawing, dropping])
@pytest.mark.parametrize("transform", [value_and_grad, hessian, jacfwd])
def test_one_branch_draws_what_it_draws_alone(fn, transform):
    def seeded(call, x):
        paddle.seed(11)
        return call(x), paddle.rand([2])

    compiled = jit(transform(fn), strict=True)
    for x in (X, -X):
        expected = seeded(transform(fn), x)
        for _ in range(5):
            assert_same(seeded(transform(fn), x), expected, rtol=1e-12, atol=1e-14)
        assert_same(seeded(compiled, x), expected, rtol=1e-12, atol=1e-14)


def test_second_derivatives_of_what_is_drawn():
    """Dropout's result depends on its argument when gradients are differentiated."""

    def alone(x):
        return (functional.dropout(x, 0.4) ** 3).sum()

    found = []
    for fn in (dropping, alone):
        for transform in (hessian, lambda fn: jacfwd(grad(fn))):
            paddle.seed(3)
            found.append(jit(transform(fn), strict=True)(X))
    assert found[-1].abs().sum() > 1.0
    for other in found[:-1]:
        assert_same(other, found[-1], rtol=1e-12, atol=1e-14)


def test_in_a_long_scan():
    def steps(x):
        def step(c, _):
            c = cond(
                c.sum() < 9, lambda c: 1.1 * c, lambda c: paddle.sqrt(9 - 0 * c), c
            )
            return c, c.sum()

        return scan(step, x, length=120)

    def total(x):
        end, sums = steps(x)
        return end.sum() + (sums**2).mean()

    (expected,) = slopes_of(total, X, step=1e-7)
    for found in (grad(total)(X), jit(grad(total), strict=True)(X)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    rows = paddle.stack([X, 0.1 * X])
    found = vmap(grad(total))(rows)
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-6)


@loops_on
def test_small_branches_are_machine_code():
    @jit
    def fn(x):
        return cond(x.sum() > 0, lambda x: x**2 + 1.0, lambda x: paddle.log(-x) * x, x)

    fn(X)
    (program,) = (each.program for each in jit_programs(fn, X))
    assert "cond" in repr(program)
    assert [op.operator.name for op in program.as_code.ops] == ["region"]


def jit_programs(fn, x):
    value = fn._fixed_size_program(x)
    return [value.captured]


def test_gradients_are_none_for_nobody_who_might_depend():
    """Which branch depends on an operand is not asked, so that no call's None is
    another's zeros."""
    zeros = paddle.zeros([3], "float64")

    def constant(x):
        one = paddle.ones([], "float64")
        return cond(x.sum() > 0, lambda x: (x**2).sum(), lambda x: one, x)

    for _ in range(5):
        assert_same(grad(constant)(-X), zeros)
    assert_same(jit(grad(constant), strict=True)(-X), zeros)
    assert_same(vmap(grad(constant))(paddle.stack([X, -X]))[1], zeros)


def test_trees_numbers_and_none():
    def fn(x):
        return cond(
            x.sum() > 0,
            lambda d: {"a": (d["x"], None), "b": 2.0},
            lambda d: {"a": (d["x"] * 2, None), "b": 3.0},
            {"x": x},
        )

    for call in (fn, jit(fn, strict=True)):
        for x, factor, number in ((X, 1, 2.0), (-X, 2, 3.0)):
            found = call(x)
            assert_same(found["a"], (factor * x, None))
            assert float(found["b"]) == number
    assert cond(True, lambda: 1, lambda: 2) == 1


@pytest.mark.parametrize("number", [-1.0, float("nan"), -float("inf"), 0.0, -0.0, 2.0])
def test_numbers_are_true_where_they_are_not_zero(number):
    def fn(p, x):
        return cond(p, lambda x: 2.0 * x, lambda x: 3.0 * x, x)

    p, x = (paddle.to_tensor(v, dtype="float64") for v in (number, 1.0))
    expected = 3.0 if number == 0 else 2.0
    compiled = jit(fn, strict=True)
    for _ in range(40):
        assert float(fn(p, x)) == float(compiled(p, x)) == expected
    rows = paddle.stack([p, p])
    assert vmap(fn)(rows, paddle.stack([x, x])).tolist() == [expected] * 2
    assert vmap(fn, (None, 0))(p, paddle.stack([x, x])).tolist() == [expected] * 2
    factor = scan(lambda c, _: (fn(p, c) / 2.0, None), x, length=120)[0]
    assert float(factor) == pytest.approx((expected / 2.0) ** 120)


def test_complex_numbers():
    z = paddle.to_tensor([1.0 + 2.0j, 3.0 - 1.0j], "complex128")

    def fn(z):
        return cond(
            z.real().sum() > 0,
            lambda z: (z * z).abs().sum(),
            lambda z: z.imag().sum(),
            z,
        )

    for call in (grad(fn), jit(grad(fn), strict=True)):
        for x in (z, -z):
            eager = paddle.assign(x)
            eager.stop_gradient = False
            (expected,) = paddle.grad(fn(eager), eager)
            assert_same(call(x), expected, rtol=1e-12)
