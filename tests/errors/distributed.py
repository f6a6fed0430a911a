"""What functions of many processes refuse in one."""

import paddle

from paddle_chainrules import distributed

# fmt: off
X = paddle.ones([4, 3])


def loss(p, x):
    return (p * x).mean()


def step(*args, fn=loss, **options):
    return lambda: distributed.value_and_grad(fn, **options)(*args)


def nested(levels):
    state = []
    for _ in range(levels):
        state = [state]
    return state


ROWS = [
    ("reduction max", lambda: distributed.value_and_grad(loss, reduction="max"), ValueError, 'must be "mean" or "sum"'),
    ("no micro-batches", lambda: distributed.value_and_grad(loss, micro_batches=0), ValueError, "at least 1, got 0"),
    ("aux of micro-batches", lambda: distributed.value_and_grad(loss, micro_batches=2, has_aux=True), ValueError, "can't be told apart"),
    ("samples of two counts", step(X[0], {"a": X, "b": paddle.ones([5])}), ValueError, r"got 4 at \[0\]\['a'\] and 5 at \[0\]\['b'\]"),
    ("a number for samples", step(X[0], paddle.to_tensor(2.0)), TypeError, "got a number at"),
    ("keywords alone", lambda: distributed.value_and_grad(loss)(x=X), ValueError, "argument 0, .* with 0 positional arguments"),
    ("no samples", step(X[0], fn=lambda p: p.sum()), ValueError, "got none"),
    ("five micro-batches of four", step(X[0], X, micro_batches=5), ValueError, "5 micro-batches need as many samples, got 4"),
    ("a text for a weight", step(X[0], X, weight="4"), TypeError, "must be a number, got str"),
    ("another source", lambda: distributed.broadcast(X, source=1), ValueError, "0 to 0, got 1"),
    ("a seed of -1", lambda: distributed.seed(-1), ValueError, "not negative, got -1"),
    ("an average of a float", lambda: distributed.average({"a": 1.0}), TypeError, "got float at"),
    ("a shard of a text", lambda: distributed.shard("rows"), TypeError, "got str at the top"),
    ("a deep state", lambda path: distributed.save_checkpoint(path / "run", nested(2000)), ValueError, "nested too deeply"),
]
