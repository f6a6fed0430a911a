"""What users give, right and wrong: values by kind, drawn at random."""

import functools
import math
import pathlib

import numpy as np
import paddle

from paddle_chainrules import CSR, FCNet, Packed, RowSparse, optimizers, stateless


def squares(x):
    return (x**2).sum()


def smooth(x):
    return paddle.tanh(x) * 2.0


def of_tree(tree):
    return sum((leaf**2).sum() for leaf in tree.values())


def of_two(x, y):
    return (x * y).sum()


def of_net(params, x):
    return (NET(params, x) ** 2).mean()


def with_aux(x):
    return (x**2).sum(), {"aux": x}


def nothing(*args):
    return None


def text(*args):
    return "text"


def number(*args):
    return 1.5


def same(*args):
    return args[0] if args else None


def failing(*args):
    raise ValueError("of the user's")


def in_place(x, *more):
    x[0] = 1.0
    return x.sum()


def keyed(x, *, key=1):
    return x * key


def step(carry, x):
    return carry + (0.0 if x is None else x), carry * 2.0


def half_step(carry, x):
    return carry


def below_ten(carry):
    return (carry < 10.0).any()


def always(carry):
    return True


def body(i, carry):
    return carry + i


def doubled(carry):
    return carry.abs() * 2.0 + 1.0


def residual(params):
    return NET(params, POINTS) - 1.0


def loss(params):
    return (residual(params) ** 2).mean()


FUNCTIONS = (
    *(squares, smooth, of_tree, of_two, of_net, with_aux, nothing, text, number, same),
    *(failing, in_place, keyed, step, half_step, below_ten, always, body, doubled),
    *(residual, loss, functools.partial(of_two, 2.0), paddle.tanh),
)

NET = FCNet((3, 5, 2), "tanh")
PARAMS = NET.init(0)
POINTS = paddle.linspace(-1.0, 1.0, 12).reshape([4, 3])
LAYER = paddle.nn.Sequential(
    paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Dropout(0.5)
)
STATELESS, LAYER_PARAMS, BUFFERS = stateless(LAYER)

NUMBERS = (
    *(0, 1, -1, 2, 3, 7, 2**31, 2**63, 2**70, -(2**70), 0.0, 1.5, -0.5, 1e-3, 1e308),
    *(math.nan, math.inf, -math.inf, 2.999, 3 + 2j, True, False),
    *(np.float32(1), np.int64(3), np.float64(0.5), np.bool_(True), np.float16(2)),
)
TEXTS = ("", "abc", "0.1", "tanh", "float32", "float64", "mean", "sum", "error", "é\0")
PLAIN = (
    *(
        None,
        Ellipsis,
        b"bytes",
        object(),
        slice(1),
        range(3),
        math,
        NotImplemented,
    ),
    *([], (), {}, {1, 2}, [1, 2], (1, 2), {"a": 1}, {1: "a"}, [None], {"a": None}),
    *([[]], ((),), {"a": {"b": []}}, pathlib.Path("file.npz"), ValueError("given")),
    *(frozenset(), iter([1, 2]), memoryview(b"ab"), {0: 1.0, "a": 2.0}, [1, "a", None]),
)
ARRAYS = (
    *(np.ones(3), np.ones((5, 3), "float32"), np.array("s"), np.zeros((0, 3))),
    *(np.array([None, 1]), np.ones((2, 2), ">f4"), np.ones(5, "datetime64[s]")),
)


def tensors():
    """Of each kind one, new each time, since some functions write into theirs."""
    return [
        *(paddle.to_tensor(2.0), paddle.ones([5]), paddle.ones([5, 3]), POINTS.clone()),
        *(paddle.zeros([0, 3]), paddle.ones([5], "int64"), paddle.ones([5], "bool")),
        *(paddle.ones([5], "complex64"), paddle.ones([5, 3], "float64")),
        *(paddle.ones([4, 3], "bfloat16"), paddle.full([4, 3], math.nan)),
        *(paddle.ones([3, 5]).T, paddle.ones([2, 4, 3]), paddle.ones([1]) * 3.0),
        *(paddle.ones([2, 2], "uint8"), paddle.to_tensor(True), paddle.to_tensor(3)),
    ]


def objects():
    csr = CSR(
        paddle.to_tensor([0, 1, 2]), paddle.to_tensor([0, 2]), paddle.ones([2]), (2, 3)
    )
    rows = RowSparse(paddle.to_tensor([0, 2]), paddle.ones([2, 3]), (4, 3))
    return [
        *(NET, STATELESS, LAYER, paddle.nn.Linear(3, 2), FCNet),
        *(Packed.of([paddle.ones([2, 3]), paddle.ones([4, 3])]), csr, rows, NET.spec),
        *(
            optimizers.adam(0.1),
            optimizers.schedules,
            paddle.optimizer.lr.StepDecay(0.1, 3),
        ),
        *(paddle.float32, paddle.CPUPlace(), paddle.optimizer.SGD(0.1, parameters=[])),
    ]


