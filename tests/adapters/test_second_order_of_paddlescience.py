"""Solvers of PaddleScience that train by second-order methods."""

import warnings

import numpy as np
import paddle
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    ppsci = pytest.importorskip("ppsci", reason="PaddleScience is not installed")

from ppsci.autodiff import hessian, jacobian
from ppsci.loss import mtl
from ppsci.utils import logger

from paddle_chainrules import jit
from paddle_chainrules.adapters import row_jacobian
from paddle_chainrules.adapters.paddlescience import taylor_mode
from paddle_chainrules.adapters.searches import METHODS
from paddle_chainrules.adapters.second_order import SecondOrder
from paddle_chainrules.settings import programs_are_on

pytestmark = pytest.mark.skipif(
    not programs_are_on(), reason="second-order methods need programs"
)


@pytest.fixture(autouse=True)
def _double(tmp_path, monkeypatch):
    """Everything in float64, as it was afterwards; files go to a folder of the test."""
    monkeypatch.chdir(tmp_path)
    before = paddle.get_default_dtype()
    paddle.set_default_dtype("float64")
    logger.init_logger("ppsci", None, "error")
    yield
    paddle.set_default_dtype(before)


def sampled(count):
    kind = "IterableNamedArrayDataset"
    return {"dataset": kind, "iters_per_epoch": 1, "batch_size": count}


class Burgers(ppsci.equation.PDE):
    def __init__(self):
        super().__init__()

        def residual(out):
            u, t, x = out["u"], out["t"], out["x"]
            return jacobian(u, t) + u * jacobian(u, x) - 0.1 * hessian(u, x)

        self.add_equation("burgers", residual)


def burgers(loss=None):
    """Three constraints, each at another number of points."""
    loss = loss or ppsci.loss.MSELoss("mean")
    times = ppsci.geometry.TimeDomain(0.0, 1.0, timestamps=np.linspace(0.0, 1.0, 5))
    space = ppsci.geometry.TimeXGeometry(times, ppsci.geometry.Interval(-1.0, 1.0))
    inside = ppsci.constraint.InteriorConstraint(
        Burgers().equations,
        {"burgers": 0},
        space,
        sampled(41),
        ppsci.loss.MSELoss("mean", weight=3.0),
        name="inside",
    )
    around = ppsci.constraint.BoundaryConstraint(
        {"u": lambda out: out["u"]},
        {"u": 0.0},
        space,
        sampled(12),
        ppsci.loss.MSELoss("sum", weight={"u": 0.5}),
        name="around",
    )
    start = ppsci.constraint.InitialConstraint(
        {"u_0": lambda out: out["u"]},
        {"u_0": lambda out: -np.sin(np.pi * out["x"])},
        space,
        sampled(13),
        loss,
        name="start",
    )
    model = ppsci.arch.MLP(("t", "x"), ("u",), 2, 5, "tanh")
    return model, [inside, around, start], ()


def flow():
    """An equation with an unknown number, and three outputs."""
    equation = ppsci.equation.PDE()
    viscosity = paddle.create_parameter([], "float64", default_initializer=half)
    equation.learnable_parameters.append(viscosity)

    def momentum(out):
        u, v, p, x, y = (out[key] for key in "uvpxy")
        second = hessian(u, x) + hessian(u, y)
        convected = u * jacobian(u, x) + v * jacobian(u, y)
        return convected + jacobian(p, x) - viscosity * second

    equation.add_equation("momentum", momentum)
    square = ppsci.geometry.Rectangle((-0.5, -0.5), (1.0, 0.5))
    inside = ppsci.constraint.InteriorConstraint(
        equation.equations, {"momentum": 0}, square, sampled(37), MSE(), name="inside"
    )
    around = ppsci.constraint.BoundaryConstraint(
        {key: lambda out, key=key: out[key] for key in "uv"},
        {"u": lambda out: out["y"], "v": lambda out: out["x"] ** 2},
        square,
        sampled(16),
        MSE(),
        name="around",
    )
    model = ppsci.arch.MLP(("x", "y"), ("u", "v", "p"), 1, 6, "tanh")
    return model, [inside, around], (equation,)


def channel():
    """A power of a coordinate, of which Paddle has a gradient for parameters alone
    only beside that for the points.
    """
    equation = ppsci.equation.PDE()
    equation.add_equation(
        "flow",
        lambda out: hessian(out["u"], out["x"]) + hessian(out["u"], out["y"]) + 1.0,
    )
    square = ppsci.geometry.Rectangle((-0.5, -0.5), (0.5, 0.5))
    inside = ppsci.constraint.InteriorConstraint(
        equation.equations, {"flow": 0}, square, sampled(61), MSE(), name="inside"
    )
    model = ppsci.arch.MLP(("x", "y"), ("u",), 1, 6, "tanh")
    model.register_output_transform(
        lambda points, out: {"u": out["u"] * (0.25 - points["y"] ** 2)}
    )
    return model, [inside], ()


def fitted():
    """Values in random batches, by weights of the points."""
    x = np.linspace(-1.0, 1.0, 30)[:, None]
    dataset = {
        "name": "NamedArrayDataset",
        "input": {"x": x},
        "label": {"u": np.sin(3 * x)},
        "weight": {"u": 1.0 + x**2},
    }
    batches = {"name": "BatchSampler", "drop_last": True, "shuffle": True}
    seen = ppsci.constraint.SupervisedConstraint(
        {"dataset": dataset, "batch_size": 10, "sampler": batches}, MSE(), name="seen"
    )
    return ppsci.arch.MLP(("x",), ("u",), 1, 6, "tanh"), [seen], ()


