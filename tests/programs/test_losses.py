"""Losses in programs, where differences of the operator's values say nothing."""

import paddle
import paddle.nn.functional as F
import pytest

from conftest import assert_same, randn
from paddle_chainrules import jit, make_program, value_and_grad

LABELS = paddle.to_tensor([[1, 2, 2], [3, 1, 0]], "int32")
X = randn([6, 2, 5], "float64")
LENGTHS = paddle.to_tensor([6, 4]), paddle.to_tensor([3, 2])


def unit(seed, dtype="float32"):
    return F.sigmoid(randn([4, 1], dtype, seed=seed))


def test_log_loss():  # of which Paddle has no kernel in float64
    def by_hand(x, y):
        return -(y * paddle.log(x + 1e-4) + (1 - y) * paddle.log(1 - x + 1e-4)).sum()

    program = jit(value_and_grad(lambda x: F.log_loss(x, unit(1)).sum()))
    make_program(value_and_grad(lambda x: F.log_loss(x, unit(1)).sum()))(unit(0))
    value, grad = program(unit(0))
    expected, slope = value_and_grad(by_hand)(unit(0), unit(1))
    assert_same(value, expected, rtol=1e-5)
    assert_same(grad, slope, rtol=1e-5)


def test_ctc_by_times():  # which is of the gradient alone
    def loss(x):
        return F.ctc_loss(x, LABELS, *LENGTHS, norm_by_times=True)

    make_program(value_and_grad(loss))(X)
    found, expected = jit(value_and_grad(loss))(X), value_and_grad(loss)(X)
    assert_same(found[0], expected[0])
    assert_same(found[1], expected[1], rtol=1e-12)


@pytest.mark.parametrize("program", [lambda f: f, jit])
def test_logits_of_zero(program):
    """Beside the sigmoid's own slope, by labels that are differentiated too."""
    x, label = paddle.zeros([3], "float64"), randn([3], "float64")

    def loss(x, y):
        return F.binary_cross_entropy_with_logits(x, y, reduction="sum")

    grads = program(value_and_grad(loss, argnums=(0, 1)))(x, label)[1]
    assert_same(grads[0], 0.5 - label, rtol=1e-12)
    assert_same(grads[1], -x)


@pytest.mark.parametrize("program", [lambda f: f, jit])
def test_one_variance_for_every_row(program):
    x, y = randn([3, 3], "float64"), randn([3, 3], "float64", seed=1)
    variance = paddle.exp(randn([3], "float64", seed=2))

    def loss(x, variance):
        return F.gaussian_nll_loss(x, y, variance)

    def spread(x, variance):
        return F.gaussian_nll_loss(x, y, variance.unsqueeze(-1).expand([3, 3]))

    found = program(value_and_grad(loss, argnums=(0, 1)))(x, variance)
    expected = value_and_grad(spread, argnums=(0, 1))(x, variance)
    assert_same(found[0], expected[0], rtol=1e-12)
    for grad, slope in zip(found[1], expected[1], strict=True):
        assert_same(grad, slope, rtol=1e-12)


def test_arguments_are_checked_where_a_program_is_made():
    x = paddle.full([3], 1.5, "float64")

    def fn(y):
        return paddle.gammainc(x, y).sum()

    y = paddle.to_tensor([0.5, 1.0, 2.5], "float64")
    make_program(fn)(y)
    assert_same(jit(fn)(y), fn(y))
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        jit(fn)(-y)
