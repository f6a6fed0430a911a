"""Programs of complex numbers, and Fourier transforms in layers."""

from functools import partial

import numpy as np
import paddle
import pytest
from paddle import fft, nn

from differential.verdicts import Differences, apart
from paddle_chainrules import (
    CaptureError,
    grad,
    jit,
    jvp,
    make_program,
    stateless,
    value_and_grad,
    vjp,
)
from paddle_chainrules.programs import capture
from trees import assert_near

close = partial(assert_near, rtol=1e-10, least=0.0)


def drawn(*shape, seed=0, dtype="complex128"):
    rng = np.random.default_rng(seed)
    parts = rng.uniform(-1.5, 1.5, (2, *shape))
    number = parts[0] + 1j * parts[1] if dtype.startswith("complex") else parts[0]
    return paddle.to_tensor(number.astype(dtype))


Z, X = drawn(3, 4), drawn(3, 4, seed=1, dtype="float64")
MASK = drawn(3, 4, seed=2, dtype="float64") > 0.2

FUNCTIONS = {
    "of complex numbers": lambda z, x: paddle.sin(z) * z.conj() / (z * z + 4.0 + x),
    "numbers of Python": lambda z, x: (x * (1 + 2j) - 1j / (x + 3.0)) * (2j - z),
    "parts": lambda z, x: (z.real() * x + z.imag(), paddle.angle(z) * paddle.abs(z)),
    "made of parts": lambda z, x: paddle.complex(x, paddle.as_real(z)[..., 1]) * z,
    "on the circle": lambda z, x: paddle.sgn(z) * paddle.polar(x * x, x),
    "real and complex": lambda z, x: (x * z, z - x, paddle.where(x > 0, z, z * x)),
    "powers": lambda z, x: z**3 + (z + 4.0) ** 0.5 + (x + 4.0) ** (z - 1j),
    "matrices": lambda z, x: paddle.matmul(z, x.T) @ z,
    "written into": lambda z, x: written_into(z, x),
    "there and back": lambda z, x: fft.irfft(fft.rfft(x) * z[:, :3], 4),
    "in two dimensions": lambda z, x: fft.irfft2(
        fft.rfft2(x, norm="ortho") ** 2 * z[:, :3], (3, 4)
    ),
    "of a Hermitian signal": lambda z, x: fft.hfft(z, 5) * fft.ihfft(x, 9).abs(),
    "padded and cut": lambda z, x: fft.fftn(z, s=(4, 3)) * fft.ifft2(x, s=(4, 3)),
    "shifted": lambda z, x: fft.ifftshift(fft.fft(fft.fftshift(z))) * x,
    "in frames": lambda z, x: in_frames(x) * z.real()[:, :1],
    "masked": lambda z, x: (
        paddle.masked_select(z * z, MASK) * x[0, 0],
        paddle.masked_fill(z * x, MASK, 2.0) * z + paddle.masked_fill(z, MASK, z[0, 1]),
    ),
}


def written_into(z, x):
    whole = paddle.zeros([3, 4], "complex128")
    whole[:, :2] = z[:, 1:3] * x[:, :2]
    whole[1] = x[0]
    return whole * z


def in_frames(x):
    rows = paddle.signal.frame(x, 2, 1)
    spectrum = fft.rfft(rows, axis=1) * 1j
    return paddle.signal.overlap_add(fft.irfft(spectrum, axis=1), 1)


def parts_of(found):
    return [*found] if isinstance(found, tuple) else [found]


def each_function(test):
    return pytest.mark.parametrize("name", FUNCTIONS)(test)


def loss_of(function):
    def loss(z, x):
        total = 0.0
        for k, part in enumerate(parts_of(function(z, x))):
            row = paddle.as_real(part) if part.is_complex() else part
            weights = paddle.cos(paddle.arange(row.size, dtype=row.dtype) + k)
            total = total + (row.reshape([-1]) ** 2 * weights).sum()
        return total

    return loss


@each_function
def test_gradients_are_those_of_differences_and_of_the_tape(name, count_case):
    loss = loss_of(FUNCTIONS[name])
    value, grads = jit(value_and_grad(loss, argnums=(0, 1)), strict=True)(Z, X)
    expected = Differences(lambda given: [loss(*given)], [Z, X], [0, 1])
    slopes = expected.gradients([np.array(1.0)])
    for k in range(2):
        assert not apart(grads[k], slopes[k], 0.0, False), k
    like, tape = value_and_grad(loss, argnums=(0, 1))(Z, X)
    close([value, *grads], [like, *tape])
    count_case("complex programs, gradients")


