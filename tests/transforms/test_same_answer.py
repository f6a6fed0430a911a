"""The same call gives the same answer: the first time and the fortieth, in all modes.

At points where things go wrong: zeros, equal entries, singular matrices, what is no
number in what is not chosen.
"""

import optree
import paddle
import pytest
from paddle.autograd import PyLayer
from paddle.nn import functional

from answers import ask, difference
from layers import Square
from paddle_chainrules import (
    cond,
    grad,
    hessian,
    jacrev,
    jit,
    jvp,
    scan,
    vmap,
)

pytestmark = pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")

CALLS = 1, 2, 4, 33, 40
"""Calls of which the answers are compared."""


def tensor(*numbers):
    return paddle.to_tensor([*numbers], "float64")


class Reversed(PyLayer):
    """The gradient reversal of domain adaptation, by numbers that leave Paddle."""

    @staticmethod
    def forward(ctx, x):
        return paddle.to_tensor(x.numpy() * 1.0)

    @staticmethod
    def backward(ctx, g):
        return paddle.to_tensor(-g.numpy())


def chosen(right, wrong, of=lambda x: x.sum() > 0):
    """A choice of the first, beside which the second is no number, or fails."""
    return lambda x: cond(of(x), right, wrong, x)


def nets(x):
    """Closed-over operands."""
    y = x * 3.0
    return cond(x.sum() > 0, lambda: (y**2).sum(), lambda: paddle.sqrt(-y).sum())


def drawn(x):
    return cond(
        x.sum() > 0,
        lambda x: (x * paddle.rand([2], "float64")).sum(),
        lambda x: (x * paddle.rand([2, 2], "float64")[1]).sum(),
        x,
    )


def summed(x):
    c = paddle.zeros([1], "float64")
    for v in x:
        c[0] += v**2
    return c[0]


def rows(x):
    m = paddle.zeros([2, 2], "float64")
    m[0] += x
    m[1] += m[0] * m[0]
    return m.sum()


def viewed(x):
    m = paddle.zeros([2, 2], "float64")
    v = m[1]
    m[:, 0] = m[:, 1] + x
    return (m * m).sum() + (v * x).sum()


def penalty(x):
    """Of a gradient, through an operator that Paddle differentiates once."""

    def net(x):
        image = x.reshape([1, 1, 1, 2])
        large = functional.interpolate(image, scale_factor=2, mode="nearest")
        return (functional.leaky_relu(large, 0.2) ** 3).sum()

    return (grad(net)(x) ** 2).sum()


def square(x):
    return x.reshape([1, -1]) * x.reshape([-1, 1])


EYE = paddle.eye(2, dtype="float64")
SHIFT = paddle.to_tensor([[0.0, 1.0], [0.0, 0.0]], "float64")
POSITIVE, MIXED, ZERO = tensor(1.0, 2.0), tensor(0.0, -4.0), tensor(0.0, 0.0)

