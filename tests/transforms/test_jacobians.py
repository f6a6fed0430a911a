"""grad, jacrev, jacfwd, hessian and linearize, beside central differences."""

import numpy as np
import optree
import paddle
import pytest

from conftest import assert_same, randn
from differences import jacobian_of
from paddle_chainrules import (
    FCNet,
    grad,
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    linearize,
    value_and_grad,
)

A, B, C = (randn(s, "float64", i) for i, s in enumerate(([3], [2, 4], [5])))


def fn(a, b, n=2):
    """Nested outputs of other shapes than the inputs, one without derivative."""
    return {
        "outer": paddle.tanh(a["x"]).unsqueeze(1) * b.sum() ** n,
        "b": (b * b, a["x"].sum() * paddle.ones([5], "float64")),
        "count": a["k"],
    }


@pytest.mark.parametrize("jac", [jacrev, jacfwd])
def test_jacobians_of_trees(jac):
    a = {"x": A, "k": 3}
    found = jac(fn, argnums=(1, 0))(a, B, n=3)
    outer = jacobian_of(lambda x: fn({"x": x, "k": 3}, B, 3)["outer"], A)
    assert_same(found["outer"][1]["x"], outer, atol=1e-7 * float(outer.abs().max()))
    by_b = jacobian_of(lambda b: fn(a, b, 3)["outer"], B)
    assert_same(found["outer"][0], by_b, atol=1e-7 * float(by_b.abs().max()))
    squares = jacobian_of(lambda b: b * b, B)
    assert_same(found["b"][0][0], squares, atol=1e-8)
    assert_same(found["b"][0][1]["x"], paddle.zeros([2, 4, 3], "float64"))
    assert_same(found["b"][1][0], paddle.zeros([5, 2, 4], "float64"))
    assert_same(found["b"][1][1]["x"], paddle.ones([5, 3], "float64"))
    assert found["outer"][1]["k"] is None
    assert optree.tree_leaves(found["count"]) == []
    single = jac(fn)(a, B, n=3)
    assert_same(single["outer"]["x"], found["outer"][1]["x"], rtol=1e-12)


@pytest.mark.parametrize("jac", [jacrev, jacfwd])
def test_the_same_numbers_as_the_lazy_one(jac):
    f = lambda x: paddle.tanh(x).outer(x) * x.sum()  # noqa: E731
    assert_same(jac(f)(C), jacobian(f, C).tensor(), rtol=1e-12)
    found, aux = jac(lambda x: (f(x), "aux"), has_aux=True)(C)
    assert_same(found, jac(f)(C))
    assert aux == "aux"


def test_jacobians_within_transforms():
    f = lambda x: paddle.sin(x) * x.sum()  # noqa: E731
    for jac in (jacrev, jacfwd):
        norm = lambda x, jac=jac: (jac(f)(x) ** 2).sum()  # noqa: E731
        slope = jacobian_of(norm, C)
        assert_same(grad(norm)(C), slope, atol=1e-7 * float(slope.abs().max()))


def test_empty_and_number():
    empty = paddle.zeros([0, 3], "float64")
    for jac in (jacrev, jacfwd):
        assert list(jac(lambda x: x * 2)(empty).shape) == [0, 3, 0, 3]
        assert list(jac(lambda x: x.sum() ** 2)(C).shape) == [5]


def test_grad_is_the_second_of_value_and_grad():
    loss = lambda w, x: ((w["a"] * x) ** 2).sum()  # noqa: E731
    w = {"a": A}
    for argnums in (0, 1, -1, (1, 0), [0]):
        expected = value_and_grad(loss, argnums)(w, A + 1)[1]
        assert_same(grad(loss, argnums)(w, A + 1), expected)
    found, aux = grad(lambda x: (x.sum(), {"n": x.sum()}), has_aux=True)(A)
    assert_same(found, paddle.ones([3], "float64"))
    assert aux["n"].stop_gradient


def test_hessians_of_trees():
    loss = lambda p, x: (paddle.tanh(p["w"] * x).sum() * p["b"] ** 2).sum()  # noqa: E731
    p = {"w": A, "b": randn([2], "float64", 5)}
    found = hessian(loss)(p, A + 1)
    for one in p:
        for other in p:
            by_one = lambda v, one=one, other=other: grad(  # noqa: E731
                lambda u: loss(
                    {**p, other: v, one: u} if one != other else {**p, one: u}, A + 1
                )
            )(p[one] if one != other else v)
            expected = jacobian_of(by_one, p[other])
            assert_same(found[one][other], expected, atol=1e-6)
    both = hessian(loss, argnums=(0, 1))(p, A + 1)
    for one in p:
        assert_same(both[0][one][0], found[one], rtol=1e-12)
    assert list(both[1][0]["b"].shape) == [3, 2]
    matrix, aux = hessian(lambda x: ((x**3).sum(), "aux"), has_aux=True)(A)
    assert_same(matrix, paddle.diag(6 * A), rtol=1e-12)
    assert aux == "aux"


