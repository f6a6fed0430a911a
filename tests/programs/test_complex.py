"""Programs of complex numbers, and Fourier transforms in layers."""

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
from paddle_chainrules.programs.capture import capture


def drawn(*shape, seed=0, dtype="complex128"):
    rng = np.random.default_rng(seed)
    parts = rng.uniform(-1.5, 1.5, (2, *shape))
    number = parts[0] + 1j * parts[1] if dtype.startswith("complex") else parts[0]
    return paddle.to_tensor(number.astype(dtype))


Z, X = drawn(3, 4), drawn(3, 4, seed=1, dtype="float64")

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


def close(found, like, rtol=1e-10):
    for a, b in zip(found, like, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        scale = np.abs(b.numpy()).max(initial=0.0)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=rtol * scale)


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
