"""Training by DeepXDE natively and in Taylor mode: the same losses and parameters."""

import os
import warnings

import numpy as np
import paddle
import pytest
from both_ways import JIT, STEPS, assert_equal, both_ways, served, values
from paddle import nn

os.environ.setdefault("DDE_BACKEND", "paddle")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    dde = pytest.importorskip("deepxde", reason="DeepXDE is not installed")

from paddle_chainrules.adapters.deepxde import taylor_mode
from paddle_chainrules.settings import loops_are_on

jacobian, hessian = dde.grad.jacobian, dde.grad.hessian


COPIES = pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
"""Which Paddle says of its own L-BFGS."""


@pytest.fixture(autouse=True)
def _double():
    """Everything in float64, as it was afterwards."""
    before = paddle.get_default_dtype()
    dde.config.set_default_float("float64")
    yield
    dde.config.set_default_float("float32")
    paddle.set_default_dtype(before)


def seeded():
    dde.config.set_random_seed(3)


def fnn(sizes, activation="tanh", **kw):
    return dde.nn.FNN(sizes, activation, "Glorot normal", **kw)


def line_and_time():
    times = dde.geometry.TimeDomain(0, 1)
    return dde.geometry.GeometryXTime(dde.geometry.Interval(-1, 1), times)


def on_boundary(x, on):
    return on


def burgers_of(y, x):
    u_x, u_t = jacobian(y, x, i=0, j=0), jacobian(y, x, i=0, j=1)
    return u_t + y * u_x - 0.01 * hessian(y, x, i=0, j=0)


def burgers(net=None, residual=None, transform=None, **sizes):
    seeded()
    space = line_and_time()
    edge = dde.icbc.DirichletBC(space, lambda x: 0, on_boundary)
    start = dde.icbc.IC(space, lambda x: -np.sin(np.pi * x[:, :1]), lambda _, on: on)
    sizes = {"num_domain": 41, "num_boundary": 12, "num_initial": 13} | sizes
    residual = residual or (lambda x, y: burgers_of(y, x))
    data = dde.data.TimePDE(
        space, residual, [edge, start], train_distribution="pseudo", **sizes
    )
    return dde.Model(data, net() if net else fnn([2, 9, 8, 1]))


def navier_stokes():
    seeded()
    box = dde.geometry.Rectangle([-0.5, -0.5], [1, 1.5])

    def residual(x, y):
        u, v = y[:, 0:1], y[:, 1:2]
        u_x, u_y = jacobian(y, x, i=0, j=0), jacobian(y, x, i=0, j=1)
        v_x, v_y = jacobian(y, x, i=1, j=0), jacobian(y, x, i=1, j=1)
        bent = [
            sum(hessian(y, x, component=c, i=i, j=i) for i in range(2))
            for c in range(2)
        ]
        return [
            u * u_x + v * u_y + jacobian(y, x, i=2, j=0) - bent[0] / 20,
            u * v_x + v * v_y + jacobian(y, x, i=2, j=1) - bent[1] / 20,
            u_x + v_y,
        ]

    edges = [
        dde.icbc.DirichletBC(box, lambda x: x[:, :1] ** 2, on_boundary, component=c)
        for c in range(2)
    ]
    data = dde.data.PDE(box, residual, edges, num_domain=40, num_boundary=21)
    return dde.Model(data, fnn([2, 9, 8, 3]))


def beam():
    seeded()
    line = dde.geometry.Interval(0, 1)

    def bent(x, y):
        return hessian(y, x)

    conditions = [
        dde.icbc.DirichletBC(line, lambda x: 0, lambda x, on: on and x[0] < 0.5),
        dde.icbc.NeumannBC(line, lambda x: 0, lambda x, on: on and x[0] < 0.5),
        dde.icbc.OperatorBC(
            line, lambda x, y, _: bent(x, y), lambda x, on: on and x[0] > 0.5
        ),
        dde.icbc.OperatorBC(
            line,
            lambda x, y, _: jacobian(bent(x, y), x),
            lambda x, on: on and x[0] > 0.5,
        ),
    ]

    def residual(x, y):
        return hessian(bent(x, y), x) + 1

    data = dde.data.PDE(line, residual, conditions, num_domain=11, num_boundary=2)
    return dde.Model(data, fnn([1, 9, 8, 1]))


