"""Derivatives by the input of nets of many kinds, beside PyTorch's nested gradients."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest

from conftest import assert_same
from nets.written_once import NETS, PADDLE, WANTED, drawn
from paddle_chainrules import derivatives, grad, jit, laplacian, value_and_grad

torch = pytest.importorskip("torch")


def by_hand(x):
    """Rows of mean 0 and variance 1; layer_norm's third derivative is wrong in PyTorch.

    Paddle's kernel has its epsilon in single precision.
    """
    x = x - x.mean(-1, keepdim=True)
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + float(np.float32(1e-5)))


def selu(x):
    """With the constants of Paddle's kernel, which are in single precision."""
    scale, alpha = (
        float(np.float32(c)) for c in (1.0507009873554805, 1.6732632423543772)
    )
    return scale * torch.where(x > 0, x, alpha * torch.expm1(torch.clamp(x, max=0)))


TORCH = SimpleNamespace(
    **{n: getattr(torch, n) for n in ("tanh", "sin", "cos", "exp", "einsum")},
    **{n: getattr(torch.nn.functional, n) for n in ("silu", "gelu", "mish", "softmax")},
    **{n: getattr(torch.nn.functional, n) for n in ("softplus", "log_softmax")},
    selu=selu,
    sigmoid=torch.sigmoid,
    stack=torch.stack,
    concat=torch.cat,
    cumsum=torch.cumsum,
    mean=lambda x, axis: torch.mean(x, axis, keepdim=True),
    norm=lambda x, w, b: by_hand(x) * w + b,
    group=lambda x, w, b: by_hand(x.reshape(-1, 2, 3)).reshape(-1, 6) * w + b,
    conv=lambda x, w, b: torch.nn.functional.conv1d(x, w, b, padding=1),
    pool=lambda x: torch.nn.functional.avg_pool1d(x, 2),
    attention=lambda q, k, v: (
        torch.softmax(q @ k.transpose(-1, -2) / float(q.shape[-1]) ** 0.5, -1) @ v
    ),
    spectrum=lambda x: torch.fft.rfft(x).abs(),
)


def by_torch(net, params, x, wanted):
    """The same by gradients of gradients."""
    params = {k: torch.tensor(v.numpy(), requires_grad=True) for k, v in params.items()}
    point = torch.tensor(x.numpy(), requires_grad=True)
    result = net(TORCH, params, point)
    found = {}
    for name, (out, *by) in wanted.items():
        part = result[:, out : out + 1]
        for i in by:
            (slope,) = torch.autograd.grad(part.sum(), point, create_graph=True)
            part = slope[:, i : i + 1]
        found[name] = part
    return found, params


@pytest.mark.parametrize("name", NETS)
def test_derivatives_equal_those_of_torch(name, count_case):
    net, params, x = drawn(name)
    found = derivatives(lambda p, x: net(PADDLE, p, x), params, x, WANTED)
    expected, _ = by_torch(net, params, x, WANTED)
    assert found.keys() == WANTED.keys()
    for key, value in found.items():
        like = expected[key].detach().numpy()
        scale = np.abs(like).max()
        assert_same(value, paddle.to_tensor(like), rtol=0, atol=1e-11 * scale)
        count_case("derivatives by the input, beside PyTorch")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", NETS)
def test_gradients_of_a_loss_of_them(name, count_case):
    net, params, x = drawn(name)
    weights = {key: 0.1 + 0.2 * i for i, key in enumerate(WANTED)}

    def loss(params):
        found = derivatives(lambda p, x: net(PADDLE, p, x), params, x, WANTED)
        return sum((w * found[key] ** 2).mean() for key, w in weights.items())

    value, grads = jit(value_and_grad(loss), strict=True)(params)
    expected, leaves = by_torch(net, params, x, WANTED)
    total = sum((w * expected[key] ** 2).mean() for key, w in weights.items())
    slopes = torch.autograd.grad(total, [*leaves.values()], allow_unused=True)
    assert abs(value.item() - total.item()) <= 1e-11 * total.item()
    near = (
        1e-7 if name == "selu" else 1e-11
    )  # the slope of Paddle's kernel is so far off
    for key, slope in zip(leaves, slopes, strict=True):
        like = slope.numpy()
        scale = np.abs(like).max()
        assert_same(grads[key], paddle.to_tensor(like), rtol=0, atol=near * scale)
        count_case("gradients of derivatives by the input, beside PyTorch")


def cubes(params, x):
    return params["w"].sum() + params["a"] * x.sum(-1, keepdim=True) ** 3


@pytest.mark.parametrize("shape", [[0], [0, 3], [2, 3]])
def test_parameters_of_no_elements_are_parameters(shape):
    x = paddle.rand([5, 2], "float64")
    params = {"w": paddle.zeros(shape, "float64"), "a": paddle.ones([1], "float64")}
    slopes, bends = derivatives(cubes, params, x, [(1, 0), (1, 1)])
    sums = x.sum(-1, keepdim=True)
    assert_same(slopes, 3 * sums**2)
    assert_same(bends, 6 * sums)
    assert slopes.stop_gradient
    assert bends.stop_gradient

    def both(params):
        value, bend = derivatives(cubes, params, x, [(0, 0), (2, 0)])
        return value.sum() + bend.sum()

    for found in grad(both)(params), jit(grad(both))(params):
        assert_same(found["a"], (sums**3 + 6 * sums).sum(0))
        assert_same(found["w"], 5 + 0 * params["w"])
    assert_same(grad(lambda x: laplacian(cubes, params, x).sum())(x), 12 + 0 * x)


@pytest.mark.parametrize("transform", [derivatives, laplacian])
def test_what_is_made_at_the_first_call_has_gradients_from_it_on(transform):
    made = []

    def lazy(params, x):
        if not made:
            made.append(paddle.full([1], 3.0, "float64"))
            made[0].stop_gradient = False
        return made[0] * params["a"] * (x**2).sum(-1, keepdim=True)

    x = paddle.rand([5, 2], "float64")
    params = {"a": paddle.ones([1], "float64")}
    asked = ([(2, 0)],) if transform is derivatives else ()
    for _ in range(3):
        found = transform(lazy, params, x, *asked)
        bend = found[0] if transform is derivatives else found
        (slope,) = paddle.grad(bend.sum(), made)
        assert_same(slope, bend.sum().reshape([1]) / 3)
