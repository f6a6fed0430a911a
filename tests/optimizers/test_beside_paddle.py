"""Optimizers and schedules have the numbers of Paddle's, over 300 steps."""

import itertools
import math

import numpy as np
import paddle
import pytest
from paddle.utils import unique_name

from paddle_chainrules import jit, stateless
from paddle_chainrules.optimizers import (
    apply_updates,
    from_paddle,
    radam,
    schedule_of,
    schedules,
    to_paddle,
)

P, LR = paddle.optimizer, paddle.optimizer.lr
STEPS = 300
OPTIMIZERS = {
    "SGD": (P.SGD, {}),
    "SGD, decay": (P.SGD, {"weight_decay": 0.05}),
    "Momentum": (P.Momentum, {"momentum": 0.8}),
    "Nesterov, decay": (P.Momentum, {"use_nesterov": True, "weight_decay": 0.01}),
    "Adagrad": (P.Adagrad, {"initial_accumulator_value": 0.1, "weight_decay": 0.01}),
    "Adadelta": (P.Adadelta, {"rho": 0.9}),
    "RMSProp": (P.RMSProp, {}),
    "RMSProp, centered": (P.RMSProp, {"centered": True, "momentum": 0.7}),
    "Adam": (P.Adam, {"beta1": 0.8, "epsilon": 1e-6}),
    "Adam, decay": (P.Adam, {"weight_decay": 0.01}),
    "AMSGrad": (P.Adam, {"amsgrad": True}),
    "AdamW": (P.AdamW, {"weight_decay": 0.1}),
    "AdamW, AMSGrad": (P.AdamW, {"amsgrad": True}),
    "Adamax": (P.Adamax, {"weight_decay": 0.01}),
    "Lamb": (P.Lamb, {}),
    "Lamb, no decay": (P.Lamb, {"lamb_weight_decay": 0.0}),
    "Lamb, adapting": (P.Lamb, {"lamb_weight_decay": 0.0, "always_adapt": True}),
    "NAdam": (P.NAdam, {"weight_decay": 0.01}),
}
CLIPS = {
    "by value": paddle.nn.ClipGradByValue(0.7),
    "by norm": paddle.nn.ClipGradByNorm(1.5),
    "by the norm of all": paddle.nn.ClipGradByGlobalNorm(2.0),
}
ROUNDED = {"float32": 2e-5, "float64": 1e-11}
APART = "Adamax", "Lamb"
"""Of these Paddle rounds a beta such as 0.9 to float32, for float64 too, but not in its
powers: ours have one beta."""


def made(dtype):
    paddle.seed(0)
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 5), paddle.nn.Linear(5, 2))
    layer = layer.to(dtype=dtype)
    net, params, _ = stateless(layer)
    return layer, net, {name: p.clone() for name, p in params.items()}


def gradients(layer, seed):
    """The same for both sides, so that no difference grows."""
    rng = np.random.default_rng(seed)
    size = 1.0 + 0.5 * math.sin(seed)
    return {
        name: paddle.to_tensor(rng.normal(size=p.shape) * size, dtype=p.dtype)
        for name, p in layer.named_parameters()
    }


def paddles_step(optimizer, layer, grads):
    for name, p in layer.named_parameters():
        p.grad = grads[name].clone()
    optimizer.step()
    optimizer.clear_grad()


def stepping(optimizer):
    @jit
    def step(params, state, grads):
        updates, state = optimizer.update(grads, state, params)
        return apply_updates(params, updates), state

    return step


def after(ours, state, params, theirs, layer, scheduler=None):
    """Parameters and state after so many steps of both."""
    step = stepping(ours)
    for seed in range(STEPS):
        grads = gradients(layer, seed)
        params, state = step(params, state, grads)
        paddles_step(theirs, layer, grads)
        if scheduler is not None:
            scheduler.step()
    return params, state


def assert_moved_alike(params, layer, dtype, rtol=0.0):
    for name, p in layer.named_parameters():
        assert params[name].dtype == p.dtype
        apart = float((params[name] - p).abs().max())
        most = max(ROUNDED[dtype], rtol) * max(float(p.abs().max()), 1.0)
        assert apart <= most, name


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_so_many_steps(name, dtype):
    kind, kwargs = OPTIMIZERS[name]
    layer, _, params = made(dtype)
    theirs = kind(learning_rate=0.02, parameters=layer.parameters(), **kwargs)
    ours, state = from_paddle(theirs, layer)
    params, state = after(ours, state, params, theirs, layer)
    assert_moved_alike(params, layer, dtype, 1e-5 * name.startswith(APART))
    assert int(state.step) == STEPS


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_radam(dtype):
    layer, _, params = made(dtype)
    theirs = P.RAdam(0.02, parameters=layer.parameters(), weight_decay=0.01)
    ours = radam(0.02, weight_decay=0.01)
    params, _ = after(ours, ours.init(params), params, theirs, layer)
    assert_moved_alike(params, layer, dtype, 1e-5)


@pytest.mark.parametrize("clip", CLIPS)
def test_clipped(clip):
    layer, _, params = made("float32")
    theirs = P.Adam(0.02, parameters=layer.parameters(), grad_clip=CLIPS[clip])
    ours, state = from_paddle(theirs, layer)
    params, state = after(ours, state, params, theirs, layer)
    assert_moved_alike(params, layer, "float32")


