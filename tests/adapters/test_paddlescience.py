"""Training by PaddleScience natively and in Taylor mode: the same parameters."""

import warnings

import numpy as np
import paddle
import pytest
from both_ways import JIT, STEPS, assert_equal, both_ways, served, values

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    ppsci = pytest.importorskip("ppsci", reason="PaddleScience is not installed")

from ppsci.autodiff import hessian, jacobian
from ppsci.loss import mtl
from ppsci.utils import logger

from paddle_chainrules.adapters.paddlescience import taylor_mode
from paddle_chainrules.settings import loops_are_on

MSE = ppsci.loss.MSELoss("mean")


@pytest.fixture(autouse=True)
def _double():
    """Everything in float64, as it was afterwards."""
    before = paddle.get_default_dtype()
    paddle.set_default_dtype("float64")
    logger.init_logger("ppsci", None, "error")
    yield
    paddle.set_default_dtype(before)


def mlp(inputs, outputs, **kw):
    return ppsci.arch.MLP(inputs, outputs, 2, 9, "tanh", **kw)


def sampled(count):
    kind = "IterableNamedArrayDataset"
    return {"dataset": kind, "iters_per_epoch": 1, "batch_size": count}


def inside(equation, geometry, count=41):
    return ppsci.constraint.InteriorConstraint(
        equation.equations,
        dict.fromkeys(equation.equations, 0),
        geometry,
        sampled(count),
        MSE,
        name="inside",
    )


def around(expressions, geometry, count=12):
    if not isinstance(expressions, dict):
        expressions = {key: lambda out, key=key: out[key] for key in expressions}
    return ppsci.constraint.BoundaryConstraint(
        expressions,
        dict.fromkeys(expressions, 0.5),
        geometry,
        sampled(count),
        MSE,
        name="around",
    )


def square():
    return ppsci.geometry.Rectangle((-0.5, -0.5), (1.0, 0.5))


def line_and_time():
    at = np.linspace(0.0, 1.0, 5)
    times = ppsci.geometry.TimeDomain(0.0, 1.0, timestamps=at)
    return ppsci.geometry.TimeXGeometry(times, ppsci.geometry.Interval(-1.0, 1.0))


def navier_stokes(**kw):
    equation = ppsci.equation.NavierStokes(0.1, 1.0, 2, False, **kw)
    model = mlp(("x", "y"), ("u", "v", "p"))
    return model, [inside(equation, square()), around("uv", square())], equation


class Burgers(ppsci.equation.PDE):
    """By a function, whose first derivatives are asked for at once or each."""

    def __init__(self, at_once):
        super().__init__()

        def residual(out):
            u, t, x = out["u"], out["t"], out["x"]
            u_t, u_x = jacobian(u, [t, x]) if at_once else map(jacobian, (u, u), (t, x))
            return u_t + u * u_x - 0.01 * hessian(u, x) + jacobian(u_x, t)

        self.add_equation("burgers", residual)


def burgers(at_once=False, **kw):
    equation, space = Burgers(at_once), line_and_time()
    start = ppsci.constraint.InitialConstraint(
        {"u_0": lambda out: out["u"]},
        {"u_0": lambda out: -np.sin(np.pi * out["x"])},
        space,
        sampled(13),
        MSE,
        name="start",
    )
    model = mlp(("t", "x"), ("u",), **kw)
    return model, [inside(equation, space), around("u", space), start], equation


def constrained():
    model, constraints, equation = burgers()
    model.register_input_transform(
        lambda given: {"t": given["t"] * 2, "x": paddle.tanh(given["x"])}
    )
    model.register_output_transform(
        lambda given, out: {"u": given["t"] * (given["x"] - 1) * out["u"]}
    )
    return model, constraints, equation


def beam():
    equation = ppsci.equation.Biharmonic(1, -1.0, 1.0)
    line = ppsci.geometry.Interval(0, 1)
    edges = {
        "u": lambda out: out["u"][0:1],
        "slope": lambda out: jacobian(out["u"], out["x"])[1:2],
        "bent": lambda out: hessian(out["u"], out["x"])[2:3],
        "shear": lambda out: jacobian(hessian(out["u"], out["x"]), out["x"])[3:4],
    }
    model = mlp(("x",), ("u",))
    return model, [inside(equation, line), around(edges, line, 4)], equation


def elasticity():
    """By two nets of the same inputs."""
    equation = ppsci.equation.LinearElasticity(lambda_=1.0, mu=0.5, dim=2)
    for name in ("traction_x", "traction_y"):
        equation.equations.pop(name)
    stresses = ("sigma_xx", "sigma_yy", "sigma_xy")
    nets = mlp(("x", "y"), ("u", "v")), mlp(("x", "y"), stresses)
    constraints = [inside(equation, square()), around("uv", square())]
    return ppsci.arch.ModelList(nets), constraints, equation


def vibration():
    """Coefficients to be found."""
    equation = ppsci.equation.Vibration(2, -1, 0)
    t = np.linspace(0.0, 3.0, 23)[:, None]
    labels = {"eta": np.sin(t), "f": np.cos(t)}
    cfg = {"name": "IterableNamedArrayDataset", "input": {"t_f": t}, "label": labels}
    measured = ppsci.constraint.SupervisedConstraint(
        {"dataset": cfg},
        MSE,
        {"eta": lambda out: out["eta"], **equation.equations},
        name="measured",
    )
    return mlp(("t_f",), ("eta",)), [measured], equation


