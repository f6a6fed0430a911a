"""What each process of a test's run does: python worker.py scenario folder [args]."""

import functools
import hashlib
import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as F
from sklearn.datasets import load_digits

import paddle_chainrules as pc
from paddle_chainrules import FCNet, distributed, stateless


def native(loss, params, *args):
    """Value and gradients by Paddle itself, in one process."""
    given = {k: p.detach().clone() for k, p in params.items()}
    for p in given.values():
        p.stop_gradient = False
    value = loss(given, *args)
    grads = paddle.grad(value, list(given.values()), allow_unused=True)
    return value, dict(zip(given, grads, strict=True))


def error(found, expected):
    """The largest difference of a tensor, relative to its largest entry."""
    pairs = [
        (found[0], expected[0]),
        *((found[1][k], v) for k, v in expected[1].items()),
    ]
    assert found[1].keys() == expected[1].keys()

    def size(a):  # None is zero
        return 0.0 if a is None else float(a.abs().max())

    differences = [a if b is None else b if a is None else a - b for a, b in pairs]
    return max(
        size(d) / (size(b) or 1.0) for d, (_, b) in zip(differences, pairs, strict=True)
    )


def same(a, b):
    return a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()


def digest(found):
    tensors = [t for t in (found[0], *found[1].values()) if t is not None]
    data = [t.numpy().tobytes() for t in tensors]
    return hashlib.sha256(b"".join(data)).hexdigest()


def random(*shape, seed=0, dtype="float64"):
    return paddle.to_tensor(
        np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    )


def digits(n=997):
    data = load_digits()
    x = paddle.to_tensor((data.data / 16)[:n].astype("float64"))
    return x, paddle.to_tensor(data.target[:n].astype("int64"))


