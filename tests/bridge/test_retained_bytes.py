"""Bytes behind pullbacks: none left behind, and those counted for Julia."""

import ctypes
import gc

import paddle
import pytest

from conftest import tape_only
from paddle_chainrules import bridge, stateless, value_and_grad, vjp
from paddle_chainrules.bridge.retained_bytes import allocated
from paddle_chainrules.nets.calls.programs import CALLS_BEFORE_PROGRAM

HELD = ctypes.c_int64.from_address(int(bridge.retained_bytes_address()))
LAYERS = {
    "chain": lambda: paddle.nn.Sequential(
        paddle.nn.Linear(3, 64), paddle.nn.Tanh(), paddle.nn.Linear(64, 2)
    ),
    "norms": lambda: paddle.nn.Sequential(
        *(f for _ in range(5) for f in (paddle.nn.Linear(3, 3), paddle.nn.LayerNorm(3)))
    ),
    "lstm": lambda: paddle.nn.LSTM(3, 64),
}


def after(calls, times=20):
    """Bytes that are left of so many calls, a few for warming up apart; counted again
    where others' memory has gone meanwhile."""
    for _ in range(CALLS_BEFORE_PROGRAM + 3):
        calls()
    for _ in range(3):
        gc.collect()
        before = allocated()
        for _ in range(times):
            calls()
        gc.collect()
        left = allocated() - before
        if left >= 0:
            break
    return left


def bound(name):
    net, params, _ = stateless(LAYERS[name]())
    return bridge.of_layer(net, name).bind(False, tuple(params.values()))


@pytest.mark.parametrize("asked", [(True, True), (False, True), (True, False)])
@pytest.mark.parametrize("name", LAYERS)
def test_pullbacks_leave_nothing_behind(name, asked):
    net, x = bound(name), paddle.randn([4, 5, 3])

    def call():
        y, back = net.pullback(x)
        leaves = [y] if isinstance(y, paddle.Tensor) else y[1:]
        seeds = [paddle.ones_like(leaves[0]), *[None] * (len(leaves) - 1)]
        back(*asked, False, *seeds)

    assert after(call) == 0


def test_derivatives_of_functions_leave_nothing_behind():
    norm, x = paddle.nn.LayerNorm(3), paddle.randn([50, 3])

    def by_vjp():
        y, pullback = vjp(lambda x, w: paddle.tanh(x) @ w, x, paddle.ones([3, 4]))
        pullback(paddle.ones_like(y), wrt=[0])

    def by_value_and_grad():
        call = value_and_grad(lambda x, w, b: (norm(x) * w + b).sum(), argnums=(0, 1))
        call(x, x, x)

    assert after(by_vjp) == 0
    assert after(by_value_and_grad) == 0


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("batch", [1, 300])
def test_what_a_pullback_holds_is_counted(name, batch):
    """The elements of its tensors to a factor of two, the rest beside."""
    net, x = bound(name), paddle.randn([batch, 5, 3])
    kept = [net.pullback(x)]
    gc.collect()
    before = allocated()
    kept += [net.pullback(x) for _ in range(10)]
    elements = (allocated() - before) / 10
    rest = HELD.value - elements
    assert HELD.value >= elements / 2
    assert -elements / 2 <= rest <= 300_000


@tape_only
def test_what_is_made_anew_is_counted_again():
    net, x = bound("lstm"), paddle.randn([4, 5, 3])
    net.pullback(x)  # the first call works on copies
    (_, y, *_), back = net.pullback(x)
    counted, seeds = HELD.value, (paddle.ones_like(y), None, None)
    first = back(True, True, True, *seeds)
    HELD.value = 0
    again = back(False, True, False, *seeds)
    assert HELD.value == counted
    assert again[-1].equal_all(first[-1])
