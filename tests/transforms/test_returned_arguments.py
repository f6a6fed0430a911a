"""Operations that give back their argument, first and last, in every transform."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from conftest import assert_same, randn
from paddle_chainrules import grad, hessian, hvp, jit, jvp, linearize, vjp

X, V = randn([2, 3], "float64"), randn([2, 3], "float64", 1)

SAME = {
    "contiguous": lambda t: t.contiguous(),
    "to": lambda t: t.to("float64"),
    "cpu": lambda t: t.cpu(),
    "astype": lambda t: t.astype("float64"),
    "dropout": lambda t: F.dropout(t, 0.5, training=False),
    "Identity": paddle.nn.Identity(),
    "expand": lambda t: t.expand([2, 3]),
    "assign": paddle.assign,
    "squeeze": lambda t: t.squeeze(),
    "brackets": lambda t: t[:],
    "atleast_1d": paddle.atleast_1d,
    "conj": lambda t: t.conj(),
    "einsum": lambda t: paddle.einsum("ij->ij", t),
    "flip": lambda t: t.flip([]),
    "itself": lambda t: t,
}


@pytest.mark.parametrize("name", SAME)
def test_uses_before_and_after(name):
    same = SAME[name]
    functions = (
        lambda t: (t**3).sum() + (same(t) ** 2).sum(),
        lambda t: (same(t) ** 2).sum() + (t**3).sum(),
        lambda t: (same(t) ** 3).sum() + (same(same(t)) * t).sum(),
    )
    slope, curved = 3.0 * X**2 + 2.0 * X, 6.0 * X + 2.0
    square = paddle.diag(curved.flatten())
    for fn in functions:
        assert_same(grad(fn)(X), slope, rtol=1e-12)
        assert_same(jvp(fn, (X,), (V,))[1], (slope * V).sum(), rtol=1e-12)
        assert_same(linearize(fn, X)[1](V), (slope * V).sum(), rtol=1e-12)
        assert_same(hvp(fn, X, V), curved * V, rtol=1e-12)
        assert_same(hessian(fn)(X).reshape([6, 6]), square, rtol=1e-12)
        assert_same(jit(hessian(fn))(X).reshape([6, 6]), square, rtol=1e-12)


@pytest.mark.parametrize("name", SAME)
def test_several_outputs(name):
    same = SAME[name]
    functions = (
        lambda t: [same(t)[:], t * 1.0],
        lambda t: [t * 1.0, same(t)],
        lambda t: [same(t), t],
        lambda t: [2.0 * t - t, same(t)[:, :]],
    )
    for fn in functions:
        for tangent in jvp(fn, (X,), (V,))[1]:
            assert_same(tangent, V, rtol=1e-12)
        found = vjp(fn, X)[1]([V, 2.0 * V])
        found = found[0] if isinstance(found, list | tuple) else found
        assert_same(found, 3.0 * V, rtol=1e-12)


def test_a_program_does_not_write_into_what_einsum_gives_back():
    before = X.numpy().copy()

    def fn(t):
        once = paddle.einsum("ij->ij", t)
        return (once**3).sum() + (paddle.einsum("ij->ij", once) * t).sum()

    compiled = jit(hessian(fn))
    for _ in range(40):
        compiled(X)
    np.testing.assert_array_equal(X.numpy(), before)
