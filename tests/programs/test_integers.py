"""Integers and truths in programs and in machine code, beside native Paddle."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from conftest import loops_on
from paddle_chainrules import jit
from paddle_chainrules import settings as switch

pytestmark = loops_on

DTYPES = ("bool", "uint8", "int8", "int32", "int64", "float32", "float64")
SCALARS = (0, 1, 2, -1, -3, 300, 1.5, -0.5, True, False)
CALLS = 4
"""The first makes the program; machine code runs from the third on."""

BINARY: dict[str, Any] = {
    **{
        name: getattr(operator, name)
        for name in ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv")
    },
    **{name: getattr(operator, name) for name in ("and_", "or_", "xor")},
    **{name: getattr(paddle, name) for name in ("maximum", "minimum", "fmax", "fmin")},
    **{name: getattr(paddle, name) for name in ("logical_and", "logical_or")},
    "where": lambda a, b: paddle.where(a > 0, a, b),
    "where of comparisons": lambda a, b: (
        paddle.where(a != b, 1.0, 2.0) + paddle.where(a == b, 0.5, 0.25)
    ),
    "from the right": lambda a, b: (b - a, b * a, b < a),
}

UNARY: dict[str, Any] = {
    "sums": lambda a: (a.sum(), a.sum(1), a.sum(0, keepdim=True), a.mean()),
    "sums of a dtype": lambda a: (a.sum(dtype="int64"), a.sum(1, dtype="int32")),
    "largest": lambda a: (a.max(), a.max(1), a.min(0), paddle.amax(a, 1)),
    "products": lambda a: (a.prod(), a.prod(1)),
    "cumulative": lambda a: (a.cumsum(0), a.cumprod(1), paddle.cummax(a, 1)[0]),
    "diagonals": lambda a: (a.trace(), a.trace(1) + a.trace(), paddle.diagonal(a)),
    "triangles": lambda a: (paddle.tril(a) + a, paddle.triu(a, 1)),
    "order": lambda a: (a.sort(1), a.argsort(1), a.argmax(), a.argmin(1)),
    "flags": lambda a: (a.all(), a.any(1), ~(a > 1), paddle.logical_not(a)),
    "arithmetic": lambda a: (1 - a, -a, a.abs(), paddle.square(a), paddle.sign(a)),
    "with numbers": lambda a: (a * True, a + True, a * 0.5, a + 0.5, a / 3, 7 * a),
    "rounded": lambda a: (paddle.floor(a), paddle.round(a), a.clip(-1, 3), F.relu(a)),
    "scaled": lambda a: (paddle.scale(a, 2.5), paddle.scale(a, 2, 1), a.pow(2)),
    "cast": lambda a: (a.astype("int8") + 1, a.astype("bool"), a.astype("uint8")),
    "cast to floats": lambda a: (a.astype("float32") * 2, a.astype("int32").mean()),
    "filled": lambda a: (paddle.ones_like(a) + a, paddle.full_like(a, 2.7)),
    "moved": lambda a: (a.roll(1, 0) * 2, paddle.concat([a, a], 1), a.tile([2, 1])),
    "entries": lambda a: a[:, 1:3] * a[:, :2],
    "products of matrices": lambda a: (a @ a.T, paddle.outer(a[0], a[1])),
    "dot": lambda a: paddle.dot(a[0], a[1]) * 2,
    "shifts": lambda a: (a << 1, a >> 1),
    "counts": lambda a: (paddle.count_nonzero(a), paddle.count_nonzero(a, 1)),
    "chosen": lambda a: (paddle.where(a > 1, a, a + a), paddle.where(a > 1, 1.5, 2.0)),
    "divided": lambda a: (a // 3, a // (a + 9), 7 / (a + 9)),
    "of powers of two": lambda a: paddle.full([3], 2**30, "int32") * a[0, :3],
    "softmax": lambda a: (F.softmax(a), paddle.logsumexp(a), paddle.exp(a)),
    "moments": lambda a: (a.std(), a.var(1), a.norm()),
}


def _numbers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> paddle.Tensor:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return paddle.to_tensor(rng.random(shape) > 0.5)
    if dtype.startswith("float"):
        return paddle.to_tensor((rng.standard_normal(shape) * 3).astype(dtype))
    low = 0 if dtype == "uint8" else -7
    return paddle.to_tensor(rng.integers(low, 8, shape).astype(dtype))


def _compare(fn, *args) -> bool:
    """Compare all calls with Paddle; False where Paddle refuses."""
    try:
        expected = fn(*args)
    except Exception:  # Paddle's kernels lack many of these dtypes
        return False
    expected = expected if isinstance(expected, tuple) else (expected,)
    if not all(isinstance(y, paddle.Tensor) for y in expected):
        return False
    run = jit(fn)
    for _ in range(CALLS):
        found = run(*args)
        found = found if isinstance(found, tuple) else (found,)
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            rtol, atol = (1e-5, 1e-6) if a.is_floating_point() else (0.0, 0.0)
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol, atol)
    return True


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name, monkeypatch):
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 1)
    fn, count = BINARY[name], 0
    for dtype in DTYPES:
        x = _numbers(dtype, (3, 4))
        for scalar in SCALARS:
            count += _compare(lambda a, s=scalar: fn(a, s), x)
        for other in DTYPES:
            count += _compare(fn, x, _numbers(other, (4,), 1))
    assert count > 3


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name, monkeypatch):
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 1)
    assert sum(_compare(UNARY[name], _numbers(dtype, (3, 4))) for dtype in DTYPES)
