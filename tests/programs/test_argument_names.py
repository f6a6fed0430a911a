"""Names that Paddle's operators accept for their arguments, in every transform."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from differences import slope_along
from paddle_chainrules import grad, hvp, jit, jvp, vmap

M = paddle.to_tensor([[0.3, -1.2, 0.7], [1.1, 0.4, -0.6], [-0.9, 0.8, 1.7]], "float64")
U = paddle.to_tensor([[0.5, 0.9, -0.4], [-1.3, 0.2, 0.6], [0.1, -0.7, 1.2]], "float64")
OTHER = M * 0.7 + 0.11
ROW = paddle.to_tensor([1])

FUNCTIONS = {
    "matmul of None": lambda x: paddle.matmul(x, x, False, True, None).pow(2).sum(),
    "matmul of a name": lambda x: paddle.matmul(x, x, False, True, "a").pow(2).sum(),
    "matmul by names": lambda x: paddle.matmul(input=x, other=x).pow(2).sum(),
    "bmm": lambda x: paddle.bmm(input=x[None], mat2=x[None]).pow(2).sum(),
    "dot": lambda x: paddle.dot(x[0], tensor=x[1]) ** 2,
    "roll": lambda x: (paddle.roll(x, 1, dims=0) ** 2 * M).sum(),
    "roll of a method": lambda x: (x.roll(shifts=1, dims=[1]) ** 2 * M).sum(),
    "diagonal": lambda x: paddle.diagonal(x, 0, dim1=1, dim2=0).pow(3).sum(),
    "index_put": lambda x: paddle.index_put(x, (ROW,), values=x[0] ** 2).pow(2).sum(),
    "gelu by tanh": lambda x: F.gelu(x, "tanh").sum(),
    "gelu by none": lambda x: F.gelu(input=x, approximate="none", name="g").sum(),
    "gelu of a name": lambda x: F.gelu(x, False, "g").sum(),
    "amax": lambda x: paddle.amax(input=x, dim=1, keepdim=True).pow(2).sum(),
    "sum": lambda x: paddle.sum(input=x * x, dim=1).pow(2).sum(),
    "sum of a method": lambda x: (x * x).sum(dim=1, keepdim=True).pow(2).sum(),
    "logsumexp": lambda x: paddle.logsumexp(x, dim=1).pow(2).sum(),
    "softplus": lambda x: F.softplus(x, 1, 20, None).sum(),
    "maximum": lambda x: paddle.maximum(input=x, other=OTHER).pow(2).sum(),
    "multiply": lambda x: paddle.multiply(x, x, None).pow(2).sum(),
    "expand_as": lambda x: paddle.expand_as(input=x[:1], other=M).pow(2).sum(),
}


@pytest.mark.filterwarnings("ignore:.*runs for one of:UserWarning")
@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_other_names_of_arguments(fn):
    value = float(fn(M))
    slope = float(slope_along(fn, M, U))
    curvature = float(slope_along(lambda x: (grad(fn)(x) * U).sum(), M, U))
    compiled = jit(grad(fn))
    for _ in range(3):
        assert float((grad(fn)(M) * U).sum()) == pytest.approx(slope, rel=1e-6)
        assert float((compiled(M) * U).sum()) == pytest.approx(slope, rel=1e-6)
        primal, tangent = jvp(fn, (M,), (U,))
        assert float(primal) == pytest.approx(value, rel=1e-12)
        assert float(tangent) == pytest.approx(slope, rel=1e-6)
        product = float((hvp(fn, M, U) * U).sum())
        assert product == pytest.approx(curvature, rel=1e-5, abs=1e-8)
        assert float(vmap(fn)(M[None])[0]) == pytest.approx(value, rel=1e-12)


def _detached_late(x):
    y = x * x
    row, twice = y[0], y * 2
    twice.detach_()
    return (row * twice[1]).sum() + (y * twice).pow(2).sum()


def test_detach_in_place():
    x = M.clone()
    x.stop_gradient = False
    _detached_late(x).backward()
    for _ in range(3):
        assert_close(grad(_detached_late)(M), x.grad)
        assert_close(jit(grad(_detached_late))(M), x.grad)
        assert_close(jvp(_detached_late, (M,), (U,))[1], (x.grad * U).sum())
        assert_close(vmap(_detached_late)(M[None])[0], _detached_late(M))


def assert_close(result, expected):
    np.testing.assert_allclose(result.numpy(), expected.numpy(), 1e-12, 1e-12)
