"""Tensors where Paddle's functions take numbers: exact, or refused by name."""

import warnings

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from conftest import assert_same, programs_on
from paddle_chainrules import CaptureError, ConstantWarning, grad, jit, jvp, vjp

RNG = np.random.default_rng(7)
A = 0.7
X = RNG.uniform(0.3, 1.7, (3, 4)) * RNG.choice([-1.0, 1.0], (3, 4))

# What Paddle says of to_tensor, in its own functions too.
pytestmark = pytest.mark.filterwarnings("ignore:To copy construct")

EXACT = {
    "pad": lambda x, a: F.pad(x, [1, 2], value=a),
    "pad of all axes": lambda x, a: F.pad(x, [1, 2, 0, 1], value=a),
    "pad of images": lambda x, a: F.pad(x[None, None], [1, 2, 0, 1], value=a),
    "pad of signals": lambda x, a: F.pad(x[None], [2, 1], value=a),
    "pad, channels last": lambda x, a: F.pad(
        x[None], [2, 1], value=a, data_format="NLC"
    ),
    "full": lambda x, a: paddle.full([3, 4], a, x.dtype) * x,
    "full_like": lambda x, a: paddle.full_like(x, a) * x,
    "linspace": lambda x, a: paddle.linspace(a, 2.0, 4, dtype=x.dtype) * x,
    "linspace to": lambda x, a: paddle.linspace(0.5, a, 4, dtype=x.dtype) * x,
    "logspace": lambda x, a: paddle.logspace(a, 2.0, 4, dtype=x.dtype) * x,
    "arange": lambda x, a: paddle.arange(a, 2.0, 0.4, dtype=x.dtype) * x,
    "arange by": lambda x, a: paddle.arange(0.0, 2.5, a, dtype=x.dtype) * x,
    "clip": lambda x, a: paddle.clip(x, -a, a * 1.3),
    "scale": lambda x, a: paddle.scale(x, a),
    "pow": lambda x, a: paddle.pow(x.abs(), a),
    "**": lambda x, a: x.abs() ** a + a**x,
    "lerp": lambda x, a: paddle.lerp(x, x * x, a),
    "addmm": lambda x, a: paddle.addmm(x, x[:, :3], x, beta=a, alpha=a),
    "trapezoid": lambda x, a: paddle.trapezoid(x, dx=a),
    "quantile": lambda x, a: paddle.quantile(x, a, 1),
    "focal loss": lambda x, a: F.sigmoid_focal_loss(
        x, (x > 0).astype(x.dtype), alpha=a, gamma=a + 1, reduction="none"
    ),
    "hinge": lambda x, a: F.hinge_embedding_loss(x, paddle.sign(x).detach(), a + 2),
    "normalize": lambda x, a: F.normalize(x * 0.3, epsilon=a),
    "masked_fill": lambda x, a: paddle.masked_fill(x, x > 0.5, a),
    "where": lambda x, a: paddle.where(x > 0.5, x, a),
    "index_fill": lambda x, a: paddle.index_fill(x, paddle.to_tensor([1]), 0, a) * x,
    "put_along_axis": lambda x, a: paddle.put_along_axis(
        x, paddle.to_tensor([[2]]), a, 1
    ),
}
ONCE = {"quantile", "normalize", "focal loss"}
"""Of which Paddle has no second derivative."""

ROUGH = {"addmm", "scale", "focal loss"}
"""Paddle's own round their numbers to float32 where nothing is differentiated."""

REFUSED = {
    "smooth_l1_loss": lambda x, a: F.smooth_l1_loss(x, x * 2, delta=a),
    "margin_ranking_loss": lambda x, a: F.margin_ranking_loss(x, 2 * x, x, margin=a),
    "elu": lambda x, a: F.elu(x, a),
    "leaky_relu": lambda x, a: F.leaky_relu(x, a),
    "softplus": lambda x, a: F.softplus(x, a),
    "celu": lambda x, a: F.celu(x, a),
    "hardtanh": lambda x, a: F.hardtanh(x, -1.0, a),
    "gumbel_softmax": lambda x, a: F.gumbel_softmax(x, a),
    "renorm": lambda x, a: paddle.renorm(x, 2.0, 0, a),
    "stanh": lambda x, a: paddle.stanh(x, a),
    "scale": lambda x, a: paddle.scale(x, 2.0, a),
    "label_smooth": lambda x, a: F.label_smooth(x, epsilon=a),
    "uniform": lambda x, a: paddle.uniform([2], min=a) * x[0, 0],
    "dropout": lambda x, a: F.dropout(x, a),
}


