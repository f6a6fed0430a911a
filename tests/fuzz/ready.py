"""Objects that public functions give, made anew for each call."""

import functools
import tempfile

import paddle

import paddle_chainrules as pc
from fuzz import values
from fuzz.values import LAYER, NET, PARAMS, POINTS
from paddle_chainrules import FCNet, libraries, optimizers, stateless, testing


def x():
    return paddle.ones([5])


def net_of(layer, **options):
    return lambda: stateless(layer(), **options)[0]


def evaluated():
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 2), paddle.nn.BatchNorm1D(2))
    layer.eval()
    return layer


def warm(function, *args):
    """Return a function after some calls, which go to its programs from then on."""
    for _ in range(3):
        function(*args)
    return function


def warm_net():
    net, params, _ = stateless(paddle.nn.Linear(3, 2), jit=True)
    warm(net.pullback, params, POINTS)
    return net


def pullback_of(layer, *args, theta=False):
    net, params, _ = stateless(layer)
    return net.pullback(net.flatten(params) if theta else params, *args)[1]


def warm_pullback():
    net, params, _ = stateless(paddle.nn.Linear(3, 2), jit=True)
    return warm(net.pullback, params, POINTS)(params, POINTS)[1]


class Counter:
    """An object whose method is a function of jit."""

    @pc.jit
    def scaled(self, x):
        return x * 2.0


@functools.cache
def library():
    """Return a saved net, for all calls of this process."""
    with tempfile.TemporaryDirectory() as folder:
        args = NET, NET.flatten(PARAMS), POINTS
        libraries.save_library(f"{folder}/fuzzed.so", *args, derivatives=["vjp"])
        return libraries.load_library(f"{folder}/fuzzed.so")


READY = {
    "FCNet": lambda: FCNet((3, 5, 2), "gelu", dtype="float64"),
    "FCNet of a function": lambda: FCNet((3, 2), paddle.sin),
    "FCNet after calls": lambda: (
        warm(net := FCNet((3, 5, 2)), net.init(0), POINTS) and net
    ),
    "layer": net_of(lambda: LAYER),
    "frozen layer": net_of(lambda: paddle.nn.Linear(3, 2), frozen="bias"),
    "layer in evaluation": net_of(evaluated),
    "recurrent layer": net_of(lambda: paddle.nn.LSTM(3, 2)),
    "embedding": net_of(lambda: paddle.nn.Embedding(4, 3, sparse=True)),
    "layer after calls": warm_net,
    "pullback": lambda: NET.pullback(PARAMS, POINTS)[1],
    "pullback by theta": lambda: NET.pullback(NET.flatten(PARAMS), POINTS)[1],
    "pullback of a tuple": lambda: pullback_of(
        paddle.nn.LSTM(3, 2), POINTS.reshape([2, 2, 3])
    ),
    "pullback after calls": warm_pullback,
    "pullback of rows": lambda: pullback_of(
        paddle.nn.Embedding(4, 3, sparse=True), paddle.to_tensor([0, 2])
    ),
    "vjp": lambda: pc.vjp(values.smooth, x())[1],
    "vjp of two": lambda: pc.vjp(values.of_two, x(), x())[1],
    "vjp of a tree": lambda: pc.vjp(values.of_tree, {"a": x()})[1],
    "linearize": lambda: pc.linearize(values.smooth, x())[1],
    "linearize of two": lambda: pc.linearize(values.of_two, x(), x())[1],
    "jacobian": lambda: pc.jacobian(values.smooth, x()),
    "jacobian of samples": lambda: pc.jacobian(values.smooth, POINTS.clone(), True),
    "jit": lambda: pc.jit(values.smooth),
    "jit after calls": lambda: warm(pc.jit(lambda x: x * 2.0), x()),
    "jit of a method": lambda: Counter().scaled,
    "jit of a class": lambda: Counter.scaled,
    "jit with numbers": lambda: warm(pc.jit(values.of_two, 1), x(), 2.0),
    "vmap": lambda: pc.vmap(values.smooth),
    "grad": lambda: pc.grad(values.squares),
    "value_and_grad": lambda: pc.jit(pc.value_and_grad(values.squares)),
    "hessian": lambda: pc.hessian(values.squares),
    "jacrev": lambda: pc.jacrev(values.smooth),
    "program": lambda: pc.make_program(values.smooth)(x()),
    "program of a net": lambda: pc.make_program(NET.forward)(PARAMS, POINTS),
    "spec": lambda: NET.spec,
    "adam": lambda: optimizers.adam(0.1),
    "chain": lambda: optimizers.chain(optimizers.clip_by_norm(1.0), optimizers.sgd(1)),
    "state": lambda: optimizers.adam(0.1).init(PARAMS),
    "schedule": lambda: optimizers.schedules.step_decay(0.1, 3),
    "minimum": lambda: optimizers.lbfgs(values.loss, PARAMS, steps=1),
    "fit": lambda: optimizers.levenberg_marquardt(values.residual, PARAMS, steps=1),
    "report": lambda: testing.compare(values.smooth, values.smooth, (x(),)),
    "packed": lambda: pc.Packed.of([paddle.ones([2, 3]), paddle.ones([4, 3])]),
    "csr": lambda: pc.CSR.of(paddle.eye(3)),
    "rows": lambda: pc.RowSparse(paddle.to_tensor([0, 2]), paddle.ones([2, 3]), (4, 3)),
    "library": library,
    "export": lambda: libraries.Export(values.smooth, x()),
    "description": lambda: NET.describe(),
}
"""By a name what makes one."""
