"""Exceptions in the middle of a call: what was there stays, the next call is right."""

import dis
import gc
import sys
from pathlib import Path

import paddle
import pytest
from paddle import nn

import paddle_chainrules
from conftest import assert_same, assert_unchanged, programs_on, run_code, snapshot
from paddle_chainrules import (
    FCNet,
    hvp,
    jacobian,
    jit,
    laplacian,
    stateless,
    value_and_grad,
)
from paddle_chainrules.bridge.retained_bytes import allocated
from paddle_chainrules.paddle_side import (
    listener,
    watch,
)
from paddle_chainrules.paddle_side.autograd import pylayers
from paddle_chainrules.paddle_side.patching import patch_sites, write_counts
from paddle_chainrules.paddle_side.process import random_state
from paddle_chainrules.testing.timings import WARM_UP_CALLS

SOURCE = str(Path(paddle_chainrules.__file__).parent)


STRIDE = 7
"""Each so many places one is interrupted in make test; in make slow every one is."""
CHECKS = ("CALL", "RESUME", "JUMP_BACKWARD", "SEND")
"""Operations after which the interpreter looks whether there was an interrupt."""


def interrupted(call, at):
    """Whether ``call()`` was stopped where an interrupt may stop this package's code.

    That is after a call, a jump back, or at the start of a function; the one of number
    ``at`` is taken.
    """
    left, last = at, {}

    def trace(frame, event, arg):
        nonlocal left
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            before = last.get(frame, "RESUME")
            last[frame] = name
            if before.startswith(CHECKS):
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks at this in settrace
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        last.clear()
    return False


def norms():
    paddle.seed(0)
    layer = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1D(4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 2)
    )
    layer[0].weight.grad = paddle.ones([3, 4])
    return layer


LAYERS = {
    "chain": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
    "norms": norms,
    "lstm": lambda: nn.LSTM(3, 4),
}


def assert_nothing_is_left(*locks):
    """No lock is held, nothing is watched, gradients are on."""
    assert paddle.is_grad_enabled()
    assert getattr(pylayers._thread, "protect", None) is None
    assert not any(lock._is_owned() for lock in (*locks, random_state.generator_lock()))
    assert not watch.watched()
    assert not write_counts._thread.on


def calls_of(name):
    """A layer, its net, and calls by name that give tensors."""
    layer = LAYERS[name]()
    net, params, buffers = stateless(layer)
    x = paddle.randn([5, 2, 3] if name == "lstm" else [5, 3])
    options = {"seed": 7, "buffers": buffers} if name == "norms" else {}

    def leaves(y):
        return y[0] if isinstance(y, tuple) else y

    def forward():
        return leaves(net.forward(params, x, **options))

    def pullback():
        y, back, *_ = net.pullback(params, x, **options)
        seeds = y
        if name == "lstm":
            seeds = y[0], None
        grads, (x_bar,) = back(seeds)
        return [*grads.values(), x_bar]

    def again():
        y, back, *_ = net.pullback(params, x, **options)
        seeds = (y[0], None) if name == "lstm" else y
        return back(seeds, wrt=0)[1][0]

    return layer, net, {"forward": forward, "pullback": pullback, "part": again}


STRIDES = [STRIDE, pytest.param(1, marks=pytest.mark.slow)]


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("which", ["forward", "pullback", "part"])
def test_an_interrupt_anywhere_changes_nothing(name, which, stride):
    layer, net, calls = calls_of(name)
    call = calls[which]
    for _ in range(2 * WARM_UP_CALLS):  # until it runs as it will
        expected = call()
    before = snapshot(layer)
    call()
    gc.collect()
    held = allocated()
    at = 1
    while interrupted(call, at):
        assert_unchanged(layer, before)
        assert_nothing_is_left(net._modules._lock)
        assert len(net._modules.free) <= 1
        if at % 5 == 0:
            assert_same(call(), expected)
        at += stride
    assert at > 10
    assert_same(call(), expected)
    gc.collect()
    assert allocated() == held


DERIVATIVES = {
    "laplacian": lambda net, params, x: laplacian(net, params, x),
    "value_and_grad": lambda net, params, x: value_and_grad(
        lambda x: net.forward(params, x).sum()
    )(x),
    "jacobian": lambda net, params, x: jacobian(
        lambda x: net.forward(params, x).sum(0), x
    )[0],
    "hvp": lambda net, params, x: hvp(lambda x: net.forward(params, x).sum(), x, x),
}


@pytest.mark.parametrize(
    ("kind", "stride"),
    [(kind, STRIDE) for kind in DERIVATIVES if kind != "hvp"]
    + [pytest.param(kind, 1, marks=pytest.mark.slow) for kind in DERIVATIVES],
)
def test_an_interrupt_of_derivatives_changes_nothing(kind, stride):
    net = FCNet((3, 4, 1), "tanh", "float64")
    params, x = net.init(0), paddle.randn([5, 3]).astype("float64")

    def call():
        return DERIVATIVES[kind](net, params, x)

    for _ in range(2 * WARM_UP_CALLS):  # until it runs as it will
        expected = call()
    at = 1
    while interrupted(call, at):
        assert_nothing_is_left()
        at += stride
    assert at > 5
    assert_same(call(), expected)