def trees():
    return [
        *({**PARAMS}, {**LAYER_PARAMS}, {**BUFFERS}, dict.fromkeys(PARAMS)),
        *({"a": paddle.ones([5]), "b": [paddle.ones([5, 3]), None]},),
        *((paddle.ones([5]), paddle.ones([5])), [POINTS.clone(), POINTS.clone()]),
        *({k: v.numpy() for k, v in PARAMS.items()}, [*PARAMS.values()]),
        *({**PARAMS, "more": paddle.ones([2])}, {"0.weight": PARAMS["0.weight"]}),
        *({k: v.T for k, v in PARAMS.items()}, dict.fromkeys(PARAMS, 0.0)),
        *({k: v.astype("float64") for k, v in PARAMS.items()}, {1: paddle.ones([2])}),
        NET.flatten(PARAMS),
    ]


def cotangents():
    shapes = ([4, 2], [4, 4], [5], [], [2, 3], [4, 2, 3])
    return [*map(paddle.ones, shapes), None, (paddle.ones([4, 2]),)]


def pick(rng, values):
    return values[int(rng.integers(len(values)))]


def anything(rng):
    """Any of all, kinds with equal chances."""
    sources = (
        *(lambda: NUMBERS, lambda: TEXTS, lambda: PLAIN, lambda: ARRAYS, tensors),
        *(objects, trees, lambda: FUNCTIONS),
    )
    found = pick(rng, pick(rng, sources)())
    if rng.random() < 0.1:
        found = pick(rng, ([found], (found, found), {"a": found}, {"a": [found, None]}))
    return found


KINDS = {
    "number": lambda rng: pick(rng, NUMBERS),
    "rate": lambda rng: pick(rng, (0.1, 1e-3, optimizers.schedules.exponential_decay)),
    "count": lambda rng: pick(rng, (1, 2, 3, 5)),
    "bool": lambda rng: pick(rng, (True, False)),
    "text": lambda rng: pick(rng, TEXTS),
    "function": lambda rng: pick(rng, FUNCTIONS),
    "scalar function": lambda rng: pick(rng, (squares, of_two, with_aux, of_tree)),
    "step": lambda rng: pick(rng, (step, half_step)),
    "condition": lambda rng: below_ten,
    "body": lambda rng: pick(rng, (body, doubled)),
    "loss": lambda rng: loss,
    "residual": lambda rng: residual,
    "net": lambda rng: pick(rng, (NET, STATELESS, NET.forward)),
    "layer": lambda rng: pick(rng, (LAYER, paddle.nn.Linear(3, 2))),
    "params": lambda rng: pick(rng, (PARAMS, LAYER_PARAMS)),
    "tensor": lambda rng: pick(rng, tensors()),
    "points": lambda rng: POINTS.clone(),
    "tree": lambda rng: pick(rng, trees()),
    "trees": lambda rng: [pick(rng, trees())] * int(rng.integers(1, 3)),
    "argnums": lambda rng: pick(rng, (0, 1, (0, 1), -1, (), [0], "x")),
    "axes": lambda rng: pick(rng, (0, 1, -1, None, (0, None), {"a": 0}, ((0, 1),))),
    "index": lambda rng: pick(rng, ((0, 0), (2,), (1, 0, 1), {"u": (0,)}, [(0, 1)])),
    "columns": lambda rng: pick(rng, (None, [0], [0, 1], [0, 1, 2], [[0], [1]])),
    "optimizer": lambda rng: pick(rng, (optimizers.adam(0.1), optimizers.sgd(0.1))),
    "cotangent": lambda rng: pick(rng, cotangents()),
    "tensors": lambda rng: pick(rng, ([], [*cotangents()[:1]], tensors()[:2], (None,))),
    "theta": lambda rng: NET.flatten(PARAMS),
    "wrt": lambda rng: pick(rng, ("params", "args", "0.*", 0, ("params", 0), True, ())),
    "names": lambda rng: pick(rng, ([*PARAMS], (*PARAMS,), ["a"], (), [*LAYER_PARAMS])),
    "lengths": lambda rng: pick(rng, ([2, 3], paddle.to_tensor([2, 3]), 2)),
    "into": lambda rng: pick(
        rng, (None, ({**PARAMS}, None), (None, (POINTS.clone(),)))
    ),
    "path": lambda rng: pick(rng, ("a.npz", "b.safetensors", "c", "none/d.npz", ".")),
    "pointer": lambda rng: paddle.to_tensor([0, 2, 5]),
    "sizes": lambda rng: pick(rng, ((3, 5, 2), (1, 1), [3, 2], (3,), (3, 0, 2))),
    "predicate": lambda rng: pick(rng, (True, False, paddle.to_tensor(True), 1.0)),
    "anything": anything,
}
