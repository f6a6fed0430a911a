"""Laplacians beside Hessians by PyTorch: weights, matrices, estimators, many inputs."""

import numpy as np
import paddle
import pytest
from paddle import nn

from conftest import assert_same, randn
from paddle_chainrules import (
    forward_laplacian,
    laplacian,
    stateless,
    value_and_grad,
)
from paddle_chainrules.nets.derivatives import laplacians
from paddle_chainrules.programs.derivatives import partials

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit")

D = 5
RNG = np.random.default_rng(3)
WEIGHTS = {
    "none": None,
    "of both signs": np.array([1.0, -2.0, 0.0, 3.0, 0.5]),
    "negative": -np.arange(1.0, 6.0),
    "matrix": RNG.standard_normal((D, D)),
    "of rank 2": np.einsum("ki,kj->ij", *[RNG.standard_normal((2, D))] * 2),
}


def as_torch(tensor):
    return torch.tensor(tensor.numpy())


def make(d=D, width=7, outputs=3):
    """A net with a LayerNorm, its parameters, and the same in PyTorch."""
    with paddle.utils.unique_name.guard():
        before = paddle.get_default_dtype()
        paddle.set_default_dtype("float64")
        layer = nn.Sequential(
            *(nn.Linear(d, width), nn.Tanh(), nn.LayerNorm(width)),
            *(nn.Linear(width, width - 1), nn.GELU(), nn.Linear(width - 1, outputs)),
        )
        paddle.set_default_dtype(before)
    net, params, _ = stateless(layer)
    names = [*params]
    params = {n: randn(params[n].shape, "float64", i) for i, n in enumerate(names)}

    def reference(p, x):
        h = torch.tanh(x @ p["0.weight"] + p["0.bias"])
        h = h - h.mean(-1, keepdim=True)
        scale = torch.sqrt((h * h).mean(-1, keepdim=True) + float(np.float32(1e-5)))
        h = h / scale * p["2.weight"] + p["2.bias"]
        h = torch.nn.functional.gelu(h @ p["3.weight"] + p["3.bias"])
        return h @ p["5.weight"] + p["5.bias"]

    return net, params, reference


def hessians(reference, params, x):
    """Of shape [n, out, d, d], differentiable."""
    of_point = torch.func.hessian(lambda x: reference(params, x))
    return torch.func.vmap(of_point)(x)


def summed(h, weights):
    if weights is None:
        weights = np.eye(D)
    a = np.diag(weights) if np.ndim(weights) == 1 else weights
    return torch.einsum("noij,ij->no", h, torch.tensor(a))


def assert_near(found, expected, part=1e-12):
    if isinstance(expected, torch.Tensor):
        expected = expected.detach().numpy()
    assert list(found.shape) == list(expected.shape)
    off = np.abs(found.numpy() - expected).max()
    assert off <= part * np.abs(expected).max()


@pytest.mark.parametrize("kind", WEIGHTS)
def test_weighted_sums_and_their_gradients(kind, count_case):
    net, params, reference = make()
    x, c = randn([4, D], "float64", 50), randn([4, 3], "float64", 51)
    weights = WEIGHTS[kind]
    theirs = {name: as_torch(value).requires_grad_() for name, value in params.items()}
    at = as_torch(x).requires_grad_()
    expected = summed(hessians(reference, theirs, at), weights)
    assert_near(laplacian(net, params, x, weights), expected)
    y, jacobian, total = forward_laplacian(net, params, x, weights)
    assert_near(y, reference(theirs, at))
    slopes = torch.func.vmap(torch.func.jacrev(lambda x: reference(theirs, x)))(at)
    assert_near(jacobian, slopes, 1e-11)
    assert_near(total, expected)
    loss = value_and_grad(
        lambda p, x: (laplacian(net, p, x, weights) * c).sum(), argnums=(0, 1)
    )
    (expected * as_torch(c)).sum().backward()
    _, (grads, by_x) = loss(params, x)
    for name, grad in grads.items():
        if theirs[name].grad is None or not theirs[name].grad.any():
            assert grad is None or not grad.any()
        else:
            assert_near(grad, theirs[name].grad, 1e-11)
            count_case("gradients of weighted Laplacians")
    assert_near(by_x, at.grad, 1e-11)


