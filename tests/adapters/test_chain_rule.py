"""Derivatives of what scripts compute of outputs, by the series of these outputs."""

from weakref import ref

import paddle
import pytest
from both_ways import points
from small_library import Library, Net, OfColumns, compared, derivative, taylor_mode

pytestmark = pytest.mark.usefixtures("in_double")

RTOL = 1e-10

FORMS = {
    "a product of outputs": lambda x, u, v: u * v,
    "a square": lambda x, u, v: u**2,
    "scalars and a power": lambda x, u, v: 3.0 * u * (2.0 + v) ** 3 / 4.0 - 1.0,
    "functions and a sum": lambda x, u, v: paddle.sin(u) + paddle.exp(v) - u,
    "with the inputs": lambda x, u, v: x[:, :1] * u + x[:, 1:] ** 3 * v,
    "of the inputs alone beside one": lambda x, u, v: u + paddle.cos(x[:, :1]),
    "a mean over all points": lambda x, u, v: (u - u.mean()) * v,
    "parts put together": lambda x, u, v: paddle.concat([v, u], 1).sum(1, True) * v,
}


def asked(form, *by):
    """A step whose loss has a derivative of a form of two outputs."""

    def loss(net, k):
        x = points(9, 2, seed=k)
        y = net(x)
        u, v = y[:, 0:1], y[:, 1:2]
        found = derivative(form(x, u, v), x, 0, *by)
        return (found**2 * v).mean() + derivative(y, x, 0, 1).mean(), [x]

    return loss


@pytest.mark.parametrize("by", [(0,), (1, 0)], ids=["first", "second"])
@pytest.mark.parametrize("name", FORMS)
def test_forms_of_outputs(name, by):
    net, step = Net(2, 3), asked(FORMS[name], *by)
    mode = compared(lambda k: step(net, k), net, rtol=RTOL)
    assert (mode.programs, mode.natively) == (5, 1)


def test_a_form_that_is_asked_for_later_on():
    net = Net(2, 2)

    def loss(k):
        x = points(9, 2, seed=k)
        y = net(x)
        found = (derivative(y, x, 0, 0) * y).mean()
        if k > 3:
            found += (derivative(y[:, :1] * y[:, 1:], x, 0, 1) ** 2).mean()
        return found, [x]

    assert compared(loss, net, count=8, rtol=RTOL).programs == 7


def test_a_residual_with_a_trained_coefficient():
    """Gradient-enhanced losses, of an inverse problem."""
    net = Net()
    given = paddle.to_tensor([0.7], stop_gradient=False)

    def loss(k):
        given.clear_gradient(False)
        x = points(9, 2, seed=k)
        u = net(x)
        heat = derivative(u, x, 0, 1) - given * derivative(u, x, 0, 0, 0)
        found = heat + u * derivative(u, x, 0, 0) - paddle.sin(x[:, :1])
        slopes = derivative(found, x, 0, 0) + derivative(found, x, 0, 1) ** 2
        return (found**2).mean() + (slopes**2).mean(), [x, given]

    assert compared(loss, net, rtol=RTOL).programs == 5


def test_outputs_of_two_nets_and_of_other_points():
    net, other = Net(), OfColumns(2, 2)

    def loss(k):
        whole, edge = points(9, 2, seed=k), points(9, 2, seed=k + 50)
        x, t = whole[:, 0:1], whole[:, 1:2]
        u, v = net(whole), other({"x": x, "t": t})
        found = derivative(v[:, :1] * v[:, 1:] * net(edge).mean(), t, 0, 0)
        return (found * derivative(u * u, whole, 0, 1)).mean(), [whole, edge]

    mode = compared(loss, net, other, rtol=RTOL)
    assert (mode.programs, mode.alone) == (9, 7)


def test_beyond_the_fourth_order():
    net = Net(1)

    def loss(k):
        x = points(5, 1, seed=k)
        u = net(x)
        first = derivative(u * derivative(u, x, 0, 0, 0, 0), x, 0, 0)
        return (derivative(first, x, 0, 0) * u).mean(), [x]

    mode = compared(loss, net, warns=["derivatives go to order 4"], rtol=RTOL)
    assert mode.programs < 5


def test_a_derivative_that_is_written_into():
    """Which no longer is the derivative."""
    net = Net()

    def loss(k):
        x = points(9, 2, seed=k)
        u = net(x)
        slope = derivative(u, x, 0, 0)
        found = u**2
        slope.multiply_(paddle.full_like(slope, 2.0))
        return (derivative(found, x, 0, 0) * slope).mean(), [x]

    compared(loss, net, rtol=RTOL)


def test_hooks_on_what_is_computed():
    """Are called with the gradients that they are called with natively."""
    net, seen = Net(2, 2), []

    def loss(k):
        x = points(9, 2, seed=k)
        y = net(x)
        form = y[:, :1] * y[:, 1:]
        found = derivative(form, x, 0, 0)
        form.register_hook(lambda grad: seen.append(float(grad.sum())))
        return (found**2).mean() + (form**2).mean(), [x]

    assert compared(loss, net, rtol=RTOL).programs == 5
    native, within = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert native == pytest.approx(within, rel=1e-10)


