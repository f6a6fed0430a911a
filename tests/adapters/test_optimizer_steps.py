"""Steps of Paddle's optimizers by programs: numbers and state of native ones."""

import math

import numpy as np
import paddle
import pytest
from both_ways import assert_equal, both_ways
from paddle import nn, optimizer
from paddle.optimizer import lr
from small_library import taylor_mode

from conftest import loops_on

pytestmark = loops_on  # the steps are machine code, or Paddle's own

STEPS = 300
KINDS = {
    "SGD": (optimizer.SGD, {}),
    "Momentum": (optimizer.Momentum, {}),
    "Nesterov, decay": (
        optimizer.Momentum,
        {"use_nesterov": True, "weight_decay": 0.1},
    ),
    "Momentum, decay": (optimizer.Momentum, {"weight_decay": 0.1}),
    "Adagrad": (optimizer.Adagrad, {"initial_accumulator_value": 0.3}),
    "Adadelta": (optimizer.Adadelta, {"rho": 0.8}),
    "RMSProp": (optimizer.RMSProp, {"momentum": 0.7}),
    "RMSProp, centered": (optimizer.RMSProp, {"centered": True, "rho": 0.8}),
    "Adam": (optimizer.Adam, {}),
    "Adam, amsgrad": (optimizer.Adam, {"amsgrad": True, "beta2": 0.7}),
    "Adam, clipped, decay": (
        optimizer.Adam,
        {"grad_clip": nn.ClipGradByGlobalNorm(0.4), "weight_decay": 0.05},
    ),
    "Adam, named, L1": (
        optimizer.Adam,
        {"name": "mine", "weight_decay": paddle.regularizer.L1Decay(0.01)},
    ),
    "AdamW": (optimizer.AdamW, {"weight_decay": 0.1}),
    "AdamW, amsgrad": (optimizer.AdamW, {"amsgrad": True, "beta2": 0.7}),
    "AdamW, of some": (
        optimizer.AdamW,
        {"weight_decay": 0.3, "apply_decay_param_fun": lambda n: n[-3:] == "w_1"},
    ),
    "Adamax": (optimizer.Adamax, {"beta1": 0.7}),
}
DRAWN = 0.1 * np.random.default_rng(3).standard_normal((STEPS, 22))
RTOL = {"float64": 1e-12, "float32": 1e-5}


def params_of(dtype, shapes=([3, 5], [5], [2, 1, 4])):
    draw, layer = np.random.default_rng(5).standard_normal, nn.Layer()
    made = [layer.create_parameter(shape, dtype=dtype) for shape in shapes]
    for p in made:
        p.set_value(draw(p.shape).astype(dtype))
    return made


def give_gradients(params, k):
    """Those of a bowl that is another at each step."""
    for p in params:
        at = DRAWN[k, : p.size].reshape(p.shape)
        p.grad = p.detach() * 0.5 + paddle.to_tensor(at, p.dtype)


def state_of(made, params):
    """All that a step writes, by places: names are of each run."""
    state = {
        f"{name} {i}": values[p.name].numpy()
        for name, values in made._accumulators.items()
        for i, p in enumerate(params)
        if p.name in values
    }
    return [[p.numpy() for p in params], state, made.get_lr()]


def steps(params, made, count, between=lambda k: None, first=0):
    for k in range(first, first + count):
        give_gradients(params, k)
        made.step()
        between(k)
        made.clear_grad()


def compared(script, rtol=1e-12, warns=()):
    found, expected, mode = both_ways(script, taylor_mode, warns)
    assert_equal(found, expected, rtol)
    return mode.steps


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", KINDS)
def test_numbers_with_a_schedule(name, dtype):
    kind, options = KINDS[name]

    def script():
        params = params_of(dtype)
        rate = lr.ExponentialDecay(0.02, 0.99)
        made = kind(learning_rate=rate, parameters=params, **options)
        steps(params, made, STEPS, lambda k: rate.step())
        return state_of(made, params)

    ran = compared(script, RTOL[dtype])
    assert (ran.programs, ran.natively) == (STEPS - 1, 1)


def trained(between, count=12, kind=optimizer.Adam, **options):
    """A script, and what is done after each step."""

    def script():
        params = params_of("float64")
        made = kind(learning_rate=0.02, parameters=params, **options)
        steps(params, made, count, lambda k: between(k, made, params))
        return state_of(made, params)

    return script


