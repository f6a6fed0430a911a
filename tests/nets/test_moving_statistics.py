"""Statistics that training moves, and calls that drop them."""

import warnings

import paddle
import pytest
from paddle import nn

from conftest import randn
from paddle_chainrules import jit, stateless, value_and_grad

X = randn([8, 3])


def batch_net():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1D(4), nn.Linear(4, 2))


CALLS = {
    "forward": lambda net, params: net(params, X),
    "pullback": lambda net, params: net.pullback(params, X),
    "vjp": lambda net, params: net.vjp(params, X, paddle.ones([8, 2])),
    "a gradient in jit": lambda net, params: jit(
        value_and_grad(lambda params: net(params, X).sum())
    )(params),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_in_training_without_buffers_warns_once(name):
    net, params, _ = stateless(batch_net())
    with pytest.warns(
        UserWarning, match=r"'1\._mean', '1\._variance' move.*buffers=buf"
    ):
        CALLS[name](net, params)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="in training")
        CALLS[name](net, params)


def test_calls_that_drop_nothing_do_not_warn():
    net, params, buffers = stateless(batch_net())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="in training")
        net(params, X, buffers=buffers)
        net.in_mode(False)(params, X)
        frozen = batch_net()
        frozen.eval()
        net, params, _ = stateless(frozen)
        net(params, X)
        net, params, _ = stateless(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)))
        net(params, X)


def test_few_names_are_shown():
    net, params, _ = stateless(nn.Sequential(*(nn.BatchNorm1D(3) for _ in range(4))))
    with pytest.warns(UserWarning, match="'1._mean' and 5 more move"):
        net(params, X)