def oscillator():
    """Coefficients to be found, of which one stands in the net's transform."""
    seeded()
    times = dde.geometry.TimeDomain(0, 2)
    a, b, c = (dde.Variable(value) for value in (0.5, 1.5, 0.8))

    def residual(t, y):
        return hessian(y, t) + a * jacobian(y, t) + b * y

    seen = np.linspace(0, 2, 7)[:, None]
    observed = dde.icbc.PointSetBC(seen, np.cos(seen))
    start = dde.icbc.IC(times, lambda t: 1, lambda _, on: on)
    data = dde.data.PDE(
        times, residual, [start, observed], num_domain=23, num_boundary=2, anchors=seen
    )
    net = fnn([1, 9, 8, 1])
    net.apply_output_transform(lambda t, y: c * y + t)
    model = dde.Model(data, net)
    model.learnt = [a, b, c]
    return model


def constrained():
    model = burgers()
    model.net.apply_feature_transform(
        lambda x: paddle.concat([paddle.sin(x[:, :1]), x[:, :1], x[:, 1:]], axis=1)
    )
    model.net.linears[0] = nn.Linear(3, 9)
    model.net.apply_output_transform(
        lambda x, y: x[:, 1:] * (1 - x[:, :1] ** 2) * y + paddle.cos(x[:, :1])
    )
    return model


def neumann():
    seeded()
    space = line_and_time()

    def residual(x, y):
        return jacobian(y, x, j=1) - hessian(y, x, i=0, j=0)

    conditions = [
        dde.icbc.NeumannBC(space, lambda x: x[:, 1:], on_boundary),
        dde.icbc.RobinBC(space, lambda x, y: y, on_boundary),
        dde.icbc.PeriodicBC(space, 0, on_boundary, derivative_order=1),
        dde.icbc.IC(space, lambda x: x[:, :1], lambda _, on: on),
    ]
    sizes = {"num_domain": 30, "num_boundary": 14, "num_initial": 7}
    data = dde.data.TimePDE(
        space, residual, conditions, train_distribution="pseudo", **sizes
    )
    return dde.Model(data, fnn([2, 9, 8, 1]))


def mixed(x, y):
    """A whole row, and a mixed derivative."""
    slope = jacobian(y, x, i=0)
    return slope[:, :1] * slope[:, 1:] + hessian(y, x, i=0, j=1) + y


def two_outputs(x, y):
    u, v = y[:, 0:1], y[:, 1:]
    return [jacobian(u, x, j=1) - hessian(v, x, i=0, j=0), jacobian(v, x, j=1) + u * v]


PROBLEMS = {
    "Burgers": burgers,
    "Navier-Stokes": navier_stokes,
    "beam": beam,
    "inverse": oscillator,
    "transforms": constrained,
    "Neumann, Robin, periodic": neumann,
    "a row, a mixed derivative": lambda: burgers(residual=mixed),
    "PFNN": lambda: burgers(
        lambda: dde.nn.PFNN([2, [7, 7], [5, 5], 2], "tanh", "Glorot normal"),
        two_outputs,
    ),
    "weight decay": lambda: burgers(
        lambda: fnn([2, 9, 8, 1], regularization=["l2", 1e-2])
    ),
    "activations of layers": lambda: burgers(
        lambda: fnn([2, 9, 8, 1], ["sin", "swish", "tanh"])
    ),
}


def trained(make, steps=STEPS):
    """Losses as it goes, the parameters, and what else is learnt."""

    def script():
        model = make()
        learnt = getattr(model, "learnt", [])
        model.compile("adam", lr=1e-3, external_trainable_variables=learnt, verbose=0)
        history, _ = model.train(iterations=steps, display_every=10, verbose=0)
        found = [np.array(history.loss_train), np.array(history.loss_test)]
        return [*found, values(model.net), [float(v) for v in learnt]]

    return script


@JIT
@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_training_is_the_native_one(name, jit):
    found, expected, mode = both_ways(trained(PROBLEMS[name]), taylor_mode, jit=jit)
    assert_equal(found, expected)
    assert served(mode) >= STEPS - 3
    assert mode.steps.programs == (STEPS - 1) * loops_are_on()


@JIT
def test_float32(jit):
    dde.config.set_default_float("float32")
    found, expected, mode = both_ways(trained(burgers), taylor_mode, jit=jit)
    assert_equal(found, expected, rtol=1e-3)
    assert served(mode) >= STEPS - 3


@JIT
@COPIES
def test_l_bfgs(monkeypatch, jit):
    """A step of several evaluations."""
    fewer = {"maxiter": 12, "iter_per_step": 6, "fun_per_step": 9}
    for name, value in fewer.items():
        monkeypatch.setitem(dde.optimizers.LBFGS_options, name, value)

    def script():
        model = burgers()
        model.compile("L-BFGS", verbose=0)
        model.train(verbose=0)
        return values(model.net)

    found, expected, mode = both_ways(script, taylor_mode, jit=jit)
    assert_equal(found, expected)
    assert served(mode) >= 12


