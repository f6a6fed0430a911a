"""The context of Taylor mode: what it takes, leaves as it was, and does not survive."""

import gc
import threading
import weakref
from pathlib import Path

import paddle
import pytest
from both_ways import assert_equal, ends_of, points, steps_of
from paddle import nn
from small_library import Library, Net, derivative, residual, taylor_mode

from paddle_chainrules import derivatives, stateless, value_and_grad
from paddle_chainrules.adapters.net_calls import NativeReason
from paddle_chainrules.adapters.taylor_mode import NativeWarning

HERE = Path(__file__).resolve().parent
WIDTH = "linear"
"""Of what Paddle says where a layer is given another width than its own."""


def patched():
    owners = paddle.Tensor, Net, nn.Layer, Library, nn.Sequential
    return [dict(vars(owner)) for owner in owners]


def test_nothing_is_left_of_it():
    before = patched()
    with taylor_mode(nn.Sequential(nn.Linear(2, 2))) as mode:
        assert patched() != before
        assert "__call__" in vars(Net)
        residual(Net(), 0)
    assert patched() == before
    told = "Taylor mode of this library: 0 calls of nets by programs, 1 natively"
    assert repr(mode) == told


def test_an_exception_within():
    before, net = patched(), Net()
    with pytest.raises(ZeroDivisionError), taylor_mode():
        residual(net, 1 // 0)
    assert patched() == before
    with pytest.raises(ValueError, match=WIDTH), taylor_mode():
        net(points(3, 5))
    assert patched() == before


def test_an_exception_of_a_net_leaves_the_context_in_order():
    net = Net()
    with taylor_mode() as mode:
        for k in range(4):
            residual(net, k)
            with pytest.raises(ValueError, match=WIDTH):
                net(points(3, 5))
    assert mode.programs == 3


def test_contexts_in_each_other():
    net = Net()
    script = steps_of([net], lambda k: residual(net, k), Library.clear, 4)
    expected = script()
    with taylor_mode() as outer:
        first = script()
        with taylor_mode() as inner:
            second = script()
        third = script()
    for found in (first, second, third):
        assert_equal(found, expected, 1e-6)
    assert inner.programs == 3
    assert outer.programs >= 5


def test_a_plain_layer_is_taken_where_it_is_given():
    net = nn.Sequential(nn.Linear(2, 7), nn.Tanh(), nn.Linear(7, 1))
    other = nn.Sequential(nn.Linear(2, 1))

    def loss(k):
        found, leaves = residual(net, k)
        return found * other(points(4, 2)).mean(), leaves

    script = steps_of([net, other], loss, Library.clear)
    expected = script()
    with taylor_mode(net) as mode:
        assert_equal(script(), expected, 1e-5)
    assert (mode.programs, mode.natively) == (5, 1)
    with taylor_mode() as mode, pytest.warns(NativeWarning, match="give taylor_mode"):
        assert_equal(script(), expected, 0)
    assert (mode.programs, mode.natively) == (0, 0)


def test_forward_by_itself_is_not_taken_and_said_once():
    net = Net()

    def loss_of(k):
        x = points(9, 2, seed=k)
        return (derivative(net.forward(x), x, 0, 1) ** 2).mean(), [x]

    script = steps_of([net], loss_of, Library.clear)
    expected = script()
    with (
        taylor_mode() as mode,
        pytest.warns(NativeWarning, match=r"not net\.forward") as told,
    ):
        assert_equal(script(), expected, 0)
    assert len(told) == 1
    assert (mode.programs, mode.natively) == (0, 0)
    assert len(mode.reasons) == 1


def test_other_threads_run_as_ever():
    net, found = Net(), []
    script = steps_of([net], lambda k: residual(net, k), Library.clear, 3)
    expected = script()
    with taylor_mode() as mode:
        thread = threading.Thread(target=lambda: found.append(script()))
        thread.start()
        thread.join()
        assert (mode.programs, mode.natively) == (0, 0)
        assert_equal(found[0], expected, 0)
        assert_equal(script(), expected, 1e-5)
    assert mode.programs == 2


def test_without_gradients_it_runs_as_ever():
    net, x = Net(), points(5, 2)
    with taylor_mode() as mode:
        for _ in range(3):
            with paddle.no_grad():
                assert net(x).stop_gradient
    assert (mode.programs, mode.natively) == (0, 0)


def test_what_a_step_has_made_is_let_go():
    net = Net()
    with taylor_mode():
        kept = []
        for k in range(5):
            x = points(9, 2, seed=k)
            y = net(x)
            u = derivative(y, x, 0, 0)
            u.mean().backward()
            Library.clear()
            kept += [weakref.ref(x), weakref.ref(y), weakref.ref(u)]
        del x, y, u
        gc.collect()
        assert not [ref for ref in kept if ref() is not None]
        net_too = weakref.ref(net)
    del net
    gc.collect()
    assert net_too() is None


def test_a_graph_that_is_retained_turns_it_off():
    net = Net()

    def loss_of(k):
        found, leaves = residual(net, k)
        found.backward(retain_graph=True)
        return found, leaves

    script = steps_of([net], loss_of, Library.clear, 4)
    expected = script()
    with taylor_mode() as mode, pytest.warns(NativeWarning, match="is off"):
        assert_equal(script(), expected, 1e-6)
    assert mode.programs == 0


BEGIN = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import paddle
from small_library import Library, Net, derivative, residual, taylor_mode
net = Net()
with taylor_mode() as mode:
    for k in range(3):
        residual(net, k)[0].backward()
        Library.clear()
    assert mode.programs == 2
    x = paddle.rand([9, 2])
    x.stop_gradient = False
    y = net(x)
    a, b = derivative(y, x, 0, 0).mean(), (y ** 2).mean()
    weight = net.inner.weight
    try:
"""
END = """
        print("second")
    except RuntimeError as error:
        print("refused" if "serve but once" in str(error) else error)
"""
TWICE = {
    "one loss": "a.backward(retain_graph=True); a.backward()",
    "two losses": "a.backward(); b.backward()",
    "another call between": "a.backward(retain_graph=True); net(x * 2); a.backward()",
    "paddle.autograd": (
        "f = paddle.autograd.backward; f([a], retain_graph=True); f([a])"
    ),
    "backward, grad": "a.backward(retain_graph=True); paddle.grad(a, weight)",
    "not retained, another call between": "a.backward(); net(x * 2); b.backward()",
    "derived later": (
        "a.backward(retain_graph=True); Library.clear(); derivative(y, x, 0, 1, 1)"
    ),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", TWICE)
def test_graphs_that_are_walked_twice_end_no_process(name):
    code = f"{BEGIN}        {TWICE[name]}{END}"
    assert ends_of(code) in ([0, "second"], [0, "refused"])


def test_paddle_grad_may_walk_a_graph_that_is_retained():
    code = "paddle.grad(a, weight, retain_graph=True); paddle.grad(b, weight)"
    assert ends_of(f"{BEGIN}        {code}{END}") == [0, "second"]


@pytest.mark.xfail(reason="the process ends", strict=True)
def test_a_graph_that_outlives_the_context():
    code = f"{BEGIN}        pass{END}try:\n    a.backward(retain_graph=True)\n"
    code += "    a.backward()\n    print('second')\nexcept RuntimeError:\n"
    code += "    print('refused')\n"
    assert ends_of(code) in ([0, "second"], [0, "refused"])


class Waves(Net):
    """Of which Paddle can't differentiate the third derivative."""

    def __init__(self):
        super().__init__(inputs=3)

    def forward(self, x):
        turn = 3.0 * x[:, 1:]
        features = [x[:, :1], paddle.cos(turn), paddle.sin(turn)]
        return super().forward(paddle.concat(features, axis=1))


class Turned(Net):
    """The same of columns, where Paddle's error is another."""

    def forward(self, x, y):
        features = [paddle.cos(2.0 * x), paddle.sin(y)]
        return super().forward(paddle.concat(features, axis=1))


def of_a_matrix(net, k):
    x = points(9, 2, seed=k)
    u = net(x)
    return u, derivative(u, x, 0, 0), derivative(derivative(u, x, 0, 1, 1), x, 0, 1)


def at_once(net, k):
    x = points(9, 2, seed=k)
    u = net(x)
    return u, derivative(u, x, 0, 0), derivative(u, x, 0, 1, 1, 1)


def of_columns(net, k):
    x, y = (points(9, 2, seed=k)[:, i : i + 1].detach() for i in range(2))
    x.stop_gradient = y.stop_gradient = False
    u = net(x, y)
    u_x = derivative(u, x, 0, 0)
    return u, u_x, derivative(derivative(u_x, y, 0, 0), x, 0, 0)


@pytest.mark.parametrize(
    ("kind", "terms", "third", "error"),
    [
        (Waves, of_a_matrix, (0, 3), (RuntimeError, "cos_triple_grad")),
        (Waves, at_once, (0, 3), (RuntimeError, "cos_triple_grad")),
        (Turned, of_columns, (2, 1), (SystemError, "Unable to fill empty grad")),
    ],
)
def test_what_paddle_has_no_gradients_for(kind, terms, third, error):
    """From the first call on, against the same loss as a function."""
    net = kind()

    def equation_of(k):
        u, first, highest = terms(net, k)
        return ((first + u * highest) ** 2).mean(), []

    with pytest.raises(error[0], match=error[1]):
        equation_of(0)[0].backward()
    Library.clear()
    net.clear_gradients()
    apart, params, _ = stateless(net)

    def u(params, x):
        return apart(params, x) if kind is Waves else apart(params, x[:, :1], x[:, 1:])

    def loss(params, x):
        value, first, highest = derivatives(u, params, x, [(0, 0), (1, 0), third])
        return ((first + value * highest) ** 2).mean()

    script = steps_of([net], equation_of, Library.clear)
    with taylor_mode() as mode:
        found = script()
    assert mode.natively == 1
    for k, step in enumerate(found):
        value, grads = value_and_grad(loss)(params, points(9, 2, seed=k).detach())
        expected = [float(value), [g.numpy() for g in grads.values()]]
        assert_equal(step, expected, 1e-5)


@pytest.mark.parametrize("asks", [True, False])
def test_scripts_that_never_clear_keep_few_calls(asks):
    """So that the graphs of their steps are not held up to the end."""
    net, seen = Net(), []
    with taylor_mode():
        for k in range(60):
            x = points(5, 2, seed=k)
            y = net(x)
            if asks:
                paddle.grad(y, x, create_graph=True)
            seen.append(weakref.ref(y))
        del x, y
        gc.collect()
        assert sum(each() is not None for each in seen) <= 32


def test_values_between_derivatives_do_not_forget_each_other():
    """Calls of which nobody asks anything stay left alone when others are asked."""
    net, other = Net(), Net()

    def loss(k):
        edge = points(5, 2, seed=k)
        value = other(edge).mean()
        found, leaves = residual(net, k)
        return found + value, leaves

    script = steps_of([net, other], loss, Library.clear, 8)
    with taylor_mode() as mode:
        script()
        calls = mode._nets[id(other)]
        assert calls.native_reason_of((points(5, 2),)) is NativeReason.ALONE
    assert (mode.programs, mode.natively, mode.alone) == (7, 2, 7)


def test_a_derivative_of_a_call_left_alone():
    """Its kind is asked again, after many calls that were left alone."""
    net = Net()

    def loss(k):
        x = points(5, 2, seed=k)
        y = net(x)
        found = (y**2).mean()
        if k > 8:
            found += derivative(y[:, 0:1], x, 0, 1).mean()
        return found, [x]

    script = steps_of([net], loss, Library.clear, 14)
    expected = script()
    with taylor_mode() as mode:
        assert_equal(script(), expected, 1e-5)
    assert (mode.programs, mode.natively, mode.alone) == (4, 1, 9)