def uneven(tree, total):
    """Shards of which each rank has another number of samples."""
    n, r = distributed.size(), distributed.rank()
    parts = np.cumsum([0, *(total * (i + 1) * 2 // (n * (n + 1)) for i in range(n))])
    parts[-1] = total
    return tuple(a[int(parts[r]) : int(parts[r + 1])] for a in tree)


def equal(folder):
    """By kind of loss: the error beside one process, and what all ranks must share."""
    found = {}

    def compare(name, result, expected):
        found[name] = (error(result, expected), digest(result))

    x, labels = digits()
    net = FCNet((64, 17, 10), "tanh", dtype="float64")
    params = net.init(3)

    def entropy(p, x, labels):
        return F.cross_entropy(net.forward(p, x), labels)

    expected = native(entropy, params, x, labels)
    step = distributed.value_and_grad(entropy)
    compare("digits", step(params, *distributed.shard((x, labels))), expected)
    for name in ("uneven", "again, as a program"):
        compare(f"digits, {name}", step(params, *uneven((x, labels), 997)), expected)
    mine = uneven((x, labels), 997)
    by = distributed.value_and_grad(entropy, micro_batches=3)
    compare("digits, micro-batches", by(params, *mine), expected)
    by = distributed.value_and_grad(pc.jit(entropy), weight=lambda p, x, y: len(x) / 7)
    compare("digits, by jit, weighted", by(params, *mine), expected)
    by = distributed.value_and_grad(lambda x, p, y: entropy(p, x, y), 1)
    compare("digits, second argument", by(mine[0], params, mine[1]), expected)
    accumulated = [
        pc.value_and_grad(entropy)(params, x, y)
        for x, y in zip(
            mine[0].split([3, len(mine[0]) - 3]),
            mine[1].split([3, len(mine[0]) - 3]),
            strict=True,
        )
    ]
    (v1, g1), (v2, g2) = accumulated
    w1, w2 = 3 / len(mine[0]), 1 - 3 / len(mine[0])
    by_hand = (v1 * w1 + v2 * w2, {k: g1[k] * w1 + g2[k] * w2 for k in g1})
    compare(
        "digits, accumulated by hand",
        distributed.average(by_hand, len(mine[0])),
        expected,
    )

    def total(p, x, labels):
        return F.cross_entropy(net.forward(p, x), labels, reduction="sum")

    for parts in (1, 4):
        by = distributed.value_and_grad(total, reduction="sum", micro_batches=parts)
        compare(
            f"digits, sum, {parts}", by(params, *mine), native(total, params, x, labels)
        )

    # A differential equation: second derivatives within the loss.
    pde = FCNet((2, 13, 11, 1), "tanh", dtype="float64")
    theta = pde.init(4)
    points, source = random(101, 2, seed=5), random(101, 1, seed=6)

    def residual(p, points, source):
        return ((pc.laplacian(pde, p, points) - source) ** 2).mean()

    def nested(p, points, source):
        points = points.detach().clone()
        points.stop_gradient = False
        (slope,) = paddle.grad(
            pde.forward(p, points).sum(), [points], create_graph=True
        )
        bends = [
            paddle.grad(slope[:, i].sum(), [points], create_graph=True)[0][:, i : i + 1]
            for i in (0, 1)
        ]
        return ((bends[0] + bends[1] - source) ** 2).mean()

    expected = native(nested, theta, points, source)
    mine = uneven((points, source), 101)
    compare("PDE", distributed.value_and_grad(residual)(theta, *mine), expected)
    compare(
        "PDE, nested paddle.grad",
        distributed.value_and_grad(nested)(theta, *mine),
        expected,
    )

    # BatchNorm: each rank's statistics are those of its shard.
    paddle.seed(7)
    layer = paddle.nn.Sequential(
        paddle.nn.Conv2D(2, 3, 3, bias_attr=False),
        paddle.nn.BatchNorm2D(3),
        paddle.nn.Tanh(),
        paddle.nn.Flatten(),
        paddle.nn.Linear(48, 5),
    ).to(dtype="float64")
    layer.train()
    of, weights, buffers = stateless(layer)
    images = random(6 * distributed.size() + 1, 2, 6, 6, seed=8)

    def with_state(p, images):
        y, new = of.forward(p, images, buffers=buffers)
        return (y.sin() ** 2).mean(), new

    mine = distributed.shard(images)
    by = distributed.value_and_grad(with_state, has_aux=True)
    (value, state), grads = by(weights, mine)
    state = distributed.average(state, len(mine))
    n = distributed.size()
    bounds = [len(images) * i // n for i in range(n + 1)]
    shards = [images[a:b] for a, b in pairwise(bounds)]
    states = []

    def in_one(p):
        """What one process has of the same shards."""
        values, count = 0.0, 0
        for part in shards:
            loss, new = with_state(p, part)
            states.append({k: v.detach() for k, v in new.items()})
            values, count = values + loss * len(part), count + len(part)
        return values / count

    value_in_one, grads_in_one = native(in_one, weights)
    sizes = [len(part) for part in shards]
    state_in_one = {
        k: sum(s[k] * n for s, n in zip(states, sizes, strict=True)) / sum(sizes)
        for k in state
    }
    compare("BatchNorm, gradients", (value, grads), (value_in_one, grads_in_one))
    compare("BatchNorm, statistics", (value, state), (value_in_one, state_in_one))
    quiet = of.in_mode(False)

    def evaluated(p, images):
        y = quiet.forward(p, images, buffers=buffers)
        y = y[0] if isinstance(y, tuple) else y
        return (y.sin() ** 2).mean()

    compare(
        "BatchNorm, evaluation",
        distributed.value_and_grad(evaluated)(weights, mine),
        native(evaluated, weights, images),
    )
    return found


def kinds(folder):
    """Dtypes, nestings, seeds and shards, beside what numpy makes of all ranks'."""
    r, n = distributed.rank(), distributed.size()
    found = {}
    for dtype in (
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ):

        def of(rank, dtype=dtype):
            real = np.random.default_rng(rank).standard_normal((3, 5))
            if dtype.startswith("complex"):
                real = real + 1j * np.random.default_rng(rank + 9).standard_normal(
                    (3, 5)
                )
            return paddle.to_tensor(real).astype(dtype)

        mean = distributed.average([None, {"a": of(r)}], weight=r + 1.0)[1]["a"]
        cast = "complex128" if dtype.startswith("complex") else "float64"
        parts = [of(i).astype(cast).numpy() * (i + 1) for i in range(n)]
        expected = sum(parts) / (n * (n + 1) / 2)
        assert (mean.dtype, mean.shape) == (of(r).dtype, [3, 5])
        found[dtype] = float(np.abs(mean.astype(cast).numpy() - expected).max())
    for dtype in (
        "bool",
        "uint8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float64",
        "complex64",
    ):
        values = [
            paddle.to_tensor(np.random.default_rng(i).integers(0, 100, (2, 3))).astype(
                dtype
            )
            for i in range(n)
        ]
        tree = {
            "a": values[r],
            "b": [paddle.to_tensor(r == 1), paddle.zeros([0, 2]), "mine", r],
        }
        sent = distributed.broadcast(tree, source=1)
        assert sent["a"].dtype == values[1].dtype
        assert same(sent["a"], values[1]), dtype
        truth, empty, *rest = sent["b"]
        assert (bool(truth), truth.shape, empty.shape) == (True, [], [0, 2])
        assert rest == ["mine", r]
        assert same(tree["a"], values[r])
    places = {"here": paddle.ones([3]), "host": paddle.ones([2, 1]).cpu()}
    if os.environ.get("TEST_DEVICE"):
        assert places["here"].place.is_custom_place()
    for call in (distributed.average, distributed.broadcast):
        kept = {k: v.place == places[k].place for k, v in call(places).items()}
        assert kept == {"here": True, "host": True}, call
    inside = pc.jit(lambda x: distributed.average(x * 2))  # which runs as it is
    for i in range(4):
        mean = inside(paddle.to_tensor([1.0 * i, r]))
        assert mean.tolist() == [2.0 * i, n - 1.0]
    whole = np.arange(11.0)
    part, nothing = distributed.shard((whole, None))
    assert nothing is None
    return {
        "errors": found,
        "shard": part.tolist(),
        "seeds": [distributed.seed(s) for s in range(50)],
    }


def train(folder, steps, resumed, stop_at=-1):
    """Adam on the digits with dropout, a checkpoint a step; maybe killed on the way."""
    path = Path(folder) / "run.safetensors"
    x, labels = digits(200)
    paddle.seed(3 + distributed.rank())
    layer = paddle.nn.Sequential(
        paddle.nn.Linear(64, 12),
        paddle.nn.Tanh(),
        paddle.nn.Dropout(0.2),
        paddle.nn.Linear(12, 10),
    )
    net, params, _ = stateless(layer)
    x = x.astype("float32")

    def loss(p, x, y, seed):
        return F.cross_entropy(net.forward(p, x, seed=seed), y)

    step = distributed.value_and_grad(loss, weight=lambda p, x, y, seed: len(x))
    zeros = {k: paddle.zeros_like(p) for k, p in params.items()}
    state = {
        "params": distributed.broadcast(params),
        "adam": (zeros, zeros),
        "step": 0,
        "seed": 5,
    }
    if int(resumed):
        state = distributed.load_checkpoint(path)
    while state["step"] < int(steps):
        i = state["step"]
        rows = np.random.default_rng(i).permutation(200)[:50]
        batch = distributed.shard((x[rows], labels[rows]))
        value, grads = step(
            state["params"], *batch, distributed.seed(state["seed"] + i)
        )
        first, second = state["adam"]
        m = {k: 0.9 * first[k] + 0.1 * g for k, g in grads.items()}
        v = {k: 0.99 * second[k] + 0.01 * g * g for k, g in grads.items()}
        new = {
            k: p
            - 0.01
            * (m[k] / (1 - 0.9 ** (i + 1)))
            / ((v[k] / (1 - 0.99 ** (i + 1))).sqrt() + 1e-8)
            for k, p in state["params"].items()
        }
        state = state | {"params": new, "adam": (m, v), "step": i + 1}
        distributed.save_checkpoint(path, state)
        if i == int(stop_at) and distributed.rank() == 1:
            os.kill(os.getpid(), 9)
    return {"loss": float(value), "digest": digest((value, state["params"]))}


def silent(folder):
    """Rank 1 neither works nor ends."""
    if distributed.rank() == 1:
        time.sleep(600)
    start = time.time()
    try:
        distributed.average(paddle.ones([3]))
    except distributed.RankError as found:
        return {"seconds": time.time() - start, "text": str(found)}
    return None


def slips(folder, *kinds):
    """By slips of one rank, or of all: the error that each rank gets."""
    return {kind: failing(folder, kind) for kind in kinds}


OF_SETTINGS = ("reduction", "kind of weight", "weight's constant", "constant")
OF_SETTINGS += ("constant of a module", "constant of a helper", "one element")
OF_SETTINGS += ("config", "argument of a partial", "nothing that counts")


def with_setting(kind, loss, odd):
    """A step of which rank 1 has another setting, or constant, if the kind is one."""
    global GLOBAL
    GLOBAL = 0.5 + odd * (kind == "constant of a module")
    c = 0.1 + odd * (kind == "constant")
    one = paddle.to_tensor([1.0 + odd * (kind == "one element")])
    config = {"weights": (1.0, 2.0 + odd * (kind == "config")), "name": "a run"}
    inner = 3.0 + odd * (kind == "constant of a helper")
    own = paddle.ones([3 + odd, 2]) * odd  # may be a rank's samples
    log = [odd]

    def helper(x):
        return x * inner

    def of_shard(p, x, power=2):
        log.append("counted" if "a" in {"a", "b", "c"} else own.shape)
        return loss(p, x) * c * GLOBAL * one * config["weights"][1] + helper(x).mean()

    def weight(p, x, share=2.0 + odd * (kind == "weight's constant")):
        return share * len(x)

    if kind == "kind of weight":
        weight = None if odd else 1.0
    fn = of_shard
    if kind == "argument of a partial":
        fn = functools.partial(of_shard, power=2 + odd)
    reduction = "sum" if kind == "reduction" and odd else "mean"
    return distributed.value_and_grad(fn, reduction=reduction, weight=weight)


def failing(folder, kind):
    r = distributed.rank()
    net = FCNet((3, 4, 2), "tanh")
    params, x = net.init(1), paddle.ones([4 + r, 3])
    odd = r == 1

    def loss(p, x):
        if kind == "raises" and distributed.rank() == 1:
            raise ZeroDivisionError("of rank 1")
        return (net.forward(p, x["x"] if isinstance(x, dict) else x) ** 2).mean()

    def other(p, x):
        return (net.forward(p, x) ** 4).mean()

    step = distributed.value_and_grad(other if kind == "loss" and odd else loss)
    if kind in OF_SETTINGS:
        step = with_setting(kind, loss, odd)
    try:
        if kind == "order" and odd:
            distributed.broadcast(params)
        elif kind == "shape":
            distributed.average({"a": paddle.ones([3, 2 + odd])})
        elif kind == "number":
            distributed.average([paddle.ones([3])] * (2 + odd))
        elif kind == "dtype":
            distributed.average(
                {"a": paddle.ones([3]).astype("float64" if odd else "float32")}
            )
        elif kind == "names":
            distributed.average({"b" if odd else "a": paddle.ones([3])})
        elif kind == "samples":
            step(params, {"x": x, "y": x} if odd else {"x": x, "z": x})
        elif kind == "weight":
            distributed.average(paddle.ones([3]), weight=0 if odd else 1)
        elif kind == "integers":
            distributed.average({"count": paddle.ones([3], dtype="int64")})
        elif kind == "no file":
            distributed.load_checkpoint(Path(folder) / "missing.safetensors")
        elif kind == "no folder":
            path = Path(folder) / "missing" / "run.safetensors"
            distributed.save_checkpoint(path, {"a": 1})
        elif kind == "no checkpoint":
            distributed.load_checkpoint(__file__)
        else:
            step(params, x)
    except Exception as found:
        return {"type": type(found).__name__, "text": str(found)}
    return None


if __name__ == "__main__":
    scenario, folder, *args = sys.argv[1:]
    distributed.start()
    if device := os.environ.get("TEST_DEVICE"):  # as tests/device/plugin.py sets it
        paddle.set_device(f"{device}:{distributed.rank() % 2}")
    found = globals()[scenario](folder, *args)
    out = Path(folder) / f"{scenario}-{distributed.rank()}.json"
    out.write_text(json.dumps(found))
