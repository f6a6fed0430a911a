"""Parameters of dtypes for which Paddle lacks a kernel: the error says what to do."""

import paddle
import pytest

from paddle_chainrules import optimizers


def stepped(optimizer, params):
    state = optimizer.init(params)
    updates, _ = optimizer.update(params, state, params)
    return optimizers.apply_updates(params, updates)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves(dtype):
    params = {"w": paddle.to_tensor([1.0, 2.0]).astype(dtype)}
    with pytest.raises(NotImplementedError, match=f"{dtype} on CPU.*keep the param"):
        stepped(optimizers.adam(0.1), params)


@pytest.mark.parametrize(
    "optimizer",
    [
        optimizers.adamax(0.1),
        optimizers.clip_by_value(0.1),
        optimizers.chain(optimizers.clip_by_global_norm(0.1), optimizers.sgd(0.1)),
    ],
)
def test_complex_numbers(optimizer):
    params = [paddle.to_tensor([1.0 + 2.0j, 3.0])]
    with pytest.raises(NotImplementedError, match="complex.*real and imaginary parts"):
        stepped(optimizer, params)


def test_other_errors_stay():
    params = {"w": paddle.to_tensor([1.0])}
    with pytest.raises(TypeError, match="the state of this optimizer"):
        optimizers.adam(0.1).update(params, (), params)
