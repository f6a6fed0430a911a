"""Gradients and Jacobians of each sample, by one sample after another."""

import paddle
import pytest
from paddle import nn

from conftest import assert_same, randn
from paddle_chainrules import bridge
from paddle_chainrules.programs.capture_error import CaptureError

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
    assert len(structure) == len(found) == 6
    for i in range(6):
        part = slice(i, i + 1)
        expected, _ = handle.net.vjp(named, x[part], cotangent[part])
        assert_same([g[i] for g in found], [*expected.values()], rtol=1e-11, atol=1e-13)
    _, _, (_, *none) = of.bind_and("forward", False, *params, x, None)
    assert none == [None] * 6


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


def test_samples_that_depend_on_each_other_are_refused():
    handle, params, _ = made(nn.Linear(3, 4), nn.BatchNorm1D(4))
    with pytest.raises(CaptureError):
        handle.per_sample("jacobian", (True,)).bind_and(
            "forward", False, *params, randn([6, 3], "float64")
        )


def test_a_jacobian_is_of_one_result():
    handle, params = bridge.layer(nn.LSTM(3, 4))
    with pytest.raises(TypeError, match="gives one tensor"):
        handle.per_sample("jacobian", (True,)).bind_and(
            "forward", False, *params, randn([6, 5, 3], "float64")
        )