def pirate():
    equation, space = ppsci.equation.AllenCahn(0.1), line_and_time()
    model = ppsci.arch.PirateNet(
        ("t", "x"),
        ("u",),
        1,
        8,
        "tanh",
        periods={"x": (2.0, False)},
        fourier={"dim": 8, "scale": 1.0},
        random_weight={"mean": 0.5, "std": 0.1},
    )
    return model, [inside(equation, space), around("u", space)], equation


PROBLEMS = {
    "Navier-Stokes": navier_stokes,
    "Navier-Stokes, detached": lambda: navier_stokes(detach_keys=("u", "v__y")),
    "Burgers": burgers,
    "Burgers, slopes at once": lambda: burgers(True),
    "transforms": constrained,
    "beam": beam,
    "linear elasticity": elasticity,
    "vibration": vibration,
    "weight normalization": lambda: burgers(weight_norm=True),
    "PirateNet": pirate,
}


class Noted(mtl.Sum):
    """The sum, and what has been summed."""

    def __init__(self):
        super().__init__()
        self.history = []

    def __call__(self, losses, step=0):
        self.history.append([float(loss) for loss in losses.values()])
        return super().__call__(losses, step)


def trained(make, folder, steps=STEPS, optimizer=None, aggregator=None):
    """The losses of each step, the parameters, and the coefficients."""

    def script():
        ppsci.utils.misc.set_random_seed(42)
        model, constraints, equation = make()
        trains = optimizer or ppsci.optimizer.Adam(1e-3)
        aggregated = aggregator(model) if aggregator else Noted()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            solver = ppsci.solver.Solver(
                model,
                {part.name: part for part in constraints},
                str(folder),
                trains((model, equation) if equation.parameters() else model),
                epochs=1,
                iters_per_epoch=steps,
                log_freq=10**6,
                equation={"equation": equation},
                loss_aggregator=aggregated,
            )
            solver.train()
        learnt = [p.numpy() for p in equation.parameters()]
        return [getattr(aggregated, "history", []), values(model), learnt]

    return script


@JIT
@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_training_is_the_native_one(name, tmp_path, jit):
    script = trained(PROBLEMS[name], tmp_path)
    found, expected, mode = both_ways(script, taylor_mode, jit=jit)
    assert_equal(found, expected)
    assert mode.natively <= 3
    assert served(mode) >= STEPS - 1
    assert mode.steps.programs == (STEPS - 1) * loops_are_on()


@JIT
def test_float32(tmp_path, jit):
    paddle.set_default_dtype("float32")
    found, expected, mode = both_ways(trained(burgers, tmp_path), taylor_mode, jit=jit)
    assert_equal(found, expected, rtol=1e-3)
    assert served(mode) >= STEPS - 1


# L-BFGS makes of a difference in the last bit a hundredfold every 20 evaluations
# (natively too): after six steps, of six evaluations each, it is about 1e-12.
OPTIMIZERS = {
    "L-BFGS": (ppsci.optimizer.LBFGS(max_iter=5), 6),
    "weight decay": (ppsci.optimizer.AdamW(1e-3, weight_decay=0.1), 20),
}


@JIT
@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name, tmp_path, jit):
    optimizer, steps = OPTIMIZERS[name]
    script = trained(burgers, tmp_path, steps, optimizer)
    found, expected, mode = both_ways(script, taylor_mode, jit=jit)
    assert_equal(found, expected, rtol=1e-9)
    assert served(mode) >= steps - 1


AGGREGATORS = {
    "NTK": lambda model: mtl.NTK(model, num_losses=3, update_freq=3),
    "Relobralo": lambda model: mtl.Relobralo(num_losses=3),
}


@JIT
@pytest.mark.parametrize("name", AGGREGATORS)
def test_losses_that_are_weighed(name, tmp_path, jit):
    script = trained(burgers, tmp_path, 20, aggregator=AGGREGATORS[name])
    found, expected, mode = both_ways(script, taylor_mode, jit=jit)
    assert_equal(found, expected)
    assert served(mode) >= 19


def test_weights_that_retain_graphs_turn_it_off(tmp_path):
    def weighed(model):
        return mtl.GradNorm(model, num_losses=3, update_freq=5)

    script = trained(burgers, tmp_path, 20, aggregator=weighed)
    found, expected, mode = both_ways(script, taylor_mode, warns=["is off: backward"])
    assert_equal(found, expected, rtol=0)
    assert mode.programs == 0


def test_predictions_of_equations(tmp_path):
    """In batches, of which the last is smaller."""

    def script():
        ppsci.utils.misc.set_random_seed(42)
        model, _, equation = burgers()
        solver = ppsci.solver.Solver(model, output_dir=str(tmp_path))
        at = np.random.default_rng(0).random((2, 17, 1))
        given = {"t": at[0], "x": at[1]}
        found = []
        for _ in range(3):
            out = solver.predict(given, equation.equations, batch_size=5, no_grad=False)
            found.append({key: value.numpy() for key, value in out.items()})
        return found

    found, expected, mode = both_ways(script, taylor_mode)
    assert_equal(found, expected)
    assert (mode.programs, mode.natively) == (10, 2)
