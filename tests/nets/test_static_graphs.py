"""Nets and transforms within functions that ``paddle.jit.to_static`` is given."""

import gc
import sys

import paddle
import pytest

import watching
from conftest import assert_same, randn
from paddle_chainrules import (
    CaptureError,
    FCNet,
    derivative,
    derivatives,
    forward_laplacian,
    grad,
    hessian,
    hvp,
    jacfwd,
    jacobian,
    jacrev,
    jit,
    jvp,
    laplacian,
    linearize,
    stateless,
    taylor,
    value_and_grad,
    vjp,
    vmap,
)

pytestmark = pytest.mark.filterwarnings("ignore:Dy2Static")


@pytest.fixture(autouse=True, scope="module")
def _frozen():
    """Paddle collects garbage for each frame that it translates."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _unwatched(monkeypatch):
    watching.leave_nets(monkeypatch)
    paddle.jit.enable_to_static(True)  # which PaddleScience's solver turns off


NET = FCNet((2, 5, 3), "tanh", "float64")
PARAMS = NET.init(0)
X = randn([4, 2], "float64")


def layer():
    with paddle.utils.unique_name.guard():
        made = paddle.nn.Sequential(paddle.nn.Linear(2, 5), paddle.nn.Tanh())
    return made.to(dtype="float64")


LAYER = layer()
OTHER, OWN, _ = stateless(LAYER)


def cubes(x):
    return (x**3).sum()


FAST = jit(cubes)
_, BACK = vjp(cubes, X)
_, NET_BACK = OTHER.pullback(OWN, X)
_, FORWARD = linearize(cubes, X)


def of_pullback(x):
    y, pullback = OTHER.pullback(OWN, x)
    return pullback(y)[1][0]


def of_loop(x):
    for _ in range(2):
        x = x + NET(PARAMS, x)[:, :2]
    return x


def of_new_net(x):
    net, params, _ = stateless(LAYER)
    return net(params, x)


def of_old_pullback(x):
    return NET_BACK(paddle.concat([x, x, x[:, :1]], 1))[1][0]


CALLS = {
    "FCNet.forward": lambda x: NET.forward(PARAMS, x),
    "FCNet": lambda x: NET(PARAMS, x) * 2,
    "FCNet.vjp": lambda x: NET.vjp(PARAMS, x, NET(PARAMS, x))[1],
    "StatelessLayer.forward": lambda x: OTHER.forward(OWN, x),
    "buffers": lambda x: OTHER(OWN, x, buffers={})[0],
    "pullback": of_pullback,
    "pullback from outside": of_old_pullback,
    "loop": of_loop,
    "stateless": of_new_net,
    "jit": lambda x: FAST(x),
    "grad": lambda x: grad(cubes)(x),
    "value_and_grad": lambda x: value_and_grad(cubes)(x)[1],
    "vjp": lambda x: vjp(cubes, x)[1](paddle.ones([], "float64"))[0],
    "vjp from outside": lambda x: BACK(x.sum())[0],
    "jvp": lambda x: jvp(cubes, (x,), (x,))[1],
    "linearize": lambda x: linearize(cubes, x)[1](x),
    "linearize from outside": lambda x: FORWARD(x),
    "vmap": lambda x: vmap(cubes)(x),
    "jacrev": lambda x: jacrev(cubes)(x),
    "jacfwd": lambda x: jacfwd(cubes)(x),
    "jacobian": lambda x: jacobian(cubes, x).tensor(),
    "hessian": lambda x: hessian(cubes)(x),
    "hvp": lambda x: hvp(cubes, x, x),
    "laplacian": lambda x: laplacian(NET, PARAMS, x),
    "forward_laplacian": lambda x: forward_laplacian(NET, PARAMS, x)[1],
    "derivative": lambda x: derivative(NET, PARAMS, x, (1, 1)),
    "derivatives": lambda x: derivatives(NET, PARAMS, x, [(2, 0)])[0],
    "taylor": lambda x: taylor(NET, PARAMS, x, x[0], 1)[1],
}


@pytest.mark.skipif(
    sys.version_info >= (3, 13),
    reason="Paddle's graphs in parts end the process on Python 3.13",
)
@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", CALLS)
def test_a_graph_in_parts_goes_round_them(name):
    run = paddle.jit.to_static(CALLS[name], full_graph=False)
    for _ in range(2):
        assert_same(run(X), CALLS[name](X))


@pytest.mark.parametrize("name", CALLS)
def test_a_whole_graph_is_refused(name):
    call = CALLS[name]

    def given(x):  # a lambda of a table has no source of its own
        return call(x)

    run = paddle.jit.to_static(given, full_graph=True)
    with pytest.raises(CaptureError, match=r"use paddle_chainrules\.jit instead"):
        run(X)


def test_layers_around_a_net_are_trained():
    class Around(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.first = paddle.nn.Linear(2, 2).to(dtype="float64")

        def forward(self, x):
            return NET(PARAMS, paddle.tanh(self.first(x))).sum()

    net = Around()
    net(X).backward()
    expected = net.first.weight.grad.clone()
    net.clear_gradients()
    paddle.jit.to_static(net, full_graph=False)(X).backward()
    assert_same(net.first.weight.grad, expected)


def test_in_static_mode_they_are_refused():
    paddle.enable_static()
    try:
        with paddle.static.program_guard(paddle.static.Program()):
            x = paddle.static.data("x", [4, 2], "float64")
            with pytest.raises(CaptureError, match=r"paddle\.enable_static"):
                NET(PARAMS, x)
            with pytest.raises(CaptureError, match=r"paddle\.enable_static"):
                NET.init(0)
    finally:
        paddle.disable_static()