@each_function
def test_gradients_of_gradients_are_those_of_differences(name, count_case):
    loss = loss_of(FUNCTIONS[name])

    def squares(z, x):
        by_z, by_x = grad(loss, argnums=(0, 1))(z, x)
        return (paddle.as_real(by_z) ** 2).sum() + (by_x**2).sum()

    def slope(given):
        return grad(squares, argnums=(0, 1))(*given)

    # Not compared with Paddle's own, which are wrong or missing.
    value = capture(lambda given: [squares(*given)], [Z, X], check=False).program
    found = capture(slope, [Z, X], check=False).program(Z, X)
    expected = Differences(lambda given: value(*given), [Z, X], [0, 1])
    slopes = expected.gradients([np.array(1.0)])
    for k in range(2):
        assert not apart(found[k], slopes[k], 0.0, False), k
    count_case("complex programs, gradients of gradients")


@each_function
def test_vjp_and_jvp_of_programs_are_those_of_functions(name):
    function = FUNCTIONS[name]
    compiled = jit(function, strict=True)
    y, pullback = vjp(compiled, Z, X)
    like, pullback_like = vjp(function, Z, X)
    close(parts_of(y), parts_of(like))
    seeds = tuple(
        drawn(*part.shape, seed=7 + k, dtype=str(part.dtype).removeprefix("paddle."))
        for k, part in enumerate(parts_of(y))
    )
    seeds = seeds if isinstance(y, tuple) else seeds[0]
    close(pullback(seeds), pullback_like(seeds))
    tangents = drawn(3, 4, seed=11), drawn(3, 4, seed=12, dtype="float64")
    try:
        _, dy = jvp(function, (Z, X), tangents)
    except NotImplementedError:
        return  # of which Paddle has no second derivative
    _, found = jvp(compiled, (Z, X), tangents)
    close(parts_of(found), parts_of(dy))


ROUNDED = {
    "exp": (paddle.exp, np.exp, np.exp, np.exp),
    "sigmoid": (
        nn.functional.sigmoid,
        lambda z: 1 / (1 + np.exp(-z)),
        lambda z: np.exp(-z) / (1 + np.exp(-z)) ** 2,
        lambda z: np.exp(-z) * (np.exp(-z) - 1) / (1 + np.exp(-z)) ** 3,
    ),
    "silu": (
        nn.functional.silu,
        lambda z: z / (1 + np.exp(-z)),
        lambda z: (1 + np.exp(-z) * (1 + z)) / (1 + np.exp(-z)) ** 2,
        lambda z: np.exp(-z) * (2 - z + np.exp(-z) * (2 + z)) / (1 + np.exp(-z)) ** 3,
    ),
}
"""Paddle computes them with single precision, which differences make much of."""


@pytest.mark.parametrize("name", ROUNDED)
def test_what_paddle_rounds_has_its_derivatives(name):
    function, value, slope, second = ROUNDED[name]

    def both(z, g):
        y, pullback = vjp(function, z)
        (by_z,) = pullback(g)
        return y, by_z

    def gradients(z, g, c):
        _, pullback = vjp(lambda z, g: both(z, g)[1], z, g)
        return pullback(c)

    z, g, c = Z.numpy(), drawn(3, 4, seed=3).numpy(), drawn(3, 4, seed=4).numpy()
    given = [*map(paddle.to_tensor, (z, g, c))]
    y, by_z = capture(lambda t: both(*t), given[:2], check=False).program(*given[:2])
    again, by_g = capture(lambda t: gradients(*t), given, check=False).program(*given)
    expected = (
        *(value(z), g * np.conj(slope(z))),
        *(np.conj(c) * g * np.conj(second(z)), c * slope(z)),
    )
    for found, like in zip((y, by_z, again, by_g), expected, strict=True):
        scale = np.abs(like).max()
        np.testing.assert_allclose(found.numpy(), like, rtol=0, atol=2e-6 * scale)


AS_IN_TORCH = {
    "masked_select": lambda lib, z, mask: lib.masked_select(z * z, mask),
    "masked_fill": lambda lib, z, mask: lib.masked_fill(z * z, mask, 2.0) * z,
    "sigmoid": lambda lib, z, mask: lib.nn.functional.sigmoid(z * z),
    "silu": lambda lib, z, mask: (
        z * lib.nn.functional.sigmoid(z)
        if lib is not paddle  # PyTorch, whose silu has no derivative of complex numbers
        else lib.nn.functional.silu(z)
    ),
}


