"""Differential equations as scripts of DeepXDE, of the sizes of its own examples.

Written here from the equations.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
import paddle

os.environ["DDE_BACKEND"] = "paddle"
with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
    import deepxde as dde

from deepxde import Model
from deepxde.data import PDE, TimePDE
from deepxde.icbc import IC, DirichletBC, NeumannBC, OperatorBC, PeriodicBC

from paddle_chainrules.adapters.deepxde import taylor_mode as taylor_mode

LIBRARY = "DeepXDE"
GLOROT = "Glorot normal"
jacobian, hessian = dde.grad.jacobian, dde.grad.hessian

Steps = Callable[[int], None]
"""Trains for a number of steps."""


class Problem(NamedTuple):
    """An equation, told in the table by its net and its points."""

    net: str
    points: str
    make: Callable[[], Model]

    def steps(self) -> Steps:
        """A new model, and its training."""
        dde.config.set_random_seed(0)
        model = self.make()
        learnt = getattr(model, "learnt", None)
        model.compile("adam", lr=1e-3, external_trainable_variables=learnt, verbose=0)
        data, state = model.data, model.train_state

        def run(count: int) -> None:
            for _ in range(count):
                state.set_data_train(*data.train_next_batch(None))
                model._train_step(state.X_train, state.y_train, state.train_aux_vars)

        return run


def on_boundary(x: Any, on: bool) -> bool:
    return on


def starts(times: Any, values: Any) -> list[IC]:
    """What the components are at first."""
    return [starts_at(times, value, i) for i, value in enumerate(values)]


def starts_at(times: Any, value: float, component: int) -> IC:
    return IC(times, lambda t: value, lambda _, on: on, component=component)


def everywhere(geometry: Any, value: float = 0.0, component: int = 0) -> DirichletBC:
    return DirichletBC(geometry, lambda x: value, on_boundary, component=component)


def line_and_time(low: float, high: float, end: float = 1.0) -> Any:
    line = dde.geometry.Interval(low, high)
    return dde.geometry.GeometryXTime(line, dde.geometry.TimeDomain(0, end))


def fnn(sizes: list[int], activation: str = "tanh", start: str = GLOROT) -> Any:
    return dde.nn.FNN(sizes, activation, start)


def heat() -> Model:
    space = line_and_time(0, 1)

    def residual(x: Any, y: Any) -> Any:
        return jacobian(y, x, i=0, j=1) - 0.4 * hessian(y, x, i=0, j=0)

    start = IC(space, lambda x: np.sin(np.pi * x[:, :1]), lambda _, on: on)
    sizes = {"num_domain": 2540, "num_boundary": 80, "num_initial": 160}
    data = TimePDE(space, residual, [everywhere(space), start], **sizes)
    return Model(data, fnn([2, *[20] * 3, 1]))


def burgers() -> Model:
    space = line_and_time(-1, 1, 0.99)

    def residual(x: Any, y: Any) -> Any:
        dy_x, dy_t = jacobian(y, x, i=0, j=0), jacobian(y, x, i=0, j=1)
        return dy_t + y * dy_x - 0.01 / np.pi * hessian(y, x, i=0, j=0)

    start = IC(space, lambda x: -np.sin(np.pi * x[:, :1]), lambda _, on: on)
    sizes = {"num_domain": 2540, "num_boundary": 80, "num_initial": 160}
    data = TimePDE(space, residual, [everywhere(space), start], **sizes)
    return Model(data, fnn([2, *[20] * 3, 1]))


def poisson_line() -> Model:
    line = dde.geometry.Interval(-1, 1)

    def residual(x: Any, y: Any) -> Any:
        return -hessian(y, x) - np.pi**2 * paddle.sin(np.pi * x)

    data = PDE(line, residual, everywhere(line), 16, 2)
    return Model(data, fnn([1, *[50] * 3, 1], start="Glorot uniform"))


def poisson_corner() -> Model:
    corners = [[0, 0], [1, 0], [1, -1], [-1, -1], [-1, 1], [0, 1]]
    shape = dde.geometry.Polygon(corners)

    def residual(x: Any, y: Any) -> Any:
        return -hessian(y, x, i=0, j=0) - hessian(y, x, i=1, j=1) - 1

    data = PDE(shape, residual, everywhere(shape), num_domain=1200, num_boundary=120)
    data.train_x = data.train_x.astype("float32")  # a polygon's are float64
    return Model(data, fnn([2, *[50] * 4, 1], start="Glorot uniform"))


def allen_cahn() -> Model:
    space = line_and_time(-1, 1)

    def residual(x: Any, y: Any) -> Any:
        dy_t, dy_xx = jacobian(y, x, i=0, j=1), hessian(y, x, i=0, j=0)
        return dy_t - 0.001 * dy_xx - 5 * (y - y**3)

    def conditions(x: Any, y: Any) -> Any:
        start = x[:, :1] ** 2 * paddle.cos(np.pi * x[:, :1])
        return start + x[:, 1:] * (1 - x[:, :1] ** 2) * y

    sizes = {"num_domain": 8000, "num_boundary": 400, "num_initial": 800}
    net = fnn([2, *[20] * 3, 1])
    net.apply_output_transform(conditions)
    return Model(TimePDE(space, residual, [], **sizes), net)


def diffusion_reaction() -> Model:
    space = line_and_time(-np.pi, np.pi)

    def residual(x: Any, y: Any) -> Any:
        along, t = x[:, :1], x[:, 1:]
        waves = sum(
            (k - 1 / k) * paddle.sin(k * along) for k in (1.5, 2.0, 3.0, 4.0, 8.0)
        )
        dy_t, dy_xx = jacobian(y, x, i=0, j=1), hessian(y, x, i=0, j=0)
        return dy_t - dy_xx - paddle.exp(-t) * waves

    def conditions(x: Any, y: Any) -> Any:
        along, t = x[:, :1], x[:, 1:]
        start = sum(paddle.sin(k * along) / k for k in (1, 2, 3, 4, 8))
        return t * (np.pi**2 - along**2) * y + start

    net = fnn([2, *[30] * 6, 1])
    net.apply_output_transform(conditions)
    return Model(TimePDE(space, residual, [], num_domain=320), net)


def helmholtz() -> Model:
    square = dde.geometry.Rectangle([0, 0], [1, 1])
    k = 4 * np.pi

    def residual(x: Any, y: Any) -> Any:
        bent = hessian(y, x, i=0, j=0) + hessian(y, x, i=1, j=1)
        source = paddle.sin(k * x[:, :1]) * paddle.sin(k * x[:, 1:])
        return -bent - k**2 * y - k**2 * source

    def conditions(x: Any, y: Any) -> Any:
        return y * x[:, :1] * (1 - x[:, :1]) * x[:, 1:] * (1 - x[:, 1:])

    net = fnn([2, *[150] * 3, 1], "sin", "Glorot uniform")
    net.apply_output_transform(conditions)
    data = PDE(square, residual, [], num_domain=400, num_boundary=80)
    return Model(data, net)


def beam() -> Model:
    line = dde.geometry.Interval(0, 1)

    def bent(x: Any, y: Any) -> Any:
        return hessian(y, x)

    def residual(x: Any, y: Any) -> Any:
        return hessian(bent(x, y), x) + 1

    def left(x: Any, on: bool) -> bool:
        return on and np.isclose(x[0], 0)

    def right(x: Any, on: bool) -> bool:
        return on and np.isclose(x[0], 1)

    conditions = [
        DirichletBC(line, lambda x: 0, left),
        NeumannBC(line, lambda x: 0, left),
        OperatorBC(line, lambda x, y, _: bent(x, y), right),
        OperatorBC(line, lambda x, y, _: jacobian(bent(x, y), x), right),
    ]
    data = PDE(line, residual, conditions, num_domain=10, num_boundary=2)
    return Model(data, fnn([1, *[20] * 3, 1], start="Glorot uniform"))


def klein_gordon() -> Model:
    space = line_and_time(-1, 1, 10)

    def residual(x: Any, y: Any) -> Any:
        along, t = x[:, :1], x[:, 1:]
        wave = along * paddle.cos(t)
        bent = hessian(y, x, i=1, j=1) - hessian(y, x, i=0, j=0)
        return bent + y**2 + wave - wave**2

    def exact(x: Any) -> Any:
        return x[:, :1] * np.cos(x[:, 1:])

    conditions = [
        DirichletBC(space, exact, on_boundary),
        IC(space, exact, lambda _, on: on),
        OperatorBC(
            space,
            lambda x, y, _: jacobian(y, x, i=0, j=1),
            lambda x, _: np.isclose(x[1], 0),
        ),
    ]
    sizes = {"num_domain": 3000, "num_boundary": 150, "num_initial": 150}
    return Model(TimePDE(space, residual, conditions, **sizes), fnn([2, *[40] * 2, 1]))


def wave() -> Model:
    space = line_and_time(0, 1)

    def residual(x: Any, y: Any) -> Any:
        return hessian(y, x, i=1, j=1) - 100 * hessian(y, x, i=0, j=0)

    def exact(x: Any) -> Any:
        along, t = x[:, :1], x[:, 1:]
        slow = np.sin(np.pi * along) * np.cos(10 * np.pi * t)
        return slow + np.sin(2 * np.pi * along) * np.cos(20 * np.pi * t)

    conditions = [
        DirichletBC(space, exact, on_boundary),
        IC(space, exact, lambda _, on: on),
        OperatorBC(
            space,
            lambda x, y, _: jacobian(y, x, i=0, j=1),
            lambda x, _: np.isclose(x[1], 0),
        ),
    ]
    sizes = {"num_domain": 360, "num_boundary": 360, "num_initial": 360}
    net = dde.nn.STMsFFN(
        [2, *[100] * 3, 1], "tanh", "Glorot uniform", sigmas_x=[1], sigmas_t=[1, 10]
    )
    return Model(TimePDE(space, residual, conditions, **sizes), net)


def lorenz() -> Model:
    times = dde.geometry.TimeDomain(0, 3)
    learnt = [dde.Variable(1.0) for _ in range(3)]

    def residual(t: Any, y: Any) -> Any:
        a, b, c = learnt
        u, v, w = y[:, :1], y[:, 1:2], y[:, 2:]
        return [
            jacobian(y, t, i=0) - a * (v - u),
            jacobian(y, t, i=1) - u * (b - w) + v,
            jacobian(y, t, i=2) - u * v + c * w,
        ]

    seen = np.linspace(0, 3, 25)[:, None]
    observed = [
        dde.icbc.PointSetBC(seen, np.sin(seen * (i + 1)), component=i) for i in range(3)
    ]
    sizes = {"num_domain": 400, "num_boundary": 2, "anchors": seen}
    data = PDE(times, residual, [*starts(times, (-8, 7, 27)), *observed], **sizes)
    model = Model(data, fnn([1, *[40] * 3, 3], start="Glorot uniform"))
    model.learnt = learnt
    return model


def kovasznay() -> Model:
    box = dde.geometry.Rectangle([-0.5, -0.5], [1, 1.5])
    speed = 1 / 40 - np.sqrt(1 / 1600 + 4 * np.pi**2)

    def residual(x: Any, y: Any) -> Any:
        u, v = y[:, :1], y[:, 1:2]
        u_x, u_y = jacobian(y, x, i=0, j=0), jacobian(y, x, i=0, j=1)
        v_x, v_y = jacobian(y, x, i=1, j=0), jacobian(y, x, i=1, j=1)
        p_x, p_y = jacobian(y, x, i=2, j=0), jacobian(y, x, i=2, j=1)
        bent = [
            sum(hessian(y, x, component=c, i=i, j=i) for i in range(2))
            for c in range(2)
        ]
        return [
            u * u_x + v * u_y + p_x - bent[0] / 20,
            u * v_x + v * v_y + p_y - bent[1] / 20,
            u_x + v_y,
        ]

    def along(x: Any) -> Any:
        return 1 - np.exp(speed * x[:, :1]) * np.cos(2 * np.pi * x[:, 1:])

    def across(x: Any) -> Any:
        wave = np.exp(speed * x[:, :1]) * np.sin(2 * np.pi * x[:, 1:])
        return speed / (2 * np.pi) * wave

    def outflow(x: Any, on: bool) -> bool:
        return on and np.isclose(x[0], 1)

    conditions = [
        DirichletBC(box, along, on_boundary, component=0),
        DirichletBC(box, across, on_boundary, component=1),
        DirichletBC(
            box, lambda x: (1 - np.exp(2 * speed * x[:, :1])) / 2, outflow, component=2
        ),
    ]
    data = PDE(box, residual, conditions, num_domain=2601, num_boundary=400)
    return Model(data, fnn([2, *[50] * 4, 3], start="Glorot uniform"))


def schroedinger() -> Model:
    space = line_and_time(-5, 5, np.pi / 2)

    def residual(x: Any, y: Any) -> Any:
        u, v = y[:, :1], y[:, 1:]
        u_t, v_t = jacobian(y, x, i=0, j=1), jacobian(y, x, i=1, j=1)
        u_xx = hessian(y, x, component=0, i=0, j=0)
        v_xx = hessian(y, x, component=1, i=0, j=0)
        size = u**2 + v**2
        return [u_t + 0.5 * v_xx + size * v, v_t - 0.5 * u_xx - size * u]

    conditions = [
        PeriodicBC(space, 0, on_boundary, derivative_order=order, component=c)
        for order in (0, 1)
        for c in (0, 1)
    ]
    conditions += [
        IC(space, lambda x: 2 / np.cosh(x[:, :1]), lambda _, on: on, component=0),
        IC(space, lambda x: 0, lambda _, on: on, component=1),
    ]
    sizes = {"num_domain": 2000, "num_boundary": 20, "num_initial": 200}
    data = TimePDE(space, residual, conditions, train_distribution="pseudo", **sizes)
    return Model(data, fnn([2, *[100] * 4, 2]))


def ode_system() -> Model:
    times = dde.geometry.TimeDomain(0, 10)

    def residual(t: Any, y: Any) -> Any:
        return [
            jacobian(y, t, i=0) - y[:, 1:],
            jacobian(y, t, i=1) + y[:, :1],
        ]

    data = PDE(times, residual, starts(times, (0, 1)), 35, 2)
    return Model(data, fnn([1, *[50] * 3, 2], start="Glorot uniform"))


PROBLEMS: dict[str, Problem] = {
    "heat": Problem("3x20", "2780", heat),
    "Burgers": Problem("3x20", "2780", burgers),
    "Poisson, 1-D": Problem("3x50", "18", poisson_line),
    "Poisson, L-shape": Problem("4x50", "1320", poisson_corner),
    "Allen-Cahn, exact conditions": Problem("3x20", "9200", allen_cahn),
    "diffusion-reaction, exact conditions": Problem("6x30", "320", diffusion_reaction),
    "Helmholtz, exact conditions": Problem("3x150, sin", "480", helmholtz),
    "Euler beam": Problem("3x20", "12", beam),
    "Klein-Gordon": Problem("2x40", "3300 (of 33000)", klein_gordon),
    "wave": Problem("STMsFFN 3x100", "1080", wave),
    "Lorenz, inverse": Problem("3x40", "427", lorenz),
    "Navier-Stokes (Kovasznay)": Problem("4x50", "3001", kovasznay),
    "Schrödinger": Problem("4x100", "2220 (of 10220)", schroedinger),
    "ODE system": Problem("3x50", "37", ode_system),
}
