"""What ranks compare of a loss: the same lines in every process, whatever it uses."""

import functools
import time
import types

import numpy as np
import paddle
import pytest

import paddle_chainrules as pc
from conftest import run_code
from paddle_chainrules.distributed.losses import lines_of

SCALE = 2.0


def scaled(k):
    def decorate(fn):
        @functools.wraps(fn)
        def call(*args):
            return k * fn(*args)

        return call

    return decorate


def squares(x):
    return (x**2).sum() * SCALE


def constants(fn):
    return {line for line in lines_of(fn) if " = " in line}


def test_constants_are_those_of_all_functions_that_it_uses():
    c = 0.5
    config = {"weights": (1.0, 3.0), "name": "run"}

    def loss(x, power=2):
        return c * squares(x) ** power * config["weights"][1]

    assert constants(loss) == {
        "c of the loss = 0.5",
        "SCALE of squares of the loss = 2.0",
        "default 0 of the loss = 2",
        "0 of weights of config of the loss = 1.0",
        "1 of weights of config of the loss = 3.0",
        "name of config of the loss = 'run'",
    }
    for made in (functools.partial(loss, power=3), pc.jit(loss)):
        assert constants(loss) <= constants(made)
    assert "c of fn of the loss = 0.5" in constants(pc.grad(loss))
    assert "power of the loss = 3" in constants(functools.partial(loss, power=3))


def test_what_a_decorator_closes_over_counts():
    two, three = (set(lines_of(scaled(k)(squares))) for k in (2.0, 3.0))
    assert two - three == {"k of the loss = 2.0"}
    assert "SCALE of the loss = 2.0" in two & three


def test_attributes_are_no_globals():
    SCALE_OF = types.SimpleNamespace(SCALE=1)

    def loss(x):
        return x * SCALE_OF.SCALE

    assert constants(loss) == set()


SAME = """
import functools, os
import numpy as np
from os import environ
from paddle_chainrules.distributed.losses import lines_of

def helper(x): return x
KINDS = {helper: 1.0, frozenset("abcd"): 2.0, "a": 3.0}
OBJECT = np.array(object(), dtype=object)

def loss(x):
    return x in {"a", "b", "c", "d"}, KINDS, OBJECT, environ, helper, os

print("\\n".join(lines_of(loss)))
"""


def test_lines_are_the_same_in_every_process():
    first, second = (run_code(SAME, PYTHONHASHSEED=s, MORE=s) for s in ("1", "2"))
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert "a of KINDS of the loss = 3.0" in first.stdout
    assert "MORE" not in first.stdout


class Odd:
    def __getattr__(self, name):
        return self

    def __call__(self, x):
        return x


class Failing(str):
    def __repr__(self):
        raise ZeroDivisionError


def nested(depth):
    found = ()
    for _ in range(depth):
        found = (found, 1.0)
    return found


def chained(count):
    def fn(x):
        return x

    for _ in range(count):
        fn = (lambda before: lambda x: before(x) + 1)(fn)
    return fn


def of(value):
    return lambda x: (x, value)


SELF = {}
SELF["self"] = SELF
CIRCULAR = of(1.0)
CIRCULAR.__wrapped__ = CIRCULAR
ODD = {
    "C's": paddle.tanh,
    "builtin": abs,
    "a class": Odd,
    "answers to all": Odd(),
    "a method": Odd().__call__,
    "wraps itself": CIRCULAR,
    "a partial of a partial": functools.partial(functools.partial(squares, 1), 2),
    "deep": of(nested(3000)),
    "long chain": chained(600),
    "holds itself": of(SELF),
    "no repr": of(Failing("a")),
    "many": of(tuple(range(1_000_000))),
    "long": of(b"x" * 20_000_000),
    "sparse": of(paddle.sparse.sparse_coo_tensor([[0]], [1.0], [1])),
    "an object": of(np.array(object(), dtype=object)),
    "odd names": of({object(): 1.0, 1.5: 2.0, None: 3.0}),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_functions_are_looked_at_soon_and_without_errors(name):
    start = time.perf_counter()
    lines = [*lines_of(ODD[name])]
    assert time.perf_counter() - start < 30  # and no more than some milliseconds
    assert lines
    assert sum(map(len, lines)) < 20_000