SCHEDULERS = {
    "exponential": lambda: LR.ExponentialDecay(0.1, 0.99),
    "natural": lambda: LR.NaturalExpDecay(0.1, 0.01),
    "inverse": lambda: LR.InverseTimeDecay(0.1, 0.05),
    "polynomial": lambda: LR.PolynomialDecay(0.1, 120, 0.01, 2.0),
    "polynomial, again": lambda: LR.PolynomialDecay(0.1, 50, 0.01, 0.5, cycle=True),
    "piecewise": lambda: LR.PiecewiseDecay([3, 70, 200], [0.1, 0.05, 0.2, 0.01]),
    "multi step": lambda: LR.MultiStepDecay(0.1, [40, 41, 150], 0.5),
    "step": lambda: LR.StepDecay(0.1, 37, 0.5),
    "noam": lambda: LR.NoamDecay(64, 40, 2.0),
    "linear": lambda: LR.LinearLR(0.1, 120, 0.25, 0.75),
    "cosine": lambda: LR.CosineAnnealingDecay(0.1, 80, 0.01),
    "warm restarts": lambda: LR.CosineAnnealingWarmRestarts(0.1, 30, 1, 0.01),
    "longer restarts": lambda: LR.CosineAnnealingWarmRestarts(0.1, 10, 3, 0.01),
    "warm-up": lambda: LR.LinearWarmup(0.1, 25, 0.0, 0.2),
    "warm-up, then down": lambda: LR.LinearWarmup(
        LR.CosineAnnealingDecay(0.1, 300, 0.0), 25, 0.0, 0.1
    ),
    "one cycle": lambda: LR.OneCycleLR(0.1, STEPS + 1),
    "one cycle, lines": lambda: LR.OneCycleLR(
        0.1, STEPS + 1, 10.0, 0.01, 0.4, anneal_strategy="linear"
    ),
    "three phases": lambda: LR.OneCycleLR(0.1, STEPS + 1, three_phase=True),
    "cyclic": lambda: LR.CyclicLR(0.1, 0.5, 13, 29),
    "cyclic, halved": lambda: LR.CyclicLR(0.1, 0.5, 20, mode="triangular2"),
    "cyclic, less": lambda: LR.CyclicLR(0.1, 0.5, 20, mode="exp_range", exp_gamma=0.99),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedules(name):
    """Also the first rate, which a schedule has at no steps."""
    scheduler = SCHEDULERS[name]()
    schedule = schedule_of(scheduler)
    of_tensors = jit(schedule)
    for count in range(STEPS):
        rate = scheduler()
        for found in (schedule(count), of_tensors(paddle.full([], count, "int64"))):
            assert found.shape == []
            assert float(found) == pytest.approx(rate, rel=1e-9, abs=1e-12), count
        scheduler.step()


@pytest.mark.parametrize("name", ["cosine", "warm-up, then down", "cyclic"])
def test_steps_of_a_schedule(name):
    layer, _, params = made("float32")
    scheduler = SCHEDULERS[name]()
    theirs = P.Momentum(scheduler, parameters=layer.parameters())
    ours, state = from_paddle(theirs, layer)
    params, _ = after(ours, state, params, theirs, layer, scheduler)
    assert_moved_alike(params, layer, "float32")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_there_and_back_in_the_midst(name):
    """Some steps of Paddle's, some of ours, some of Paddle's, beside one alone."""
    kind, kwargs = OPTIMIZERS[name]
    alone, _, _ = made("float32")
    layer, net, params = made("float32")
    rates = [LR.ExponentialDecay(0.02, 0.99) for _ in range(2)]
    one = kind(learning_rate=rates[0], parameters=alone.parameters(), **kwargs)
    its = layer.parameters()
    other = kind(learning_rate=rates[1], parameters=its, name="other", **kwargs)
    numbers = itertools.count()

    def both(move):
        for _ in range(7):
            grads = gradients(layer, next(numbers))
            paddles_step(one, alone, grads)
            rates[0].step()
            move(grads)

    def theirs(grads):
        paddles_step(other, layer, grads)
        rates[1].step()

    both(theirs)
    params = {key: p.detach().clone() for key, p in layer.named_parameters()}
    optimizer, state = from_paddle(other, layer)
    step = stepping(optimizer)

    def ours(grads):
        nonlocal params, state
        params, state = step(params, state, grads)

    both(ours)
    assert_moved_alike(params, alone, "float32")
    layer.set_state_dict(net.to_state_dict(params))
    to_paddle(state, other, layer)
    both(theirs)
    for a, b in zip(alone.parameters(), layer.parameters(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=3e-6)
    assert rates[0].last_epoch == rates[1].last_epoch == 21


def test_a_state_for_an_optimizer_that_has_made_no_step():
    layer, _, params = made("float32")
    first = P.Adam(0.1, parameters=layer.parameters())
    optimizer, state = from_paddle(first, layer)
    for seed in range(3):
        _, state = optimizer.update(gradients(layer, seed), state, params)
    second = P.Adam(0.1, parameters=layer.parameters())
    to_paddle(state, second, layer)
    _, found = from_paddle(second, layer)
    for a, b in zip(state.first.values(), found.first.values(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert float(found.beta1_pow) == float(state.beta1_pow)


def test_a_constant_schedule():
    assert float(schedules.constant(0.5)(7)) == 0.5


def test_a_state_that_was_loaded_and_not_stepped():
    """As after a checkpoint was read."""
    layer, _, _ = made("float32")
    with unique_name.guard():  # as in a process of its own
        first = P.Adam(0.1, parameters=layer.parameters())
        for seed in range(3):
            paddles_step(first, layer, gradients(layer, seed))
        _, expected = from_paddle(first, layer)
    with unique_name.guard():
        second = P.Adam(0.1, parameters=layer.parameters())
        second.set_state_dict(first.state_dict())
        _, found = from_paddle(second, layer)
    for name, value in expected.first.items():
        np.testing.assert_array_equal(found.first[name].numpy(), value.numpy())
        assert float(value.abs().max()) > 0
    assert float(found.beta1_pow) == float(expected.beta1_pow)