def test_hooks_on_outputs_run_as_ever():
    net = Net()

    def loss(k):
        x = points(9, 2, seed=k)
        y = net(x)
        y.register_hook(lambda grad: 2.0 * grad)
        return (derivative(y * y, x, 0, 0) ** 2).mean(), [x]

    compared(loss, net, warns=["a tensor with a hook"], rtol=RTOL)


# Gradients that scripts take themselves


def slope_of(y, x, **kwargs):
    return paddle.grad(y, x, create_graph=True, **kwargs)[0]


def test_second_order_by_paddle_grad():
    net = Net()

    def loss(k):
        x = points(9, 2, seed=k)
        u = net(x)
        slope = slope_of(u, x)
        bent = slope_of(slope[:, 0:1], x)
        return ((slope[:, 1:] - bent[:, 0:1] + u * bent[:, 1:]) ** 2).mean(), [x]

    mode = compared(loss, net, rtol=RTOL)
    assert (mode.programs, mode.natively) == (5, 1)


def test_gradients_by_single_columns():
    """Of a sum, with a cotangent, by several at once."""
    net = OfColumns(2, 3)

    def loss(k):
        x, t = points(9, 1, seed=k), points(9, 1, seed=k + 50)
        y = net({"x": x, "t": t})
        first = slope_of((y[:, :1] * y[:, 1:2]).sum(), x)
        second = slope_of(y, x, grad_outputs=paddle.cos(y))
        both = paddle.grad([y[:, 2:], y[:, :1] ** 2], [t, x], create_graph=True)
        bent = slope_of(first, t)
        return (first * second * both[0] + both[1] * bent).mean(), [x, t]

    mode = compared(loss, net, rtol=RTOL)
    assert mode.programs >= 4


def test_first_order_by_many_columns_is_left_alone():
    """One reverse pass is faster than a series for each."""
    net = Net(3)

    def loss(k):
        x = points(9, 3, seed=k)
        return (slope_of(net(x).sum(), x) ** 2).mean(), [x]

    mode = compared(loss, net, rtol=0)
    assert (mode.programs, mode.natively, mode.alone) == (0, 1, 5)


def test_derivatives_after_gradients_were_left_alone():
    net = Net(3)

    def loss(k):
        x = points(9, 3, seed=k)
        u = net(x)
        found = (slope_of(u.sum(), x) ** 2).mean()
        if k > 3:
            found += derivative(u, x, 0, 1, 1).mean()
        return found, [x]

    mode = compared(loss, net, count=8, rtol=RTOL)
    assert mode.programs == 3


def test_gradients_by_what_arguments_are_computed_from():
    """As DeepXDE's zcs takes derivatives, by one number that is added to all points."""
    net = Net()

    def loss(k):
        x = points(9, 2, seed=k)
        z = paddle.zeros([])
        z.stop_gradient = False
        return slope_of(net(x + z).sum(), z) ** 2, [x]

    mode = compared(loss, net, warns=["paddle.grad differentiates it"], rtol=0)
    assert (mode.programs, mode.natively) == (0, 6)


def test_gradients_by_parameters_of_a_form():
    net = Net()

    def loss(k):
        x = points(9, 2, seed=k)
        u = net(x)
        first = (derivative(u * u, x, 0, 0) ** 2).mean()
        found = paddle.grad(first, [net.inner.weight, x], create_graph=True)
        return sum((g**2).sum() for g in found), [x]

    compared(loss, net, rtol=RTOL)


def test_results_that_have_been_cleared():
    """Of which the context knows nothing any more."""
    net = Net()

    def loss(k):
        x = points(9, 2, seed=k)
        u = net(x)
        slope = derivative(u, x, 0, 0)
        Library.clear()
        return (slope_of(u * u, x)[:, :1] * slope).mean(), [x]

    compared(loss, net, rtol=RTOL)


def test_gradients_of_rows_that_are_no_points():
    """As of operators that give a value for each of their points, side by side."""

    class Across(Net):
        def forward(self, x):
            return super().forward(x).t() * paddle.ones([4, 1])

    net = Across()

    def loss(k):
        x = points(9, 2, seed=k)
        y = net(x)
        found = [derivative(y[i].unsqueeze(1), x, 0, 0) for i in range(4)]
        return (paddle.concat(found) ** 2).mean(), [x]

    mode = compared(loss, net, warns=["its rows are no points"], rtol=0)
    assert (mode.programs, mode.natively) == (0, 6)


def test_values_without_gradients_are_not_held():
    """As of predictions, of which nobody asks for derivatives."""
    net = Net()
    with taylor_mode() as mode:
        for k in range(4):
            net(points(9, 2, seed=k))
            Library.clear()
        with paddle.no_grad():
            found = ref(net(points(9, 2)))
        assert found() is None
    assert (mode.natively, mode.alone) == (1, 3)