PROGRAMS = {
    "cond beside a root": (
        chosen(lambda x: (x**2).sum(), lambda x: paddle.sqrt(-x).sum()),
        POSITIVE,
    ),
    "cond beside 0 / 0": (
        chosen(lambda x: (x**3).sum(), lambda x: (x * 0.0 / (x * 0.0)).sum()),
        POSITIVE,
    ),
    "cond beside x log x": (
        chosen(
            lambda x: x.sin().sum(),
            lambda x: (x * paddle.log(x)).sum(),
            lambda x: x[0] <= 0,
        ),
        tensor(0.0, 1.0),
    ),
    "cond beside an inverse": (
        chosen(lambda x: (x**2).sum(), lambda x: paddle.inverse(SHIFT * x[0]).sum()),
        POSITIVE,
    ),
    "cond beside a root of a matrix": (
        chosen(
            lambda x: x.exp().sum(), lambda x: paddle.linalg.cholesky(-square(x)).sum()
        ),
        POSITIVE,
    ),
    "cond of what is closed over": (nets, POSITIVE),
    "cond that draws": (drawn, POSITIVE),
    "cond that draws, the other": (drawn, MIXED),
    "cond of a constant": (
        chosen(lambda x: paddle.ones([], "float64"), lambda x: (x**2).sum()),
        POSITIVE,
    ),
    "cond in cond": (
        chosen(
            chosen(
                lambda x: x[0] ** 3, lambda x: paddle.log(-x[0]), lambda x: x[1] > 0
            ),
            lambda x: paddle.sqrt(x[1] - 9.0),
        ),
        POSITIVE,
    ),
    "a PyLayer": (lambda x: (x + Square.apply(x)).sum(), POSITIVE),
    "a PyLayer alone": (lambda x: Square.apply(x).sum(), POSITIVE),
    "a PyLayer by numpy": (lambda x: (x**2 + Reversed.apply(x)).sum(), POSITIVE),
    "norm": (paddle.linalg.norm, ZERO),
    "squared norm": (lambda x: paddle.linalg.norm(x) ** 2, ZERO),
    "vector_norm": (lambda x: paddle.linalg.vector_norm(x) ** 2, ZERO),
    "norm of rows": (
        lambda x: (paddle.linalg.norm(x.reshape([1, 2]), axis=1) ** 2).sum(),
        ZERO,
    ),
    "norm, fro": (
        lambda x: paddle.linalg.norm(x.reshape([2, 1]), p="fro") ** 2,
        ZERO,
    ),
    "norm, p=3": (lambda x: paddle.linalg.norm(x, p=3), ZERO),
    "norm, p=1.5": (lambda x: paddle.linalg.norm(x, p=1.5), tensor(0.0, 2.0)),
    "norm, p=0.5": (lambda x: paddle.linalg.norm(x, p=0.5), tensor(0.0, 2.0)),
    "dist": (lambda x: paddle.dist(x, ZERO) ** 2, ZERO),
    "radial functions": (
        lambda x: paddle.exp(
            -(paddle.cdist(x.reshape([1, 2]), paddle.stack([ZERO, POSITIVE])) ** 2)
        ).sum(),
        ZERO,
    ),
    "eigh": (
        lambda x: (paddle.linalg.eigh(EYE * x.sum() + 0.0 * square(x))[0] ** 2).sum(),
        POSITIVE,
    ),
    "eigvalsh": (
        lambda x: (paddle.linalg.eigvalsh(EYE + 0.0 * square(x)) ** 2).sum(),
        POSITIVE,
    ),
    "det": (lambda x: paddle.linalg.det(square(x)), POSITIVE),
    "det of four rows": (
        lambda x: paddle.linalg.det(paddle.diag(paddle.concat([x, x - POSITIVE]))),
        POSITIVE,
    ),
    "abs": (lambda x: x.abs().sum(), MIXED),
    "abs below a root": (lambda x: paddle.sqrt(x.abs()).sum(), MIXED),
    "abs below a logarithm": (lambda x: paddle.log(x.abs()).sum(), MIXED),
    "abs below a power": (lambda x: (x.abs() ** 0.5).sum(), MIXED),
    "abs below a mean": (lambda x: paddle.sqrt(x.abs().mean()), ZERO),
    "abs, sorted": (lambda x: paddle.sqrt(x.abs().sort()).sum(), MIXED),
    "abs, padded": (
        lambda x: paddle.sqrt(functional.pad(x.abs(), [1, 1], value=1.0)).sum(),
        MIXED,
    ),
    "abs, gathered": (
        lambda x: paddle.sqrt(x.abs()[paddle.to_tensor([1, 0, 0])]).sum(),
        MIXED,
    ),
    "a root that is masked": (
        lambda x: paddle.masked_fill(paddle.sqrt(x.abs()), x == 0, 0.0).sum(),
        MIXED,
    ),
    "a root of what is cut": (
        lambda x: paddle.sqrt(paddle.maximum(x, paddle.zeros_like(x))).sum(),
        MIXED,
    ),
    "a root of relu": (lambda x: paddle.sqrt(functional.relu(x)).sum(), MIXED),
    "a root of softplus": (
        lambda x: paddle.sqrt(functional.softplus(1000.0 * x)).sum(),
        MIXED,
    ),
    "largest of equals": (lambda x: (x * x).max(), tensor(2.0, 2.0)),
    "no number that is not chosen": (
        lambda x: paddle.where(x > 0, x, paddle.log(x)).sum(),
        MIXED,
    ),
    "a slope": (lambda x: functional.leaky_relu(x, 0.2).sum(), MIXED),
    "elu": (lambda x: functional.elu(x, 0.3).sum(), MIXED),
    "selu": (lambda x: functional.selu(x).sum(), MIXED),
    "a gradient penalty": (penalty, tensor(1.3, -0.7)),
    "a constant that is summed into": (summed, POSITIVE),
    "a constant read and written": (rows, POSITIVE),
    "a constant with a view": (viewed, POSITIVE),
}


def second(fn):
    """The gradient of the sum of a gradient."""

    return grad(lambda x: grad(fn)(x).sum())


