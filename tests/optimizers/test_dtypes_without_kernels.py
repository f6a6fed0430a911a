"""Complex and half parameters: their parts move, or the error says what to do."""

import numpy as np
import paddle
import pytest

from conftest import randn
from paddle_chainrules import grad, jit, optimizers

FOR_COMPLEX = {
    "sgd": optimizers.sgd(0.1),
    "momentum": optimizers.momentum(0.1, 0.9),
    "adam": optimizers.adam(0.1),
    "amsgrad": optimizers.adam(0.1, amsgrad=True),
    "adamw": optimizers.adamw(0.1),
    "adamax": optimizers.adamax(0.1),
    "adagrad": optimizers.adagrad(0.1),
    "adadelta": optimizers.adadelta(0.1),
    "rmsprop": optimizers.rmsprop(0.1),
    "nadam": optimizers.nadam(0.1),
    "radam": optimizers.radam(0.1),
    "lamb": optimizers.lamb(0.1),
    "decay": optimizers.adam(0.1, weight_decay=0.3),
    "clip by value": optimizers.chain(
        optimizers.clip_by_value(0.7), optimizers.adam(0.1)
    ),
    "clip by norm": optimizers.chain(optimizers.clip_by_norm(0.7), optimizers.sgd(0.1)),
    "clip by global norm": optimizers.chain(
        optimizers.clip_by_global_norm(0.7), optimizers.adam(0.1)
    ),
}


@pytest.mark.parametrize("name", FOR_COMPLEX)
def test_complex_parameters_move_as_their_real_and_imaginary_parts(name):
    optimizer = FOR_COMPLEX[name]
    start = paddle.to_tensor([[1.0 + 2.0j, -3.0j, 0.5], [2.0, -1.0 + 0.1j, 4.0j]])
    params = {"c": start.astype("complex128"), "r": randn([4], "float64")}
    parts = {"c": paddle.as_real(params["c"]), "r": params["r"]}
    state, state_of_parts = optimizer.init(params), optimizer.init(parts)
    for k in range(4):
        grad = randn([2, 3, 2], "float64", seed=k)
        grads = {"c": paddle.as_complex(grad), "r": randn([4], "float64", seed=k + 9)}
        updates, state = optimizer.update(grads, state, params)
        params = optimizers.apply_updates(params, updates)
        updates, state_of_parts = optimizer.update(
            {**grads, "c": grad}, state_of_parts, parts
        )
        parts = optimizers.apply_updates(parts, updates)
    assert params["c"].dtype == paddle.complex128
    np.testing.assert_array_equal(paddle.as_real(params["c"]), parts["c"])
    np.testing.assert_array_equal(params["r"], parts["r"])


@pytest.mark.parametrize("name", ["sgd", "adam", "rmsprop", "nadam"])
def test_complex_parameters_reach_the_least_value(name):
    goal = paddle.to_tensor([1.0 + 2.0j, -3.0j]).astype("complex128")
    optimizer = FOR_COMPLEX[name]

    @jit
    def step(z, state):
        grads = grad(lambda z: (paddle.abs(z - goal) ** 2).sum())(z)
        updates, state = optimizer.update(grads, state, z)
        return optimizers.apply_updates(z, updates), state

    z = paddle.to_tensor([0.5 + 0.1j, 0.2 + 0.3j]).astype("complex128")
    state = optimizer.init(z)
    for _ in range(300):
        z, state = step(z, state)
    assert float(paddle.abs(z - goal).max()) < 0.2


def test_masks_see_complex_parameters_as_they_are():
    params = {"v": paddle.to_tensor([1.0 + 2.0j, 3.0]), "w": paddle.ones([2, 2])}
    seen = []

    def mask(params):
        seen.append({name: (p.dtype, p.ndim) for name, p in params.items()})
        return {name: p.ndim > 1 for name, p in params.items()}

    zero = {name: paddle.zeros_like(p) for name, p in params.items()}
    for optimizer in (
        optimizers.adamw(0.1, weight_decay=0.5, mask=mask),
        optimizers.chain(optimizers.sgd(0.1, weight_decay=0.5, mask=mask)),
    ):
        updates, _ = optimizer.update(zero, optimizer.init(params), params)
        assert float(paddle.abs(updates["v"]).max()) == 0.0
        assert float(updates["w"].max()) < 0.0
    wanted = {"v": (paddle.complex64, 1), "w": (paddle.float32, 2)}
    assert seen == [wanted] * len(seen)


def test_norms_of_complex_tensors_are_real():
    tree = {"c": paddle.to_tensor([3.0 + 4.0j]), "r": paddle.to_tensor([12.0])}
    assert float(optimizers.global_norm(tree)) == pytest.approx(13.0)
