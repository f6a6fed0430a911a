"""Hooks that change gradients, on what a net gives and on its derivatives."""

import pytest
from both_ways import assert_equal, points, steps_of
from small_library import Library, Net, compared, derivative, taylor_mode

pytestmark = pytest.mark.usefixtures("in_double")


def tripled(grad):
    return 3 * grad


def of_the_value(y, slope, curvature):
    y.register_hook(tripled)


def of_derivatives(y, slope, curvature):
    slope.register_hook(tripled)
    curvature.register_hook(lambda grad: grad**2)


def of_all(y, slope, curvature):
    for tensor in (y, slope, curvature):
        tensor.register_hook(tripled)
        tensor.register_hook(lambda grad: grad + 1)


@pytest.mark.parametrize("hooks", [of_the_value, of_derivatives, of_all])
def test_hooks_change_gradients(hooks):
    net = Net(outputs=2)

    def loss_of(k):
        x = points(9, 2, seed=k)
        y = net(x)
        slope, curvature = derivative(y, x, 0, 0), derivative(y, x, 1, 1, 1)
        hooks(y, slope, curvature)
        return (y**2).mean() + (slope**2).mean() + (curvature**3).mean(), [x]

    mode = compared(loss_of, net, warns=())
    assert mode.programs == 5


HOOKED = {
    "the value": (lambda y, x: y, (0, 0)),
    "a column": (lambda y, x: y[:, :1], (0, 0)),
    "a derivative": (lambda y, x: derivative(y, x, 0, 0), (0, 0, 1)),
}


@pytest.mark.parametrize("name", HOOKED)
def test_derivatives_of_what_has_a_hook(name):
    """Natively a hook is called for derivatives, too; it is refused, then as ever."""
    net = Net(outputs=2)
    of, (row, *columns) = HOOKED[name]

    def step(k, hooked):
        x = points(9, 2, seed=k)
        y = net(x)
        part = of(y, x)
        if hooked:
            part.register_hook(tripled)
        whole = part if name == "a column" else y
        return (derivative(whole, x, row, *columns) ** 3).mean(), [x]

    def script(hooked=True):
        return steps_of([net], lambda k: step(k, hooked), Library.clear, 4)()

    with taylor_mode() as mode:
        script(hooked=False)
        before = mode.programs
        with pytest.raises(RuntimeError, match="of a tensor with a hook"):
            script()
        assert mode.programs > before


def test_after_a_refusal_the_step_runs_as_ever():
    net = Net()

    def step(k):
        x = points(9, 2, seed=k)
        y = net(x)
        y.register_hook(tripled)
        return (derivative(y, x, 0, 0) ** 2).mean(), [x]

    script = steps_of([net], step, Library.clear, 1)
    expected = script()
    with taylor_mode() as mode:
        assert_equal(script(), expected, 1e-9)
        with pytest.raises(RuntimeError, match="take the step again"):
            script()
        with pytest.warns(UserWarning, match="a hook"):
            found = [script() for _ in range(3)]
    assert mode.natively == 4
    for each in found:
        assert_equal(each, expected, 1e-9)
