"""Losses of DeepXDE that are compiled whole, and such as are not to be."""

import os
import warnings

import numpy as np
import paddle
import pytest
from both_ways import assert_equal, both_ways, values

os.environ.setdefault("DDE_BACKEND", "paddle")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    dde = pytest.importorskip("deepxde", reason="DeepXDE is not installed")

from paddle_chainrules.adapters.deepxde import taylor_mode
from paddle_chainrules.adapters.whole_losses import LEARNING, MAX_PROGRAMS

jacobian, hessian = dde.grad.jacobian, dde.grad.hessian


def of(x, u):
    return hessian(u, x) + jacobian(u, x) * u + paddle.sin(x)


def model(residual=of, aux=None):
    """A problem of one coordinate, with two losses."""
    dde.config.set_random_seed(3)
    line = dde.geometry.Interval(0, 1)
    edge = dde.icbc.DirichletBC(line, lambda x: x, lambda x, on: on)
    options = {"auxiliary_var_function": aux} if aux else {}
    data = dde.data.PDE(line, residual, [edge], 13, 2, num_test=5, **options)
    return dde.Model(data, dde.nn.FNN([1, 7, 5, 1], "tanh", "Glorot normal"))


def trained(make, steps=12, between=lambda model, step: None):
    """The losses and parameters of steps, and what comes between two of them."""

    def script():
        made = make()
        made.compile("adam", lr=1e-2, verbose=0)
        found = []
        for step in range(steps):
            made.train(iterations=1, display_every=1, verbose=0)
            found.append(values(made.net))
            between(made, step)
        return [found, made.losshistory.loss_train]

    return script


def test_a_loss_is_a_program_after_some_calls():
    found, expected, mode = both_ways(trained(model), taylor_mode, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 12 - LEARNING
    assert f"; {12 - LEARNING} losses compiled whole" in str(mode)
    assert "compiled whole" not in str(both_ways(trained(model), taylor_mode)[2])


def test_nothing_is_left_when_the_context_ends():
    made = model()
    made.compile("adam", lr=1e-2, verbose=0)
    step = made.train_step
    cell = step.__closure__[step.__code__.co_freevars.index("outputs_losses_train")]
    before = dde.Model._train_step, cell.cell_contents
    with taylor_mode(jit=True) as mode:
        made.train(iterations=6, verbose=0)
    assert (dde.Model._train_step, cell.cell_contents) == before
    assert mode.losses.programs == 6 - LEARNING


def test_an_error_of_the_script_is_its_own():
    """It leaves the library as it was."""
    calls = []

    def residual(x, u):
        calls.append(1)
        if len(calls) == 4:
            raise KeyError("mine")
        return of(x, u)

    made = model(residual)
    made.compile("adam", lr=1e-2, verbose=0)
    step = made.train_step
    cell = step.__closure__[step.__code__.co_freevars.index("outputs_losses_train")]
    before = cell.cell_contents
    with taylor_mode(jit=True), pytest.raises(KeyError, match="mine"):
        made.train(iterations=12, display_every=100, verbose=0)
    assert cell.cell_contents is before


SEEN = {"weight": 1.0}


def weighed(x, u):
    return of(x, u) * SEEN["weight"]


def with_weight():
    SEEN["weight"] = 1.0
    return model(weighed)


def test_what_changes_once_is_noticed():
    def between(made, step):
        SEEN["weight"] = 1.0 if step < 7 else 3.0

    script = trained(with_weight, 14, between)
    found, expected, mode = both_ways(script, taylor_mode, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 14 - LEARNING


def test_what_changes_all_the_time_runs_as_usual():
    def between(made, step):
        SEEN["weight"] = 1.0 + step / 7

    script = trained(with_weight, 20, between)
    warns = ["they read values that change from step to step, such as weight"]
    found, expected, mode = both_ways(script, taylor_mode, warns, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == MAX_PROGRAMS


def printing(x, u):
    print("a residual")
    return of(x, u)


def drawing(x, u):
    return of(x, u) + np.random.standard_normal()  # noqa: NPY002 - as scripts do


def drawing_by_paddle(x, u):
    return of(x, u) + paddle.rand([1], u.dtype)


def deciding(x, u):
    found = of(x, u)
    return found if float(found.mean()) > 0 else -found


COUNTED = [0]


def counting(x, u):
    COUNTED[0] += 1
    return of(x, u)


AS_USUAL = {
    "counts": (counting, "each call changes what it reads, such as 0"),
    "prints": (printing, "prints or writes to a file, by print"),
    "draws by NumPy": (drawing, "draw random numbers by NumPy or Python"),
    "draws by Paddle": (drawing_by_paddle, "draw random numbers by Paddle"),
    "decides by a value": (deciding, "a value leaves the program by __float__"),
}


@pytest.mark.parametrize("name", AS_USUAL)
def test_losses_that_do_more_run_as_usual(name, capsys):
    """With the random numbers that they have without the context."""
    residual, why = AS_USUAL[name]
    script = trained(lambda: model(residual))
    found, expected, mode = both_ways(script, taylor_mode, [why], jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 0
    assert mode.programs > 0
    printed = capsys.readouterr().out.count("a residual")
    assert printed == (12 * 5 * 2 if name == "prints" else 0)  # each time as without


def test_variables_of_points_run_as_usual():
    def residual(x, u, aux):
        return of(x, u) * paddle.to_tensor(aux)

    script = trained(lambda: model(residual, aux=lambda x: x**2))
    found, expected, mode = both_ways(script, taylor_mode, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 0
