"""Differential equations as scripts of PaddleScience, of the sizes of its examples.

Written here from the equations; where an example has more points than a step of a
second on one core allows, the table says so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any, NamedTuple

import numpy as np

with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
    import ppsci

from ppsci.arch import MLP
from ppsci.autodiff import hessian, jacobian
from ppsci.equation import PDE
from ppsci.loss import MSELoss
from ppsci.utils import logger

from paddle_chainrules.adapters.paddlescience import taylor_mode as taylor_mode

LIBRARY = "PaddleScience"

Steps = Callable[[int], None]
"""Trains for a number of steps."""

Parts = tuple[Any, list[Any], dict[str, Any]]
"""A model, constraints, and equations."""


class Problem(NamedTuple):
    """An equation, told in the table by its net and its points."""

    net: str
    points: str
    make: Callable[[], Parts]

    def steps(self) -> Steps:
        """A new model, and its training."""
        logger.init_logger("ppsci", None, "error")
        ppsci.utils.misc.set_random_seed(0)
        model, constraints, equations = self.make()
        optimizer = ppsci.optimizer.Adam(1e-3)((model, *equations.values()))
        solver = ppsci.solver.Solver(
            model,
            {part.name: part for part in constraints},
            tempfile.gettempdir(),
            optimizer,
            log_freq=10**9,
            equation=equations,
        )
        solver.max_steps = 10**9

        def run(count: int) -> None:
            """An epoch, without what comes between epochs."""
            solver.iters_per_epoch = count
            solver.train_epoch_func(solver, 1, solver.log_freq)

        return run


def inside(equation: PDE, geometry: Any, count: int) -> Any:
    """The equations at points of a geometry, all of them zero."""
    return ppsci.constraint.InteriorConstraint(
        equation.equations,
        dict.fromkeys(equation.equations, 0),
        geometry,
        sampled(count),
        MSELoss("mean"),
        name="inside",
    )


def around(
    name: str, labels: dict[str, Any], geometry: Any, count: int, **kw: Any
) -> Any:
    """Values at points of a boundary, or what expressions of them give."""
    expressions = kw.pop("expressions", None) or {
        key: lambda out, key=key: out[key] for key in labels
    }
    return ppsci.constraint.BoundaryConstraint(
        expressions,
        labels,
        geometry,
        sampled(count),
        MSELoss("mean"),
        name=name,
        **kw,
    )


def sampled(count: int) -> dict[str, Any]:
    return {
        "dataset": "IterableNamedArrayDataset",
        "iters_per_epoch": 1,
        "batch_size": count,
    }


def given(name: str, values: dict[str, Any], expressions: dict[str, Any]) -> Any:
    """Measurements, all at each step."""
    inputs = {key: value for key, value in values.items() if key not in expressions}
    labels = {key: values[key] for key in expressions}
    cfg = {"name": "IterableNamedArrayDataset", "input": inputs, "label": labels}
    return ppsci.constraint.SupervisedConstraint(
        {"dataset": cfg}, MSELoss("mean"), expressions, name=name
    )


def square(low: float = 0.0, high: float = 1.0) -> Any:
    return ppsci.geometry.Rectangle((low, low), (high, high))


def times(count: int) -> Any:
    at = np.linspace(0.0, 1.0, count, dtype="float32")
    return ppsci.geometry.TimeDomain(0.0, 1.0, timestamps=at)


def line_and_time(low: float, high: float) -> Any:
    line = ppsci.geometry.Interval(low, high)
    return ppsci.geometry.TimeXGeometry(times(21), line)


def at_first(name: str, start: Callable[[Any], Any], space: Any, count: int) -> Any:
    return ppsci.constraint.InitialConstraint(
        {"u": lambda out: out["u"]},
        {"u": start},
        space,
        sampled(count),
        MSELoss("mean"),
        name=name,
    )


def laplace() -> Parts:
    equation, space = ppsci.equation.Laplace(dim=2), square()
    model = MLP(("x", "y"), ("u",), 5, 20, "tanh")
    wave = {"u": lambda out: np.cos(out["x"]) * np.cosh(out["y"])}
    parts = [inside(equation, space, 9801), around("edge", wave, space, 400)]
    return model, parts, {"laplace": equation}


def poisson() -> Parts:
    equation, space = ppsci.equation.Poisson(2), square()
    model = MLP(("x", "y"), ("p",), 3, 50, "tanh")
    edge = around("edge", {"p": 0.0}, space, 120)
    return model, [inside(equation, space, 1200), edge], {"poisson": equation}


def cavity(time: bool, count: int) -> Parts:
    """A lid that drives what is in a square."""
    equation = ppsci.equation.NavierStokes(0.01, 1.0, 2, time)
    space = square(-0.05, 0.05)
    keys = ("t", "x", "y") if time else ("x", "y")
    if time:
        space = ppsci.geometry.TimeXGeometry(times(16), space)
    model = MLP(keys, ("u", "v", "p"), 9, 50, "tanh")
    lid = around(
        "lid",
        {"u": 1.0, "v": 0.0},
        space,
        100,
        criteria=lambda *at: np.isclose(at[-1], 0.05),
    )
    walls = around(
        "walls", {"u": 0.0, "v": 0.0}, space, 300, criteria=lambda *at: at[-1] < 0.049
    )
    return model, [inside(equation, space, count), lid, walls], {"flow": equation}


class Burgers(PDE):
    """Written with derivatives of tensors."""

    def __init__(self) -> None:
        super().__init__()

        def residual(out: dict[str, Any]) -> Any:
            u, t, x = out["u"], out["t"], out["x"]
            return jacobian(u, t) + u * jacobian(u, x) - 0.01 / np.pi * hessian(u, x)

        self.add_equation("burgers", residual)


class Heat(PDE):
    """Written with sympy's derivatives."""

    def __init__(self) -> None:
        super().__init__()
        t, x = self.create_symbols("t x")
        u = self.create_function("u", (t, x))
        self.add_equation("heat", u.diff(t) - 0.4 * u.diff(x, 2))


