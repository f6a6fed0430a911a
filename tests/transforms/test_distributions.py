"""Densities of ``paddle.distribution`` in transforms, beside loops and differences."""

import numpy as np
import paddle
import pytest
from paddle import distribution as D

import paddle_chainrules as pc
from conftest import assert_same
from differences import slopes_of


def tensors(*rows):
    return [paddle.to_tensor(row, "float64") for row in rows]


FIRST, SECOND, AT = tensors([1.3, 2.1, 3.4], [0.7, 1.6, 2.2], [0.25, 0.4, 0.8])
PROBABILITIES = paddle.to_tensor([0.2, 0.5, 0.3], "float64")
EYE = paddle.eye(3, dtype="float64")
LOWER = EYE + paddle.to_tensor(
    [[0.0] * 3, [0.2, 0.0, 0.0], [0.1, -0.3, 0.0]], "float64"
)

DENSITIES = {
    "Normal": lambda a, b, x: D.Normal(a, b).log_prob(x),
    "Laplace": lambda a, b, x: D.Laplace(a, b).log_prob(x),
    "Cauchy": lambda a, b, x: D.Cauchy(a, b).log_prob(x),
    "Gumbel": lambda a, b, x: D.Gumbel(a, b).log_prob(x),
    "LogNormal": lambda a, b, x: D.LogNormal(a, b).log_prob(x),
    "Beta": lambda a, b, x: D.Beta(a, b).log_prob(x),
    "Gamma": lambda a, b, x: D.Gamma(a, b).log_prob(x),
    "Exponential": lambda a, b, x: D.Exponential(a * b).log_prob(x),
    "StudentT": lambda a, b, x: D.StudentT(a, b, b * 2.0).log_prob(x),
    "Chi2": lambda a, b, x: D.Chi2(a * b).log_prob(x),
    "Bernoulli": lambda a, b, x: D.Bernoulli(x).entropy() * a * b,
    "Geometric": lambda a, b, x: D.Geometric(x).entropy() * a * b,
    "Dirichlet": lambda a, b, x: D.Dirichlet(a * PROBABILITIES + b).log_prob(
        PROBABILITIES
    ),
    "LKJCholesky": lambda a, b, x: D.LKJCholesky(3, a * b).log_prob(LOWER).sum() * x,
    "Normal, by kl": lambda a, b, x: D.kl_divergence(D.Normal(a, b), D.Normal(x, b)),
    "Gamma, by kl": lambda a, b, x: D.kl_divergence(D.Gamma(a, b), D.Gamma(b, x)),
    "MultivariateNormal": lambda a, b, x: D.MultivariateNormal(
        x * PROBABILITIES, covariance_matrix=a * EYE + 0.1
    ).log_prob(b * PROBABILITIES),
    "Transformed": lambda a, b, x: D.TransformedDistribution(
        D.Normal(a, b), [D.AffineTransform(paddle.zeros([1], "float64"), 2.0 * b)]
    ).log_prob(x),
}


@pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")
@pytest.mark.parametrize("name", DENSITIES)
def test_densities(name):
    def density(a, b, x):
        return DENSITIES[name](a, b, x).sum()

    gradient = pc.grad(density, argnums=(0, 1, 2))
    rows = [*zip(FIRST, SECOND, AT, strict=True)]
    each = [gradient(*row) for row in rows]
    for row, found in zip(rows, each, strict=True):
        for k, slope in enumerate(slopes_of(density, *row)):
            np.testing.assert_allclose(found[k], slope, rtol=2e-6, atol=1e-8)
    stacked = tuple(map(paddle.stack, zip(*each, strict=True)))
    for batched in (pc.vmap(gradient), pc.jit(pc.vmap(gradient))):
        assert_same(batched(FIRST, SECOND, AT), stacked, rtol=1e-9, atol=1e-11)
    values = paddle.stack([density(*row) for row in rows])
    assert_same(pc.jit(pc.vmap(density))(FIRST, SECOND, AT), values, rtol=1e-10)


def test_what_paddle_has_not_is_said_by_paddle():
    with pytest.raises(NotImplementedError) as caught:
        pc.grad(lambda p: D.Geometric(p).log_prob(AT[0]))(AT[1])
    assert "rule" not in str(caught.value)


@pytest.mark.parametrize("value", [lambda x: x.sum(), lambda x: x[0]])
def test_filled_with_a_value(value):
    def full(x):
        return paddle.full([2, 3], value(x)) * paddle.full_like(x, value(x))

    x = paddle.to_tensor([[0.5, 2.0, 3.0], [1.5, -1.0, 0.25]])
    looped = paddle.stack([full(row) for row in x])
    assert_same(pc.vmap(full)(x), looped, rtol=1e-6)
    assert_same(pc.jit(full, strict=True)(x[0]), looped[0], rtol=1e-6)