@JIT
def test_divergence_form(jit):
    def residual(x, y):
        u, v = y[:, 0:1], y[:, 1:]
        return jacobian(u * v, x, i=0, j=1) - hessian(u, x, i=0, j=0)

    def make():
        return burgers(lambda: fnn([2, 9, 8, 2]), residual)

    found, expected, mode = both_ways(trained(make, 20), taylor_mode, jit=jit)
    assert_equal(found, expected)
    assert served(mode) >= 19


@JIT
@pytest.mark.parametrize(
    "factor",
    [
        lambda x, y: 1 / (1 + x[:, 0:1] ** 2),
        lambda x, y: paddle.sqrt(1 + x[:, 0:1] ** 2 + y[:, 1:] ** 2),
        lambda x, y: (1.5 + x[:, 0:1] ** 2 + y[:, 1:] ** 2) ** -1.5,
    ],
    ids=["reciprocal", "root", "power"],
)
def test_a_factor_within_a_divergence(jit, factor):
    """Their kernels of second derivatives give all gradients, or end the process."""

    def residual(x, y):
        flux = factor(x, y) * jacobian(y, x, i=0, j=0)
        return jacobian(flux, x, i=0, j=0) - jacobian(y, x, i=1, j=1)

    found, expected, mode = both_ways(
        trained(lambda: burgers(lambda: fnn([2, 9, 8, 2]), residual), 20),
        taylor_mode,
        jit=jit,
    )
    assert_equal(found, expected)
    assert served(mode) >= 19


@JIT
def test_gradients_of_the_residual(jit):
    """Gradient-enhanced losses, as in DeepXDE's gPINN."""

    def residual(x, y):
        found = burgers_of(y, x)
        return [found, jacobian(found, x, i=0, j=0), jacobian(found, x, i=0, j=1)]

    found, expected, mode = both_ways(
        trained(lambda: burgers(residual=residual), 20), taylor_mode, jit=jit
    )
    assert_equal(found, expected)
    assert served(mode) >= 19


@JIT
def test_a_slice_of_the_only_column(jit):
    make = lambda: burgers(residual=lambda x, y: burgers_of(y[:, 0:1], x))  # noqa: E731
    found, expected, mode = both_ways(trained(make, 10), taylor_mode, jit=jit)
    assert_equal(found, expected)
    assert served(mode) > 0


@pytest.mark.parametrize("kind", ["MsFFN", "STMsFFN"])
def test_multiscale_nets(kind):
    sigmas = {"sigmas": [1, 3]}
    if kind == "STMsFFN":
        sigmas = {"sigmas_x": [1], "sigmas_t": [1, 3]}

    def make():
        net = getattr(dde.nn, kind)
        return burgers(lambda: net([2, 8, 8, 1], "tanh", "Glorot normal", **sigmas))

    found, expected, mode = both_ways(trained(make, 10), taylor_mode)
    assert_equal(found, expected)
    assert mode.programs > 0


def test_points_that_are_drawn_anew():
    """Of two numbers in turn."""

    def script():
        model = burgers()
        model.compile("adam", lr=1e-3, verbose=0)
        found = []
        for k in range(12):
            model.data.num_domain = (31, 44)[k % 2]
            model.data.resample_train_points(bc_points=False)
            given = model.data.train_next_batch()
            model._train_step(*given)
            found.append(values(model.net))
        return found

    found, expected, mode = both_ways(script, taylor_mode)
    assert_equal(found, expected)
    assert (mode.natively, mode.programs) == (2, 10)


def test_residuals_are_predicted():
    def script():
        model = burgers()
        model.compile("adam", lr=1e-3, verbose=0)
        at = np.random.default_rng(0).random((17, 2))
        found = []
        for _ in range(3):
            model.train(iterations=3, verbose=0)
            found.append(model.predict(at))
            found.append(model.predict(at, operator=model.data.pde))
            dde.grad.clear()
        return found

    found, expected, _ = both_ways(script, taylor_mode)
    assert_equal(found, expected)


def test_dropout_draws_as_ever():
    """Where no derivative is asked for, since Paddle has none of second order."""

    def residual(x, y):
        return y - x[:, :1]

    def make():
        return burgers(lambda: fnn([2, 9, 8, 1], dropout_rate=0.3), residual)

    found, expected, mode = both_ways(trained(make, 20), taylor_mode)
    assert_equal(found, expected, rtol=0)
    assert mode.programs == 0


def test_the_backend_is_paddle(monkeypatch):
    monkeypatch.setattr("deepxde.backend.backend_name", "jax")
    with pytest.raises(RuntimeError, match="DeepXDE runs on jax"), taylor_mode():
        pass