@pytest.mark.parametrize("name", AS_IN_TORCH)
def test_gradients_of_gradients_outside_jit_are_those_of_torch(name):
    torch = pytest.importorskip("torch")
    function = AS_IN_TORCH[name]

    def squares(z):
        by_z = grad(lambda z: paddle.real(function(paddle, z, MASK) ** 2).sum())(z)
        return (paddle.real(by_z) ** 3 + paddle.imag(by_z) ** 2).sum()

    z, mask = torch.tensor(Z.numpy(), requires_grad=True), torch.tensor(MASK.numpy())
    loss = torch.real(function(torch, z, mask) ** 2).sum()
    (by_z,) = torch.autograd.grad(loss, z, create_graph=True)
    (expected,) = torch.autograd.grad((by_z.real**3 + by_z.imag**2).sum(), z)
    scale = float(expected.abs().max())
    for found in (grad(squares)(Z), jit(grad(squares), strict=True)(Z)):
        # Paddle computes sigmoid and silu with single precision.
        rtol = 1e-5 if name in ROUNDED else 1e-12
        np.testing.assert_allclose(found, expected, rtol=0, atol=rtol * scale)


def test_numbers_are_read_in_the_text_of_a_program():
    number = complex(-0.0, float("inf"))
    program = make_program(lambda x: x * 1j + number)(X)
    text = program.python()
    assert "t0 * complex(0.0, 1.0)" in text
    assert "complex(-0.0, float('inf'))" in text
    (found,) = program(X)
    np.testing.assert_array_equal(found.numpy(), (X * 1j + number).numpy())


@pytest.mark.parametrize("name", ["abs", "sign", "angle"])
def test_at_zero_there_is_no_slope(name):
    function = getattr(paddle, name)
    z = paddle.to_tensor(np.array([0j, 1 - 2j]))

    def size(z):
        out = function(z)
        row = paddle.as_real(out) if out.is_complex() else out
        return (row * row + row).sum()

    def slopes(z):
        return (paddle.as_real(grad(size)(z)) ** 2).sum()

    found = jit(grad(size), strict=True)(z).numpy()
    second = jit(grad(slopes), strict=True)(z).numpy()
    assert found[0] == second[0] == 0
    assert np.isfinite(found).all()
    assert np.isfinite(second).all()


def test_real_and_complex_arguments_on_the_graph_of_paddle():
    def function(z, x):
        return paddle.as_real(z * x).sum(-1) * x

    compiled = jit(function, strict=True)
    grads = []
    for call in (compiled, function):
        z, x = Z.clone(), X.astype("float32")
        z.stop_gradient = x.stop_gradient = False
        grads.append(paddle.grad((call(z, x) ** 2).sum(), [z, x]))
    close(*grads, rtol=1e-6)


def test_what_is_written_into_a_real_part_is_refused():
    def function(z):
        whole = z * 1.0
        whole.real().add_(paddle.ones([3, 4], "float64"))
        return whole

    with pytest.raises(CaptureError, match="by way of a view of another dtype"):
        make_program(function)(Z)
    np.testing.assert_array_equal(jit(function)(Z).numpy(), function(Z).numpy())


class Spectral(nn.Layer):
    """A layer of a Fourier neural operator (arXiv:2010.08895)."""

    def __init__(self, count, modes):
        super().__init__()
        self.modes = modes
        shape = [2, 2, count, count, *modes]
        self.weights = self.create_parameter(
            shape, default_initializer=nn.initializer.Uniform(-0.5, 0.5)
        )
        self.mix = nn.Conv2D(count, count, 1)

    def forward(self, x):
        batch, count, height, width = x.shape
        first, second = self.modes
        spectrum = fft.rfft2(x)
        found = paddle.zeros([batch, count, height, width // 2 + 1], spectrum.dtype)
        for k, rows in enumerate((slice(first), slice(-first, None))):
            part = spectrum[:, :, rows, :second].unsqueeze(2)
            weights = paddle.complex(self.weights[k, 0], self.weights[k, 1])
            found[:, :, rows, :second] = (part * weights).sum(1)
        y = fft.irfft2(found, s=(height, width))
        return nn.functional.gelu(y + self.mix(x))


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-5), ("float64", 1e-12)])
def test_a_fourier_neural_operator_is_a_program(dtype, rtol):
    paddle.seed(4)
    layer = nn.Sequential(Spectral(3, (2, 3)), Spectral(3, (2, 3))).to(dtype=dtype)
    net, params, _ = stateless(layer)
    x = drawn(2, 3, 7, 9, dtype=dtype)

    def loss(params, x):
        return (net.forward(params, x) ** 2).mean()

    step = value_and_grad(loss, argnums=(0, 1))
    value, (by_name, by_x) = jit(step, strict=True)(params, x)
    like, (names, xs) = step(params, x)
    close([value, *by_name.values(), by_x], [like, *names.values(), xs], rtol=rtol)
