"""A tensor that is given more than once to one operator."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from conftest import randn
from paddle_chainrules import derivatives, grad, jit, jvp, laplacian

W = randn([3, 4, 4], "float64", 5)
TWICE = {
    "einsum": lambda a: paddle.einsum("ni,nj->nij", a, a),
    "einsum of three": lambda a: paddle.einsum("ni,nj,nk->nijk", a, a, a),
    "bilinear": lambda a: F.bilinear(a, a, W),
    "fmax": lambda a: paddle.fmax(a, a),
    "lerp": lambda a: paddle.lerp(a, a, a),
    "solve": lambda a: paddle.linalg.solve(a, a) + a,
    "addmm": lambda a: paddle.addmm(a, a, a),
    "kron": lambda a: paddle.kron(a, a),
    "multi_dot": lambda a: paddle.linalg.multi_dot([a, a, a]),
    "layer_norm": lambda a: F.layer_norm(a, 4, a[0], a[0]),
    "add_n": lambda a: paddle.add_n([a, a, a * a]),
    "logaddexp": lambda a: paddle.logaddexp(a, a),
}


@pytest.mark.parametrize("name", TWICE)
def test_it_has_its_gradient_once(name, count_case):
    fn, x, v = TWICE[name], randn([4, 4], "float64", 1), randn([4, 4], "float64", 2)
    h = 1e-6
    expected = ((fn(x + h * v) - fn(x - h * v)) / (2 * h)).numpy()
    cotangent = randn(list(expected.shape), "float64", 3)
    for found in (
        jvp(fn, (x,), (v,))[1],
        jit(lambda x: jvp(fn, (x,), (v,))[1], strict=True)(x),
    ):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-7)
    for derivative in (grad, lambda f: jit(grad(f), strict=True)):
        slope = derivative(lambda x: (fn(x) * cotangent).sum())(x)
        total, like = (slope * v).sum().item(), (expected * cotangent.numpy()).sum()
        assert abs(total - like) <= 1e-6 * max(1.0, abs(like))
    count_case("operators that are given one tensor twice")


def test_derivatives_of_a_square_by_einsum():
    def square(_, x):
        return paddle.einsum("ni,ni->n", x, x).unsqueeze(-1)

    x = paddle.to_tensor([[0.5, 0.2]], "float64")
    found = derivatives(square, {}, x, {"x": (None, 0), "xx": (None, 0, 0)})
    assert [found["x"].item(), found["xx"].item()] == [1.0, 2.0]
    assert laplacian(square, {}, x).item() == 4.0
