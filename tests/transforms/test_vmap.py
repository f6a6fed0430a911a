"""``vmap`` beside loops, and beside PyTorch's where it is installed."""

from importlib.util import find_spec

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from conftest import assert_same, randn
from paddle_chainrules import (
    BatchWarning,
    CaptureError,
    FCNet,
    derivatives,
    grad,
    hessian,
    hvp,
    jacrev,
    jit,
    jvp,
    stack_params,
    stateless,
    vjp,
    vmap,
)

NET = FCNet((3, 7, 5, 2), "tanh", "float64")
PARAMS = NET.init(1)
X, Y = randn([6, 3], "float64", 1), randn([6, 2], "float64", 2)


def loss(params, x, y):
    return ((NET(params, x) - y) ** 2).sum()


def looped(fn, *rows):
    """One sample after another, each result stacked."""
    found = [fn(*row) for row in zip(*rows, strict=True)]
    if isinstance(found[0], dict):
        return {k: paddle.stack([one[k] for one in found]) for k in found[0]}
    if isinstance(found[0], tuple):
        return tuple(map(paddle.stack, zip(*found, strict=True)))
    return paddle.stack(found)


def assert_trees(found, expected, **near):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for k in expected:
            assert_same(found[k], expected[k], **near)
    elif isinstance(expected, tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, **near)
    else:
        assert_same(found, expected, **near)


TRANSFORMED = {
    "value": lambda x: NET(PARAMS, x),
    "gradient": grad(lambda x: (NET(PARAMS, x) ** 2).sum()),
    "jacobian": jacrev(lambda x: NET(PARAMS, x)),
    "hessian": hessian(lambda x: NET(PARAMS, x).sum()),
    "tangent": lambda x: jvp(lambda x: NET(PARAMS, x), (x,), (x * x,))[1],
    "Hessian's product": lambda x: hvp(lambda x: NET(PARAMS, x).prod(), x, x * x),
    "pullback": lambda x: vjp(lambda p: NET(p, x), PARAMS)[1](x[:2])[0],
    "another vmap": lambda x: vmap(lambda y: (x[:2] * y).sum())(Y),
    "indices and shapes": lambda x: paddle.concat([x[1:], x.flip(0)]).reshape([5, 1]),
    "choices": lambda x: paddle.where(x > 0, x, x * x).cumsum(0).max(),
    "several": lambda x: (x.sum(), x.argmax().astype("float64"), x.sort()),
}


@pytest.mark.parametrize("inside", [False, True], ids=["", "jit"])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_of_each_sample(name, inside):
    fn = TRANSFORMED[name]
    many = jit(vmap(fn), strict=True) if inside else vmap(fn)
    assert_trees(many(X), looped(fn, X), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("inside", [False, True], ids=["", "jit"])
def test_gradients_of_each_sample(inside):
    each = vmap(grad(loss), (None, 0, 0))
    found = (jit(each, strict=True) if inside else each)(PARAMS, X, Y)
    expected = looped(lambda x, y: grad(loss)(PARAMS, x, y), X, Y)
    assert_trees(found, expected, rtol=1e-12, atol=1e-13)


def of_all(params):
    """A loss of the gradients of each sample."""
    each = vmap(grad(loss), (None, 0, 0))(params, X, Y)
    return sum((g**2).sum() for g in each.values())


def test_is_differentiated():
    """By what goes in and by what is closed over, eagerly and in a program."""

    def by_loop(params):
        rows = [grad(loss)(params, x, y) for x, y in zip(X, Y, strict=True)]
        return sum((g**2).sum() for row in rows for g in row.values())

    expected = grad(by_loop)(PARAMS)
    for found in (grad(of_all)(PARAMS), jit(grad(of_all), strict=True)(PARAMS)):
        assert_trees(found, expected, rtol=1e-11, atol=1e-11)
    closed = grad(lambda p: (vmap(lambda x: NET(p, x))(X) ** 2).sum())(PARAMS)
    plain = grad(lambda p: (NET(p, X) ** 2).sum())(PARAMS)
    assert_trees(closed, plain, rtol=1e-12, atol=1e-13)
    v = {name: randn(p.shape, "float64", 5) for name, p in PARAMS.items()}
    _, along = jvp(of_all, (PARAMS,), (v,))
    assert_same(along, sum((expected[k] * v[k]).sum() for k in v), rtol=1e-11)
    leaf = X.detach()
    leaf.stop_gradient = False
    (native,) = paddle.grad(vmap(lambda x: (x**3).sum())(leaf * 2.0).sum(), leaf)
    assert_same(native, 24 * X**2, rtol=1e-12)


def test_derivatives_by_coordinates_inside():
    """Of every net of an ensemble."""
    ensemble = stack_params([NET.init(seed) for seed in range(4)])
    indices = [(0, 0, 0), (2, 0, 0), (0, 1, 1)]
    found = vmap(lambda p: derivatives(NET, p, X, indices))(ensemble)
    for k in range(4):
        expected = derivatives(NET, NET.init(k), X, indices)
        assert_trees(
            tuple(f[k] for f in found), tuple(expected), rtol=1e-12, atol=1e-12
        )


def test_axes():
    a, b = randn([4, 3, 5], "float64"), randn([2, 4, 5], "float64", 1)
    found = vmap(lambda a, b: a @ b.T, (0, 1), 1)(a, b)
    assert found.shape == [3, 4, 2]
    assert_same(found[:, 1], a[1] @ b[:, 1].T, rtol=1e-13)
    tree = {"x": randn([2, 6], "float64", 3), "scale": randn([6], "float64", 4)}
    fn = lambda t, shift: {"y": t["x"] * t["scale"] + shift, "same": shift}  # noqa: E731
    found = vmap(fn, ({"x": 1, "scale": 0}, None), {"y": -1, "same": None})(
        tree, randn([2], "float64", 5)
    )
    shift = randn([2], "float64", 5)
    assert_same(found["y"], tree["x"] * tree["scale"] + shift[:, None], rtol=1e-13)
    assert_same(found["same"], shift)
    by_name = vmap(lambda x, *, y: x * y)(X[:, 0], y=Y[:, 0])
    assert_same(by_name, X[:, 0] * Y[:, 0])
    assert_same(vmap(lambda x: 3.0)(X), paddle.full([6], 3.0))
    assert vmap(lambda x: x.ndim)(X).tolist() == [1] * 6
    assert vmap(lambda x: 3.0, out_axes=None)(X) == 3.0
    assert vmap(lambda x: paddle.ones([2]))(X).shape == [6, 2]


@pytest.mark.parametrize("size", [1, 2, 4, 6, 100])
def test_chunks(size):
    found = vmap(grad(loss), (None, 0, 0), chunk_size=size)(PARAMS, X, Y)
    assert_trees(found, vmap(grad(loss), (None, 0, 0))(PARAMS, X, Y), rtol=1e-12)


def test_an_ensemble():
    params = [NET.init(seed) for seed in range(5)]
    found = vmap(NET, (0, None))(stack_params(params), X)
    assert_same(found, paddle.stack([NET(p, X) for p in params]), rtol=1e-13)


def test_random_numbers():
    noise = lambda x: x + paddle.rand([3], "float64")  # noqa: E731
    with pytest.raises(CaptureError, match="randomness='different' or 'same'"):
        vmap(noise)(X)
    same = vmap(noise, randomness="same")(X) - X
    assert_same(same, same[:1].expand([6, 3]), atol=1e-14)
    different = (vmap(noise, randomness="different")(X) - X).numpy()
    assert len(np.unique(different.round(9))) == different.size
    dropped = vmap(lambda x: F.dropout(x, 0.5), randomness="different")(
        paddle.ones([40, 30])
    ).numpy()
    assert set(np.unique(dropped)) == {0.0, 2.0}
    assert len({row.tobytes() for row in dropped}) > 30


def layers():
    paddle.seed(1)
    yield "norms", nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU()), [2, 3]
    yield "images", nn.Sequential(nn.Conv2D(1, 2, 2), nn.MaxPool2D(2)), [1, 1, 5, 5]
    yield "groups", nn.Sequential(nn.Linear(3, 6), nn.GroupNorm(2, 6)), [2, 3]
    yield "attention", nn.TransformerEncoderLayer(4, 2, 5, 0.0), [1, 3, 4]


@pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")
@pytest.mark.parametrize(("name", "layer", "shape"), [*layers()])
def test_gradients_of_each_sample_of_layers(name, layer, shape):
    layer.to(dtype="float64")
    net, params, _ = stateless(layer)
    x = randn([5, *shape], "float64", 3)

    def of_one(params, x):
        return (net(params, x) ** 3).sum()

    found = vmap(grad(of_one), (None, 0))(params, x)
    expected = looped(lambda x: grad(of_one)(params, x), x)
    assert_trees(found, expected, rtol=1e-10, atol=1e-9)


def test_what_has_no_rule_runs_one_by_one_and_says_so():
    with pytest.warns(BatchWarning, match=r"operator \w+ has no rule for batches"):
        found = vmap(lambda x: paddle.median(x))(X)
    assert_same(found, looped(paddle.median, X))


@pytest.mark.filterwarnings("ignore:.torch.jit")
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_beside_pytorch():
    import torch

    def net(lib, p, x):
        h = lib.tanh(x @ p["w"] + p["b"])
        return ((h @ p["v"]) ** 2).sum()

    shapes = {"w": [3, 5], "b": [5], "v": [5, 2]}
    params = {k: randn(s, "float64", i) for i, (k, s) in enumerate(shapes.items())}
    theirs = {k: torch.tensor(p.numpy()) for k, p in params.items()}
    x = torch.tensor(X.numpy())
    each = torch.func.vmap(
        torch.func.grad(lambda p, x: net(torch, p, x)), in_dims=(None, 0)
    )(theirs, x)
    ours = vmap(grad(lambda p, x: net(paddle, p, x)), (None, 0))(params, X)
    for k in shapes:
        np.testing.assert_allclose(ours[k].numpy(), each[k].numpy(), rtol=1e-12)
    inner = torch.func.vmap(torch.func.hessian(lambda x: net(torch, theirs, x)))(x)
    found = vmap(hessian(lambda x: net(paddle, params, x)))(X)
    np.testing.assert_allclose(found.numpy(), inner.numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "bool"])
def test_a_masked_write_of_small_integers(dtype):
    x = paddle.to_tensor([[1, 2, 3], [4, 0, 1]]).astype(dtype)
    mask = paddle.to_tensor([[True, False, True], [False, False, True]])

    def fn(x, mask):
        y = x.clone()
        y[mask] = 1
        return y

    assert_same(vmap(fn)(x, mask), fn(x, mask))
