"""Gradients and Jacobians of each sample, by one sample after another."""

import paddle
import pytest
from paddle import nn

from conftest import assert_same, randn
from paddle_chainrules import bridge

pytestmark = pytest.mark.usefixtures("in_double")


def made(*layers):
    paddle.seed(1)
    handle, params = bridge.layer(nn.Sequential(*layers))
    return handle, params, dict(zip(handle.names, params, strict=True))


def test_gradients_of_each_sample():
    handle, params, named = made(nn.Linear(3, 5), nn.LayerNorm(5), nn.Linear(5, 2))
    x, cotangent = randn([6, 3], "float64"), randn([6, 2], "float64", 1)
    of = handle.per_sample("vjp", (True,))
    for _ in range(2):
        _, _, (structure, *found) = of.bind_and("forward", False, *params, x, cotangent)
    assert len(structure) == len(found) == 7
    for i in range(6):
        part = slice(i, i + 1)
        by_params, by_x = handle.net.vjp(named, x[part], cotangent[part])
        expected = [*by_params.values(), by_x[0]]
        assert_same([g[i] for g in found], expected, rtol=1e-11, atol=1e-13)
    _, _, (_, *none) = of.bind_and("forward", False, *params, x, None)
    assert none == [None] * 7


def test_integers_have_no_gradients():
    handle, params, _ = made(nn.Embedding(7, 4))
    ids = paddle.to_tensor([3, 0, 3, 5, 1, 2])
    cotangent = randn([6, 4], "float64")
    _, _, (_, *found) = handle.per_sample("vjp", (True,)).bind_and(
        "forward", False, *params, ids, cotangent
    )
    expected = paddle.nn.functional.one_hot(ids, 7).unsqueeze(2) * cotangent[:, None]
    assert_same(found[0], expected, rtol=1e-12, atol=0)
    assert found[1:] == [None]


def test_what_all_samples_share_has_no_gradient():
    paddle.seed(1)
    handle, params = bridge.layer(nn.Bilinear(3, 2, 4))
    named = dict(zip(handle.names, params, strict=True))
    x, shared = randn([6, 3], "float64"), randn([1, 2], "float64", 1)
    cotangent = randn([6, 4], "float64", 2)
    _, _, (_, *found) = handle.per_sample("vjp", (True, False)).bind_and(
        "forward", False, *params, x, shared, cotangent
    )
    for i in range(6):
        part = slice(i, i + 1)
        _, pullback = handle.net.pullback(named, x[part], shared)
        by_params, (by_x, _) = pullback(cotangent[part])
        expected = [*by_params.values(), by_x[0]]
        assert_same([g[i] for g in found[:-1]], expected, rtol=1e-11, atol=1e-13)
    assert found[-1] is None


@pytest.mark.parametrize("outputs", [2, 20])
def test_jacobians_of_each_sample(outputs):
    handle, params, named = made(
        nn.Conv2D(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(4, outputs)
    )
    x = randn([5, 1, 2, 3], "float64")
    _, _, found = handle.per_sample("jacobian", (True,)).bind_and(
        "forward", False, *params, x
    )
    assert found.shape == [5, 6, outputs]
    for k in range(outputs):
        cotangent = paddle.zeros([5, outputs], "float64")
        cotangent[:, k] = 1.0
        _, by_x = handle.net.vjp(named, x, cotangent)
        assert_same(found[:, :, k], by_x.reshape([5, 6]), rtol=1e-11, atol=1e-13)
