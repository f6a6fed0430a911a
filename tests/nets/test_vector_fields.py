"""Divergence and curl beside Jacobians by PyTorch, and identities of both."""

import re

import numpy as np
import paddle
import pytest

from conftest import randn
from paddle_chainrules import (
    FCNet,
    curl,
    divergence,
    grad,
    jit,
    vmap,
)

torch = pytest.importorskip("torch")


def make(d, outputs):
    """A net, its parameters, and the Jacobians of each row by PyTorch."""
    net = FCNet((d, 7, 6, outputs), "tanh", "float64")
    params = {
        n: randn(p.shape, "float64", i) for i, (n, p) in enumerate(net.init(0).items())
    }

    def jacobians(params, x):
        def one(x):
            for i in range(3):
                x = x @ params[f"{i}.weight"] + params[f"{i}.bias"]
                x = x if i == 2 else torch.tanh(x)
            return x

        return torch.vmap(torch.func.jacrev(one))(x)

    return net, params, jacobians


def as_torch(tree):
    if isinstance(tree, dict):
        return {name: as_torch(tensor) for name, tensor in tree.items()}
    return torch.tensor(tree.numpy())


def close(ours, theirs):
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-10, atol=1e-11)


def traced(j):
    return j.diagonal(dim1=1, dim2=2).sum(-1, keepdim=True)


def turned(j):
    if j.shape[-1] == 2:
        return (j[:, 1, 0] - j[:, 0, 1])[:, None]
    parts = [
        j[:, (i + 2) % 3, (i + 1) % 3] - j[:, (i + 1) % 3, (i + 2) % 3]
        for i in range(3)
    ]
    return torch.stack(parts, -1)


@pytest.mark.parametrize(
    ("function", "reference", "d"),
    [(divergence, traced, d) for d in (1, 2, 4)] + [(curl, turned, d) for d in (2, 3)],
)
def test_values_and_gradients(function, reference, d):
    net, params, jacobians = make(d, d)
    x, weight = randn([5, d], "float64", 9), randn([5, 1], "float64", 10)

    def loss(params, x):
        return (function(net, params, x) ** 2 * weight).sum()

    def their_loss(params, x):
        return (reference(jacobians(params, x)) ** 2 * as_torch(weight)).sum()

    arguments = as_torch(params), as_torch(x)
    close(function(net, params, x), reference(jacobians(*arguments)))
    theirs, their_x = torch.func.grad(their_loss, (0, 1))(*arguments)
    for run in (grad(loss, (0, 1)), jit(grad(loss, (0, 1)), strict=True)):
        ours, our_x = run(params, x)
        close(our_x, their_x)
        assert not ours.pop("2.bias").any()  # which moves no slope
        for name, found in ours.items():
            close(found, theirs[name])


def test_by_names():
    """Of two components of three, by two coordinates of three in columns apart."""
    net, params, jacobians = make(3, 3)
    x = randn([5, 3], "float64", 9)
    j = jacobians(as_torch(params), as_torch(x))

    def flow(params, at):
        y = net(params, paddle.concat([at["t"], at["x"]], -1))
        return {"u": y[:, :1], "p": y[:, 1:2], "v": y[:, 2:]}

    at = {"t": x[:, :1], "x": x[:, 1:]}
    by = {"of": ("u", "v"), "by": (("x", 0), ("x", 1))}
    close(divergence(flow, params, at, **by), (j[:, 0, 1] + j[:, 2, 2])[:, None])
    close(curl(flow, params, at, **by), (j[:, 2, 1] - j[:, 0, 2])[:, None])
    every = divergence(flow, params, at, of=("v", "p", "u"))
    close(every, (j[:, 2, 0] + j[:, 1, 1] + j[:, 0, 2])[:, None])


def test_a_curl_has_no_divergence():
    """Beside the batch a grid of points, and one point alone."""
    net, params, _ = make(3, 3)
    for shape in ([4, 3], [2, 5, 3], [3]):
        x = randn(shape, "float64", 3)
        assert curl(net, params, x).shape == shape
        found = divergence(lambda p, x: curl(net, p, x), params, x)
        assert found.shape == [*shape[:-1], 1]
        np.testing.assert_allclose(found.numpy(), 0, atol=1e-12)


def field(params, at):
    x, y, z = at["x"], at["y"], at["z"]
    return {"u": x**2 * y, "v": y**3 * z, "w": z * x, "uv": paddle.stack([x, y], -1)}


OF = {"of": ("u", "v", "w")}


def by_hand(x, y, z):
    """Divergence and curl."""
    whole = 2 * x * y + 3 * y**2 * z + x
    return whole, np.stack([-(y**3), -z, -(x**2)], -1)


@pytest.mark.parametrize("where", ["plainly", "in jit", "by samples"])
def test_columns_without_a_last_dimension(where):
    """Of all samples, not of the first; and of 0-d columns of one."""

    def both(x, y, z):
        at = {"x": x, "y": y, "z": z}
        by = {"by": ("x", ("y", 0), ("z", -1))} if where == "plainly" else {}
        found = divergence(field, (), at, **OF, **by), curl(field, (), at, **OF, **by)
        return (*found, curl(field, (), at, of=("u", "v"), by=("x", "y")))

    run = {"plainly": both, "in jit": jit(both, strict=True), "by samples": vmap(both)}
    columns = [randn([5], "float64", i) for i in range(3)]
    expected = by_hand(*[c.numpy() for c in columns])
    whole, turned, plane = run[where](*columns)
    close(whole, torch.tensor(expected[0]))
    close(turned, torch.tensor(expected[1]))
    close(plane, torch.tensor(expected[1][:, 2]))


def wide(params, x):
    return {"u": x[:, :1], "v": x[:, 1], "both": x, "w": x[:, 1:] ** 2}


SHAPES = {
    "all of shape [5, 1] or all [5]": lambda x: divergence(wide, (), x, of=("u", "v")),
    "'both': [5, 2], 'w': [5, 1]": lambda x: divergence(wide, (), x, of=("both", "w")),
    "'w': [5, 1], 'v': [5]": lambda x: curl(wide, (), x, of=("v", "w")),
    "gives shape [5], where each column of [5, 5]": lambda x: divergence(
        lambda _, x: x.sum(-1), (), paddle.concat([x, x, x[:, :1]], -1)
    ),
    "gives shape [5, 2, 2]": lambda x: divergence(
        lambda _, x: x[..., None] * x[:, None], (), x
    ),
}


@pytest.mark.parametrize("words", SHAPES)
def test_components_of_other_shapes_are_refused(words):
    with pytest.raises(ValueError, match=f"{re.escape(words)}.*name"):
        SHAPES[words](randn([5, 2], "float64"))
    one = divergence(wide, (), randn([5, 2], "float64"), of=(("both", 0), "w"))
    assert one.shape == [5, 1]
