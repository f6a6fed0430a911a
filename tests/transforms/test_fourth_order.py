"""Gradients of gradients to the fourth order, where Paddle's kernels end sooner."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from conftest import randn
from paddle_chainrules import grad, hessian, hvp, jacfwd, jacrev, jit, jvp

torch = pytest.importorskip("torch")
TF = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit")

W = randn([3, 4], "float64", 7)
SCALE, SHIFT = randn([4], "float64", 8), randn([4], "float64", 9)
GATES, STATE = randn([4, 12], "float64", 10), randn([3, 3], "float64", 11)


ROUNDED = float(np.float32(1e-5))


def by_hand(x, epsilon=ROUNDED):
    """As layer_norm does; PyTorch's own third derivative of it is wrong."""
    x = x - x.mean(-1, keepdim=True)
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon)


def groups(x):
    return by_hand(x.reshape([1, 2, 6]), 1e-5).reshape([1, 4, 3])


def cell(lib, x, gates, state):
    i, f, g, o = lib.chunk(x @ gates, 4, -1)
    sigmoid = F.sigmoid if lib is paddle else torch.sigmoid
    c = sigmoid(f) * state + sigmoid(i) * lib.tanh(g)
    return sigmoid(o) * lib.tanh(c)


def attention(lib, x):
    softmax = F.softmax if lib is paddle else torch.softmax
    return softmax(x @ x.t() / 2.0, -1) @ x


def other(tensor):
    return torch.tensor(tensor.numpy())


CASES = {
    "softplus": (F.softplus, TF.softplus),
    "gelu": (F.gelu, TF.gelu),
    "gelu, by tanh": (
        lambda x: F.gelu(x, True),
        lambda x: TF.gelu(x, approximate="tanh"),
    ),
    "silu": (F.silu, TF.silu),
    "mish": (F.mish, TF.mish),
    "elu": (F.elu, TF.elu),
    "softmax": (F.softmax, lambda x: torch.softmax(x, -1)),
    "log_softmax": (F.log_softmax, lambda x: torch.log_softmax(x, -1)),
    "LayerNorm": (
        lambda x: F.layer_norm(x, 4, SCALE, SHIFT),
        lambda x: by_hand(x) * other(SCALE) + other(SHIFT),
    ),
    "GroupNorm": (
        lambda x: F.group_norm(x.reshape([1, 4, 3]), 2, weight=SCALE, bias=SHIFT),
        lambda x: groups(x) * other(SCALE)[:, None] + other(SHIFT)[:, None],
    ),
    "attention": (lambda x: attention(paddle, x), lambda x: attention(torch, x)),
    "LSTM cell": (
        lambda x: cell(paddle, x, GATES, STATE),
        lambda x: cell(torch, x, other(GATES), other(STATE)),
    ),
}
X, V = randn([3, 4], "float64", 1), randn([3, 4], "float64", 2)


@pytest.mark.parametrize("name", CASES)
def test_gradients_to_the_fourth_order(name, count_case):
    """Along a line, of a function whose kernels Paddle differentiates once or twice."""
    ours, theirs = CASES[name]
    weights = randn(list(ours(X).shape), "float64", 3)

    def f(t):
        return (ours(X + t * V) * weights).sum()

    t = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    part = (theirs(other(X) + t * other(V)) * other(weights)).sum()
    at = paddle.to_tensor(0.3, "float64")
    for order in range(1, 5):
        f = grad(f)
        (part,) = torch.autograd.grad(part, t, create_graph=True)
        found = jit(f, strict=True)(at)
        like = part.item()
        assert abs(float(found) - like) <= 1e-11 * max(1.0, abs(like)), order
        count_case("gradients of gradients to the fourth order, beside PyTorch")


def slopes(fn):
    return {
        "jvp": lambda x: jvp(fn, (x,), (V,))[1],
        "hvp": lambda x: hvp(fn, x, V),
        "hessian": lambda x: hessian(fn)(x),
        "jacfwd": lambda x: jacfwd(grad(fn))(x),
        "jacrev": lambda x: jacrev(grad(fn))(x),
    }


@pytest.mark.parametrize("how", slopes(None))
@pytest.mark.parametrize("name", ["gelu", "LayerNorm", "attention"])
def test_gradients_of_other_derivatives(name, how, count_case):
    """Of jvp, hvp, hessian and Jacobians of gradients, weighted, by the point."""
    ours, theirs = CASES[name]
    weights = randn([3, 4], "float64", 3)

    def f(x):
        return (ours(x) * weights).sum()

    def g(x):
        return (theirs(x) * other(weights)).sum()

    def total(x):
        found = slopes(f)[how](x)
        found = found[1] if isinstance(found, tuple) else found
        seeds = randn(list(found.shape), "float64", 4)
        return (found * seeds).sum()

    def expected(x):
        if how == "jvp":
            found = torch.func.jvp(g, (x,), (other(V),))[1]
        elif how == "hvp":
            found = torch.func.jvp(torch.func.grad(g), (x,), (other(V),))[1]
        else:
            found = torch.func.hessian(g)(x)
        seeds = other(randn(list(found.shape), "float64", 4))
        return (found * seeds).sum()

    found = jit(grad(total), strict=True)(X).numpy()
    like = torch.func.grad(expected)(other(X)).numpy()
    assert np.abs(found - like).max() <= 1e-11 * np.abs(like).max()
    count_case("gradients of jvp, hvp, hessian and Jacobians, beside PyTorch")
