"""Nets whose calls do more than give a value: each effect comes as it does natively."""

import collections
import io
import itertools
import logging

import numpy as np
import paddle
import pytest
from both_ways import assert_equal, both_ways
from paddle import nn
from small_library import Library, Net, derivative, residual, taylor_mode

pytestmark = pytest.mark.usefixtures("in_double")


SEEN: list[float] = []
LAST: collections.deque[int] = collections.deque(maxlen=100)
OUT = io.StringIO()


class Effects:
    """Effects of calls of the nets below."""

    calls = 0


class Number:
    count = itertools.count()


def clear():
    Effects.calls, Number.count = 0, itertools.count()
    SEEN.clear()
    LAST.clear()
    OUT.truncate(OUT.seek(0))


def effects():
    said = len(OUT.getvalue())
    return [Effects.calls, len(SEEN), len(LAST), said, next(Number.count)]


def script_of(kind, loss_of=residual, count=7):
    """A script of losses and gradients, and of all effects of its calls."""

    def script():
        paddle.seed(1)
        clear()
        net, found = kind(), []
        for k in range(count):
            loss, _ = loss_of(net, k)
            loss.backward()
            Library.clear()
            grads = [p.grad.numpy() for p in net.parameters() if p.grad is not None]
            found.append([float(loss), grads])
            net.clear_gradients()
        return [*found, effects()]

    return script


def compared(kind, loss_of=residual, warns=()):
    found, expected, mode = both_ways(script_of(kind, loss_of), taylor_mode, warns)
    assert_equal(found, expected, 1e-9)
    return mode


class Counts(Net):
    def forward(self, x):
        Effects.calls += 1
        return super().forward(x)


class Appends(Net):
    def forward(self, x):
        SEEN.append(float(x.shape[0]))
        return super().forward(x)


class AppendsToTheLast(Net):
    def forward(self, x):
        LAST.append(1)
        return super().forward(x)


class GoesOn(Net):
    def forward(self, x):
        return super().forward(x) * (1 + next(Number.count))


class Prints(Net):
    def forward(self, x):
        print("called", file=OUT)
        return super().forward(x)


class Writes(Net):
    def forward(self, x):
        OUT.write("called")
        return super().forward(x)


class Draws(Net):
    def __init__(self):
        super().__init__()
        self.generator = np.random.default_rng(3)

    def forward(self, x):
        return super().forward(x) * float(self.generator.random())


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Counts, "such as Effects.calls;"),
        (Appends, "such as SEEN;"),
        (AppendsToTheLast, "such as LAST;"),
        (GoesOn, "it reads Number.count, a count, which goes on"),
        (Prints, "prints or writes to a file, by print"),
        (Writes, "prints or writes to a file, by write"),
        (Draws, "it reads generator, a Generator, which goes on"),
    ],
)
def test_effects_come_at_each_call(kind, why):
    assert compared(kind, warns=[why]).programs == 0


def test_transforms_that_count():
    class Transformed(Net):
        def __init__(self):
            super().__init__()

            def transform(x):
                self.count = getattr(self, "count", 0) + 1
                return x * 0.5

            self.transform = transform

        def forward(self, x):
            return super().forward(self.transform(x))

    assert compared(Transformed, warns=["such as count;"]).programs == 0


def test_a_logger_that_is_held_and_not_used():
    class Logging(Net):
        def __init__(self):
            super().__init__()
            self.logger = logging.getLogger("a test")

        def told(self):
            print("this prints, and no call of the net calls it")

    assert compared(Logging).programs == 6


def test_a_net_that_logs(caplog):
    caplog.set_level(logging.INFO)

    class Logs(Net):
        def forward(self, x):
            logging.getLogger("a test").info("called")
            return super().forward(x)

    stream = logging.StreamHandler(OUT)
    logging.getLogger("a test").addHandler(stream)
    with taylor_mode(), pytest.warns(UserWarning, match="prints or writes"):
        script_of(Logs)()
    assert sum(record.message == "called" for record in caplog.records) == 7


class Normed(Net):
    """With ``weight_norm`` in each part."""

    def __init__(self):
        super().__init__()
        nn.utils.weight_norm(self.inner, dim=1)
        nn.utils.weight_norm(self.outer, dim=None)


def test_weight_norm():
    mode = compared(Normed)
    assert (mode.programs, mode.natively) == (5, 2)


def decayed(net, k):
    """A loss with the weights that hooks have computed of the call's parameters."""
    loss, leaves = residual(net, k)
    return loss + (net.inner.weight**2).sum() + net.outer.weight.abs().sum(), leaves


def test_weights_of_weight_norm_in_a_loss():
    assert compared(Normed, decayed).programs == 5


def test_weight_norm_that_is_removed():
    def loss(net, k):
        if k == 4:
            nn.utils.remove_weight_norm(net.inner)
        return residual(net, k)

    assert compared(Normed, loss).programs >= 3


def test_spectral_norm_runs_natively():
    """Its hook writes into tensors that the next call reads."""

    class Normed(Net):
        def __init__(self):
            super().__init__()
            nn.utils.spectral_norm(self.inner)

    assert compared(Normed, warns=["writes into"]).programs == 0


class Keeps(Net):
    """Keeps tensors of its last call: within, its argument, and its result."""

    def forward(self, x):
        self.within = paddle.tanh(self.inner(x))
        self.both = {"x": x, "y": self.outer(self.within)}
        return self.both["y"]


def test_tensors_that_a_call_keeps():
    def loss(net, k):
        loss, (x,) = residual(net, k)
        assert net.both["x"] is x
        slope = derivative(net.both["y"], x, 0, 1)
        inner = paddle.grad(net.within, x, create_graph=True)[0]
        return loss + (net.within**2).mean() + (slope**2).mean() + inner.mean(), [x]

    compared(Keeps, loss, warns=["its rows are no points"])


def test_tensors_that_a_call_keeps_by_programs():
    def loss(net, k):
        loss, (x,) = residual(net, k)
        assert net.both["x"] is x
        slope = derivative(net.both["y"], x, 0, 1)
        return loss + (net.within**2).mean() + (slope**2).mean(), [x]

    assert compared(Keeps, loss).programs == 5


@pytest.mark.parametrize("whole", [True, False])
def test_what_the_call_before_has_left(whole):
    """It is read at the next call, in a list or as a tensor."""

    class Moving(Net):
        def __init__(self):
            super().__init__()
            one = paddle.ones([1])
            self.mean = one if whole else [one]

        def forward(self, x):
            before = self.mean if whole else self.mean[0]
            mean = before * 0.9 + 0.1
            self.mean = mean if whole else [mean]
            return super().forward(x) * mean

    assert compared(Moving, warns=["the call before has left"]).programs == 0