def tensors(dtype="float64"):
    return paddle.to_tensor(X, dtype), paddle.to_tensor(A, dtype)


def differences(fn, step=1e-4):
    """The derivative by the number, after Richardson."""

    def at(a):
        with paddle.no_grad():
            return fn(paddle.to_tensor(X), paddle.to_tensor(a, "float64")).numpy()

    def central(h):
        return (at(A + h) - at(A - h)) / (2 * h)

    return (4 * central(step / 2) - central(step)) / 3


@pytest.mark.parametrize("name", EXACT)
def test_they_are_differentiated(name):
    fn = EXACT[name]
    x, a = tensors()
    by_a = differences(fn)
    # What is rounded to float32 jumps.
    close = {"rtol": 2e-2, "atol": 2e-2} if name in ROUGH else {"atol": 1e-7}
    c = RNG.standard_normal(by_a.shape)
    tc = paddle.to_tensor(c)
    v = RNG.standard_normal(X.shape)
    moved = (
        fn(x + 1e-6 * paddle.to_tensor(v), a) - fn(x - 1e-6 * paddle.to_tensor(v), a)
    ) / 2e-6

    def back(x, a):
        return vjp(fn, x, a)[1](tc)

    def along(x, a):
        return jvp(fn, (x, a), (paddle.to_tensor(v), paddle.to_tensor(0.4, "float64")))[
            1
        ]

    for run in (lambda f: f, jit):
        by_x, found = run(back)(x, a)
        np.testing.assert_allclose(float(found), (c * by_a).sum(), **close)
        np.testing.assert_allclose(
            float((by_x * paddle.to_tensor(v)).sum()),
            float((moved * tc).sum()),
            atol=1e-6,
        )
        if name not in ONCE:
            slope = moved.numpy() + 0.4 * by_a
            near = {"rtol": close.get("rtol", 0), "atol": max(close["atol"], 1e-6)}
            np.testing.assert_allclose(run(along)(x, a).numpy(), slope, **near)
        (alone,) = run(lambda a: vjp(lambda a: fn(x, a), a)[1](tc))(a)
        np.testing.assert_allclose(float(alone), (c * by_a).sum(), **close)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("kind", ["float32", "float64", "a number"])
def test_constants_of_any_dtype(name, kind):
    fn = EXACT[name]
    x, _ = tensors()
    a = 0.75 if kind == "a number" else paddle.to_tensor(0.75, kind)
    try:
        with paddle.no_grad():
            fn(x, a)
    except (TypeError, ValueError, RuntimeError):
        pytest.skip("Paddle does not take it")
    v = RNG.standard_normal(X.shape)
    tv = paddle.to_tensor(v)
    with paddle.no_grad():
        moved = (fn(x + 1e-6 * tv, a) - fn(x - 1e-6 * tv, a)) / 2e-6
    y = fn(x, a)
    if name not in ONCE:
        y, slope = jvp(lambda x: fn(x, a), (x,), (tv,))
        np.testing.assert_allclose(slope.numpy(), moved.numpy(), atol=1e-6)
    c = paddle.to_tensor(RNG.standard_normal(y.shape), y.dtype)
    (g,) = vjp(lambda x: fn(x, a), x)[1](c)
    np.testing.assert_allclose(
        float((g * tv).sum()), float((moved * c).sum()), atol=1e-5
    )