@pytest.mark.parametrize(
    ("d", "at_once"), [(6, 3), (8, 3), pytest.param(17, None, marks=pytest.mark.slow)]
)
def test_many_coordinates_are_taken_in_turn(d, at_once, monkeypatch):
    """With the last ones fewer than the others, or not; three at once, or as many as
    ever."""
    if at_once is not None:
        monkeypatch.setattr(partials, "DIRECTIONS_PER_GROUP", at_once)
        for module in (partials, laplacians):
            monkeypatch.setattr(module, "UNROLLED", at_once)
    net, params, reference = make(d, 7, 2)
    x = randn([3, d], "float64", 50)

    def both():
        net._programs.derivatives.clear()
        step = value_and_grad(lambda p, x: (laplacian(net, p, x) ** 2).sum(), (0, 1))
        loss, (grads, by_x) = step(params, x)
        return [loss, *forward_laplacian(net, params, x), *grads.values(), by_x]

    found = both()
    h = hessians(reference, {n: as_torch(p) for n, p in params.items()}, as_torch(x))
    assert_near(found[3], torch.einsum("noii->no", h))
    for module in (partials, laplacians):
        monkeypatch.setattr(module, "UNROLLED", 10**6)
    for one, other in zip(found, both(), strict=True):
        if one is None or other is None:
            assert one is other
        else:
            scale = float(other.abs().max())
            assert_same(one, other, rtol=0, atol=1e-12 * max(scale, 1e-6))


def test_some_of_the_coordinates_by_name():
    net, params, reference = make()
    t, x = randn([4, 2], "float64", 50), randn([4, 3], "float64", 51)
    theirs = {name: as_torch(value) for name, value in params.items()}
    h = hessians(reference, theirs, torch.cat([as_torch(t), as_torch(x)], -1))

    def of(p, at):
        y = net(p, paddle.concat([at["t"], at["x"]], -1))
        return {"u": y[:, 0:1], "rest": (y[:, 1:],)}

    coords = {"t": t, "x": x}
    found = laplacian(of, params, coords, by=(("x", 0), ("x", 2), ("t", 1)))
    expected = h[..., 2, 2] + h[..., 4, 4] + h[..., 1, 1]
    assert_near(found["u"], expected[:, 0:1])
    assert_near(found["rest"][0], expected[:, 1:])
    both = laplacian(of, params, coords)
    assert_near(both["u"], torch.einsum("noii->no", h)[:, 0:1])

    def of_columns(p, at):
        columns = paddle.stack([*at.values()], -1)
        return net(p, columns)[:, 0]

    names = "abcde"
    columns = dict(zip(names, paddle.concat([t, x], 1).T, strict=True))
    found = laplacian(of_columns, params, columns, by=("c", "e", "b"))
    assert_near(found, expected[:, 0])


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", ["none", "of both signs", "matrix"])
@pytest.mark.parametrize("estimator", ["hutchinson", "stde"])
def test_estimators_have_the_mean_and_the_variance_that_are_stated(estimator, kind):
    net, params, reference = make()
    x, k, times = randn([2, D], "float64", 50), 2, 1500
    theirs = {name: as_torch(value) for name, value in params.items()}
    h, weights = hessians(reference, theirs, as_torch(x)), WEIGHTS[kind]
    exact = summed(h, weights).numpy()
    found = np.stack(
        [
            laplacian(
                net, params, x, weights, estimator=estimator, probes=k, seed=seed
            ).numpy()
            for seed in range(times)
        ]
    )
    deviation = found.std(0)
    assert np.all(np.abs(found.mean(0) - exact) < 5 * deviation / times**0.5)
    if kind == "none":
        h = h.numpy()
        diagonal = np.einsum("noii->noi", h)
        if estimator == "hutchinson":
            beside = (h**2).sum((-1, -2)) - (diagonal**2).sum(-1)
            expected = 2 / k * beside
        else:
            expected = D * (D - k) / k * diagonal.var(-1, ddof=1)
        np.testing.assert_allclose(deviation**2, expected, rtol=0.25)
    again = laplacian(net, params, x, weights, estimator=estimator, probes=k, seed=7)
    once_more = laplacian(
        net, params, x, weights, estimator=estimator, probes=k, seed=7
    )
    np.testing.assert_array_equal(again.numpy(), once_more.numpy())
    # As machine code by then, which adds in another order.
    close = 1e-14 * np.abs(found[7]).max()
    np.testing.assert_allclose(again.numpy(), found[7], rtol=1e-12, atol=close)


def test_all_probes_of_coordinates_are_exact():
    net, params, _ = make()
    x = randn([2, D], "float64", 50)
    found = laplacian(net, params, x, estimator="stde", probes=D, seed=1)
    assert_same(found, laplacian(net, params, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [[0, D], [1, D], [2, 3, D], [2, 0, D]])
def test_shapes(shape):
    net, params, _ = make()
    x = randn(shape, "float64", 50)
    y, jacobian, total = forward_laplacian(net, params, x)
    assert [*y.shape] == [*total.shape] == [*shape[:-1], 3]
    assert [*jacobian.shape] == [*shape[:-1], 3, D]
    rows = x.reshape([-1, D]) if x.size else x
    if x.size:
        expected = laplacian(net, params, rows)
        assert_same(total.reshape([-1, 3]), expected, rtol=1e-12, atol=1e-12)
