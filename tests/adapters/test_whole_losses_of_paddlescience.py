"""Losses of PaddleScience that are compiled whole, and such as are not to be."""

import warnings

import numpy as np
import paddle
import pytest
from both_ways import assert_equal, both_ways, values

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    ppsci = pytest.importorskip("ppsci", reason="PaddleScience is not installed")

from ppsci.utils import logger

from paddle_chainrules.adapters.paddlescience import taylor_mode
from paddle_chainrules.adapters.whole_losses import LEARNING

SEEN = []


def solver_of(loss, steps=12):
    """A solver of one equation on the unit square, with a loss of one's own."""
    ppsci.utils.misc.set_random_seed(3)
    logger.init_logger("ppsci", None, "error")
    net = ppsci.arch.MLP(("x", "y"), ("p",), 2, 9)
    inside = ppsci.constraint.InteriorConstraint(
        ppsci.equation.Poisson(2).equations,
        {"poisson": 1.0},
        ppsci.geometry.Rectangle((0.0, 0.0), (1.0, 1.0)),
        {
            "dataset": "IterableNamedArrayDataset",
            "iters_per_epoch": 1,
            "batch_size": 20,
        },
        ppsci.loss.FunctionalLoss(loss),
        name="inside",
    )
    optimizer = ppsci.optimizer.Adam(1e-2)(net)
    options = {
        "output_dir": None,
        "epochs": 1,
        "iters_per_epoch": steps,
        "log_freq": 1000,
    }
    return ppsci.solver.Solver(net, {"a": inside}, optimizer=optimizer, **options)


def squares(output, label, weight):
    return {"poisson": ((output["poisson"] - label["poisson"]) ** 2).mean()}


def by_step(output, label, weight):
    """A loss whose weight depends on the step that the solver is at."""
    (loss,) = squares(output, label, weight).values()
    return {"poisson": loss * (10.0 if SEEN and SEEN[0].global_step > 6 else 1.0)}


def by_item(output, label, weight):
    """A loss with a number of its own value in it, and in a string."""
    (loss,) = squares(output, label, weight).values()
    if not isinstance(loss.item(), float) or f"{loss:.3f}" != f"{loss.item():.3f}":
        raise KeyError("no number")
    return {"poisson": loss / round(loss.item(), 5)}


@pytest.mark.parametrize(
    ("loss", "why", "most"),
    [(by_step, "such as SEEN[0].global_step", 4), (by_item, "a value leaves", 0)],
)
def test_losses_that_do_more_run_as_usual(loss, why, most):
    def script():
        SEEN.clear()
        solver = solver_of(loss)
        SEEN.append(solver)
        solver.train()
        return values(solver.model)

    found, expected, mode = both_ways(script, taylor_mode, [why], jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs <= most
    assert isinstance(paddle.ones([1]).item(), float)


class Doubled(ppsci.arch.MLP):
    """A net with a list of tensors, and a string, among its inputs."""

    def forward(self, x):
        found = super().forward({"x": x["pair"][0], "y": x["pair"][1]})
        return {"p": found["p"] * (2.0 if x["kind"] == ["twice"] * 4 else 1.0)}


class Pairs(paddle.io.Dataset):
    """Eight of such inputs."""

    input_keys, label_keys = ("pair", "kind"), ("p",)

    def __len__(self):
        return 8

    def __getitem__(self, i):
        pair = [np.full(1, i / 8, "float32"), np.full(1, 0.5, "float32")]
        return {"pair": pair, "kind": "twice"}, {"p": np.ones(1, "float32")}, {}


def test_inputs_that_are_no_tensors_run_as_usual():
    def script():
        solver = solver_of(squares)
        net = Doubled(("x", "y"), ("p",), 2, 9)
        one = solver.constraint["a"]
        one.data_loader = paddle.io.DataLoader(Pairs(), batch_size=4)
        one.data_iter = iter(one.data_loader)
        one.output_expr = {"poisson": lambda out: out["p"]}
        one.loss = ppsci.loss.FunctionalLoss(
            lambda out, label, _: {"p": out["p"].sum()}
        )
        optimizer = ppsci.optimizer.Adam(1e-2)(net)
        options = {"output_dir": None, "epochs": 1, "iters_per_epoch": 6}
        ppsci.solver.Solver(net, {"a": one}, optimizer=optimizer, **options).train()
        return values(net)

    found, expected, mode = both_ways(script, taylor_mode, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == 0


def test_random_batches_are_inputs_of_the_program():
    """Two batches of eight points, and the rest, of four, in another order each time.

    Weights and labels come with the points.
    """

    def script():
        solver = solver_of(squares)
        draw = np.random.default_rng(5).random
        points = {name: draw((20, 1), "float32") for name in ("x", "y")}
        data = {"input": points, "label": {"p": draw((20, 1), "float32")}}
        measured = ppsci.constraint.SupervisedConstraint(
            {
                "dataset": {
                    "name": "NamedArrayDataset",
                    **data,
                    "weight": {"p": points["x"]},
                },
                "batch_size": 8,
                "sampler": {"name": "BatchSampler", "shuffle": True},
            },
            ppsci.loss.MSELoss("mean"),
            ppsci.equation.Poisson(2).equations | {"p": lambda out: out["p"]},
            name="measured",
        )
        optimizer = ppsci.optimizer.Adam(1e-2)(solver.model)
        options = {"output_dir": None, "epochs": 6, "iters_per_epoch": 3}
        parts = {"measured": measured}
        trained = ppsci.solver.Solver(
            solver.model, parts, optimizer=optimizer, **options
        )
        trained.train()
        return values(solver.model)

    found, expected, mode = both_ways(script, taylor_mode, jit=True)
    assert_equal(found, expected, rtol=1e-4)
    assert mode.losses.programs == (12 - LEARNING) + (6 - LEARNING)
