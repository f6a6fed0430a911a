"""Programs of functions that serve any number of samples, after two of them."""

import contextlib

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from conftest import programs_on, randn
from paddle_chainrules import (
    FCNet,
    derivatives,
    explain,
    grad,
    hessian,
    jacrev,
    jit,
    jvp,
    scan,
    stateless,
    value_and_grad,
    vmap,
)
from paddle_chainrules.paddle_side.listener import programs_disabled
from paddle_chainrules.programs.batches.blocks import PROBE
from paddle_chainrules.transforms.as_programs import program_cache
from trees import tensors_of

pytestmark = programs_on
D = "float64"
net = FCNet((3, 7, 2), "tanh", dtype=D)
P = net.init(0)
NORMED, NP, _ = stateless(
    paddle.nn.Sequential(
        *(paddle.nn.Linear(3, 9), paddle.nn.LayerNorm(9), paddle.nn.GELU()),
        paddle.nn.Linear(9, 2),
    ).to(dtype=D)
)
W = randn([3, 3], seed=5, dtype=D)


def u(p, x):
    return net(p, x)[:, 0].sum()


def twice(x):
    return x * 2.0 if x.shape[0] > 40 else x


ANY = {
    "mean": lambda p, x: (net(p, x) ** 2).mean(),
    "mean of means": lambda p, x: (net(p, x).mean(0) ** 2).mean(),
    "centred": lambda p, x: (net(p, x) - net(p, x).mean(0)).abs().mean(),
    "softmax along samples": lambda p, x: (F.softmax(net(p, x), 0) ** 2).sum(),
    "logsumexp": lambda p, x: paddle.logsumexp(net(p, x)),
    "so far": lambda p, x: (paddle.cumsum(net(p, x), 0) ** 2).mean(),
    "sorted": lambda p, x: (paddle.sort(net(p, x), 0) * net(p, x)).mean(),
    "rolled": lambda p, x: (paddle.roll(net(p, x), 5, 0) * net(p, x)).mean(),
    "in a row": lambda p, x: (net(p, x).reshape([-1]) ** 2).mean(),
    "gram": lambda p, x: (net(p, x) @ net(p, x).T).mean(),
    "pairs": lambda p, x: (net(p, x).unsqueeze(0) - net(p, x).unsqueeze(1)).norm(),
    "normed": lambda p, x: (NORMED(NP, x) ** 2).mean() + net(p, x).mean(),
    "ones": lambda p, x: (net(p, x) * paddle.ones_like(x[:, :1])).mean(),
    "put together": lambda p, x: paddle.concat([net(p, x), net(p, -x)]).pow(2).mean(),
    "choices": lambda p, x: paddle.where(x[:, :2] > 0, net(p, x), -net(p, x)).mean(),
    "a column that is as large": lambda p, x: ((x @ W) ** 2).mean() * net(p, x).mean(),
    "smooth": lambda p, x: F.smooth_l1_loss(net(p, x), x[:, :2]),
    "classes": lambda p, x: F.cross_entropy(net(p, x), x.argmax(1) % 2),
    "slopes": lambda p, x: (grad(lambda x: u(p, x))(x) ** 2).mean(),
    "bend": lambda p, x: (
        grad(lambda x: grad(lambda x: u(p, x))(x)[:, 1].sum())(x) ** 2
    ).mean(),
}
ONE_EACH = {
    "a branch": lambda p, x: net(p, x).mean() * (2.0 if x.shape[0] > 40 else 1.0),
    "a branch of len": lambda p, x: net(p, x).mean() * (2.0 if len(x) > 40 else 1.0),
    "a branch elsewhere": lambda p, x: net(p, twice(x)).mean(),
    "differences": lambda p, x: ((net(p, x)[1:] - net(p, x)[:-1]) ** 2).mean(),
    "the first": lambda p, x: (net(p, x)[0] * net(p, x)).mean(),
    "the last": lambda p, x: net(p, x)[-1].sum(),
    "some": lambda p, x: net(p, x)[:5].mean(),
    "unbiased": lambda p, x: net(p, x).var(0).sum(),
    "two halves": lambda p, x: paddle.split(net(p, x), 2, 0)[0].mean(),
}
TRANSFORMED = {
    "samples' gradients": vmap(grad(lambda p, x: (net(p, x) ** 2).sum()), (None, 0)),
    "Jacobians": lambda p, x: vmap(jacrev(lambda x: net(p, x)))(x),
    "Hessians": lambda p, x: vmap(hessian(lambda x: net(p, x).sum()))(x),
    "along": lambda p, x: jvp(lambda x: net(p, x), (x,), (x * 2.0,)),
    "places": lambda p, x: paddle.argsort(net(p, x), 0),
}