def test_linearize():
    f = lambda x, y: {"z": paddle.tanh(x) * y, "n": 3}  # noqa: E731
    y = randn([3], "float64", 7)
    value, pushforward, aux = linearize(lambda *a: (f(*a), 1), A, y, has_aux=True)
    assert aux == 1
    for k in range(3):
        v, w = (
            randn([3], "float64", 10 + k),
            None if k == 2 else randn([3], "float64", k),
        )
        expected, slope = jvp(f, (A, y), (v, w))
        assert_same(value["z"], expected["z"])
        found = pushforward(v, w)
        assert_same(found["z"], slope["z"])
        assert found["n"] is None
    with pytest.raises(ValueError, match="one tensor, or None for zero, per primal"):
        pushforward(A)
    found, slope, aux = jvp(lambda x: (x * x, "aux"), (A,), (y,), has_aux=True)
    assert_same(slope, 2 * A * y, rtol=1e-12)
    assert aux == "aux"


def test_a_net_is_called_as_a_function():
    net = FCNet((3, 5, 2), "tanh")
    params, x = net.init(0), randn([4, 3])
    assert_same(net(params, x), net.forward(params, x))
    assert_same(net(net.flatten(params), x), net.forward(params, x))


@pytest.mark.parametrize(
    "index",
    [
        (1, 2, 3),
        (1, slice(None), 0),
        (..., 2),
        (0, ...),
        (slice(0, 2), 1, slice(1, None)),
        ([1, 0], 2, -1),
        (slice(None), slice(None), slice(None)),
        1,
        (1, 2),
    ],
    ids=str,
)
def test_an_index_of_outputs_and_inputs(index):
    """As of the whole array, and only the rows asked for are computed."""
    x = paddle.to_tensor(np.random.default_rng(0).standard_normal(4))
    w = paddle.to_tensor(np.random.default_rng(1).standard_normal((2, 3, 4)))
    calls = []

    def f(x):
        calls.append(1)
        return paddle.sin(w * x).sum(-1)

    found = jacobian(f, x)[index]
    expected = (paddle.cos(w * x) * w).numpy()[index]
    assert list(found.shape) == list(expected.shape)
    assert np.allclose(found.numpy(), expected, rtol=1e-13)
    assert len(calls) == 1


def test_an_index_of_outputs_and_inputs_of_samples():
    x = paddle.to_tensor(np.random.default_rng(0).standard_normal((5, 3)))
    found = jacobian(lambda x: x**2 * x.sum(1, keepdim=True), x, batched=True)
    whole = found.tensor()
    assert list(whole.shape) == [5, 3, 3]
    for i, j in ((0, 1), (2, 2)):
        assert np.array_equal(found[i, j].numpy(), whole[:, i, j].numpy())


def test_jacobians_of_complex_numbers_are_whole_or_refused():
    x = randn([3], "float64")
    z = paddle.complex(x, randn([3], "float64", 1))
    slope = paddle.complex(paddle.eye(3, dtype="float64"), paddle.diag(2 * x))

    def circle(x):
        return paddle.complex(x, x**2)

    def size(z):
        return (z.abs() ** 2).sum()

    assert_same(jacfwd(circle)(x), slope)
    assert_same(jacrev(size)(z), 2 * z, rtol=1e-12)
    tall = jacobian(lambda z: paddle.stack([(size(z))] * 20), z)
    assert_same(tall.tensor(), paddle.stack([2 * z] * 20), rtol=1e-12)
    for call, said in (
        (lambda: jacrev(circle)(x), "jacrev .* real outputs, got paddle.complex128"),
        (lambda: jacrev(lambda z: z * z)(z), "as_real"),
        (lambda: jacobian(circle, x), "jacobian .* real outputs"),
        (lambda: jacfwd(size)(z), "jacfwd .* real arguments, got paddle.complex128"),
        (lambda: hessian(size)(z), "hessian .* real arguments"),
    ):
        with pytest.raises(TypeError, match=said):
            call()