class Failing(nn.Layer):
    """Fails where it is told to."""

    where = None

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1D(4)

    def forward(self, x):
        h = self.norm(self.linear(x))
        if Failing.where == "forward":
            raise LookupError("in forward")
        if Failing.where == "memory":
            return h + paddle.zeros([2**45])
        h = paddle.tanh(h)
        if Failing.where == "hook":
            h.register_hook(fail)
        if Failing.where == "backward":
            h = FailingBackward.apply(h)
        return h * h


def fail(grad):
    raise LookupError("in a hook")


class FailingBackward(paddle.autograd.PyLayer):
    """Fails on the way back."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise LookupError("in backward")


@pytest.fixture
def failing():
    Failing.where = None
    yield
    Failing.where = None


@pytest.mark.parametrize("where", ["forward", "memory", "hook", "backward"])
def test_a_failure_in_the_layer_changes_nothing(where, failing):
    layer = Failing()
    layer.linear.weight.grad = paddle.ones([3, 4])
    net, params, buffers = stateless(layer)
    x = paddle.randn([5, 3])

    def call():
        y, back, new = net.pullback(params, x, buffers=buffers, seed=3)
        return [*back(y)[0].values(), *new.values()]

    expected, before = call(), snapshot(layer)
    random = [state.current_seed() for state in paddle.get_rng_state("cpu")]
    gc.collect()
    held = allocated()
    for _ in range(20):
        Failing.where = where
        with pytest.raises((LookupError, MemoryError, RuntimeError, OSError)) as caught:
            call()
        assert where in str(caught.value) or where == "memory", caught.value
        del caught
        Failing.where = None
        assert_unchanged(layer, before)
        assert paddle.is_grad_enabled()
    assert [s.current_seed() for s in paddle.get_rng_state("cpu")] == random
    assert_same(call(), expected)
    gc.collect()
    if where != "backward":  # Paddle itself keeps the gradients of a PyLayer that fails
        assert allocated() == held


def test_a_failed_pullback_may_be_called_again(failing):
    net, params, _ = stateless(Failing())
    Failing.where = "backward"
    y, back = net.pullback(params, paddle.randn([5, 3]))
    for _ in range(3):
        with pytest.raises(
            OSError, match="LookupError: in backward"
        ):  # as Paddle has it
            back(y)


NO_MEMORY = """
import resource, sys
import paddle
from paddle_chainrules import FCNet, stateless

paddle.set_flags({"FLAGS_use_system_allocator": True})
net = stateless(paddle.nn.Sequential(
    paddle.nn.Linear(8, 512), paddle.nn.LayerNorm(512), paddle.nn.Linear(512, 2)))[0]
layer = FCNet((8, 512, 2))
shapes = zip(net.spec.names, net.spec.shapes)
params = {name: paddle.ones(list(shape)) * 0.1 for name, shape in shapes}
small, large = paddle.ones([4, 8]), paddle.ones([2**17, 8])
expected = net.pullback(params, small)[1](paddle.ones([4, 2]))[1][0]
own = layer.forward(layer.init(0), small)
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + 2**27, resource.RLIM_INFINITY))
kinds = []
for call in (
    lambda: net.pullback(params, large),
    lambda: net.forward(params, large),
    lambda: layer.forward(layer.init(0), large),
):
    for _ in range(3):
        try:
            call()
        except (MemoryError, RuntimeError) as error:
            kinds.append(type(error).__name__)
found = net.pullback(params, small)[1](paddle.ones([4, 2]))[1][0]
assert found.equal_all(expected)
assert layer.forward(layer.init(0), small).equal_all(own)
print(len(kinds), *sorted(set(kinds)))
"""


def test_no_memory_is_an_error_and_the_next_call_is_right():
    done = run_code(NO_MEMORY)
    assert done.returncode == 0, done.stderr[-2000:]
    count, *kinds = done.stdout.split()
    assert int(count) == 9
    assert set(kinds) <= {"MemoryError", "RuntimeError"}


@programs_on
def test_an_interrupt_of_a_capture_leaves_nothing():
    x = paddle.randn([1, 3])

    def call():
        jit(lambda t: paddle.tanh(t) * 2)(x)

    call()
    at, stopped = 1, 0
    while stopped < 60 and interrupted(call, at):
        stopped += 1
        at += 1 + at // 8
        assert listener.local.listener is None
        assert not patch_sites.listener_slots
        assert not listener.is_plain()
        assert_nothing_is_left()
    assert stopped > 40
    call()
