"""Models of DeepXDE that are trained by second-order methods."""

import os
import time
import warnings

import numpy as np
import paddle
import pytest

os.environ.setdefault("DDE_BACKEND", "paddle")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    dde = pytest.importorskip("deepxde", reason="DeepXDE is not installed")

from paddle_chainrules import grad, jit
from paddle_chainrules.adapters import row_jacobian, searches
from paddle_chainrules.adapters.deepxde import taylor_mode
from paddle_chainrules.adapters.searches import METHODS, Progress
from paddle_chainrules.adapters.second_order import SecondOrder
from paddle_chainrules.optimizers import bfgs
from paddle_chainrules.settings import programs_are_on

jacobian, hessian = dde.grad.jacobian, dde.grad.hessian

pytestmark = pytest.mark.skipif(
    not programs_are_on(), reason="second-order methods need programs"
)


@pytest.fixture(autouse=True)
def _double():
    """Everything in float64, as it was afterwards."""
    before = paddle.get_default_dtype()
    dde.config.set_default_float("float64")
    yield
    dde.config.set_default_float("float32")
    paddle.set_default_dtype(before)


def fnn(*sizes):
    return dde.nn.FNN([*sizes], "tanh", "Glorot normal")


def on(x, is_on):
    return is_on


def line():
    return dde.geometry.Interval(-1, 1)


def poisson(*conditions, net=None, points=11):
    def residual(x, u):
        return hessian(u, x) + paddle.sin(2.0 * x) - u**2

    made = [make(line()) for make in conditions]
    return dde.Model(
        dde.data.PDE(line(), residual, made, points, 2), net or fnn(1, 5, 1)
    )


def dirichlet(space):
    return dde.icbc.DirichletBC(space, lambda x: x**2, on)


def left(x, is_on):
    return is_on and x[0] < 0


def burgers():
    times = dde.geometry.TimeDomain(0, 1)
    space = dde.geometry.GeometryXTime(line(), times)

    def residual(x, u):
        u_x, u_t = jacobian(u, x, i=0, j=0), jacobian(u, x, i=0, j=1)
        return u_t + u * u_x - 0.1 * hessian(u, x, i=0, j=0)

    start = dde.icbc.IC(space, lambda x: -np.sin(np.pi * x[:, :1]), on)
    edge = dde.icbc.DirichletBC(space, lambda x: 0, on)
    data = dde.data.TimePDE(space, residual, [edge, start], 17, 6, 5)
    return dde.Model(data, fnn(2, 4, 3, 1))


def two_outputs():
    """A system, with all kinds of conditions and values at points."""

    def residual(x, y):
        u, v = y[:, 0:1], y[:, 1:2]
        return [
            jacobian(y, x, i=0, j=0) - v * paddle.cos(x),
            hessian(y, x, component=1) + u * v,
        ]

    where = np.array([[-0.3], [0.1], [0.4]])
    conditions = [
        dde.icbc.NeumannBC(line(), lambda x: x, left, component=1),
        dde.icbc.RobinBC(line(), lambda x, y: y[:, :1], left),
        dde.icbc.PeriodicBC(line(), 0, on, component=0),
        dde.icbc.OperatorBC(line(), lambda x, y, _: y[:, :1] * y[:, 1:] - x, left),
        dde.icbc.PointSetBC(where, where**2, component=1),
        dde.icbc.OperatorBC(line(), lambda x, y, _: y**2 - x, on),
    ]
    data = dde.data.PDE(line(), residual, conditions, 7, 4)
    return dde.Model(data, fnn(1, 4, 2))


def constrained():
    net = fnn(2, 4, 1)
    net.apply_feature_transform(lambda x: paddle.concat([paddle.sin(x), x**2], 1))
    net.apply_output_transform(lambda x, u: u * (1.0 - x**2))
    return poisson(net=net)


def integral():
    """A condition on all points at once, which is one residual."""

    def mean(x, u, _):
        return u.mean(0, keepdim=True).expand([u.shape[0], 1])

    return poisson(lambda g: dde.icbc.OperatorBC(g, mean, left))