@pytest.fixture
def captures(monkeypatch):
    """The numbers of samples that programs were captured for."""
    found, native = [], program_cache.capture

    def capture(fn, leaves, *args, **kwargs):
        found.append(leaves[-1].shape[0])
        return native(fn, leaves, *args, **kwargs)

    monkeypatch.setattr(program_cache, "capture", capture)
    return found


def assert_as_called(program, fn, n):
    """What it gives is what the function gives, to rounding of the largest of it."""
    x = randn([n, 3], seed=n, dtype=D)
    with programs_disabled():
        expected = [t.numpy() for t in tensors_of(fn(P, x))]
    largest = max(np.abs(y).max() for y in expected)
    found = tensors_of(program(P, x))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=0, atol=1e-10 * largest)


SIZES = (64, 32, 48, 5, 100, 7, 64, 600, 2)


@pytest.mark.parametrize("name", ANY)
def test_two_captures_serve_all(name, captures):
    fn = value_and_grad(ANY[name])
    program = jit(fn, strict=True)
    for n in SIZES:
        assert_as_called(program, fn, n)
    assert captures[:2] == [64, 32]
    assert {*captures[2:]} <= {48}  # a size that another one is a multiple of
    assert_as_called(program, fn, 1)  # which would be broadcast
    assert captures[-1] == 1
    assert "for any number of samples" in explain(program, P, randn([9, 3], dtype=D))
    for _ in range(40):  # machine code by then
        assert_as_called(program, fn, 33)
    for n in (3, 34, 700):
        assert_as_called(program, fn, n)


@pytest.mark.parametrize("name", ONE_EACH)
def test_what_may_depend_on_the_number_has_a_program_for_each(name, captures):
    fn = value_and_grad(ONE_EACH[name])
    program = jit(fn, strict=True)
    sizes = (64, 32, 48, 8, 100, 64, 600)
    for n in sizes:
        assert_as_called(program, fn, n)
    assert captures == [*dict.fromkeys(sizes)]


def assert_captured_for(fn, sizes, expected, captures):
    """All that it gives is right, though captured for some of these sizes alone."""
    program = jit(fn, strict=True)
    x = {n: randn([n, 3], seed=n, dtype=D) for n in sizes}
    found = {n: tensors_of(program(P, x[n])) for n in sizes}
    assert [*dict.fromkeys(captures)] == expected
    for n in sizes:
        with programs_disabled():
            native = [t.numpy() for t in tensors_of(fn(P, x[n]))]
        largest = max(np.abs(y).max() for y in native)
        for a, b in zip(found[n], native, strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=0, atol=1e-10 * largest)


def with_some(x):
    y = x * 1.0
    y[:8] = 0.0
    return y


SOME = {
    "brackets": lambda x: x[:8].mean(),
    "brackets from the end": lambda x: x[-8:].mean(),
    "both axes": lambda x: (x @ x.T)[:8, :8].sum(),
    "new axes": lambda x: x[None, :8].mean(),
    "a slice": lambda x: paddle.slice(x, [0], [0], [8]).mean(),
    "a strided slice": lambda x: paddle.strided_slice(x, [0], [0], [8], [1]).mean(),
    "values put": lambda x: (with_some(x) * x).sum(),
}


@pytest.mark.parametrize("name", SOME)
def test_as_many_as_there_are_of_so_many(name):
    """Where the first two sizes have no more than are asked for."""

    def fn(p, x):
        return SOME[name](x) * net(p, x).mean()

    program = jit(value_and_grad(fn), strict=True)
    for n in (3, 6, 12, 5, 64):
        assert_as_called(program, value_and_grad(fn), n)


def image(x):
    """One, along which samples stand."""
    return x.T.unsqueeze(0)


