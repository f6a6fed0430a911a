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
from paddle_chainrules.settings import loops_are_on

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
    warns = ["they read values that change from step to step, such as SEEN"]
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
    "counts": (counting, "each call changes what it reads, such as COUNTED"),
    "prints": (printing, "prints or writes to a file, by print"),
    "draws by NumPy": (drawing, "draw random numbers by NumPy or Python"),
    "draws by Paddle": (drawing_by_paddle, "draw random numbers by Paddle"),
    "decides by a value": (deciding, "a value leaves the program by float(x)"),
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


def test_variables_of_points_are_inputs_of_the_program():
    """They change with the points. Scripts read them by to_tensor or as they are."""

    def residual(x, u, aux):
        return of(x, u) * paddle.to_tensor(aux) - aux

    def between(made, step):
        made.data.train_distribution = "pseudo"
        made.data.resample_train_points(bc_points=False)

    script = trained(lambda: model(residual, aux=lambda x: x**2), 12, between)
    found, expected, mode = both_ways(script, taylor_mode, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 12 - LEARNING


def test_variables_of_points_are_arrays_again_after_a_step():
    made = model(lambda x, u, aux: of(x, u) - aux, aux=lambda x: x**2)
    made.compile("adam", lr=1e-2, verbose=0)
    with taylor_mode(jit=True) as mode:
        made.train(iterations=6, display_every=100, verbose=0)
        made._train_step(*made.data.train_next_batch())
        assert made.net.auxiliary_vars is made.data.train_aux_vars
    assert mode.losses.programs == 7 - LEARNING


def test_variables_of_points_that_numpy_reads_run_as_usual():
    def residual(x, u, aux):
        return of(x, u) * paddle.to_tensor(np.sin(aux), u.dtype)

    script = trained(lambda: model(residual, aux=lambda x: x**2))
    warns = ["'Tensor' does not support ufuncs"]
    found, expected, mode = both_ways(script, taylor_mode, warns, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 0


def on_plane(conditions=(), data=dde.data.PDE):
    """A problem on a square, whose points are drawn at random."""
    dde.config.set_random_seed(3)
    plane = dde.geometry.Rectangle([0, 0], [1, 2])
    value = dde.icbc.DirichletBC(plane, lambda x: x[:, :1], lambda x, on: on)
    slope = dde.icbc.NeumannBC(plane, lambda x: x[:, 1:], lambda x, on: on)
    conditions = [value, slope, *(make(plane) for make in conditions)]
    of_plane = lambda x, u: hessian(u, x) + jacobian(u, x, i=0, j=1) * u  # noqa: E731
    made = data(plane, of_plane, conditions, 23, 11, train_distribution="pseudo")
    return dde.Model(made, dde.nn.FNN([2, 7, 5, 1], "tanh", "Glorot normal"))


class Resampling:
    """Draws points anew after each step but some.

    It keeps the points of before: DeepXDE looks values up by the identity of an array.
    """

    def __init__(self, bc_points):
        self.bc_points, self.kept = bc_points, []

    def __call__(self, made, step):
        if step % 3:
            self.kept.append(made.data.train_x)
            made.data.resample_train_points(bc_points=self.bc_points)


def in_batches(plane):
    """A condition at five of 31 measured points."""
    x = np.random.default_rng(1).random((31, 2))
    return dde.icbc.PointSetBC(x, np.sin(x[:, :1]), batch_size=5)


def by_operator(plane):
    return dde.icbc.OperatorBC(
        plane, lambda x, u, points: u * points[:, 1:] - 1, lambda x, on: on
    )


RESAMPLED = {
    "points of the equation": ([], False),
    "all points": ([], True),
    "a condition of batches": ([in_batches], True),
    "an operator that reads points": ([by_operator], True),
}


@pytest.mark.parametrize("name", RESAMPLED)
def test_points_that_are_drawn_anew_are_inputs_of_the_program(name):
    conditions, bc_points = RESAMPLED[name]

    def script():
        between = Resampling(bc_points)
        return trained(lambda: on_plane(conditions), 12, between)()

    found, expected, mode = both_ways(script, taylor_mode, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 12 - LEARNING


def test_conditions_that_share_a_function_are_programs():
    def made():
        found = on_plane([in_batches])
        first, second, _ = found.data.bcs
        second.boundary_normal = first.boundary_normal
        return found

    def script():
        return trained(made, 12, Resampling(True))()

    found, expected, mode = both_ways(script, taylor_mode, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 12 - LEARNING


def test_points_of_another_number_are_a_kind_of_their_own():
    def between(made, step):
        if step == 5:
            made.data.add_anchors(np.random.default_rng(4).random((3, 2)))

    script = trained(on_plane, 14, between)
    found, expected, mode = both_ways(script, taylor_mode, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 14 - 2 * LEARNING


def by_numpy(plane):
    return dde.icbc.RobinBC(
        plane, lambda x, u: paddle.to_tensor(np.sin(x[:, :1])) - u, lambda x, on: on
    )


class ByNumpy(dde.data.PDE):
    """A problem whose losses depend on the points that it keeps."""

    def losses(self, targets, outputs, loss_fn, inputs, model, aux=None):
        first, *rest = super().losses(targets, outputs, loss_fn, inputs, model, aux)
        return [first * float(np.square(self.train_x_all).mean()), *rest]


@pytest.mark.parametrize(
    "options", [{"conditions": [by_numpy]}, {"data": ByNumpy}], ids=["robin", "data"]
)
def test_points_that_numpy_reads_are_part_of_the_program(options):
    """The first attempt, with tensors in their place, costs one more call."""
    between = Resampling(bc_points=True)

    def at_times(made, step):
        if step == 8:
            between(made, step)

    script = trained(lambda: on_plane(**options), 14, at_times)
    found, expected, mode = both_ways(script, taylor_mode, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 14 - LEARNING - 1


def test_points_are_arrays_again_after_a_step():
    made = on_plane([in_batches])
    made.compile("adam", lr=1e-2, verbose=0)
    before = {**vars(made.data)}, {**vars(made.data.bcs[2])}
    with taylor_mode(jit=True) as mode:
        made.train(iterations=6, display_every=100, verbose=0)
    assert mode.losses.programs == 6 - LEARNING
    for owner, held in zip((made.data, made.data.bcs[2]), before, strict=True):
        assert all(vars(owner)[name] is value for name, value in held.items())


def test_points_that_are_changed_in_place_are_noticed():
    """An operator reads them. Values of conditions stay as the library knows them."""

    def between(made, step):
        made.data.train_x *= 0.9 + step % 2

    script = trained(lambda: on_plane([by_operator]), 12, between)
    found, expected, mode = both_ways(script, taylor_mode, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 12 - LEARNING


def test_batches_of_data_are_inputs_of_the_program():
    """A last batch that is smaller does not occur."""

    def made():
        dde.config.set_random_seed(3)
        draw = np.random.default_rng(0).random
        x = draw((13, 4), "float32"), draw((9, 1), "float32")
        data = dde.data.TripleCartesianProd(
            x, draw((13, 9), "float32"), x, draw((13, 9), "float32")
        )
        net = dde.nn.DeepONetCartesianProd(
            [4, 7, 5], [1, 6, 5], "tanh", "Glorot normal"
        )
        return dde.Model(data, net)

    def script():
        model = made()
        model.compile("adam", lr=1e-2, verbose=0)
        found = []
        for _ in range(12):
            model.train(iterations=1, batch_size=5, display_every=1, verbose=0)
            found.append(values(model.net))
        return [found, model.losshistory.loss_train]

    found, expected, mode = both_ways(script, taylor_mode, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 12 - LEARNING


def test_an_integral_equation_is_a_program():
    def equation(x, u, weights):
        weights = paddle.to_tensor(weights, u.dtype)
        integral = paddle.mm(weights, u)
        return (jacobian(u, x) + u)[: paddle.numel(integral)] - integral

    def made():
        dde.config.set_random_seed(3)
        line = dde.geometry.TimeDomain(0, 2)
        start = dde.icbc.IC(line, lambda x: np.cos(x), lambda x, on: on)
        data = dde.data.IDE(line, equation, start, 4, lambda x, t: x - t, 9, 2)
        return dde.Model(data, dde.nn.FNN([1, 7, 5, 1], "tanh", "Glorot normal"))

    found, expected, mode = both_ways(trained(made), taylor_mode, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 12 - LEARNING - 1


def test_models_that_train_in_turn_are_programs():
    """They share their data, and are compiled anew for each turn."""

    def script():
        first = model()
        second = dde.Model(first.data, dde.nn.FNN([1, 6, 1], "tanh", "Glorot normal"))
        found = []
        for turn in range(4):
            for each in (first, second):
                each.compile("adam", lr=1e-2 / (1 + turn), verbose=0)
                each.train(iterations=3, display_every=1, verbose=0)
                found.append(values(each.net))
        return found

    found, expected, mode = both_ways(script, taylor_mode, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 2 * (12 - LEARNING)


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
    if name == "the rate of the model" and not loops_are_on():
        pytest.skip("native steps change what the optimizer holds")

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
        assert len(mode.losses._signatures) == 1
        made.compile("adam", lr=1e-2, loss="MAE", verbose=0)
        made.train(iterations=6, display_every=100, verbose=0)
        assert len(mode.losses._signatures) == 1
    assert mode.losses.programs == 18 - LEARNING + 6 - LEARNING