def half(tensor, block=None):
    tensor.set_value(paddle.full(tensor.shape, 0.5, tensor.dtype))


def MSE():
    return ppsci.loss.MSELoss("mean")


def solver(make, method, epochs=4, **kw):
    ppsci.utils.misc.set_random_seed(3)
    model, constraints, equations = make()
    settings = method if isinstance(method, SecondOrder) else SecondOrder(method)
    return ppsci.solver.Solver(
        model,
        {c.name: c for c in constraints},
        optimizer=settings((model, *equations)),
        epochs=epochs,
        iters_per_epoch=1,
        log_freq=1,
        **kw,
    )


def loss_of(made):
    return float(made.optimizer.loss.total())


def trained(make, method="levenberg_marquardt", epochs=4, **kw):
    made = solver(make, method, epochs, **kw)
    made.train()
    return made


@pytest.mark.parametrize("block", [row_jacobian.BLOCK_BYTES, 2_000])
@pytest.mark.parametrize("make", [burgers, flow, channel])
def test_rows_of_the_jacobian_are_differences(make, block, monkeypatch):
    """Of the losses by the library alone: the derivative of their sum is 2 J^T r."""
    monkeypatch.setattr(row_jacobian, "BLOCK_BYTES", block)
    made = trained(make, epochs=1)
    search, tensors = made.optimizer.search, made.optimizer.loss.tensors
    assert search.by_rows == ""
    assert (len(search._jacobian._passes) > 5) == (block == 2_000)
    values = search.loss.start()
    residuals = jit(search.loss.residuals)(values)
    r = np.concatenate([r.numpy().flatten() for r in residuals])
    assert r @ r == pytest.approx(loss_of(made), rel=1e-12)
    matrix = search._jacobian.matrix(paddle.concat([v.flatten() for v in values]))
    h, expected = 1e-5, []
    for tensor in tensors:
        flat = tensor.numpy().reshape(-1)
        for j in range(flat.size):
            ends = []
            for sign in (1, -1):
                moved = flat.copy()
                moved[j] += sign * h
                tensor.set_value(moved.reshape(tensor.shape))
                ends.append(loss_of(made))
            tensor.set_value(flat.reshape(tensor.shape))
            expected.append((ends[0] - ends[1]) / (2 * h))
    np.testing.assert_allclose(2.0 * r @ matrix, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("make", [burgers, flow])
def test_every_method_goes_down(make, method):
    made = solver(make, method)
    losses = []
    for _ in range(6):
        made.train_epoch_func(made, 1, 1)
        losses.append(loss_of(made))
    assert (np.diff(losses) < 0.0).all()


def test_within_taylor_mode():
    alone = trained(burgers)
    with taylor_mode(jit=True):
        inside = trained(burgers)
    for p, q in zip(alone.model.parameters(), inside.model.parameters(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-9, atol=1e-12)


def test_unknowns_of_equations_are_trained():
    made = trained(flow, epochs=12)
    (viscosity,) = made.optimizer.loss.tensors[made.optimizer.loss.net_tensors :]
    assert viscosity.shape == []
    assert float(viscosity) != 0.5


@pytest.mark.parametrize("method", ["levenberg_marquardt", "self_scaled_broyden"])
def test_batches_that_are_drawn(method):
    made, losses = solver(fitted, method), []
    for _ in range(8):
        made.train_epoch_func(made, 1, 1)
        search = made.optimizer.search
        program = jit(search.loss.total)(search.loss.start())
        losses.append(loss_of(made))
        assert float(program) == pytest.approx(losses[-1], rel=1e-12)
    assert losses[-1] < losses[0]


def test_a_checkpoint(tmp_path):
    made = trained(burgers, epochs=3, output_dir=str(tmp_path), save_freq=3)
    again = solver(
        burgers,
        "levenberg_marquardt",
        output_dir=str(tmp_path),
        checkpoint_path=str(tmp_path / "checkpoints" / "epoch_3"),
    )
    for p, q in zip(made.model.parameters(), again.model.parameters(), strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())
    again.train()


def test_the_logged_losses_are_the_librarys():
    made = solver(burgers, "levenberg_marquardt")
    for _ in range(3):
        made.train_epoch_func(made, 1, 1)
    logged = made.train_output_info
    assert logged["loss"].val == pytest.approx(loss_of(made), rel=1e-9)
    assert {"inside", "around", "start"} < logged.keys()


@pytest.mark.parametrize(
    ("make", "kw", "words"),
    [
        (lambda: burgers(ppsci.loss.L1Loss("mean")), {}, "constraint start has L1Loss"),
        (burgers, {"loss_aggregator": mtl.Relobralo(3)}, "the solver has Relobralo"),
    ],
)
def test_a_loss_that_is_no_sum_of_squares(make, kw, words):
    with pytest.raises(ValueError, match=f"needs.*{words}.*self_scaled_broyden"):
        trained(make, **kw)
    if not kw:
        made = trained(make, "self_scaled_broyden")
        assert np.isfinite(loss_of(made))


def test_a_search_that_ends_says_so_once(capsys):
    trained(burgers, SecondOrder("levenberg_marquardt", tolerance_grad=1e9), epochs=3)
    assert capsys.readouterr().out.count("levenberg_marquardt has ended: the grad") == 1
