"""One tensor as several columns: of each place the derivative by that place alone."""

import numpy as np
import paddle
import pytest

from conftest import randn
from paddle_chainrules import (
    FCNet,
    curl,
    derivatives,
    divergence,
    forward_laplacian,
    grad,
    jit,
    laplacian,
    vmap,
)

torch = pytest.importorskip("torch")

S = randn([5, 1], "float64", 1)
NET = FCNet((2, 7, 3), "tanh", "float64")
PARAMS = {n: randn(p.shape, "float64", 2) for n, p in NET.init(0).items()}


def net(params, at):
    a, b = at.values() if isinstance(at, dict) else at
    y = NET(params, paddle.concat([a, b**2], -1))
    return {"u": y[:, :1], "v": y[:, 1:2], "w": y[:, 2:]}


def torch_net(params, a, b):
    """Of one point."""
    hidden = torch.tanh(torch.stack([a, b**2]) @ params[0] + params[1])
    return hidden @ params[2] + params[3]


def as_torch(tensors):
    return [torch.tensor(x.numpy()) for x in tensors]


def close(ours, theirs):
    theirs = theirs.numpy()
    assert tuple(ours.shape) == theirs.shape
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-10, atol=1e-11)


def their_parts(params, a, b):
    """First derivatives [n, 3, 2] and second ones [n, 3, 2, 2]."""
    first = torch.func.jacrev(torch_net, (1, 2))
    second = torch.func.jacrev(lambda p, a, b: torch.stack(first(p, a, b), -1), (1, 2))

    def one(a, b):
        return torch.stack(first(params, a, b), -1), torch.stack(
            second(params, a, b), -1
        )

    return torch.vmap(one)(a[:, 0], b[:, 0])


def at_of(kind, a, b):
    return {"a": a, "b": b} if kind == "dict" else (a, b)


def found(params, at):
    a, b = at if isinstance(at, dict) else (0, 1)
    wanted = {"u_a": ("u", a), "v_b": ("v", b), "w_ab": ("w", a, b)}
    d = derivatives(net, params, at, wanted)
    _, slopes, total = forward_laplacian(net, params, at)
    return [
        *d.values(),
        divergence(net, params, at, of=("v", "w")),
        curl(net, params, at, of=("v", "w")),
        laplacian(net, params, at, [1.0, -3.0])["u"],
        slopes["w"][:, 0],
        total["v"],
    ]


def theirs_of(params, a, b):
    j, h = their_parts(params, a, b)
    return [
        j[:, 0, :1],
        j[:, 1, 1:],
        h[:, 2, 0, 1:],
        j[:, 1, :1] + j[:, 2, 1:],
        j[:, 2, :1] - j[:, 1, 1:],
        h[:, 0, :1, 0] - 3 * h[:, 0, 1:, 1],
        j[:, 2],
        (h[:, 1, 0, 0] + h[:, 1, 1, 1])[:, None],
    ]


@pytest.mark.parametrize("kind", ["dict", "tuple"])
def test_each_place_has_its_own(kind):
    def of(params, a, b):
        return found(params, at_of(kind, a, b))

    theirs = theirs_of(as_torch(PARAMS.values()), *as_torch([S, S]))
    for run in (of, jit(of, strict=True)):
        for one, other in zip(run(PARAMS, S, S), theirs, strict=True):
            close(one, other)


def test_gradients_from_outside():
    """Of a loss of them by each place, and by a parameter that is the tensor, too."""
    weights = randn([5, 8], "float64", 3)

    def loss(params, scale, a, b):
        parts = found(params, {"a": a * 1.0, "b": b})
        parts += found(params, {"a": a, "b": a})
        whole = paddle.concat([p for p in parts if p.shape[-1] == 1], -1)
        return (
            (whole * scale) ** 2 * paddle.concat([weights, weights], -1)[:, :14]
        ).sum()

    def their_loss(params, scale, a, b):
        parts = theirs_of(params, a, b) + theirs_of(params, a, a)
        whole = torch.cat([p for p in parts if p.shape[-1] == 1], -1)
        w = torch.cat(as_torch([weights, weights]), -1)[:, :14]
        return ((whole * scale) ** 2 * w).sum()

    theirs = torch.func.grad(their_loss, (0, 1, 2, 3))(
        as_torch(PARAMS.values()), *as_torch([S, S, S])
    )
    by = grad(loss, (0, 1, 2, 3))
    for run in (by, jit(by, strict=True)):
        params, *ours = run(PARAMS, S, S, S)
        for one, other in zip(ours, theirs[1:], strict=True):
            close(one, other)
        for name, other in zip(params, theirs[0], strict=True):
            if params[name] is not None:  # of the last bias, which moves no slope
                close(params[name], other)
            else:
                assert name == "1.bias"


def test_a_parameter_that_is_a_column():
    """It is a constant, by which nothing is differentiated."""

    def product(params, at):
        return at["a"] * at["b"] ** 2 * params["c"] ** 3

    def of(s):
        at = {"a": s, "b": s}
        wanted = {"a": (None, "a"), "b": (None, "b")}
        return [*derivatives(product, {"c": s}, at, wanted).values()]

    for run in (of, jit(of, strict=True)):
        by_a, by_b = run(S)
        close(by_a, torch.tensor(S.numpy() ** 5))
        close(by_b, torch.tensor(2 * S.numpy() ** 5))
    s = S.detach()
    s.stop_gradient = False
    sum(part.sum() for part in of(s)).backward()
    close(s.grad, torch.tensor(15 * S.numpy() ** 4))


def test_by_samples():
    def of(a, b):
        return derivatives(
            lambda _, at: at["a"] * at["b"] ** 3, (), {"a": a, "b": b}, WANTED
        )["ab"]

    close(vmap(of)(S[:, 0], S[:, 0]), torch.tensor(3 * S[:, 0].numpy() ** 2))


WANTED = {"ab": (None, "a", "b")}


def test_in_blocks(small_blocks):
    s = randn([531, 1], "float64", 3)
    by_a, by_b = derivatives(
        lambda _, at: paddle.sin(at["a"]) * at["b"] ** 2,
        (),
        {"a": s, "b": s},
        {"a": (None, "a"), "b": (None, "b")},
    ).values()
    assert small_blocks
    x = s.numpy()
    close(by_a, torch.tensor(np.cos(x) * x**2))
    close(by_b, torch.tensor(np.sin(x) * 2 * x))