def means():
    """Conditions of which each depends on all points."""

    def weighted(x, u, _):
        return u.mean() * x

    return poisson(lambda g: dde.icbc.OperatorBC(g, weighted, on))


def weighted():
    model = poisson(dirichlet)
    model.weights = np.array([0.3, 7.0])
    return model


def inverse():
    """Two unknown numbers of the equation, and one more that is fixed."""
    rate, offset, fixed = (dde.Variable(x) for x in (0.7, -0.2, 0.5))
    fixed.stop_gradient = True

    def residual(x, u):
        return hessian(u, x) + rate * u - offset + fixed

    where = np.linspace(-0.9, 0.8, 6)[:, None]
    seen = dde.icbc.PointSetBC(where, np.cos(where))
    edge = dde.icbc.DirichletBC(line(), lambda x: np.cos(x), on)
    data = dde.data.PDE(line(), residual, [edge, seen], 9, 2)
    model = dde.Model(data, fnn(1, 5, 1))
    model.unknown = [rate, offset, fixed]
    return model


def fitted():
    """A function that is fitted to values, without an equation."""
    function = dde.data.Function(line(), lambda x: np.sin(3 * x), 13, 5)
    return dde.Model(function, fnn(1, 5, 1))


PROBLEMS = (burgers, two_outputs, constrained, integral, weighted, inverse, fitted)


def compiled(make, method, **kw):
    dde.config.set_random_seed(3)
    model = make()
    kw.setdefault("loss_weights", getattr(model, "weights", None))
    kw.setdefault("external_trainable_variables", getattr(model, "unknown", None))
    model.compile(method, verbose=0, **kw)
    return model


def trained(make, method="levenberg_marquardt", iterations=3, train=None, **kw):
    with taylor_mode():
        model = compiled(make, method, **kw)
        model.train(iterations=iterations, verbose=0, **(train or {}))
    return model


def native_losses(model):
    state = model.train_state
    data = state.X_train, state.y_train, state.train_aux_vars
    return model.outputs_losses_train(*data)[1]


def begun(make):
    """A search, the values of all tensors, and the matrix there."""
    with taylor_mode():
        model = compiled(make, "levenberg_marquardt")
        model.train(iterations=1, verbose=0)
        search = model.opt.search
        assert search.by_rows == ""
        values = search.loss.start()
        flat = paddle.concat([v.flatten() for v in values])
        return model, search, values, search._jacobian.matrix(flat)