TRANSFORMS = {
    "value": lambda fn: fn,
    "grad": grad,
    "jacrev": jacrev,
    "hessian": hessian,
    "second": second,
    "jvp": lambda fn: lambda x: jvp(fn, (x,), (paddle.ones_like(x),)),
}


def in_jit(fn, x):
    compiled = jit(fn)
    return lambda: compiled(x)


def in_vmap(fn, x):
    """Of the first of three samples."""
    samples = paddle.stack([x, 0.5 * x + 0.25, x])
    mapped = vmap(fn, randomness="different")
    return lambda: optree.tree_map(lambda y: y[0], mapped(samples))


def in_scan(fn, x):
    """Of the last of many steps."""

    def steps():
        def step(c, _):
            return c, fn(c)

        return optree.tree_map(lambda y: y[-1], scan(step, x, length=120)[1])

    return steps


MODES = {"jit": (in_jit, CALLS), "vmap": (in_vmap, CALLS), "scan": (in_scan, (1, 2))}
"""By mode how it is made, and calls; each call of scan captures its step anew."""

INFINITE = {
    *("abs below a root", "abs below a logarithm", "abs below a power"),
    *("abs below a mean", "abs, sorted", "abs, padded", "abs, gathered"),
    *("a root that is masked", "a root of what is cut", "a root of relu"),
    *("a root of softplus", "no number that is not chosen", "norm, p=0.5"),
}
"""Where the slope is infinite, which entries of a second derivative are infinite and
which no numbers depends on the order of products (docs/limits.md)."""

OWN_DRAWS = ("cond that draws", "cond that draws, the other")
NOT_TWICE = ("a PyLayer by numpy",)
"""It has no second derivative, nor a forward mode, anywhere."""


def cases():
    for name in PROGRAMS:
        for transform in TRANSFORMS:
            if transform in ("hessian", "second") and name in INFINITE:
                continue
            few = transform == "grad" or (transform == "hessian" and len(name) % 3 == 0)
            yield pytest.param(name, transform, marks=() if few else pytest.mark.slow)


@pytest.mark.parametrize(("name", "transform"), [*cases()])
def test_answers(name, transform, count_case):
    fn, x = PROGRAMS[name]
    transformed = TRANSFORMS[transform](fn)
    first = ask(lambda: transformed(x))
    refused = name in NOT_TWICE and transform in ("hessian", "second", "jvp")
    assert (first.error is not None) == refused, first
    for call in range(2, max(CALLS) + 1):
        found = ask(lambda: transformed(x))
        if call in CALLS:
            assert not difference(first, found), f"call {call}"
    for mode, (make, calls) in MODES.items():
        if mode != "jit" and name in OWN_DRAWS:
            continue  # each step and sample draws its own
        asked = make(transformed, x)
        for call in range(1, max(calls) + 1):
            found = ask(asked)
            if call in calls:
                told = difference(first, found, types=not refused)
                assert not told, f"{mode}, call {call}"
    count_case("answers that are the same at every call")


def test_gradients_through_vmap_of_eigenvalues():
    """Paddle's tape does not see what runs for many samples, and is not asked."""

    def fn(a):
        return paddle.linalg.eigvalsh(a + a.T)[0]

    a = paddle.to_tensor(
        [[[1.0, 0.3], [0.3, 2.0]], [[2.0, 0.1], [0.4, 5.0]]], "float64"
    )
    found = grad(lambda a: vmap(fn)(a).sum())(a)
    told = difference(ask(lambda: vmap(grad(fn))(a)), ask(lambda: found))
    assert not told, told


RIGHT = {
    ("cond beside a root", "grad"): [2.0, 4.0],
    ("a PyLayer", "grad"): [3.0, 5.0],
    ("squared norm", "hessian"): [[float("nan")] * 2] * 2,
    ("eigh", "grad"): [12.0, 12.0],
    ("det of four rows", "grad"): [0.0, 0.0],
    ("abs", "second"): [0.0, 0.0],
    ("abs below a root", "grad"): [0.0, -0.25],
    ("a constant that is summed into", "grad"): [2.0, 4.0],
    ("a constant read and written", "grad"): [3.0, 5.0],
}
"""Some of the answers."""


@pytest.mark.parametrize(("name", "transform"), RIGHT)
def test_right_answers(name, transform):
    fn, x = PROGRAMS[name]
    found = ask(lambda: TRANSFORMS[transform](fn)(x))
    expected = ask(lambda: paddle.to_tensor(RIGHT[name, transform], "float64"))
    assert not difference(expected, found)