KERNEL = randn([2, 3, 3], seed=6, dtype=D)
BOUNDED = {
    "convolution": lambda x: F.conv1d(image(x), KERNEL, padding=1),
    "strides": lambda x: F.conv1d(image(x), KERNEL, stride=3),
    "turned": lambda x: F.conv1d_transpose(image(x), KERNEL.transpose([1, 0, 2])),
    "maxima": lambda x: F.max_pool1d(image(x), 3, 1, 1),
    "means": lambda x: F.avg_pool1d(image(x), 4, 4),
    "adaptive means": lambda x: F.adaptive_avg_pool1d(image(x), 4),
    "resampled": lambda x: F.interpolate(
        image(x), scale_factor=0.25, mode="linear", data_format="NCW"
    ),
    "diagonal": lambda x: x.diagonal(),
    "another diagonal": lambda x: x.diagonal(1),
    "factors": lambda x: paddle.linalg.qr(x)[1],
    "singular values": lambda x: paddle.linalg.svd(x, full_matrices=False)[1],
    "inverse": lambda x: paddle.linalg.pinv(x),
    "windows": lambda x: x.unfold(0, 2, 8),
    "half a spectrum": lambda x: paddle.fft.rfft(x, axis=0).abs(),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_what_has_windows_or_a_bound_along_samples(name, captures):
    """Of which two numbers of samples may not tell."""

    def fn(p, x):
        return (BOUNDED[name](x) ** 2).mean() * net(p, x).mean()

    program = jit(value_and_grad(fn), strict=True)
    sizes = 6, 7, 12, 4, 33
    for n in (*sizes, *[12] * 36, 9, 33):
        assert_as_called(program, value_and_grad(fn), n)
    assert [*dict.fromkeys(captures)] == [*sizes, 9]


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transforms(name, captures):
    assert_captured_for(TRANSFORMED[name], SIZES, [64, 32], captures)


def test_without_jit(captures):
    def loss(p, x):
        return (net(p, x) ** 2).mean()

    for _ in range(6):
        value_and_grad(loss)(P, randn([64, 3], dtype=D))
        value_and_grad(loss)(P, randn([32, 3], dtype=D))
    before = [*captures]
    for n in (48, 5, 600):
        for _ in range(6):
            assert_as_called(value_and_grad(loss), value_and_grad(loss), n)
    assert before
    assert captures == before


@pytest.mark.parametrize("most", [0, 1 << 28])
def test_derivatives_by_points_up_to_what_goes_in_blocks(captures, most, monkeypatch):
    monkeypatch.setattr("paddle_chainrules.programs.batches.blocks.WHOLE", most)

    def loss(p, x):
        return (derivatives(net, p, x, ((0, 2, 0),))[0] ** 2).mean()

    sizes = 64, 40, PROBE, 3, PROBE + 1, 2000
    expected = [64, 40] if most else [64, 40, PROBE + 1, 2000]
    assert_captured_for(value_and_grad(loss), sizes, expected, captures)


def test_arguments_that_vary_apart(captures):
    def loss(p, x, z):
        return (net(p, x) ** 2).mean() + (net(p, z) ** 3).mean()

    fn = value_and_grad(loss)
    program = jit(fn, strict=True)
    for m, n in ((20, 9), (20, 14), (20, 5), (21, 9), (33, 9), (33, 33), (12, 12)):
        x, z = randn([m, 3], dtype=D), randn([n, 3], seed=1, dtype=D)
        with programs_disabled():
            expected = tensors_of(fn(P, x, z))
        for a, b in zip(tensors_of(program(P, x, z)), expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=1e-12)
    assert captures.count(5) == 0


class Own(paddle.nn.Layer):
    """A layer of somebody's, which decides by the number of samples."""

    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x) / (2.0 if x.shape[0] > 40 else 1.0)


def test_layers_of_others_are_not_trusted(captures):
    own, params, _ = stateless(Own().to(dtype=D), jit=True)
    program = jit(lambda p, x: own(params, x), strict=True)
    for n in (64, 48, 32, 16):
        assert_as_called(program, lambda p, x: own(params, x), n)


def test_a_step_of_scan_is_for_its_number_of_samples():
    @jit
    def step(x, _):
        return paddle.tanh(x @ W), x.mean()

    for n in (4, 6, 9, 5):
        x = randn([n, 3], seed=n, dtype=D)
        found, means = scan(step, x, length=20)
        for k in range(20):
            np.testing.assert_allclose(means[k].item(), x.mean().item(), rtol=1e-10)
            x = paddle.tanh(x @ W)
        np.testing.assert_allclose(found.numpy(), x.numpy(), rtol=0, atol=1e-12)


def test_errors_are_as_without():
    fixed = randn([64, 2], dtype=D)
    program = jit(lambda p, x: net(p, x) + fixed)
    for n in (64, 32, 16):
        x = randn([n, 3], dtype=D)
        is_wrong = n != 64
        with (
            pytest.raises(ValueError, match="Broadcast")
            if is_wrong
            else (contextlib.nullcontext())
        ):
            program(P, x)
