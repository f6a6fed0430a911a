"""Derivatives asked of PaddleScience's nets, call by call, as a script's own loop."""

import warnings

import numpy as np
import paddle
import pytest
from both_ways import (
    assert_equal,
    both_ways,
    gradients,
    points,
    steps_of,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    ppsci = pytest.importorskip("ppsci", reason="PaddleScience is not installed")

from ppsci.autodiff import hessian, jacobian
from ppsci.loss import mtl

from paddle_chainrules.adapters.paddlescience import taylor_mode

pytestmark = pytest.mark.usefixtures("in_double")


def mlp(inputs, outputs, **kw):
    return ppsci.arch.MLP(inputs, outputs, 2, 9, "tanh", **kw)


def compared(loss_of, *nets, given=(), warns=()):
    script = steps_of(nets, loss_of, ppsci.autodiff.clear)
    found, expected, mode = both_ways(script, lambda: taylor_mode(*given), warns)
    assert_equal(found, expected)
    return mode


def columns_of(k):
    return {key: points(9, 1, seed=2 * k + i) for i, key in enumerate("tx")}


def test_gradients_of_losses_that_are_projected():
    """By PCGrad, which walks back from each loss by itself."""
    net = mlp(("t", "x"), ("u",))

    def script():
        aggregator, found = mtl.PCGrad(net), []
        for k in range(5):
            np.random.seed(k)  # noqa: NPY002, which it draws from
            inner, edge = columns_of(k), columns_of(k + 50)
            u = net(inner)["u"]
            slope, bent = jacobian(u, inner["x"]), hessian(u, inner["t"])
            losses = {"u": ((slope - bent + u) ** 2).mean()}
            losses["edge"] = (net(edge)["u"] ** 2).mean()
            aggregator(losses, k).backward()
            ppsci.autodiff.clear()
            found.append(gradients(net))
            net.clear_gradients()
        return found

    found, expected, mode = both_ways(script, taylor_mode)
    assert_equal(found, expected)
    assert (mode.programs, mode.alone) == (4, 5)


def test_all_columns_of_one_tensor():
    """A row, and a Hessian of one that is given the row."""
    net = paddle.nn.Sequential(
        paddle.nn.Linear(3, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 2)
    )

    def loss(k):
        x = points(9, 3, seed=k)
        u = net(x)
        slope = jacobian(u, x, i=1)
        bent = hessian(u, x, component=1, i=2, j=1, grad_y=slope)
        found = (slope**2).sum(1, keepdim=True) + bent * u
        return (found + hessian(u, x, component=0)).mean(), [x]

    assert compared(loss, net, given=[net]).programs == 5


def test_several_nets_and_calls():
    first, second = mlp(("t", "x"), ("u",)), mlp(("t", "x"), ("v",))

    def loss(k):
        one, other = columns_of(k), columns_of(k + 50)
        u, v, w = first(one)["u"], second(one)["v"], first(other)["u"]
        found = jacobian(u, one["x"]) * hessian(v, one["t"]) + w * u * v
        return (found + jacobian(w, other["t"])).mean(), [*one.values()]

    mode = compared(loss, first, second)
    assert (mode.programs, mode.natively, mode.alone) == (15, 2, 1)


def test_an_expression_of_outputs():
    net = mlp(("t", "x"), ("u", "v"))

    def loss(k):
        given = columns_of(k)
        out = net(given)
        return jacobian(out["u"] * out["v"] + out["u"], given["x"]).mean(), []

    assert compared(loss, net).programs == 5


def test_indices_that_there_are_not():
    """Raise as ever, also where the derivative is known."""
    net = mlp(("t", "x"), ("u",))
    with taylor_mode():
        for k in range(3):
            given = columns_of(k)
            u = net(given)["u"]
            jacobian(u, given["x"]).sum().backward()
            ppsci.autodiff.clear()
        with pytest.raises(ValueError, match="dim_y"):
            hessian(u, given["x"], component=0)


def test_slopes_at_once_of_several_columns():
    """Which are those of their sum."""
    net = mlp(("t", "x"), ("u",), output_dim=3)

    def loss(k):
        given = columns_of(k)
        u = net(given)["u"]
        u_t, u_x = jacobian(u, [given["t"], given["x"]])
        return (u_t * u_x + u[:, :1]).mean(), []

    assert compared(loss, net).programs == 5


@pytest.mark.parametrize("kind", [jacobian, hessian])
def test_derivatives_without_a_graph(kind):
    net = mlp(("t", "x"), ("u",))

    def loss(k):
        given = columns_of(k)
        u = net(given)["u"]
        known = kind(u, given["x"], create_graph=False, retain_graph=True)
        return (known * known + u).mean(), []

    compared(loss, net)


def test_nothing_is_left_of_it():
    from ppsci.arch.base import Arch
    from ppsci.autodiff import ad

    def patched():
        owners = paddle.Tensor, Arch, ad.Jacobians, ad.Hessians, ad
        return [dict(vars(owner)) for owner in owners]

    before = patched()
    with taylor_mode():
        assert patched() != before
    assert patched() == before


def test_vorticity_of_a_stream_function():
    """Derivatives of derivatives' sums, of which the script gets no warning."""
    net = mlp(("t", "x"), ("psi", "p"))

    def loss(k):
        one = columns_of(k)
        x, y = one.values()
        out = net(one)
        u, v = jacobian(out["psi"], y), -jacobian(out["psi"], x)
        w = jacobian(v, x) - jacobian(u, y)
        bent = hessian(w, x) + hessian(w, y)
        found = u * jacobian(w, x) + v * jacobian(w, y) - 0.1 * bent
        return (found**2).mean() + jacobian(out["p"], x).mean(), [x, y]

    assert compared(loss, net).programs == 5


@pytest.mark.parametrize("weight_norm", [True, False])
def test_nets_with_weight_norm(weight_norm):
    """By PaddleScience's own layer, and by Paddle's hook."""
    net = mlp(("t", "x"), ("u",), weight_norm=weight_norm)
    for layer in () if weight_norm else net.linears:
        paddle.nn.utils.weight_norm(layer, dim=1)

    def loss(k):
        one = columns_of(k)
        u = net(one)["u"]
        return ((hessian(u, one["x"]) - jacobian(u, one["t"])) ** 2).mean(), []

    assert compared(loss, net).programs >= 4