def reload(k, made, params):
    if k == 5:
        state = {n: v.clone() for n, v in made.state_dict().items()}
        made._accumulators["moment1"][params[0].name].zero_()
        made.set_state_dict(state)


def swap(k, made, params):
    """What is kept for one parameter is another tensor."""
    if k == 5:
        kept = made._accumulators["moment2"]
        kept[params[1].name] = kept[params[1].name] + 1.0


def rename(k, made, params):
    """What is kept changes places."""
    if k == 5:
        kept = made._accumulators["beta1_pow_acc"]
        first, *_, last = (p.name for p in params)
        kept[first], kept[last] = kept[last] * 0.5, kept[first]


CHANGES = {
    "rate": lambda k, made, params: made.set_lr(0.01 / (1 + k)),
    "rate, from outside": lambda k, made, params: setattr(made, "_learning_rate", 0.3),
    "schedule": lambda k, made, params: made.set_lr_scheduler(
        lr.StepDecay(0.1 / (1 + k), 1)
    ),
    "settings": lambda k, made, params: setattr(made, "_beta1", 0.9 - 0.05 * (k % 3)),
    "a setting is a tensor": lambda k, made, params: setattr(
        made, "_beta1", paddle.to_tensor(0.8) if k > 5 else 0.9
    ),
    "state": reload,
    "kept tensors": swap,
    "kept tensors, by name": rename,
    "values": lambda k, made, params: params[0].set_value(params[0] * 0.5),
    "values elsewhere": lambda k, made, params: (
        params[0].get_tensor().set(params[0].numpy() * 0.5, paddle.CPUPlace())
    ),
    "frozen": lambda k, made, params: setattr(params[1], "stop_gradient", k in (4, 5)),
    "own rate": lambda k, made, params: params[1].optimize_attr.update(
        learning_rate=0.5 if k in (4, 5) else 1.0
    ),
    "own decay": lambda k, made, params: setattr(
        params[1], "regularizer", paddle.regularizer.L2Decay(0.3) if k > 5 else None
    ),
    "fewer parameters": lambda k, made, params: k == 5 and made._parameter_list.pop(),
    "names": lambda k, made, params: k == 5 and setattr(params[1], "name", "other"),
    "methods": lambda k, made, params: (
        k == 5 and setattr(made, "_finish_update", lambda *given: None)
    ),
    "order": lambda k, made, params: made._parameter_list.reverse(),
    "clip": lambda k, made, params: setattr(
        made, "_grad_clip", nn.ClipGradByGlobalNorm(0.1) if k > 5 else None
    ),
}
SAID = {
    "methods": "no rule",
    "a setting is a tensor": "no number",
    "own rate": "of its own",
    "own decay": "of its own",
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name):
    warns = [SAID[name]] if name in SAID else []
    ran = compared(trained(CHANGES[name]), warns=warns)
    assert ran.programs >= 5


def test_gradients_that_come_and_go():
    def script():
        params = params_of("float64")
        made = optimizer.Adam(0.02, parameters=params)
        for k in range(12):
            give_gradients(params, k)
            if k in (0, 1, 7):
                params[2].clear_gradient(False)
            made.step()
            made.clear_grad(set_to_zero=k % 3 > 0)
            if k % 4 == 0:
                made.step()  # without a gradient, or with zeros
        return state_of(made, params)

    ran = compared(script)
    assert (ran.programs, ran.natively) == (12, 3)


@pytest.mark.parametrize("name", KINDS)
def test_gradients_that_are_no_numbers(name):
    """And are again: what they were none for stays none, as natively."""
    kind, options = KINDS[name]
    never_nan = np.ones([2, 11], bool)
    never_nan[0, 1:4] = False

    def script():
        params = params_of("float32", ([2, 11],))
        made = kind(learning_rate=0.02, parameters=params, **options)
        for k in range(5):
            params[0].set_value(np.ones([2, 11], "float32"))
            give_gradients(params, k)
            if k == 2:
                params[0].grad[0, 1:4] = math.nan
            made.step()
        (p,), state, _ = state_of(made, params)
        return [p, *state.values()]

    found, expected, mode = both_ways(script, taylor_mode)
    for a, b in zip(found, expected, strict=True):
        if options.get("amsgrad") and np.shape(a) == (2, 11):
            # If the largest moment stays NaN depends on the processor, in Paddle.
            a, b = (np.where(never_nan, t, 0.0) for t in (a, b))
        np.testing.assert_allclose(a, b, rtol=1e-5, equal_nan=True)
    assert mode.steps.programs == 4


