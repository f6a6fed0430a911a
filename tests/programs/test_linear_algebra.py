"""Linear algebra in programs where it is delicate: zeros, ranks, whole functions."""

import numpy as np
import paddle
import pytest
from paddle import linalg

from conftest import IN_REGIONS, programs_on, randn
from paddle_chainrules import jit, make_program, value_and_grad
from paddle_chainrules.programs import capture


def tensor(*shape, seed=0):
    return paddle.to_tensor(np.random.default_rng(seed).standard_normal(shape))


def gradient(function):
    return lambda *given: value_and_grad(function)(*given)[1]


def program_of(function, *given):
    """Beside the tape, which goes less far."""
    return capture(lambda values: [function(*values)], given, check=False).program


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 2, 3, np.inf, -np.inf, -1])
def test_norms_of_zeros_have_a_slope_as_paddle_has_it_and_no_curvature(p):
    def norm(x):
        return linalg.norm(x, p, axis=1).sum()

    def twice(x):
        return (gradient(norm)(x) ** 2).sum()

    zero = paddle.zeros([2, 3], "float64")
    leaf = paddle.zeros([2, 3], "float64")
    leaf.stop_gradient = False
    (slope,) = paddle.grad(norm(leaf), leaf)
    (found,) = program_of(gradient(norm), zero)(zero)
    np.testing.assert_array_equal(found.numpy(), slope.numpy())
    # Of sums of absolute values and of the largest it is that of abs.
    expected = 0.0 if p in (1, np.inf, -np.inf) else np.nan
    (found,) = program_of(gradient(twice), zero)(zero)
    np.testing.assert_array_equal(found.numpy(), np.full((2, 3), expected))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_determinants_of_small_singular_matrices_have_their_slopes(n):
    x = paddle.diag(paddle.arange(n, dtype="float64"))
    (found,) = program_of(gradient(linalg.det), x)(x)
    expected = np.zeros((n, n))
    expected[0, 0] = np.prod(np.arange(1.0, n))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


def test_least_squares_without_full_rank_have_no_gradient():
    x, y = tensor(5, 3), tensor(5, 2, seed=1)
    whole = program_of(gradient(lambda x, y: linalg.lstsq(x, y)[0].sum()), x, y)
    x[:, 2] = x[:, 1]
    assert np.isnan(whole(x, y)[0].numpy()).all()


def test_an_ellipsis_that_is_broadcast_in_einsum():
    def f(x, y):
        return paddle.einsum("...ij,...jk->i...", x, y).sin().sum()

    def g(x, y):
        return (x @ y).sum(-1).sin().sum()

    given = tensor(2, 1, 3, 4), tensor(5, 4, 6, seed=1)
    found, expected = (jit(value_and_grad(h, argnums=(0, 1)))(*given) for h in (f, g))
    for a, b in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10, atol=1e-12)


def test_reflections_are_differentiated_and_what_they_are_made_of_stays():
    x, tau = tensor(2, 4, 3), tensor(2, 2, seed=1)
    before = x.numpy()
    function = value_and_grad(lambda *a: linalg.householder_product(*a).sin().sum())
    value, slope = jit(function)(x, tau)
    np.testing.assert_array_equal(x.numpy(), before)
    step = paddle.to_tensor(np.random.default_rng(2).standard_normal([2, 4, 3]))

    def at(h):  # of a copy, since Paddle's writes into what it is given
        moved = x + step * h
        return float(linalg.householder_product(moved, tau).sin().sum())

    assert float(value) == pytest.approx(at(0.0))
    along = (at(1e-5) - at(-1e-5)) / 2e-5
    assert float((slope * step).sum()) == pytest.approx(along, rel=1e-7)


@programs_on
def test_exponentials_of_matrices_take_as_many_squarings_as_they_need():
    x = tensor(3, 3)
    whole = jit(value_and_grad(lambda x: linalg.matrix_exp(x).sum()))
    trace = jit(value_and_grad(lambda x: linalg.matrix_exp(x).trace()))
    for scale in (0.01, 1.0, 9.0):
        value, slope = whole(x * scale)
        again = linalg.matrix_exp(x * scale)
        assert float(value) == pytest.approx(float(again.sum()), rel=1e-12)
        # By the trace, whose derivative is the exponential itself.
        _, of_trace = trace(x * scale)
        np.testing.assert_allclose(of_trace.T.numpy(), again.numpy(), rtol=1e-9)
    assert slope.shape == [3, 3]


def test_eigenvalues_of_a_large_matrix_are_matched_with_their_vectors():
    x = tensor(160, 160)  # from some size on LAPACK gives them in another order
    weights = tensor(160, seed=1)

    def f(x):
        return (paddle.real(linalg.eigvals(x)) * weights).sum()

    (slope,) = program_of(gradient(f), x)(x)
    step = tensor(160, 160, seed=2) * 1e-6
    values = linalg.eigvals(x).numpy()

    def nearest(others):
        return others[np.abs(values[:, None] - others).argmin(1)]

    plus, minus = (nearest(linalg.eigvals(x + s * step).numpy()) for s in (1, -1))
    along = ((plus - minus).real * weights.numpy()).sum() / 2
    assert float((slope * step).sum()) == pytest.approx(along, rel=1e-4)


@pytest.mark.skipif(IN_REGIONS, reason="machine code rounds otherwise")
def test_long_sums_of_linear_layers_have_the_bits_of_paddle():
    x, weight, bias = (randn(n) for n in ([3, 3000], [3000, 5], [5]))
    linear = paddle.nn.functional.linear
    (found,) = make_program(linear)(x, weight, bias)(x, weight, bias)
    np.testing.assert_array_equal(found.numpy(), linear(x, weight, bias).numpy())
