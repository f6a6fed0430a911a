"""What an editor shows of the public functions: checked by mypy, and run."""

from typing import Any

import paddle
from paddle import Tensor
from typing_extensions import assert_type

from paddle_chainrules import (
    FCNet,
    Jacobian,
    NetPullback,
    Pullback,
    Pushforward,
    StatelessLayer,
    derivatives,
    divergence,
    grad,
    hvp,
    jacobian,
    jvp,
    laplacian,
    linearize,
    load_params,
    stateless,
    value_and_grad,
    vjp,
)

Weights = dict[str, Tensor]


def loss(w: Weights, x: Tensor) -> Tensor:
    return (w["a"] * x).sum()


def loss_and_count(w: Weights, x: Tensor) -> tuple[Tensor, int]:
    return loss(w, x), x.size


def cube(x: Tensor) -> Tensor:
    return x * x * x


w = {"a": paddle.to_tensor([1.0, 2.0])}
x = paddle.to_tensor([3.0, 4.0])

# Transforms: gradients have the type of what they are by, with aux a place more.
y, pullback = vjp(loss, w, x)
assert_type(y, Tensor)
assert_type(pullback, Pullback[tuple[Weights, Tensor]])
assert_type(pullback(y), tuple[Weights, Tensor])
assert_type(
    vjp(loss_and_count, w, x, has_aux=True),
    tuple[Tensor, Pullback[tuple[Weights, Tensor]], int],
)
by_w, by_x = vjp(lambda w, x: w["a"] * x, w, x)[1](x)
assert_type(by_w, Weights)
assert_type(by_x, Tensor)

assert_type(grad(loss)(w, x), Weights)
assert_type(grad(lambda x: (x * x).sum())(x), Tensor)
assert_type(grad(loss_and_count, has_aux=True)(w, x), tuple[Weights, int])
assert_type(grad(loss, argnums=(0, 1))(w, x), tuple[Any, ...])
assert_type(value_and_grad(loss)(w, x), tuple[Tensor, Weights])
assert_type(
    value_and_grad(loss_and_count, has_aux=True)(w, x),
    tuple[tuple[Tensor, int], Weights],
)
assert_type(value_and_grad(loss, (0, 1))(w, x), tuple[Tensor, tuple[Any, ...]])

assert_type(jvp(cube, (x,), (x,)), tuple[Tensor, Tensor])
assert_type(
    jvp(loss_and_count, (w, x), (w, x), has_aux=True), tuple[Tensor, Tensor, int]
)
assert_type(linearize(cube, x), tuple[Tensor, Pushforward[Tensor]])
assert_type(linearize(cube, x)[1](x), Tensor)
assert_type(jacobian(cube, x), Jacobian)
assert_type(hvp(lambda w: (w["a"] ** 3).sum(), w, w), Weights)

# Nets: an FCNet gives a tensor, a layer anything; with buffers their new values too.
net = FCNet((2, 3, 1), "tanh")
params = net.init(0)
batch = paddle.ones([4, 2])
assert_type(params, Weights)
assert_type(net(params, batch), Tensor)
assert_type(net.forward(params, batch), Tensor)
u, back = net.pullback(params, batch)
assert_type(u, Tensor)
assert_type(back, NetPullback[Weights])
assert_type(back(u), tuple[Weights, tuple[Any, ...]])
assert_type(net.vjp(params, batch, u), tuple[Weights, Tensor])
assert_type(net.vjp(params, (batch,), u), tuple[Weights, tuple[Tensor]])
theta = net.flatten(params)
assert_type(theta, Tensor)
assert_type(net.vjp(theta, batch, u), tuple[Tensor, Tensor])
assert_type(net.unflatten(theta), Weights)
assert_type(laplacian(net, params, batch), Tensor)
assert_type(divergence(net, params, batch, of=[0], by=[1]), Tensor)
assert_type(derivatives(net, params, batch, [(0, 0), (2, 0)]), tuple[Tensor, ...])

layer_net, layer_params, buffers = stateless(paddle.nn.BatchNorm1D(2))
assert_type(layer_net, StatelessLayer)
assert_type(layer_params, Weights)
assert_type(buffers, Weights)
out, layer_back = layer_net.pullback(layer_params, batch)
assert_type(layer_back, NetPullback[Weights])
assert_type(
    layer_net.forward(layer_params, batch, buffers=buffers), tuple[Any, Weights]
)
assert_type(
    layer_net.pullback(layer_params, batch, buffers=buffers),
    tuple[Any, NetPullback[Weights], Weights],
)
assert_type(layer_back(out, wrt="args"), tuple[Any, ...])


def read(path: str) -> Weights:
    return load_params(path, net)
