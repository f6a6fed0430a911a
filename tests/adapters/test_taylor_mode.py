"""The mode of both adapters, without a library: a net, and derivatives asked of it."""

import sys

import numpy as np
import paddle
import pytest
from paddle import nn

from paddle_chainrules.adapters import deepxde, paddlescience
from paddle_chainrules.adapters.net_calls import predict_next
from paddle_chainrules.adapters.origins import Entry
from paddle_chainrules.adapters.state import ObjectState
from paddle_chainrules.adapters.taylor_mode import NativeWarning, TaylorMode


class Net(nn.Layer):
    """With what Python may change: an attribute, a list, an array, a closure."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.first, self.last = nn.Linear(2, 9), nn.Linear(9, 3)
        self.dropout = nn.Dropout(dropout) if dropout else None
        self.scale, self.shifts = 1.0, [0.25, 0.5]
        self.bounds = np.array([1.0, 2.0])
        factor = 2.0

        def transform(x):
            return factor * x * FACTOR

        self.transform = transform

    def forward(self, x):
        y = paddle.tanh(self.first(self.transform(x) + self.shifts[0]))
        if self.dropout is not None:
            y = self.dropout(y)
        return self.last(y) * self.scale * float(self.bounds[0])


FACTOR = 1.0


class Asking:
    """What a library makes of gradients, in the mode or not."""

    def __init__(self, net):
        self.net, self.mode = net, None

    def derivative(self, y, x, row, *columns):
        def natively():
            found = y[:, row : row + 1]
            for (column,) in columns:
                found = paddle.grad(found, x, create_graph=True)[0]
                found = found[:, column : column + 1]
            return found

        if self.mode is None:
            return natively()
        return self.mode.derivative(natively, y, x, row, *columns)

    def loss(self, x, more=True):
        y = self.net(x)
        u_x, v_t = self.derivative(y, x, 0, [0]), self.derivative(y, x, 1, [1])
        found = (u_x * y[:, 2:] - v_t) ** 2
        if more:
            found = found + self.derivative(u_x, x, 0, [0]) * v_t
            found = found + self.derivative(y, x, 2, [0], [1])
        return found.mean()

    def gradients(self, x, **kwargs):
        loss = self.loss(x, **kwargs)
        loss.backward()
        found = [p.grad.clone() for p in self.net.parameters()]
        self.net.clear_gradients()
        return [loss, *found]


def points(rows=7, seed=1):
    paddle.seed(seed)
    x = paddle.randn([rows, 2], dtype="float64")
    x.stop_gradient = False
    return x


@pytest.fixture
def asking():
    paddle.seed(0)
    net = Net()
    net.to(dtype="float64")
    return Asking(net)


@pytest.fixture
def mode(asking):
    with TaylorMode("a test") as found:
        found.take_calls_of(nn.LayerList, [asking.net])
        yield found


def assert_same(asking, mode, x, **kwargs):
    """In the mode and without."""
    asking.mode = mode
    found = asking.gradients(x, **kwargs)
    asking.mode = None
    mode._is_off = True  # as another script's
    expected = asking.gradients(x, **kwargs)
    mode._is_off = False
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert float((a - b).abs().max()) <= 1e-12 * (1 + float(b.abs().max()))


def test_derivatives_come_with_the_values(asking, mode):
    for step in range(4):
        assert_same(asking, mode, points(seed=step))
        mode.clear()
    assert (mode.programs, mode.natively) == (3, 1)
    assert not mode.reasons
    assert "3 calls of nets by programs, 1 natively" in repr(mode)


def test_what_was_not_foreseen_is_computed_and_foreseen(asking, mode):
    for more in (False, False, True, True, False):
        assert_same(asking, mode, points(), more=more)
        mode.clear()
    assert (mode.programs, mode.natively) == (4, 1)


def test_other_shapes_are_other_kinds(asking, mode):
    for rows in (7, 5, 7, 5, 1, 1):
        assert_same(asking, mode, points(rows))
        mode.clear()
    assert (mode.programs, mode.natively) == (3, 3)


CHANGES = {
    "an attribute": lambda net: setattr(net, "scale", 3.0),
    "a list": lambda net: net.shifts.__setitem__(0, -1.0),
    "an array": lambda net: net.bounds.__setitem__(0, 5.0),
    "a transform": lambda net: setattr(net, "transform", lambda x: x - 1.0),
    "a layer": lambda net: setattr(net, "last", nn.Linear(9, 3).to(dtype="float64")),
    "a parameter": lambda net: net.first.weight.set_value(net.first.weight * 2.0),
    "a frozen parameter": lambda net: setattr(net.first.bias, "stop_gradient", True),
    "a mode": lambda net: net.eval(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_script_changes_in_a_net_is_seen(asking, mode, name):
    for _ in range(2):
        assert_same(asking, mode, points())
        mode.clear()
    CHANGES[name](asking.net)
    if name == "a frozen parameter":
        asking.net.parameters = lambda: [
            p for p in nn.Layer.parameters(asking.net) if not p.stop_gradient
        ]
    for _ in range(3):
        assert_same(asking, mode, points())
        mode.clear()


def test_globals_and_closures_are_seen(asking, monkeypatch):
    state = ObjectState(asking.net, frozenset())
    assert state.is_same()
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert not state.is_same()
    monkeypatch.setitem(globals(), "FACTOR", 1.0)
    assert state.is_same()
    asking.net.transform.__closure__[0].cell_contents = 3.0
    assert not state.is_same()


def test_modes_and_names_set_apart_are_not_state(asking):
    asking.net.other = 1
    state = ObjectState(asking.net, {(id(vars(asking.net)), "other")})
    asking.net.other = 2
    asking.net.eval()
    assert state.is_same()
    asking.net.more = 1
    assert not state.is_same()


def test_nets_that_change_all_the_time_run_as_ever(asking, mode):
    asking.mode = mode

    def script():
        for step in range(8):
            asking.net.scale = float(step)
            asking.gradients(points())
            mode.clear()

    with pytest.warns(NativeWarning, match="change from call to call"):
        script()
    assert mode.programs == 0


def test_dropout_runs_as_ever():
    """Paddle has no second derivatives of it, so that scripts ask for its values."""
    asking = Asking(Net(dropout=0.5).to(dtype="float64"))
    with TaylorMode("a test") as asking.mode:
        asking.mode.take_calls_of(nn.LayerList, [asking.net])
        for _ in range(4):
            asking.net(points()).sum().backward()
    assert (asking.mode.programs, asking.mode.natively, asking.mode.alone) == (0, 1, 3)


def test_graphs_that_are_retained_turn_it_off(asking, mode):
    asking.mode = mode
    for _ in range(2):
        asking.gradients(points())
        mode.clear()
    loss = asking.loss(points())
    with (
        pytest.warns(NativeWarning, match="retain_graph"),
        pytest.raises(RuntimeError, match="goes back through a graph more than once"),
    ):
        loss.backward(retain_graph=True)
    loss = asking.loss(points())
    loss.backward(retain_graph=True)
    loss.backward()


def test_gradients_beside_a_program_are_kept(asking, mode):
    """Where the program gives none, and the loss has the parameter elsewhere."""
    asking.mode, bias = mode, asking.net.last.bias
    bias.set_value(paddle.to_tensor([0.5, -1.0, 2.0], dtype="float64"))

    def gradient(penalty):
        asking.net.clear_gradients(False)
        x = points()
        loss = asking.derivative(asking.net(x), x, 0, [0]).sum()
        (loss + penalty * (bias**2).sum()).backward()
        mode.clear()
        return bias.grad

    for _ in range(2):
        gradient(0.5)
    assert mode.programs == 1
    assert float((gradient(0.5) - bias).abs().max()) < 1e-15


def test_nothing_stays_replaced(asking):
    before = paddle.Tensor.backward, vars(nn.LayerList).get("__call__")

    def script():
        with TaylorMode("a test") as mode:
            mode.take_calls_of(nn.LayerList, [asking.net])
            assert paddle.Tensor.backward is not before[0]
            raise KeyError

    with pytest.raises(KeyError):
        script()
    assert (paddle.Tensor.backward, vars(nn.LayerList).get("__call__")) == before
    assert "__call__" not in vars(Net)


@pytest.mark.parametrize(
    ("adapter", "library", "package"),
    [(deepxde, "deepxde", "deepxde"), (paddlescience, "ppsci", "paddlesci")],
)
def test_a_library_that_is_not_there(adapter, library, package, monkeypatch):
    for name in [*sys.modules]:
        if name.partition(".")[0] == library:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=f"pip install {package}"):
        adapter.taylor_mode().__enter__()


A, B = frozenset({Entry(0, 0, ((0, 0),))}), frozenset({Entry(0, 1, ((0, 1),))})
NONE = frozenset()


@pytest.mark.parametrize(
    ("history", "following"),
    [
        ([A], A),
        ([A, A, A], A),
        ([A, NONE], NONE),
        ([A, NONE, A], NONE),
        ([A, NONE, A, NONE], A),
        ([A, NONE, NONE, A, NONE, NONE], A),
        ([A, NONE, NONE, A, NONE], NONE),
        ([A, B, NONE, A, B, NONE, A], B),
        ([A, A, A, A, B], B),
        ([A, A, A, B, B, B], B),
    ],
)
def test_what_is_foreseen(history, following):
    assert predict_next(history) == following
