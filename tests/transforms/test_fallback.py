"""Derivatives that the tape refuses: by rules, near zero too, and quietly."""

import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from conftest import assert_same, programs_on, randn, run_code
from differences import slope_along
from paddle_chainrules import jvp, linearize

pytestmark = programs_on


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("place", range(4))
def test_an_entry_near_zero_is_no_reason(place, activation, dtype):
    """What tape and program differ by there is rounding of the others."""
    paddle.seed(place)
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.1, activation).eval()
    x, v = randn([2, 5, 8]), randn([2, 5, 8], seed=1)
    layer.to(dtype=dtype)
    x, v = x.astype(dtype), v.astype(dtype)
    # So that each entry is near zero for some place.
    zero = layer(x).detach().reshape([-1])[7 * place + 3]

    def function(x):
        return (layer(x) - zero) * 3

    value, slope = jvp(function, (x,), (v,))
    assert_same(value.detach(), function(x).detach(), atol=1e-5)
    exact = layer.to(dtype="float64")
    zero = zero.astype("float64")
    x, v = x.astype("float64"), v.astype("float64")
    expected = slope_along(lambda x: (exact(x) - zero) * 3, x, v, 1e-6)
    assert_same(
        slope.astype("float64").detach(), expected.detach(), rtol=1e-3, atol=1e-3
    )


def roughly(x):
    """Which no tape differentiates twice, and whose results are near one another."""
    return F.hardswish(paddle.cumsum(x * 1e3)) - F.hardswish(paddle.cumsum(x * 1e3))[3]


def test_small_differences_of_large_numbers():
    x, v = randn([9]), randn([9], seed=1)
    _, slope = jvp(roughly, (x,), (v,))
    x, v = x.astype("float64"), v.astype("float64")
    expected = slope_along(roughly, x, v, 1e-7)
    assert_same(slope.astype("float64"), expected, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_has_changed_since_is_refused(dtype):
    factor = paddle.ones([3], dtype)
    x = randn([2, 3], dtype)
    _, push = linearize(lambda x: F.hardswish(x * factor), x)
    factor.scale_(1.001)
    with pytest.raises(RuntimeError, match="has been modified"):
        push(x)


QUIET = """
import warnings
import paddle, paddle.nn.functional as F
from paddle_chainrules import *

x = paddle.linspace(-2.0, 2.0, 6)
v = paddle.ones([6])
layer = paddle.nn.TransformerEncoderLayer(4, 2, 8)
y = paddle.randn([2, 3, 4])
for _ in range(2):
    jvp(F.hardswish, (x,), (v,))
    jvp(jit(F.hardswish), (x,), (v,))
    hvp(lambda x: (F.hardswish(x) ** 2).sum(), x, v)
    hessian(lambda x: (F.hardswish(x) ** 2).sum())(x)
    jacfwd(F.hardswish)(x)
    vjp(grad(lambda x: (F.hardswish(x) ** 2).sum()), x)[1](v)
    jvp(layer, (y,), (y,))
    jvp(layer.eval(), (y,), (y,))
    jvp(lambda y: nn(y)[0], (y,), (y,)) if (nn := paddle.nn.LSTM(4, 5)) else None
    try:
        jvp(lambda x: F.hardswish(paddle.nextafter(x, v)), (x,), (v,))
    except NotImplementedError:
        print("refused")


class Fails(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, cotangent):
        raise LookupError("of the caller's own")


try:
    vjp(Fails.apply, x)[1](v)
except OSError:
    print("failed")
leaf = x.clone()
leaf.stop_gradient = False
print("END", flush=True)
try:
    Fails.apply(leaf).sum().backward()
except OSError:
    print("failed, by Paddle alone")
"""


def test_nothing_is_written_to_the_terminal():
    """But by Paddle where it is called without this package, as before."""
    done = run_code(QUIET)
    assert done.returncode == 0, done.stderr[-3000:]
    said = ["refused", "refused", "failed", "END", "failed, by Paddle alone"]
    assert done.stdout.splitlines() == said
    written = [
        line
        for line in done.stderr.splitlines()
        if "While running Node" in line or "EnforceNotMet" in line
    ]
    assert len(written) == 1, done.stderr
