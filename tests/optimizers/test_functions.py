"""Optimizers are functions of trees: in jit and vmap, in parts, saved and restored."""

import numpy as np
import optree
import paddle
import pytest

from conftest import products_on, randn
from differences import slope_along
from paddle_chainrules import (
    FCNet,
    explain,
    grad,
    jit,
    jvp,
    make_program,
    optimizers,
    stack_params,
    value_and_grad,
    vmap,
)
from paddle_chainrules.optimizers import (
    accumulate,
    adam,
    adamw,
    add_decayed_weights,
    apply_updates,
    chain,
    clip_by_global_norm,
    ema,
    global_norm,
    lamb,
    momentum,
    scale,
    scale_by_schedule,
    schedules,
    sgd,
)

NET = FCNet((3, 8, 2), "tanh")
X = randn([16, 3])
MAKERS = {
    "sgd": lambda: sgd(0.1),
    "momentum": lambda: momentum(0.1, nesterov=True),
    "adagrad": lambda: optimizers.adagrad(0.1),
    "adadelta": lambda: optimizers.adadelta(1.0),
    "rmsprop": lambda: optimizers.rmsprop(0.01, centered=True, decay=0.5),
    "adam": lambda: adam(schedules.one_cycle(0.05, 60)),
    "adamw": lambda: adamw(0.05, amsgrad=True),
    "adamax": lambda: optimizers.adamax(0.05),
    "lamb": lambda: lamb(0.05),
    "radam": lambda: optimizers.radam(0.05),
    "nadam": lambda: optimizers.nadam(0.05),
    "a chain": lambda: chain(
        clip_by_global_norm(0.5),
        add_decayed_weights(0.01),
        ema(0.9),
        scale_by_schedule(schedules.linear_warmup(0.1, 5, 0.0, 0.1)),
        scale(-1.0),
    ),
    "accumulated": lambda: accumulate(adam(0.05), 3),
}


def loss(params, x):
    return ((NET(params, x) - x[:, :2].sin()) ** 2).mean()


