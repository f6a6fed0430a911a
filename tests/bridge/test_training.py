"""Steps that Julia's functions make, some at a time; here functions are Python's."""

import numpy as np
import paddle
import pytest

from paddle_chainrules import FCNet, optimizers, scan, value_and_grad
from paddle_chainrules import settings as switch
from paddle_chainrules.bridge import Training, fcnet

X = paddle.to_tensor(np.random.default_rng(1).standard_normal((7, 3)), "float64")


def loss(params):
    w, b, _ = params
    return ((X @ w + b).tanh() ** 2).mean()


def rule(params, state, grads):
    """Descent with momentum, of what has a gradient."""
    moved = [s if g is None else 0.9 * s + g for s, g in zip(state, grads, strict=True)]
    after = [p - 0.1 * m for p, m in zip(params, moved, strict=True)]
    return after, moved


def start():
    rng = np.random.default_rng(2)
    shapes = (3, 5), (5,), (2,)
    return [paddle.to_tensor(rng.standard_normal(shape)) for shape in shapes]


def step(carry, _):
    value, grads = value_and_grad(loss)(carry[0])
    params, state = rule(*carry, grads)
    return (tuple(params), tuple(state)), value


@pytest.mark.parametrize("programs", ["on", "off"])
@pytest.mark.parametrize("parts", [(40,), (1, 2, 19, 40), (20, 39, 40)])
def test_steps_in_parts_are_those_of_scan(monkeypatch, programs, parts):
    monkeypatch.setattr(switch, "_programs", programs)
    params = start()
    state = [paddle.zeros_like(p) for p in params]
    training = Training(loss, rule, params, state, 40)
    done, losses = 0, []
    for part in parts:
        before, done = done, training.advance(done, part, 1e9)
        assert done == part
        tensors, (some,) = training.now(done, before)
        losses += some.tolist()
        (own, its), values = scan(step, (tuple(params), tuple(state)), length=part)
        np.testing.assert_allclose(losses, values.numpy(), rtol=1e-12)
        for found, expected in zip(tensors, (*own, *its), strict=True):
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-11)
    assert tensors[2].tolist() == params[2].tolist()  # which the loss does not use
    assert tensors[0].tolist() != params[0].tolist()


def test_what_the_loss_does_not_use_stays_as_it_is():
    """Its gradient is None, for which Julia's rules leave the state alone."""
    params = start()
    training = Training(loss, rule, params, [*map(paddle.ones_like, params)], 40)
    training.advance(0, 40, 1e9)
    tensors, _ = training.now(40, 0)
    moved, used = tensors[5], tensors[4]
    assert moved.tolist() == [1.0, 1.0]
    assert used.tolist() != [1.0] * 5


def test_no_time_is_one_step():
    params = start()
    training = Training(loss, rule, params, [*map(paddle.zeros_like, params)], 40)
    assert [training.advance(k, 40, 0.0) for k in range(40)] == [*range(1, 41)]


def test_a_net_in_a_step():
    handle, params = fcnet((3, 4, 2), "tanh", "float64", 0)
    net = FCNet((3, 4, 2), "tanh", "float64")
    named = dict(zip(net.spec.names, params, strict=True))
    for flat, given in ((False, params), (True, (net.flatten(named),))):
        np.testing.assert_array_equal(
            handle.traced(flat, *given, X).numpy(), net(named, X).numpy()
        )
    several = handle.operator(((0, 0, 0), (1, 0, 0)))
    structure, leaves = several.traced(False, *params, X)
    assert structure == (None, None)
    assert [leaf.shape for leaf in leaves] == [[7, 2], [7, 2]]


def test_optimizers_of_python_are_rules():
    adam, params = optimizers.adam(1e-2), tuple(start())
    state = adam.init(params)
    spec = type(state)

    def rule(params, row, grads):
        found = spec(*row[:3], tuple(row[3:6]), tuple(row[6:]), (None,) * 3)
        updates, after = adam.update(grads, found, params)
        return optimizers.apply_updates(params, updates), [
            *after[:3],
            *after.first,
            *after.second,
        ]

    row = [*state[:3], *state.first, *state.second]
    training = Training(loss, rule, params, row, 30)
    training.advance(0, 30, 1e9)
    found, _ = training.now(30, 0)
    assert int(found[3]) == 30
    own = params
    for _ in range(30):
        updates, state = adam.update(value_and_grad(loss)(own)[1], state, own)
        own = optimizers.apply_updates(own, updates)
    for p, q in zip(found, own, strict=False):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-10)
