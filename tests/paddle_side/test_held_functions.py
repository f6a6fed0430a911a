"""Functions of Paddle's that somebody holds since before this package came."""

import inspect

import pytest

from conftest import run_code

HELD = """
import functools
import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import gammaincc, grad as paddle_grad, seed
from paddle.distributed.fleet.utils import recompute
from paddle.linalg import householder_product
from paddle.nn.functional import gaussian_nll_loss, pad, softmax_with_cross_entropy

class Held:
    pad = staticmethod(F.pad)
    grad = staticmethod(paddle.grad)

BY_NAME = {"pad": F.pad}

def closed_over(f):
    return lambda *args, **kwargs: f(*args, **kwargs)

def by_default(*args, f=F.pad, **kwargs):
    return f(*args, **kwargs)

PADS = {
    "module": pad,
    "class": Held.pad,
    "dict": BY_NAME["pad"],
    "partial": functools.partial(F.pad),
    "closure": closed_over(F.pad),
    "default": by_default,
    "bound": functools.partial(map, F.pad).args[0],
}

import paddle_chainrules as pc

rng = np.random.default_rng(0)

def t(*shape):
    return paddle.to_tensor(rng.uniform(0.4, 1.6, shape))

def slopes(fn, *given):
    "By each argument, by differences."
    found = []
    for k, x in enumerate(given):
        slope = np.zeros(x.shape)
        for i in np.ndindex(*x.shape):
            for sign in (1, -1):
                moved = x.numpy().copy()
                moved[i] += sign * 1e-6
                row = [*given]
                row[k] = paddle.to_tensor(moved)
                slope[i] += sign * float(fn(*row)) / 2e-6
        found.append(slope)
    return found

def check(fn, *given, jvp=True):
    every = tuple(range(len(given)))
    expected = slopes(fn, *given)
    for run in (lambda f: f, pc.jit):
        for found, slope in zip(run(pc.grad(fn, argnums=every))(*given), expected):
            np.testing.assert_allclose(found.numpy(), slope, atol=1e-7)
    if jvp:
        v = [t(*x.shape) for x in given]
        total = sum((s * u.numpy()).sum() for s, u in zip(expected, v))
        found = pc.jvp(fn, given, tuple(v))[1]
        np.testing.assert_allclose(float(found), total, rtol=1e-6)
"""

CASES = {
    "pad": """
c = t(6)
for name, f in PADS.items():
    check(lambda x, v: (f(x, [1, 2], value=v) * c).sum(), t(3), t())
""",
    "pad as a method": """
c = t(6)
if hasattr(paddle.Tensor, "pad"):
    check(lambda x, v: (x.pad([1, 2], value=v) * c).sum(), t(3), t())
""",
    "gaussian_nll_loss": """
check(lambda x, y, s: gaussian_nll_loss(x, y, s), t(3, 2), t(3, 2), t(3, 2))
""",
    "softmax_with_cross_entropy": """
import warnings
warnings.simplefilter("ignore")
label = paddle.to_tensor([[1], [0], [3]])
c = t(3, 4)
def fn(x):
    loss, soft = softmax_with_cross_entropy(x, label, return_softmax=True)
    return loss.sum() + (soft * c).sum()
check(fn, t(3, 4))
""",
    "recompute": """
x = t(3, 2)
def fn(w):
    return recompute(lambda x: (x @ w).tanh(), x).sum()
check(fn, t(2, 4))
layer = paddle.nn.Linear(2, 4).to(dtype="float64")
check(lambda x: recompute(layer, x).tanh().sum(), t(3, 2))
""",
    "householder_product": """
check(lambda x, s: householder_product(x, s).sin().sum(), t(4, 3), t(3))
def as_method(x, s):
    return x.householder_product(s).sin().sum()
check(as_method, t(4, 3), t(3))
""",
    "gammaincc": """
a = t(3, 2)
check(lambda y: gammaincc(a, y).sum(), t(3, 2), jvp=False)
""",
    "grad": """
def slope(x):
    (found,) = Held.grad([(x**3).sum()], [x], create_graph=True)
    return found
def fn(x):
    return (slope(x) ** 2).sum()
x = t(3)
for run in (pc.grad(fn), pc.jit(pc.grad(fn), strict=True)):
    np.testing.assert_allclose(run(x).numpy(), 36 * x.numpy() ** 3)
""",
    "seed": """
def fn(x):
    seed(3)
    return x + paddle.rand([4])
program = pc.jit(fn)
x = t(4).astype("float32")
np.testing.assert_array_equal(program(x).numpy(), program(x).numpy())
""",
    "seed, first drawn from within a capture": """
from paddle_chainrules.paddle_side.interception import listening
from paddle_chainrules.paddle_side.process import random_state
import threading
with listening(object()):
    random_state.serialize_drawing()
seed(3)
x = paddle.rand([4])
seed(3)
np.testing.assert_array_equal(x.numpy(), paddle.rand([4]).numpy())
drawn = threading.Event()
other = threading.Thread(target=lambda: (paddle.rand([4]), drawn.set()))
with random_state.generator_lock():
    other.start()
    assert not drawn.wait(0.3)  # it is not its turn
assert drawn.wait(10)
""",
    "what they are": """
import inspect
assert str(inspect.signature(pad)).startswith("(x: 'Tensor', pad")
assert pad is F.pad is paddle.nn.functional.common.pad
try:
    pad()
except TypeError as error:
    assert "pad() missing 2 required positional arguments" in str(error)
else:
    raise AssertionError
before = pad.__wrapped__.__code__
pc.grad(lambda x: x.sum())(t(3))
assert pad.__wrapped__.__code__ is not before
np.testing.assert_array_equal(pad(t(2) * 0 + 1, [1, 0]).numpy(), [0, 1, 1])
""",
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", CASES)
def test_whoever_holds_them(name):
    done = run_code(HELD + CASES[name])
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_cases_use_what_they_hold():
    held = inspect.cleandoc(HELD)
    assert held.index("from paddle.nn.functional") < held.index("paddle_chainrules")