def assert_same(a, b, atol=1e-6):
    for x, y in zip(optree.tree_leaves(a), optree.tree_leaves(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=0, atol=atol)


def step_of(optimizer):
    def step(params, state, x):
        value, grads = value_and_grad(loss)(params, x)
        updates, state = optimizer.update(grads, state, params)
        return apply_updates(params, updates), state, value

    return step


@products_on
@pytest.mark.parametrize("name", MAKERS)
def test_a_step_is_one_function_of_machine_code(name):
    optimizer = MAKERS[name]()
    params = NET.init(0)
    state = optimizer.init(params)
    step = step_of(optimizer)
    if name not in ("lamb", "a chain"):  # norms go over all before a step
        program = make_program(step)(params, state, X)
        assert "one function" in program.explain_machine()
        assert "between" not in program.explain_machine()
    jitted = jit(step)
    first = float(loss(params, X))
    plain = params, state
    for k in range(45):
        params, state, value = jitted(params, state, X)
        if k < 8:
            plain = step(*plain, X)[:2]
            assert_same(plain, (params, state), 1e-5)
    assert float(value) < 0.9 * first


@pytest.mark.parametrize("name", ["sgd", "adam", "momentum", "a chain"])
def test_an_ensemble_by_vmap(name):
    optimizer = MAKERS[name]()
    each = [NET.init(seed) for seed in range(4)]
    states = [optimizer.init(params) for params in each]
    params, state = (
        stack_params(each),
        optree.tree_map(lambda *leaves: paddle.stack(leaves), *states),
    )
    step = vmap(step_of(optimizer), (0, 0, None))
    params, state, values = jit(step)(params, state, X)
    for k, (own, its) in enumerate(zip(each, states, strict=True)):
        expected, _, value = step_of(optimizer)(own, its, X)
        assert_same(optree.tree_map(lambda p, k=k: p[k], params), expected)
        assert float(values[k]) == pytest.approx(float(value), rel=1e-5)


def test_accumulation_is_one_large_batch():
    optimizer, params = sgd(0.1), NET.init(0)
    parts = [X[:4], X[4:8], X[8:12], X[12:]]
    many = accumulate(optimizer, 4)
    state, found = many.init(params), params
    for k, part in enumerate(parts):
        updates, state = many.update(value_and_grad(loss)(params, part)[1], state)
        moved = max(float(u.abs().max()) for u in updates.values())
        assert (moved > 0) == (k == 3)
        found = apply_updates(found, updates)
    grads = value_and_grad(loss)(params, X)[1]
    updates, _ = optimizer.update(grads, optimizer.init(params))
    assert_same(found, apply_updates(params, updates))
    assert int(state.inner.step) == 1
    assert int(state.step) == 0


def test_averages_of_parameters():
    average, params = ema(0.9), NET.init(0)
    state, values = average.init(params), []
    for seed in range(5):
        values.append(NET.init(seed))
        found, state = average.update(values[-1], state)
    weights = np.array([0.1 * 0.9 ** (4 - k) for k in range(5)])
    for name, x in found.items():
        rows = np.stack([v[name].numpy() for v in values], -1)
        expected = (rows * weights).sum(-1) / weights.sum()
        np.testing.assert_allclose(x.numpy(), expected, rtol=0, atol=1e-6)


def test_weights_that_decay_by_a_mask():
    params = NET.init(0)
    zeros = optree.tree_map(paddle.zeros_like, params)

    def mask(params):
        return {name: name.endswith("weight") for name in params}

    for optimizer in (sgd(0.5, weight_decay=0.1, mask=mask), adamw(0.5, mask=mask)):
        updates, _ = optimizer.update(zeros, optimizer.init(params), params)
        for name, u in updates.items():
            assert (float(u.abs().max()) > 0) == name.endswith("weight")


def test_parameters_nested_and_without_gradients():
    params = {"nets": [NET.init(0), NET.init(1)], "factor": paddle.ones([], "float64")}
    grads = optree.tree_map(paddle.ones_like, params)
    grads["nets"][1] = dict.fromkeys(params["nets"][1])
    for make in MAKERS.values():
        optimizer = make()
        updates, state = optimizer.update(grads, optimizer.init(params), params)
        found = apply_updates(params, updates)
        assert found["factor"].dtype == paddle.float64
        if make is not MAKERS["accumulated"] and make is not MAKERS["a chain"]:
            assert_same(found["nets"][1], params["nets"][1], 0.0)
            assert float(found["factor"]) < 1.0
        again, _ = optimizer.update(grads, state, params)
        assert optree.tree_structure(again) == optree.tree_structure(updates)


def test_no_gradient_in_what_is_accumulated():
    """Its parameter neither moves nor decays."""
    params = {"a": paddle.ones([2]), "b": paddle.ones([2])}
    grads = {"a": paddle.ones([2]), "b": None}
    for optimizer in (accumulate(adamw(0.1), 2), accumulate(lamb(0.1), 1)):
        state, found = optimizer.init(params), params
        for _ in range(4):
            updates, state = optimizer.update(grads, state, found)
            found = apply_updates(found, updates)
        assert found["b"].tolist() == [1.0, 1.0]
        assert float(found["a"][0]) < 1.0
    none = dict.fromkeys(params)
    clip = clip_by_global_norm(1.0)
    assert clip.update(none, clip.init(params))[0] == none


def test_rates_of_one_number():
    params = {"a": paddle.ones([]), "b": paddle.ones([2])}
    for make in (sgd, adam, momentum, optimizers.rmsprop):
        optimizer = make(paddle.to_tensor([0.1]))
        updates, _ = optimizer.update(params, optimizer.init(params), params)
        assert apply_updates(params, updates)["a"].shape == []


def test_a_norm_of_all():
    tree = {"a": paddle.to_tensor([3.0, 0.0]), "b": [paddle.to_tensor(4.0), None]}
    assert float(global_norm(tree)) == 5.0


def test_a_rate_that_is_an_argument():
    """One program for all rates."""
    params = NET.init(0)

    @jit
    def step(params, rate):
        grads = value_and_grad(loss)(params, X)[1]
        optimizer = sgd(rate)
        updates, _ = optimizer.update(grads, optimizer.init(params))
        return apply_updates(params, updates)

    grads = value_and_grad(loss)(params, X)[1]
    for rate in (0.1, 0.2, 0.3):
        found = step(params, paddle.to_tensor(rate))
        expected = {name: p - rate * grads[name] for name, p in params.items()}
        assert_same(found, expected)
    assert "program" in explain(step, params, paddle.to_tensor(0.1))


def test_the_rate_of_lamb_has_a_gradient_where_parameters_are_zero():
    net = FCNet((2, 3, 1), "tanh", "float64")  # whose biases are zero at first
    params, x = net.init(0), randn([5, 2], "float64")

    def loss(rate):
        optimizer, moved = lamb(rate), params
        state = optimizer.init(moved)
        for _ in range(2):
            grads = grad(lambda p: (net(p, x) ** 2).mean())(moved)
            updates, state = optimizer.update(grads, state, moved)
            moved = apply_updates(moved, updates)
        return (net(moved, x) ** 2).mean()

    rate = paddle.to_tensor(0.1, "float64")
    expected = float(slope_along(loss, rate, paddle.ones_like(rate)))
    assert float(grad(loss)(rate)) == pytest.approx(expected, rel=1e-6)
    tangent = jvp(loss, (rate,), (paddle.ones_like(rate),))[1]
    assert float(tangent) == pytest.approx(expected, rel=1e-6)
