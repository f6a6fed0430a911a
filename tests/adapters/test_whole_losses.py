"""Losses of DeepXDE that are compiled whole, and such as are not to be."""

import argparse
import functools
import os
import warnings

import numpy as np
import paddle
import pytest
import small_library
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


class Problem:
    """An equation with settings: of the class, of an object, and global ones."""

    weight = 1.0
    training = True

    def more(self):
        return 1.0 if self.training else 2.0

    def residual(self, x, u):
        return of(x, u) * self.weight * self.more()


def factor(settings):
    return settings["weight"]


ARGUMENTS = argparse.Namespace(weight=1.0)
PARTIAL = functools.partial(factor, SEEN)
SCHEDULE = paddle.optimizer.lr.ExponentialDecay(1.0, 0.5)
TRAINED = []
PROBLEM = Problem()
METHOD = PROBLEM.more
LOOK_UP = SEEN.get


def local_import(x, u):
    import small_library

    return of(x, u) * small_library.WEIGHT


def with_attribute(x, u):
    return of(x, u) * getattr(with_attribute, "weight", 1.0)


def of_model(x, u):
    return of(x, u) * TRAINED.opt.get_lr() if TRAINED else of(x, u)


def set_rate(made):
    made.opt.set_lr(0.1)


def set_module(made):
    small_library.WEIGHT = 3.0


def set_weights(made):
    made.loss_weights = [1.0, 5.0]


def set_data(made):
    made.data = model(lambda x, u: of(x, u) - 1).data


CHANGES = {
    "an attribute that the class had": (
        PROBLEM.residual,
        lambda made: setattr(PROBLEM, "weight", 3.0),
    ),
    "an attribute of the class": (
        PROBLEM.residual,
        lambda made: setattr(Problem, "weight", 3.0),
    ),
    "a flag of its own": (
        PROBLEM.residual,
        lambda made: setattr(PROBLEM, "training", False),
    ),
    "a namespace": (
        lambda x, u: of(x, u) * ARGUMENTS.weight,
        lambda made: setattr(ARGUMENTS, "weight", 3.0),
    ),
    "arguments of a partial function": (
        lambda x, u: of(x, u) * PARTIAL(),
        lambda made: SEEN.update(weight=3.0),
    ),
    "the dict of a method": (
        lambda x, u: of(x, u) * LOOK_UP("weight"),
        lambda made: SEEN.update(weight=3.0),
    ),
    "an attribute of a function": (
        with_attribute,
        lambda made: setattr(with_attribute, "weight", 3.0),
    ),
    "the object of a method": (
        lambda x, u: of(x, u) * METHOD(),
        lambda made: setattr(PROBLEM, "training", False),
    ),
    "a schedule": (
        lambda x, u: of(x, u) * SCHEDULE.last_lr,
        lambda made: SCHEDULE.step(),
    ),
    "a module that it imports": (local_import, set_module),
    "the rate of the model": (of_model, set_rate),
    "the model's loss weights": (of, set_weights),
    "the model's data": (of, set_data),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_what_is_read_in_another_way_is_noticed(name):
    residual, change = CHANGES[name]

    def made():
        global TRAINED
        SEEN["weight"] = ARGUMENTS.weight = Problem.weight = 1.0
        small_library.WEIGHT = 1.0
        SCHEDULE.step(0)
        vars(PROBLEM).clear()
        vars(with_attribute).clear()
        TRAINED = []
        TRAINED = model(residual)
        return TRAINED

    def between(made, step):
        if step == 7:
            change(made)

    script = trained(made, 14, between)
    found, expected, mode = both_ways(script, taylor_mode, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 14 - LEARNING


class ByStep(dde.data.PDE):
    """A problem whose losses depend on the step that the model is at."""

    def losses(self, targets, outputs, loss_fn, inputs, model, aux=None):
        first, *rest = super().losses(targets, outputs, loss_fn, inputs, model, aux)
        return [first * (1 + model.train_state.step), *rest]


def test_what_data_reads_of_the_model_is_noticed():
    def made():
        found = model()
        found.data.__class__ = ByStep
        return found

    warns = ["they read values that change from step to step"]
    found, expected, _ = both_ways(trained(made), taylor_mode, warns, jit=True)
    assert_equal(found, expected, rtol=1e-4)


def test_what_counts_counts_as_without_the_context():
    """A loss that depends on how often it was computed."""

    def made():
        calls = []

        def residual(x, u):
            calls.append(u.detach())
            return of(x, u) * 0.9 ** len(calls)

        return model(residual)

    warns = ["each call changes what it reads"]
    found, expected, _ = both_ways(trained(made), taylor_mode, warns, jit=True)
    assert_equal(found, expected, rtol=1e-4)


def test_a_generator_behind_a_method_draws_as_without_the_context():
    def made():
        draw = np.random.default_rng(0).standard_normal
        return model(lambda x, u: of(x, u) + draw())

    warns = ["a method, which goes on at each use"]
    found, expected, _ = both_ways(trained(made), taylor_mode, warns, jit=True)
    assert_equal(found, expected, rtol=1e-4)


class OfMode(paddle.nn.Layer):
    """A layer whose value depends on its mode."""

    def forward(self, x):
        return paddle.cos(x) if self.training else x


def test_a_second_net_may_change_its_mode():
    def made():
        second = OfMode()
        found = model(lambda x, u: of(x, u) + second(x))
        found.second = second
        return found

    def between(made, step):
        if step == 7:
            made.second.eval()

    script = trained(made, 14, between)
    found, expected, mode = both_ways(script, taylor_mode, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 14 - LEARNING


def test_a_model_compiled_anew_leaves_nothing_behind():
    with taylor_mode(jit=True) as mode:
        made = model()
        for _ in range(3):
            made.compile("adam", lr=1e-2, verbose=0)
            made.train(iterations=6, display_every=100, verbose=0)
        assert len(mode.losses._kinds) == 1
