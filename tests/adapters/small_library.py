"""A library of derivatives as small as may be, and Taylor mode for it."""

from contextlib import contextmanager

import paddle
from both_ways import assert_equal, both_ways, points, steps_of
from paddle import nn

from paddle_chainrules.adapters.taylor_mode import TaylorMode


class Net(nn.Layer):
    """What all nets of the library are, and the smallest: tanh within."""

    def __init__(self, inputs=2, outputs=1):
        super().__init__()
        self.inner, self.outer = nn.Linear(inputs, 7), nn.Linear(7, outputs)

    def forward(self, x):
        return self.outer(paddle.tanh(self.inner(x)))


class OfColumns(Net):
    """Of a dict of columns."""

    def forward(self, columns):
        return super().forward(paddle.concat([*columns.values()], axis=1))


def gradient(y, x, row, *columns):
    """By one column after the other."""
    y = y[:, row : row + 1]
    for column in columns:
        y = paddle.grad(y, x, create_graph=True)[0][:, column : column + 1]
    return y


class Library:
    """The derivatives of the net's value that scripts ask for."""

    mode = None

    @classmethod
    def derivative(cls, y, x, row, *columns):
        def natively():
            return gradient(y, x, row, *columns)

        if cls.mode is None:
            return natively()
        return cls.mode.derivative(natively, y, x, row, *([c] for c in columns))

    @classmethod
    def clear(cls):
        if cls.mode is not None:
            cls.mode.clear()


derivative = Library.derivative


@contextmanager
def taylor_mode(*nets):
    mode = TaylorMode("this library")
    with mode:
        mode.take_calls_of(Net, nets)
        mode.replace(Library, "mode", mode)
        yield mode


def compared(loss_of, *nets, given=(), count=6, warns=(), rtol=1e-9):
    """Both ways, each step with its loss and gradients; the context."""
    script = steps_of(nets, loss_of, Library.clear, count)
    found, expected, mode = both_ways(script, lambda: taylor_mode(*given), warns)
    assert_equal(found, expected, rtol)
    return mode


def residual(net, k, count=9):
    """A loss that a value and derivatives of two orders are in."""
    x = points(count, 2, seed=k)
    u = net(x)
    found = u * derivative(u, x, 0, 0) + derivative(u, x, 0, 1, 1)
    return (found**2).mean(), [x]
