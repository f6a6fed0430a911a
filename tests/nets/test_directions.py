"""Laplacians of many coordinates, of all signs and sizes, beside formulas."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from conftest import assert_same, randn
from paddle_chainrules import derivatives, forward_laplacian, laplacian

WIDE = 37


def test_many_coordinates_with_signs_in_several_arrays():
    """Directions that are made a few at a time, of wide and of narrow arrays."""
    weights = np.random.default_rng(1).standard_normal(WIDE + 1)
    weights[[3, 20]] = 0
    w = randn([WIDE, 5], "float64", 2)
    at = {"x": randn([4, WIDE], "float64", 3), "t": randn([4, 1], "float64", 4)}

    def fn(_, at):
        return paddle.sin(at["x"] @ w) * at["t"] ** 3

    phase, t = at["x"] @ w, at["t"]
    bends = paddle.to_tensor(weights[:WIDE]) @ (w * w)
    expected = -paddle.sin(phase) * bends * t**3 + weights[-1] * paddle.sin(phase) * (
        6 * t
    )
    assert_same(laplacian(fn, {}, at, weights), expected, atol=1e-11)
    full = laplacian(fn, {}, at, np.diag(weights))
    assert_same(full, expected, atol=1e-11)
    y, slopes, total = forward_laplacian(fn, {}, at, np.where(weights, weights, 1.0))
    assert_same(y, fn({}, at))
    by_x = paddle.cos(phase)[..., None] * w.t() * (t**3)[..., None]
    by_t = paddle.sin(phase)[..., None] * (3 * t**2)[..., None]
    assert_same(slopes, paddle.concat([by_x, by_t], -1), atol=1e-11)
    assert total.shape == [4, 5]


def test_weights_of_all_sizes_give_first_derivatives():
    x = randn([3, 2], "float64")
    _, slopes, total = forward_laplacian(lambda _, x: x**2, {}, x, [1.0, 5e-31])
    assert_same(slopes, 2 * paddle.diag_embed(x), rtol=1e-12)
    assert_same(total, paddle.to_tensor([[2.0, 1e-30]] * 3, "float64"), rtol=1e-12)


@pytest.mark.parametrize("estimator", ["hutchinson", "stde"])
def test_probes_take_memory_of_their_number_alone(estimator):
    d = 200_000  # whose square has 320 GB
    x = randn([1, d], "float64")
    found = laplacian(
        lambda _, x: (x**2).sum(-1), {}, x, estimator=estimator, probes=2, seed=0
    )
    assert found.item() == pytest.approx(2 * d)


@pytest.mark.parametrize("shape", [[3, 3, 5], [4, 3, 5], [1, 3, 5]])
def test_first_layers_of_many_matrices(shape):
    w, x = randn(shape, "float64"), randn([shape[0], 2, 3], "float64", 1)

    def fn(_, x):
        return paddle.tanh(paddle.matmul(x, w))

    found = laplacian(fn, {}, x)
    expected = sum(derivatives(fn, {}, x, [(2, 0, 0), (0, 2, 0), (0, 0, 2)]))
    assert_same(found, expected, atol=1e-11)
    t = paddle.tanh(x @ w)
    squares = (w * w).sum(1, keepdim=True)
    assert_same(found, -2 * t * (1 - t * t) * squares, atol=1e-11)


@pytest.mark.parametrize(
    "act", [F.relu, lambda x: x, lambda x: F.dropout(x, 0.5, training=False)]
)
def test_of_what_is_straight_it_is_zero(act):
    """Of many coordinates, and of many rows."""
    w, v = randn([20, 6], "float64"), randn([2, 6], "float64", 1)
    found = laplacian(lambda _, x: act(x @ w), {}, randn([5, 20], "float64", 2))
    assert found.shape == [5, 6]
    assert not found.any()
    x = randn([1000, 2], "float64", 3)
    for part in derivatives(lambda _, x: act(x @ v), {}, x, [(0, 2), (1, 1)]):
        assert part.shape == [1000, 6]
        assert not part.any()