def burgers() -> Parts:
    equation, space = Burgers(), line_and_time(-1.0, 1.0)
    model = MLP(("t", "x"), ("u",), 3, 20, "tanh")
    parts = [
        inside(equation, space, 2540),
        around("edge", {"u": 0.0}, space, 80),
        at_first("start", lambda out: -np.sin(np.pi * out["x"]), space, 160),
    ]
    return model, parts, {"burgers": equation}


def heat() -> Parts:
    equation, space = Heat(), line_and_time(0.0, 1.0)
    model = MLP(("t", "x"), ("u",), 9, 20, "tanh")
    parts = [
        inside(equation, space, 990),
        around("edge", {"u": 0.0}, space, 60),
        at_first("start", lambda out: np.sin(np.pi * out["x"]), space, 60),
    ]
    return model, parts, {"heat": equation}


def biharmonic() -> Parts:
    equation = ppsci.equation.Biharmonic(2, -1.0, 1.0)
    model = MLP(("x", "y"), ("u",), 5, 20, "tanh")
    edges = {
        "u": lambda out: out["u"],
        "bent": lambda out: hessian(out["u"], out["x"]),
    }
    zero = dict.fromkeys(edges, 0.0)
    edge = around("edge", zero, square(), 125, expressions=edges)
    return model, [inside(equation, square(), 1000), edge], {"plate": equation}


def beam() -> Parts:
    equation = ppsci.equation.Biharmonic(1, -1.0, 1.0)
    line = ppsci.geometry.Interval(0, 1)
    model = MLP(("x",), ("u",), 3, 20, "tanh")
    edges = {
        "u": lambda out: out["u"][0:1],
        "slope": lambda out: jacobian(out["u"], out["x"])[1:2],
        "bent": lambda out: hessian(out["u"], out["x"])[2:3],
        "shear": lambda out: jacobian(hessian(out["u"], out["x"]), out["x"])[3:4],
    }
    zero = dict.fromkeys(edges, 0.0)
    edge = around("edge", zero, line, 4, expressions=edges, evenly=True)
    return model, [inside(equation, line, 100), edge], {"beam": equation}


def elasticity() -> Parts:
    """Displacements and stresses by two nets."""
    equation = ppsci.equation.LinearElasticity(lambda_=1.0, mu=0.5, dim=2)
    for name in ("traction_x", "traction_y"):
        equation.equations.pop(name)
    stresses = ("sigma_xx", "sigma_yy", "sigma_xy")
    model = ppsci.arch.ModelList(
        (
            MLP(("x", "y"), ("u", "v"), 4, 64, "silu"),
            MLP(("x", "y"), stresses, 4, 64, "silu"),
        )
    )
    edge = around("edge", {"u": 0.0, "v": 0.0}, square(), 256)
    return model, [inside(equation, square(), 2048), edge], {"body": equation}


def vibration() -> Parts:
    """A damping and a stiffness from what is measured."""
    equation = ppsci.equation.Vibration(2, -4, 0)
    model = MLP(("t_f",), ("eta",), 5, 50, "tanh")
    t = np.linspace(0.0, 3.0, 100, dtype="float32")[:, None]
    values = {"t_f": t, "eta": np.sin(t), "f": np.cos(t)}
    expressions = {"eta": lambda out: out["eta"], **equation.equations}
    return model, [given("measured", values, expressions)], {"spring": equation}


def allen_cahn(arch: Callable[..., Any], *sizes: Any) -> Parts:
    """On a circle, whose period the net's embedding has."""
    equation, space = ppsci.equation.AllenCahn(0.01), line_and_time(-1.0, 1.0)
    model = arch(("t", "x"), ("u",), *sizes, "tanh", periods={"x": (2.0, False)})
    start = at_first(
        "start", lambda out: out["x"] ** 2 * np.cos(np.pi * out["x"]), space, 128
    )
    return model, [inside(equation, space, 1024), start], {"mix": equation}


def pirate(*args: Any, **kw: Any) -> Any:
    return ppsci.arch.PirateNet(
        *args,
        **kw,
        fourier={"dim": 64, "scale": 2.0},
        random_weight={"mean": 0.5, "std": 0.1},
    )


PROBLEMS: dict[str, Problem] = {
    "Laplace": Problem("5x20", "10201", laplace),
    "Poisson": Problem("3x50", "1320", poisson),
    "Navier-Stokes": Problem("9x50", "2400 (of 10201)", lambda: cavity(False, 2000)),
    "Navier-Stokes, unsteady": Problem(
        "9x50", "2400 (of 163216)", lambda: cavity(True, 2000)
    ),
    "Burgers, by functions": Problem("3x20", "2780", burgers),
    "heat": Problem("9x20", "1110", heat),
    "biharmonic": Problem("5x20", "1125 (of 8125)", biharmonic),
    "Euler beam": Problem("3x20", "104", beam),
    "linear elasticity": Problem("two of 4x64", "2304", elasticity),
    "vibration, inverse": Problem("5x50", "100", vibration),
    "Allen-Cahn, modified MLP": Problem(
        "4x64", "1152", lambda: allen_cahn(ppsci.arch.ModifiedMLP, 4, 64)
    ),
    "Allen-Cahn, PirateNet": Problem(
        "2 blocks of 64", "1152 (of 4096)", lambda: allen_cahn(pirate, 2, 64)
    ),
}