@pytest.mark.parametrize("make", PROBLEMS)
def test_rows_of_the_jacobian_are_differences(make):
    """Of the losses by the library alone: the derivative of each is 2 J^T r."""
    model, search, values, matrix = begun(make)
    residuals = [r.numpy().flatten() for r in jit(search.loss.residuals)(values)]
    losses = native_losses(model)
    np.testing.assert_allclose([r @ r for r in residuals], losses.numpy(), rtol=1e-12)
    parts = np.split(matrix, np.cumsum([len(r) for r in residuals])[:-1])
    found = np.stack([2.0 * r @ part for r, part in zip(residuals, parts, strict=True)])
    h, columns = 1e-5, []
    for tensor in model.opt.loss.tensors:
        flat = tensor.numpy().reshape(-1)
        for j in range(flat.size):
            ends = []
            for sign in (1, -1):
                moved = flat.copy()
                moved[j] += sign * h
                tensor.set_value(moved.reshape(tensor.shape))
                ends.append(native_losses(model).numpy())
            tensor.set_value(flat.reshape(tensor.shape))
            columns.append((ends[0] - ends[1]) / (2 * h))
    np.testing.assert_allclose(found.T, columns, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("block", [row_jacobian.BLOCK_BYTES, 1_300])
@pytest.mark.parametrize("make", [burgers, two_outputs, inverse, integral])
def test_rows_of_the_jacobian_are_those_of_single_gradients(make, block, monkeypatch):
    monkeypatch.setattr(row_jacobian, "BLOCK_BYTES", block)
    _, search, values, matrix = begun(make)
    assert (len(search._jacobian._passes) > 1) == (block < 2_000)

    @jit
    def one(values, unit):
        def along(values):
            residuals = search.loss.residuals(values)
            return (paddle.concat([r.flatten() for r in residuals]) * unit).sum()

        return paddle.concat([g.flatten() for g in grad(along)(values)])

    for row, unit in zip(matrix, np.eye(len(matrix)), strict=True):
        expected = one(values, paddle.to_tensor(unit)).numpy()
        np.testing.assert_allclose(row, expected, rtol=1e-11, atol=1e-12)


def test_residuals_that_share_points_take_gradients_one_by_one():
    model = trained(means, iterations=12)
    assert model.opt.search.by_rows
    history = np.sum(model.losshistory.loss_train, axis=1)
    assert history[-1] < 1e-2 * history[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("make", [burgers, inverse])
def test_every_method_goes_down_step_by_step(make, method):
    model = trained(make, method, 12, {"display_every": 1})
    history = np.sum(model.losshistory.loss_train, axis=1)
    assert model.losshistory.steps == [*range(len(history))]
    assert len(history) == 13
    assert (np.diff(history) < 0.0).all()
    np.testing.assert_allclose(native_losses(model).numpy().sum(), history[-1])


def test_it_is_the_search_of_the_same_loss():
    """As a user writes it by hand: the same parameters after some steps."""
    with taylor_mode():
        model = compiled(burgers, "self_scaled_broyden")
        model.train(iterations=1, verbose=0)
        loss = model.opt.search.loss
        start = [t.detach().clone() for t in loss.library.tensors]
        by_hand = bfgs(
            loss.total, start, steps=7, tolerance_grad=0.0, tolerance_change=0.0
        )
        other = compiled(burgers, "self_scaled_broyden")
        for p, value in zip(other.net.parameters(), start, strict=True):
            p.set_value(value)
        other.train(iterations=7, verbose=0)
    for p, value in zip(other.net.parameters(), by_hand.params, strict=True):
        np.testing.assert_allclose(p.numpy(), value.numpy(), rtol=1e-9, atol=1e-12)


def test_unknowns_of_an_equation_are_found():
    """Of u'' + rate u - offset + 1/2 = 0 with cos x, which is seen at six points."""
    model = trained(inverse, iterations=60)
    rate, offset, fixed = (float(v) for v in model.unknown)
    assert (rate, offset) == (
        pytest.approx(1.0, abs=0.02),
        pytest.approx(0.5, abs=0.02),
    )
    assert fixed == 0.5
    x = np.linspace(-0.9, 0.8, 6)[:, None]
    np.testing.assert_allclose(model.predict(x), np.cos(x), atol=1e-3)


def test_training_goes_on_with_what_was_learnt():
    with taylor_mode():
        whole = compiled(burgers, "self_scaled_broyden")
        whole.train(iterations=12, verbose=0)
        parts = compiled(burgers, "self_scaled_broyden")
        for _ in range(3):
            parts.train(iterations=4, verbose=0)
        assert parts.train_state.step == 12
    for p, q in zip(whole.net.parameters(), parts.net.parameters(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-6, atol=1e-9)


def test_parameters_that_are_set_between_trainings():
    with taylor_mode():
        model = compiled(burgers, "self_scaled_broyden")
        start = [p.numpy().copy() for p in model.net.parameters()]
        model.train(iterations=6, verbose=0)
        expected = [p.numpy() for p in model.net.parameters()]
        for p, value in zip(model.net.parameters(), start, strict=True):
            p.set_value(value)
        model.train(iterations=6, verbose=0)
    for p, value in zip(model.net.parameters(), expected, strict=True):
        np.testing.assert_allclose(p.numpy(), value, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", ["levenberg_marquardt", "self_scaled_broyden"])
def test_points_that_are_drawn_anew(method):
    resampler = dde.callbacks.PDEPointResampler(period=3)
    model = trained(burgers, method, 10, {"callbacks": [resampler]})
    assert model.train_state.step == 10
    programs = model.opt.search.loss
    np.testing.assert_allclose(
        float(jit(programs.total)(programs.start())),
        float(native_losses(model).sum()),
        rtol=1e-12,
    )


def test_weights_that_a_callback_changes():
    class Weights(dde.callbacks.Callback):
        def on_epoch_end(self):
            if self.model.train_state.step == 4:
                self.model.loss_weights = [1.0, 50.0]

    model = trained(
        lambda: poisson(dirichlet),
        iterations=9,
        train={"callbacks": [Weights()]},
        loss_weights=[1.0, 1.0],
    )
    assert model.train_state.step == 9
    loss = model.opt.search.loss
    np.testing.assert_allclose(
        float(jit(loss.total)(loss.start())), float(native_losses(model).sum())
    )


def test_callbacks_are_called_as_by_the_library(capsys):
    calls = []

    class Note(dde.callbacks.Callback):
        def on_epoch_begin(self):
            calls.append("begin")

        def on_batch_begin(self):
            calls.append("batch")

        def on_batch_end(self):
            calls.append("batch end")

        def on_epoch_end(self):
            calls.append("end")
            if self.model.train_state.step == 3:
                self.model.stop_training = True

    model = trained(burgers, iterations=9, train={"callbacks": [Note()]})
    assert calls == ["begin", "batch", "batch end", "end"] * 3
    assert model.train_state.step == 3


def test_a_search_that_ends_says_why(capsys):
    with taylor_mode():
        model = compiled(fitted, SecondOrder("levenberg_marquardt", tolerance_grad=1.0))
        model.train(iterations=50)
    assert "levenberg_marquardt has ended: the gradient is zero to" in (
        capsys.readouterr().out
    )
    assert model.train_state.step < 50


def test_seconds_end_a_training():
    begin = time.monotonic()
    with taylor_mode():
        model = compiled(burgers, "lbfgs")
        model.train(seconds=2.0, verbose=0)
        assert 2.0 <= time.monotonic() - begin < 60.0
        adam = compiled(burgers, "adam", lr=1e-3)
        with pytest.raises(TypeError, match="seconds are for second-order methods"):
            adam.train(seconds=1.0)
    assert model.train_state.step > 1


def test_an_interrupt_leaves_the_last_step(monkeypatch):
    seen = []

    class Interrupt(dde.callbacks.Callback):
        def on_epoch_end(self):
            seen.append([p.numpy().copy() for p in self.model.net.parameters()])

    def interrupted(*args):
        if len(seen) == 2:
            raise KeyboardInterrupt
        return squares(*args)

    from paddle_chainrules.optimizers.second_order import damped_steps

    squares = damped_steps._half_square
    with taylor_mode():
        model = compiled(burgers, "levenberg_marquardt")
        monkeypatch.setattr(damped_steps, "_half_square", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.train(iterations=9, verbose=0, callbacks=[Interrupt()])
    for p, value in zip(model.net.parameters(), seen[-1], strict=True):
        assert (p.numpy() == value).all()


def test_saving_and_restoring(tmp_path):
    model = trained(burgers, "bfgs", 5)
    path = model.save(str(tmp_path / "model"))
    expected = [p.numpy().copy() for p in model.net.parameters()]
    with taylor_mode():
        model.train(iterations=4, verbose=0)
        model.restore(path)
        assert all(
            (p.numpy() == e).all()
            for p, e in zip(model.net.parameters(), expected, strict=True)
        )
        model.train(iterations=2, verbose=0)
    assert np.isfinite(native_losses(model).numpy()).all()


def test_float32():
    dde.config.set_default_float("float32")
    model = trained(burgers, iterations=8, train={"display_every": 1})
    history = np.sum(model.losshistory.loss_train, axis=1)
    assert model.opt.search.by_rows == ""
    assert history[-1] < 0.1 * history[0]


def test_any_loss_for_methods_without_residuals():
    def kind(y_true, y_pred):
        return paddle.log(paddle.cosh(y_true - y_pred)).mean()

    model = trained(burgers, "self_scaled_broyden", 20, loss=kind)
    history = np.sum(model.losshistory.loss_train, axis=1)
    assert history[-1] < 0.5 * history[0]


@pytest.mark.parametrize(
    ("loss", "name"),
    [("MAE", "mean_absolute_error"), (["MSE", "MSE", "MAE"], "mean_absolute_error")],
)
def test_a_loss_that_is_no_sum_of_squares(loss, name):
    with pytest.raises(
        ValueError, match=f"needs a loss of mean squares.*{name}.*self_"
    ):
        trained(burgers, loss=loss)


def test_a_loss_that_draws():
    def residual(x, u):
        return jacobian(u, x) + paddle.rand(u.shape, u.dtype)

    def make():
        data = dde.data.PDE(line(), residual, [dirichlet(line())], 7, 2)
        return dde.Model(data, fnn(1, 5, 1))

    with pytest.raises(ValueError, match="draws random numbers"):
        trained(make)


def test_a_loss_that_is_not_compiled():
    def residual(x, u):
        return jacobian(u, x) if float(u.mean()) > -1e9 else u

    def make():
        data = dde.data.PDE(line(), residual, [dirichlet(line())], 7, 2)
        return dde.Model(data, fnn(1, 5, 1))

    with pytest.raises(RuntimeError, match=r"paddle\.where|cond"):
        trained(make)


def test_numbers_that_are_not_finite():
    def residual(x, u):
        return jacobian(u, x) / (x * 0.0)

    def make():
        data = dde.data.PDE(line(), residual, [dirichlet(line())], 7, 2)
        return dde.Model(data, fnn(1, 5, 1))

    with pytest.raises(ValueError, match="finite"):
        trained(make)


def test_a_matrix_that_does_not_fit(monkeypatch):
    monkeypatch.setattr(searches, "available_bytes", lambda: 1e3)
    with pytest.raises(ValueError, match=r"39 by 31.*'gauss_newton'"):
        trained(burgers)
    with pytest.raises(ValueError, match=r"31 by 31.*'lbfgs'"):
        trained(burgers, "bfgs")
    trained(burgers, "gauss_newton", 1)


def test_what_is_not_there():
    with pytest.raises(ValueError, match="no second-order method 'newton'.*lbfgs"):
        SecondOrder("newton")
    with pytest.raises(TypeError, match="lbfgs has no option dampng; use one of"):
        SecondOrder("lbfgs", dampng=1.0)
    with pytest.raises(TypeError, match="has no option steps"):
        SecondOrder("lbfgs", steps=3)
    with pytest.raises(TypeError, match="has no option update"):
        SecondOrder("self_scaled_broyden", update="bfgs")
    assert (
        repr(SecondOrder("bfgs", evaluations=9)) == "SecondOrder('bfgs', evaluations=9)"
    )


def test_large_arrays():
    """Test points are not read by the loss; a change of others would not be seen."""
    large = np.ones(200_000)

    def made(reads):
        residuals = (
            lambda x, u: jacobian(u, x) - 1.0,
            lambda x, u: jacobian(u, x) - large[0],
        )
        data = dde.data.PDE(line(), residuals[reads], [dirichlet(line())], 7, 2)
        data.test_x = np.linspace(-1.0, 1.0, 200_000)[:, None]
        data.test()
        return dde.Model(data, fnn(1, 5, 1))

    trained(lambda: made(False), iterations=2)
    with pytest.warns(UserWarning, match="does not see changes of .*large"):
        trained(lambda: made(True), iterations=2)


def test_a_regularizer_and_a_rate(capsys):
    net = dde.nn.FNN([1, 5, 1], "tanh", "Glorot normal", ["l2", 1e-3])
    with taylor_mode():
        model = poisson(dirichlet, net=net)
        with pytest.raises(ValueError, match="takes no regularizer"):
            model.compile("lbfgs", verbose=0)
        compiled(burgers, "lbfgs", lr=1e-3)
    assert "learning rate is ignored for lbfgs" in capsys.readouterr().out


def test_the_line_of_progress():
    line = Progress(100, None).line(50, 1.5e-7, time.monotonic() + 10.0)
    assert line.startswith("step 50 of 100, loss 1.500e-07, ")
    assert line.endswith("e-07, 10 s left")
    line = Progress(100, None).line(50, 1.5e-7, time.monotonic(), 1e-3)
    assert ", loss 1.500e-07, damping 1.0e-03, " in line
    assert (
        Progress(float("inf"), 30.0)
        .line(7, 1.0, time.monotonic())
        .endswith("30 s left")
    )