@pytest.mark.parametrize("name", REFUSED)
def test_the_rest_is_refused(name):
    fn = REFUSED[name]
    x, a = tensors()
    why = "would lose its gradient|no right derivative|no rule for its gradient"

    def back(fn, *args):
        y, pullback = vjp(fn, *args)
        return pullback(paddle.ones_like(y))

    for call in (
        lambda: back(fn, x, a),
        lambda: back(lambda a: fn(x, a), a),
        lambda: jvp(fn, (x, a), (x, a)),
        lambda: jvp(lambda a: fn(x, a), (a,), (a,)),
        lambda: grad(lambda x, a: fn(x, a).sum(), argnums=1)(x, a),
        lambda: jit(grad(lambda x, a: fn(x, a).sum(), argnums=1))(x, a),
    ):
        with pytest.raises(NotImplementedError, match=why):
            call()
    vjp(lambda x: fn(x, a.detach()), x)  # a constant is one


SKIPPED = {
    "margin_ranking_loss": lambda x, a: F.margin_ranking_loss(x, 2 * x, x, a),
    "cross_entropy": lambda x, a: F.cross_entropy(
        x, paddle.to_tensor([1] * len(x)), label_smoothing=a
    ),
    "attention": lambda x, a: F.scaled_dot_product_attention(
        *[x[None, :, None]] * 3, dropout_p=a
    ),
    "pairwise_distance": lambda x, a: F.pairwise_distance(x, 2 * x, 2.0, a),
    "dropout": lambda x, a: F.dropout(x, a),
}


@pytest.mark.parametrize("name", SKIPPED)
def test_a_number_that_is_not_looked_at_where_it_is_zero(name):
    fn = SKIPPED[name]
    x, a = paddle.to_tensor(X), paddle.to_tensor(0.0, "float64")
    for call in (
        lambda: vjp(lambda a: fn(x, a), a),
        lambda: jvp(lambda a: fn(x, a), (a,), (a,)),
        lambda: jit(grad(lambda x, a: fn(x, a).sum(), argnums=1))(x, a),
    ):
        with pytest.raises(
            NotImplementedError, match="would lose its gradient|no right"
        ):
            call()
    assert_same(grad(lambda x: fn(x, a).sum())(x), grad(lambda x: fn(x, 0.0).sum())(x))


def test_programs_refuse_them_too():
    if programs_on():
        x, a = tensors()
        for name in ("elu", "leaky_relu", "stanh"):
            fn = REFUSED[name]
            with pytest.raises(CaptureError):
                jit(grad(lambda a, fn=fn: fn(x, a).sum()), strict=True)(a)


def test_to_tensor_makes_constants_and_says_so():
    x, _ = tensors()
    for fn in (
        lambda x: paddle.to_tensor(x).sum() * x.sum(),
        lambda x: paddle.to_tensor([x.sum(), x.sum()]).mean().astype(x.dtype) * x.sum(),
    ):
        with pytest.warns(ConstantWarning, match="to_tensor") as seen:
            found = grad(fn)(x)
        assert {w.filename for w in seen} == {__file__}
        np.testing.assert_allclose(found.numpy(), np.full_like(X, X.sum()), rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConstantWarning)
        grad(lambda x: paddle.to_tensor(x.detach()).sum() * x.sum())(x)
        grad(lambda x: (paddle.to_tensor(2.0) * x.astype("float32")).sum())(x)


@pytest.mark.parametrize("epsilon", [1e-12, 0.3, 3.0])
def test_normalize_with_any_epsilon(epsilon):
    """Paddle adds it to the norm on the way back alone."""
    x, c = paddle.to_tensor(X), RNG.standard_normal(X.shape)
    tc = paddle.to_tensor(c)

    def fn(x):
        return F.normalize(x, epsilon=epsilon)

    expected = np.zeros_like(X)
    for i in np.ndindex(*X.shape):
        for sign in (1, -1):
            moved = X.copy()
            moved[i] += sign * 1e-6
            y = fn(paddle.to_tensor(moved)).numpy()
            expected[i] += sign * (y * c).sum() / 2e-6
    for run in (lambda f: f, jit):
        (found,) = run(lambda x: vjp(fn, x)[1](tc))(x)
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-7)
