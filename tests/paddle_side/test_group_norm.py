"""Group norms whose scale is zero, or small beside the shift."""

import numpy as np
import paddle
import pytest
from paddle.nn import functional

from conftest import randn
from differences import slopes_of
from paddle_chainrules import grad, jit, stateless, vjp

SCALE = [0.0, 1.3, 0.0, -0.7, 0.4, 0.0]
COTANGENT = randn([2, 6, 5], "float64", 1)


def loss(x, scale, bias):
    y = functional.group_norm(x, 3, weight=scale, bias=bias)
    return (y * COTANGENT.astype(y.dtype)).sum()


def inputs():
    scale = paddle.to_tensor(SCALE, "float64")
    return randn([2, 6, 5], "float64"), scale, randn([6], "float64", 2)


def test_gradients_beside_differences():
    given = inputs()
    expected = slopes_of(loss, *given)
    for slopes in (grad(loss, (0, 1, 2)), jit(grad(loss, (0, 1, 2)), strict=True)):
        for found in (slopes(*given) for _ in range(3)):
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a.numpy(), b, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("small", [0.0, 1e-6])
def test_a_layer_in_float32(small):
    layer = paddle.nn.GroupNorm(3, 6)
    (net, *_), x = stateless(layer), randn([2, 6, 5], "float32")
    params = {"weight": paddle.full([6], small), "bias": randn([6], "float32", 2)}
    wide = [t.astype("float64") for t in (x, *params.values())]
    by_x, by_scale, _ = vjp(loss, *wide)[1](paddle.ones([], "float64"))
    found, own = net.vjp(params, x, COTANGENT.astype("float32"))
    np.testing.assert_allclose(found["weight"].numpy(), by_scale.numpy(), rtol=1e-4)
    atol = 1e-5 * max(small, 1e-30)
    np.testing.assert_allclose(own.numpy(), by_x.numpy(), rtol=1e-4, atol=atol)
