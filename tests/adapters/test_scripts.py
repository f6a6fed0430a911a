"""Scripts of a small library, each step of which has the native loss and gradients."""

import paddle
import pytest
from both_ways import points
from paddle import nn
from small_library import Library, Net, OfColumns, compared, derivative, residual

pytestmark = pytest.mark.usefixtures("in_double")

COMPUTED = "an argument is computed of another"


def test_gradients_of_parameters_and_points():
    net = Net()
    mode = compared(lambda k: residual(net, k), net)
    assert (mode.programs, mode.natively) == (5, 1)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_orders(order):
    net = Net(1)

    def loss(k):
        x = points(5, 1, seed=k)
        u = net(x)
        return (derivative(u, x, 0, *[0] * order) * u).mean(), [x]

    warns = ["derivatives go to order 4"] if order > 4 else []
    mode = compared(loss, net, warns=warns)
    assert mode.programs == (0 if order > 4 else 5)


def test_gradients_of_gradients_by_parameters():
    net = Net()

    def loss(k):
        first, leaves = residual(net, k)
        found = paddle.grad(first, net.inner.weight, create_graph=True)[0]
        return (found**2).sum(), leaves

    assert compared(loss, net).programs == 5


def test_a_parameter_that_is_not_used():
    net = Net()
    net.unused = nn.Linear(3, 4)
    assert compared(lambda k: residual(net, k), net).programs == 5


def test_a_parameter_that_no_derivative_depends_on():
    """So that weight decay leaves it alone."""
    net = Net()

    def loss(k):
        x = points(9, 2, seed=k)
        return (derivative(net(x), x, 0, 1) ** 2).mean(), [x]

    assert compared(loss, net).programs == 5


def test_frozen_for_a_while():
    net = Net()

    def loss(k):
        net.inner.weight.stop_gradient = k in (3, 4)
        return residual(net, k)

    assert compared(loss, net, count=8).programs == 6


def test_two_backwards_of_two_calls_add_up():
    net = Net()

    def loss(k):
        residual(net, k + 10)[0].backward()
        Library.clear()
        return residual(net, k)

    assert compared(loss, net).programs == 11


def test_several_calls_in_a_step():
    """Of the same shapes: derivatives of one, another, and none."""
    net, other = Net(), Net(2, 3)

    def loss(k):
        x, y, z = (points(9, 2, seed=10 * k + i) for i in range(3))
        u, v, w, s = net(x), net(y), net(z), other(x)
        first = derivative(u, x, 0, 1) * w.mean() * derivative(s, x, 2, 0) + s[:, :1]
        return (first * v + derivative(v, y, 0, 0, 1)).mean(), [x, y, z]

    compared(loss, net, other, count=9)


def test_derivatives_that_are_asked_for_later_on():
    net = Net(2, 2)

    def loss(k):
        x = points(9, 2, seed=k)
        u = net(x)
        found = (u**2).mean()
        if k > 2:
            found += derivative(u, x, 0, 0).mean()
        if k > 4:
            found += (derivative(u, x, 1, 0, 1) ** 2).mean()
        return found, [x]

    mode = compared(loss, net, count=9)
    assert (mode.programs, mode.natively, mode.alone) == (5, 1, 3)


def test_values_alone_run_as_ever():
    net, other = Net(), Net()

    def loss(k):
        found, leaves = residual(net, k)
        edge = points(5, 2, seed=k)
        return found + (net(edge) ** 2).mean() + other(edge).mean(), [*leaves, edge]

    mode = compared(loss, net, other)
    assert (mode.programs, mode.natively, mode.alone) == (5, 3, 10)
    assert "3 natively, 10 without derivatives" in repr(mode)


def test_batches_of_several_sizes():
    net = Net()
    mode = compared(lambda k: residual(net, k, (9, 5, 1)[k % 3]), net, count=9)
    assert (mode.programs, mode.natively) == (6, 3)


def test_columns_and_slices_of_them():
    """An output's slices, by columns that are slices of one tensor."""
    net = OfColumns(2, 3)

    def loss(k):
        whole = points(9, 2, seed=k)
        x, t = whole[:, 0:1], whole[:, 1:2]
        y = net({"x": x, "t": t})
        u, vw = y[:, 0:1], y[:, 1:3]
        found = derivative(u, x, 0, 0) * derivative(vw, t, 1, 0, 0)
        return (found * u + derivative(vw, x, 0, 0)).mean(), [whole]

    assert compared(loss, net).programs == 5


def test_parts_of_a_split():
    net = Net(2, 2)

    def loss(k):
        x = points(9, 2, seed=k)
        u, v = paddle.split(net(x), 2, axis=1)
        return (derivative(u, x, 0, 0) * v + u).mean(), [x]

    assert compared(loss, net).programs == 5


def test_rows_that_depend_on_others():
    class Centred(Net):
        def forward(self, x):
            return super().forward(x - x.mean(0))

    net = Centred()
    mode = compared(lambda k: residual(net, k), net, warns=["depends on other rows"])
    assert mode.programs == 0


@pytest.mark.filterwarnings("ignore:When training, we now always track")
def test_statistics_of_batches():
    class Normalized(Net):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1D(2)

        def forward(self, x):
            return super().forward(self.norm(x))

    net = Normalized()

    def loss(k):
        x = points(9, 2, seed=k)
        y = net(x)
        return (y**2).mean() + derivative(y, x, 0, 0).mean(), [x]

    mode = compared(loss, net, warns=["writes into a tensor"])
    assert mode.programs == 0


def test_an_argument_that_is_computed_of_another():
    net = OfColumns()

    def loss(k):
        x = points(9, 1, seed=k)
        y = net({"x": x, "square": x**2})
        return (derivative(y, x, 0, 0) ** 2).mean() + y.mean(), [x]

    compared(loss, net, warns=[COMPUTED])


def test_a_net_of_another_net():
    first, second = Net(1), OfColumns()

    def loss(k):
        x = points(9, 1, seed=k)
        y = second({"x": x, "u": first(x)})
        return (derivative(y, x, 0, 0) ** 2).mean() + y.mean(), [x]

    compared(loss, first, second, warns=[COMPUTED])


def whole(y, x):
    return y.multiply_(x)


def one_column(y, x):
    return y[:, 0:1].multiply_(x[:, :1])


@pytest.mark.parametrize("written", [whole, one_column])
def test_outputs_that_are_written_into(written):
    net = Net(2, 2)

    def loss(k):
        x = points(9, 2, seed=k)
        y = written(net(x), x)
        return derivative(y, x, 0, 0).mean() + (y**2).mean(), [x]

    assert compared(loss, net).programs == 5
