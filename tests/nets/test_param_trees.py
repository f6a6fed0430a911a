"""Parameters as trees of any nesting: the gradients of the dict, nested as the tree."""

import pickle
from typing import NamedTuple

import optree
import paddle
import pytest
from paddle import nn

from conftest import assert_same, randn
from paddle_chainrules import FCNet, laplacian, stateless, value_and_grad


class Pair(NamedTuple):
    weight: paddle.Tensor
    bias: paddle.Tensor


def nested(params):
    tree = {}
    for name, value in params.items():
        layer, _, part = name.rpartition(".")
        tree.setdefault(layer, {})[part] = value
    return tree


def in_lists(params):
    return [{"bias": d["bias"], "weight": d["weight"]} for d in nested(params).values()]


FORMS = {
    "nested dicts": nested,
    "a list of dicts": in_lists,
    "a list": lambda params: [*params.values()],
    "a tuple": lambda params: tuple(params.values()),
    "named tuples": lambda params: tuple(
        Pair(d["weight"], d["bias"]) for d in nested(params).values()
    ),
}


def a_chain():
    net = FCNet((3, 3, 3), "tanh")  # weights of one shape, which must not be swapped
    return net, net.init(1)


def a_layer():
    net, params, _ = stateless(
        nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 3))
    )
    return net, params


@pytest.mark.parametrize("make", [a_chain, a_layer])
@pytest.mark.parametrize("form", FORMS)
def test_any_tree(make, form):
    net, params = make()
    tree, x, c = FORMS[form](params), randn([4, 3]), randn([4, 3], seed=1)
    y, pullback = net.pullback(params, x)
    grads, (grad_x,) = pullback(c)
    expected = FORMS[form](grads)
    assert_same(net(tree, x), y)
    y, pullback = net.pullback(tree, x)
    found, (found_x,) = pullback(c)
    assert_same(found, expected)
    assert_same(found_x, grad_x)
    assert_same(net.flatten(tree), net.flatten(params))
    buffers = optree.tree_map(paddle.zeros_like, tree)
    pullback(c, into=(buffers, None), accumulate=True)
    assert_same(buffers, expected)
    only, _ = pullback(c, wrt=["0.weight"])
    by_name = optree.tree_leaves(only, none_is_leaf=True)
    assert sum(leaf is not None for leaf in by_name) == 1
    loss = lambda p: (net(p, x) * c).sum()  # noqa: E731
    assert_same(value_and_grad(loss)(tree)[1], expected, rtol=1e-5, atol=1e-6)


def test_derivatives_by_the_input_take_trees():
    net, params = a_chain()
    x = randn([4, 3])
    for form in FORMS.values():
        assert_same(laplacian(net, form(params), x), laplacian(net, params, x))


def test_specs_and_nets_survive_pickle():
    for make in (a_chain, a_layer):
        net, params = make()
        again = pickle.loads(pickle.dumps((net, net.spec)))
        assert again[1] == net.spec
        assert_same(again[0](nested(params), randn([4, 3])), net(params, randn([4, 3])))
        assert optree.tree_leaves(net) == [net]
