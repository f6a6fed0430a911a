"""Fields by formulas: the same tensor as two columns, vectors as columns, slips."""

import numpy as np
import paddle
import pytest

from paddle_chainrules import curl, derivatives, divergence, jit, laplacian

X = np.array([1.0, 2.0, 3.0])
Y = np.array([4.0, 5.0, 6.0])


def column(values):
    return paddle.to_tensor(values[:, None])


def field(_, at):
    x, y = at["x"], at["y"]
    return {"u": x**2 * y, "v": x * y**3}


def test_one_tensor_as_two_columns():
    def of(x, y):
        d = derivatives(field, (), {"x": x, "y": y}, {"a": ("u", "x"), "b": ("u", "y")})
        at = {"x": x, "y": y}
        total = laplacian(field, (), at)["u"]
        return d["a"], d["b"], divergence(field, (), at, of=("u", "v")), total

    expected = 2 * X * X, X**2, 2 * X * X + 3 * X * X**2, 2 * X
    for run in (of, jit(of, strict=True)):
        s = column(X)
        for found, theirs in zip(run(s, s), expected, strict=True):
            np.testing.assert_allclose(found.numpy()[:, 0], theirs, rtol=1e-14)


@pytest.mark.parametrize("form", [column, paddle.to_tensor])
def test_columns_and_vectors(form):
    at = {"x": form(X), "y": form(Y)}
    shape = at["x"].shape
    found = divergence(field, (), at, of=("u", "v"))
    turned = curl(field, (), at, of=("u", "v"))
    for ours, theirs in (
        (found, 2 * X * Y + 3 * X * Y**2),
        (turned, Y**3 - X**2),
    ):
        assert ours.shape == shape
        np.testing.assert_allclose(ours.numpy().reshape(-1), theirs, rtol=1e-14)
