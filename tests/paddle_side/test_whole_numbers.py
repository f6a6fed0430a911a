"""Integers and Booleans have no derivative, nor has what is made of them."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from conftest import programs_on
from paddle_chainrules import grad, hessian, jacrev, jit, jvp, stateless, vjp, vmap
from paddle_chainrules.paddle_side.listener import programs_disabled

RNG = np.random.default_rng(3)
X = RNG.uniform(1.1, 1.9, (3, 4)) * RNG.choice([-1.0, 1.0], (3, 4)) + RNG.permutation(
    12
).reshape(3, 4)
V, C = RNG.standard_normal((2, 3, 4))


def assigned(x):
    n = paddle.zeros(x.shape, "int64")
    n[1] = x[2]
    n[paddle.to_tensor([0, 2])] = x[:2].astype("int64")
    return n


def cast_in_place(x):
    y = x * 1
    y.cast_("int32")
    return y


def to_float_in_place(x):
    y = x.astype("int32") * 2
    y.cast_(str(x.dtype).removeprefix("paddle."))
    return y


class Rounded(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x):
        return x.astype("int64")

    @staticmethod
    def backward(ctx, g):
        return g.astype("float64") * 7


NUMBERS = {
    "int64": lambda x: x.astype("int64"),
    "int32, by to": lambda x: x.to("int32"),
    "int8": lambda x: x.astype(paddle.int8),
    "bool": lambda x: (x - X.max()).astype("bool"),
    "cast": lambda x: paddle.cast(x, "int16"),
    "in place": cast_in_place,
    "and back in place": to_float_in_place,
    "count_nonzero": paddle.count_nonzero,
    "count_nonzero by rows": lambda x: paddle.count_nonzero(x, 1, keepdim=True),
    "arithmetic": lambda x: (x.astype("int64") * 3 - 1) % 5,
    "halves": lambda x: x.astype("int64") * 0.5,
    "a quotient": lambda x: 3.0 / (x.astype("int64") + 40),
    "a power": lambda x: x.astype("int64") ** 2,
    "floor_divide": lambda x: x.astype("int64") // 2,
    "a floored quotient": lambda x: x // 0.7,
    "sum to integers": lambda x: paddle.sum(x, 0, dtype="int64"),
    "sum of integers": lambda x: paddle.sum(x.astype("int32"), 1, "float64", True),
    "prod": lambda x: paddle.prod(x, 0, dtype="int64"),
    "cumsum": lambda x: paddle.cumsum(x, 0, dtype="int64"),
    "nansum": lambda x: paddle.nansum(x, 0, dtype="int64"),
    "mean": lambda x: x.astype("int64").astype("float32").mean(),
    "a product of matrices": lambda x: (
        x[:, :3].astype("int32").matmul(x.astype("int32"))
    ),
    "a comparison": lambda x: x > 5,
    "isfinite": paddle.isfinite,
    "argmax": lambda x: paddle.argmax(x, 0),
    "argsort": lambda x: paddle.argsort(x, 0) * 0.5,
    "topk": lambda x: paddle.topk(x, 2, 0)[1].sum(0),
    "kthvalue": lambda x: paddle.kthvalue(x, 2, 0)[1],
    "cummax": lambda x: paddle.cummax(x, 0)[1],
    "places of pooling": lambda x: F.max_pool1d(x.unsqueeze(0), 2, return_mask=True)[
        1
    ].sum(),
    "one_hot": lambda x: F.one_hot(x.abs().astype("int64")[:, 0], 20).sum(),
    "items": assigned,
    "where": lambda x: paddle.where(x > 4, x.astype("int64"), 1),
    "complex": lambda x: paddle.real(x.astype("int64").astype("complex128") * 2j**2),
    "bits": lambda x: x.view("int32" if x.dtype == paddle.float32 else "int64") % 7,
    "bits and back": lambda x: x.view(
        "int32" if x.dtype == paddle.float32 else "int64"
    ).view(x.dtype),
    "a PyLayer": Rounded.apply,  # which no listener sees
}
DTYPES = {"float32": 2e-5, "float64": 1e-12}


def scaled(number, dtype):
    return lambda x: number(x).astype(dtype) * x * x + x


def expected(name, x, dtype):
    """The numbers, which are constants."""
    with paddle.no_grad():
        n = NUMBERS[name](paddle.to_tensor(x)).astype(dtype).numpy()
    return np.broadcast_to(n, x.shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NUMBERS)
def test_they_are_constants(name, dtype):
    x, v, c = (a.astype(dtype) for a in (X, V, C))
    n = expected(name, x, dtype)
    slope, tx, tv, tc = 2 * n * x + 1, *map(paddle.to_tensor, (x, v, c))
    fn = scaled(NUMBERS[name], dtype)

    def near(found, wanted):
        close = {"rtol": DTYPES[dtype], "atol": DTYPES[dtype] * np.abs(wanted).max()}
        np.testing.assert_allclose(found.numpy(), wanted, **close)

    def loss(x):
        return (fn(x) * tc).sum()

    def back(x):
        return vjp(fn, x)[1](tc)[0]

    def along(x):
        return jvp(fn, (x,), (tv,))[1]

    def twice(x):
        return jvp(grad(loss), (x,), (tv,))[1]

    for run in (lambda f: f, jit):
        near(run(back)(tx), c * slope)
        near(run(along)(tx), v * slope)
        near(run(grad(loss))(tx), c * slope)
        near(run(twice)(tx), 2 * n * c * v)
    with programs_disabled():
        near(back(tx), c * slope)
        near(along(tx), v * slope)


@pytest.mark.parametrize("name", ["int64", "bool", "halves", "count_nonzero by rows"])
def test_the_other_transforms(name):
    fn = scaled(NUMBERS[name], "float64")
    x = paddle.to_tensor(X)
    slope = 2 * expected(name, X, "float64") * X + 1
    np.testing.assert_allclose(
        jacrev(fn)(x).numpy().reshape(12, 12), np.diag(slope.ravel()), rtol=1e-12
    )
    second = hessian(lambda x: fn(x).sum())(x).numpy().reshape(12, 12)
    n = expected(name, X, "float64")
    np.testing.assert_allclose(second, np.diag(2 * n.ravel()), rtol=1e-12)
    if "count" not in name:
        rows = vmap(grad(lambda x: fn(x).sum()))(x)
        np.testing.assert_allclose(rows.numpy(), slope, rtol=1e-12)


class Stepped(nn.Layer):
    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([4, 3])

    def forward(self, x):
        y = x @ self.weight
        return y * y.astype("int64").astype(y.dtype) + paddle.count_nonzero(y) * 1.0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", [False, True])
def test_nets_at_the_first_call_and_later(how, dtype):
    layer = Stepped().to(dtype=dtype)
    net, params, _ = stateless(layer, jit=how)
    rng = np.random.default_rng(5)
    for _ in range(6):
        x, c = (rng.standard_normal(s).astype(dtype) * 3 for s in ((2, 4), (2, 3)))
        _, back = net.pullback(params, paddle.to_tensor(x))
        grads, (gx,) = back(paddle.to_tensor(c))
        w = params["weight"].numpy()
        g = c * np.trunc(x @ w)
        atol = DTYPES[dtype] * 100
        np.testing.assert_allclose(gx.numpy(), g @ w.T, atol=atol)
        np.testing.assert_allclose(grads["weight"].numpy(), x.T @ g, atol=atol)


def test_a_net_called_with_a_trainable_tensor():
    layer = Stepped().to(dtype="float64")
    net, params, _ = stateless(layer)
    x = paddle.to_tensor(X, stop_gradient=False)
    net.forward(params, x).sum().backward()
    w = params["weight"].numpy()
    np.testing.assert_allclose(x.grad.numpy(), np.trunc(X @ w) @ w.T)


def test_integers_that_come_with_a_graph():
    w = paddle.to_tensor(X, stop_gradient=False)
    n = w.astype("int64")  # Paddle's own, to which gradients flow
    assert not n.stop_gradient
    y, back = vjp(lambda x, n: x * n.astype("float64") + n * 0.5, w, n)
    grads = back(paddle.to_tensor(C))
    assert grads[1] is None
    np.testing.assert_allclose(grads[0].numpy(), C * np.trunc(X))
    (found,) = paddle.grad(y, w, paddle.to_tensor(C))
    np.testing.assert_allclose(found.numpy(), C * np.trunc(X))


def test_the_bits_of_other_floats_have_no_derivative():
    x = paddle.to_tensor(X)
    y, back = vjp(lambda x: x.view("complex128"), x)
    c = paddle.complex(*paddle.to_tensor(C).reshape([3, 2, 2]).unbind(-1))
    np.testing.assert_array_equal(back(c)[0].numpy(), C)
    assert y.shape == [3, 2]


def test_programs_know_them():
    if programs_on():
        fn = scaled(NUMBERS["int64"], "float64")
        jit(grad(lambda x: fn(x).sum()), strict=True)(paddle.to_tensor(X))


def test_weights_of_bincount():
    index = paddle.to_tensor([3, 0, 3, 1, 5])
    c, w = RNG.standard_normal(6), RNG.standard_normal(5)

    def fn(w):
        return (paddle.bincount(index, w) ** 2 * paddle.to_tensor(c)).sum()

    total = np.bincount(index.numpy(), w, 6)
    slope = (2 * c * total)[index.numpy()]
    for run in (lambda f: f, jit):
        found = run(grad(fn))(paddle.to_tensor(w))
        np.testing.assert_allclose(found.numpy(), slope)
    v = RNG.standard_normal(5)
    found = jvp(fn, (paddle.to_tensor(w),), (paddle.to_tensor(v),))[1]
    np.testing.assert_allclose(float(found), slope @ v)
