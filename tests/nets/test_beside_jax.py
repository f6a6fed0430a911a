"""Derivatives by the input beside JAX: jet, nested Jacobians, Hessians of rows."""

import numpy as np
import pytest

from conftest import randn
from paddle_chainrules import FCNet, derivatives, forward_laplacian, laplacian, taylor

jax = pytest.importorskip("jax")
from jax import numpy as jnp  # noqa: E402
from jax.experimental import jet  # noqa: E402

ACTIVATIONS = {
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "sin": jnp.sin,
    "silu": lambda x: x * jax.nn.sigmoid(x),
    "softplus": jax.nn.softplus,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
}
JETS = ("tanh", "sin", "silu")
"""Of those the ones that JAX's jet takes exactly."""


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def net_of(activation):
    """The net, its parameters, the same of one row in JAX, and rows."""
    net = FCNet((3, 5, 4, 2), activation, "float64")
    params = net.init(0)
    arrays = {k: jnp.asarray(v.numpy()) for k, v in params.items()}

    def row(x):
        for i in range(3):
            x = x @ arrays[f"{i}.weight"] + arrays[f"{i}.bias"]
            x = x if i == 2 else ACTIVATIONS[activation](x)
        return x

    x = randn([7, 3], "float64", 1)
    return net, params, row, x, jnp.asarray(x.numpy())


def assert_near(found, like):
    like = np.asarray(like)
    assert list(found.shape) == list(like.shape)
    assert np.abs(found.numpy() - like).max() <= 1e-11 * np.abs(like).max()


@pytest.mark.parametrize("activation", JETS)
def test_taylor_series_equal_jet(activation, count_case):
    net, params, row, x, rows = net_of(activation)
    v = randn([3], "float64", 2)
    found = taylor(net, params, x, v, 4)
    direction = jnp.broadcast_to(jnp.asarray(v.numpy()), rows.shape)
    series = [direction, *[jnp.zeros_like(rows)] * 3]
    value, parts = jet.jet(row, (rows,), (series,))
    for ours, theirs in zip(found, [value, *parts], strict=True):
        assert_near(ours, theirs)
        count_case("Taylor series beside JAX's jet")


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_mixed_derivatives_equal_nested_jacobians(activation, count_case):
    net, params, row, x, rows = net_of(activation)
    slope = row
    for axis in (0, 2, 2, 1):  # u_xzzy, and what comes before it
        slope = _by(slope, axis)
    (found,) = derivatives(net, params, x, [(1, 1, 2)])
    assert_near(found, jax.vmap(slope)(rows))
    count_case("mixed derivatives beside JAX")


def _by(fn, axis):
    return lambda x: jax.jvp(fn, (x,), (jnp.zeros_like(x).at[axis].set(1.0),))[1]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_laplacians_equal_hessians_of_rows(activation, count_case):
    net, params, row, x, rows = net_of(activation)
    hessians = jax.vmap(jax.hessian(row))(rows)
    matrix = randn([3, 3], "float64", 3)
    assert_near(laplacian(net, params, x), jnp.einsum("noii->no", hessians))
    weighted = jnp.einsum("noij,ij->no", hessians, jnp.asarray(matrix.numpy()))
    assert_near(laplacian(net, params, x, matrix), weighted)
    value, jacobian, _ = forward_laplacian(net, params, x)
    assert_near(value, jax.vmap(row)(rows))
    assert_near(jacobian, jax.vmap(jax.jacrev(row))(rows))
    count_case("Laplacians beside JAX's Hessians")