def test_a_gradient_of_another_shape():
    def script():
        params = params_of("float64")
        made = optimizer.SGD(0.02, parameters=params)
        for k in range(4):
            give_gradients(params, k)
            if k == 2:
                params[1].grad = paddle.ones([3, 2], "float64")
            try:
                made.step()
            except Exception as error:
                return [type(error).__name__, [p.numpy() for p in params]]
        return [p.numpy() for p in params]

    compared(script, warns=["another shape or dtype"])


class Own(optimizer.Adam):
    """A class that is not Paddle's."""


def groups(params):
    return [{"params": params[:1], "learning_rate": 0.5}, {"params": params[1:]}]


REFUSED = {
    "there is no rule": lambda p: Own(0.02, parameters=p),
    "of parameters": lambda p: optimizer.Adam(0.02, parameters=groups(p)),
    "use_multi_tensor": lambda p: optimizer.Momentum(
        0.02, parameters=p, use_multi_tensor=True
    ),
    "no number": lambda p: optimizer.Adam(
        0.02, parameters=p, beta1=paddle.to_tensor(0.9)
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_the_rest_runs_as_ever(why):
    def script():
        params = params_of("float32")
        made = REFUSED[why](params)
        steps(params, made, 4)
        return state_of(made, params)

    found, expected, mode = both_ways(script, taylor_mode, [why])
    assert_equal(found, expected, 0)
    assert "; 0 steps of optimizers by programs, " in repr(mode)
    assert why in repr(mode)


def test_two_dtypes_run_as_ever():
    def script():
        params = [*params_of("float64"), *params_of("float32")]
        made = optimizer.SGD(0.02, parameters=params)
        steps(params, made, 3)
        return [p.numpy() for p in params]

    assert compared(script, 0, ["on the CPU"]).programs == 0


def test_rows_that_are_sparse_run_as_ever():
    def script():
        paddle.seed(0)
        layer = nn.Embedding(5, 3, sparse=True)
        made = optimizer.Adam(0.02, parameters=layer.parameters())
        for k in range(4):
            # Paddle's kernel reads other memory for a row that has no gradient.
            layer(paddle.to_tensor([*range(5), k])).square().sum().backward()
            made.step()
            made.clear_grad()
        return state_of(made, layer.parameters())

    assert compared(script, 0, ["sparse"]).programs == 0


def test_in_and_out_of_the_context():
    """The state is where it is natively, whoever takes the step."""
    found, expected = params_of("float64"), params_of("float64")
    ours, theirs = (optimizer.Adam(0.02, parameters=p) for p in (found, expected))
    steps(expected, theirs, 20)
    before = [p.data_ptr() for p in found]
    steps(found, ours, 4)
    with taylor_mode() as mode:
        steps(found, ours, 5, first=4)
    steps(found, ours, 3, first=9)
    with taylor_mode() as again:
        steps(found, ours, 8, first=12)
    assert_equal(state_of(ours, found), state_of(theirs, expected), 1e-12)
    assert before == [p.data_ptr() for p in found]
    assert [p._inplace_version() for p in found] == [
        p._inplace_version() for p in expected
    ]
    assert (mode.steps.programs, again.steps.programs) == (4, 7)
    assert (mode.steps.natively, again.steps.natively) == (1, 1)


def test_two_optimizers_of_one_net_and_one_of_two():
    def script():
        nets = params_of("float64"), params_of("float64")
        every = [*nets[0], *nets[1]]
        one = optimizer.SGD(0.02, parameters=nets[0])
        two = optimizer.Adam(0.02, parameters=every)
        for k in range(9):
            give_gradients(every, k)
            two.step()
            one.step()
        return state_of(one, nets[0]), state_of(two, every)

    assert compared(script).programs == 16


def test_minimize():
    def script():
        params = params_of("float64")
        made = optimizer.Adam(0.02, parameters=params)
        for _ in range(6):
            loss = sum((p * p).sum() for p in params)
            loss.backward()
            done, pairs = made.minimize(loss)
            assert not done
            assert len(pairs) == len(params)
            made.clear_grad()
        return state_of(made, params)

    assert compared(script).programs == 5
