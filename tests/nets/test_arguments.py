"""Arguments and results of every kind: nested, keywords, random, with state.

By Paddle's own gradients of the untouched layer.
"""

from __future__ import annotations

import itertools

import numpy as np
import optree
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paddle import nn

from conftest import (
    assert_same,
    assert_unchanged,
    native,
    programs_on,
    randn,
    random_like,
    snapshot,
)
from layers import Found, Masked, Mirror, Noisy, Smooth, Tangled
from paddle_chainrules import grad, hvp, jvp, stateless, value_and_grad
from paddle_chainrules.nets.derivatives.vjp_jvp_nets import VJP
from paddle_chainrules.nets.nesting import Nesting
from paddle_chainrules.paddle_side.listener import programs_disabled

EXACT = {"rtol": 1e-12, "atol": 1e-13}


def tangled():
    paddle.seed(1)
    layer = Tangled().to(dtype="float64")
    scales = {"b": randn([5, 1], "float64", 2), "a": randn([4], "float64", 3)}
    index = paddle.to_tensor([0, 4, 2, 2, 1, 3])
    args = ((randn([5, 3], "float64", 4), scales), [index]), ("plain", 7)
    kwargs = {
        "gain": randn([6, 1], "float64", 5),
        "shift": {"by": (randn([2], "float64", 6),)},
        "twice": True,
    }
    return layer, args, kwargs


def test_nested_arguments_and_results():
    layer, args, kwargs = tangled()
    before = snapshot(layer)
    net, params, _ = stateless(layer)
    y, pullback = net.pullback(params, *args, **kwargs)
    assert_same(net.forward(params, *args, **kwargs)[0][:2], y[0][:2])
    assert isinstance(y[0], Found)
    assert y[0].label == "found"
    assert y[1]["count"] == 2
    cotangent = random_like(y)
    expected, grads = native(layer, args, cotangent, kwargs, wrt_kwargs=True)
    assert_same(y[0].score, expected[0].score.detach(), **EXACT)
    assert_same(y[0].best, expected[0].best)
    assert_same(y[2], [None, (expected[2][1][0].detach(),)], **EXACT)
    assert_same(pullback(cotangent), grads[:2], **EXACT)
    # Parts of the cotangent that are zero.
    cotangent[1]["hidden"] = cotangent[2][1] = None
    cotangent[2][1] = (None,)
    _, grads = native(layer, args, cotangent, kwargs)
    assert_same(pullback(cotangent), grads, **EXACT)
    assert_unchanged(layer, before)


LEAVES = st.sampled_from(["float", "integer", "word", "nothing"])
TREES = st.recursive(
    LEAVES,
    lambda part: st.one_of(
        st.lists(part, max_size=3),
        st.lists(part, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from("zab"), part, max_size=3),
    ),
    max_leaves=8,
)


def grown(tree):
    """Values for the kinds of leaves, all of different sizes."""
    count = itertools.count(1)

    def value(kind):
        n = next(count)
        if kind == "float":
            return randn([n, n % 3 + 1], "float32", n)
        return {"integer": paddle.arange(n), "word": "word"}.get(kind)

    return optree.tree_map(value, tree, none_is_leaf=True)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(TREES, max_size=3),
    st.dictionaries(st.sampled_from("yxk"), TREES),
    st.data(),
)
def test_any_nesting(args, kwargs, data):
    layer = Mirror()
    args, kwargs = grown((tuple(args), kwargs))
    net, params, _ = stateless(layer)
    before = snapshot(layer)
    y, pullback = net.pullback(params, *args, **kwargs)
    cotangent = random_like(y)
    if not optree.tree_leaves(cotangent):  # None is none
        return
    expected, (by_name, by_arg, by_kwarg) = native(
        layer, args, cotangent, kwargs, wrt_kwargs=True
    )
    for one, other in zip(*map(optree.tree_leaves, (y, expected)), strict=True):
        if isinstance(one, paddle.Tensor):
            assert_same(one, other.detach(), rtol=1e-6)
        else:
            assert one == other
    tolerance = {"rtol": 1e-4, "atol": 1e-5}
    wrt = ("params", "args", "kwargs") if kwargs else ("params", "args")
    found = pullback(cotangent, wrt=wrt)
    assert_same(found[0], by_name, **tolerance)
    assert_same(found[1] or (), by_arg, **tolerance)
    if kwargs:
        assert_same(found[2], by_kwarg, **tolerance)
    choices = [*range(len(args)), *kwargs]
    asked = [item for item in choices if data.draw(st.booleans())]
    by_params, some_args, *some_kwargs = pullback(cotangent, wrt=asked)
    assert by_params is None
    for item in asked:
        if isinstance(item, int):
            assert_same(some_args[item], by_arg[item], **tolerance)
        else:
            assert_same(some_kwargs[0][item], by_kwarg[item], **tolerance)
    assert_unchanged(layer, before)


def test_integer_and_boolean_arguments():
    layer = Masked()
    before = snapshot(layer)
    net, params, _ = stateless(layer)
    x, index = randn([5, 4]), paddle.to_tensor([0, 6, 2, 2, 1])
    mask = paddle.to_tensor([True, False, True, True, False])
    y, pullback = net.pullback(params, x, index, mask)
    cotangent = randn([5, 4], seed=1)
    expected, grads = native(layer, (x, index, mask), cotangent)
    assert_same(y, expected.detach())
    found = pullback(cotangent)
    assert_same(found, grads, rtol=1e-6)
    assert found[1][1:] == (None, None)
    assert_unchanged(layer, before)


def test_keyword_arguments_are_differentiated_where_asked():
    layer, args, kwargs = tangled()
    before = snapshot(layer)
    net, params, _ = stateless(layer)
    y, pullback = net.pullback(params, *args, **kwargs)
    cotangent = random_like(y)
    _, (by_name, by_arg, by_kwarg) = native(
        layer, args, cotangent, kwargs, wrt_kwargs=True
    )
    assert len(pullback(cotangent)) == 2
    everything = pullback(cotangent, wrt=("params", "args", "kwargs"))
    assert_same(everything, (by_name, by_arg, by_kwarg), **EXACT)
    none = dict.fromkeys(kwargs)
    found = pullback(cotangent, wrt="shift")
    assert found[:2] == (None, None)
    assert_same(found[2], {**none, "shift": by_kwarg["shift"]}, **EXACT)
    found = pullback(cotangent, wrt=("gain", "decoder.*"))
    assert_same(found[2], {**none, "gain": by_kwarg["gain"]}, **EXACT)
    assert found[0]["encoder.bias"] is None
    assert_same(found[0]["decoder.bias"], by_name["decoder.bias"], **EXACT)

    gain = paddle.full_like(kwargs["gain"], 7.0)
    into = None, None, {**none, "gain": gain}
    assert pullback(cotangent, into=into) is into
    assert_same(gain, by_kwarg["gain"], **EXACT)
    shift = {"by": (paddle.full_like(kwargs["shift"]["by"][0], 7.0),)}
    into = None, None, {**none, "gain": gain, "shift": shift}
    pullback(cotangent, into=into, accumulate=True)
    assert_same(gain, 2 * by_kwarg["gain"], **EXACT)
    assert_same(shift["by"][0], 7 + by_kwarg["shift"]["by"][0], **EXACT)
    assert_unchanged(layer, before)


def test_keyword_arguments_on_the_callers_graph():
    layer, args, kwargs = tangled()
    net, params, _ = stateless(layer)

    def loss(gain):
        found, *_ = net.forward(params, *args, **{**kwargs, "gain": gain})
        return (found.score**2).sum()

    value, grad = value_and_grad(loss)(kwargs["gain"])
    gain = kwargs["gain"].clone()
    gain.stop_gradient = False
    expected = (layer(*args, **{**kwargs, "gain": gain})[0].score ** 2).sum()
    assert_same(value, expected.detach(), **EXACT)
    assert_same(grad, paddle.grad(expected, gain)[0], **EXACT)


def test_bad_keyword_arguments():
    layer, args, kwargs = tangled()
    net, params, _ = stateless(layer)
    y, pullback = net.pullback(params, *args, **kwargs)
    cotangent = random_like(y)
    with pytest.raises(ValueError, match="wrt names 'loudness', but there is no such"):
        pullback(cotangent, wrt="loudness")
    gain = paddle.full_like(kwargs["gain"], 7.0)
    with pytest.raises(ValueError, match=r"with the names \['gain', 'shift', 'twice'"):
        pullback(cotangent, into=(None, None, {"gain": gain}))
    none = dict.fromkeys(kwargs)
    with pytest.raises(ValueError, match=r"argument 'shift' is nested as.*\(\*,\)"):
        pullback(cotangent, into=(None, None, {**none, "gain": gain, "shift": gain}))
    with pytest.raises(TypeError, match="is bool and has no gradient"):
        pullback(cotangent, into=(None, None, {**none, "gain": gain, "twice": gain}))
    with pytest.raises(ValueError, match=r"has shape \[6\].*\[6, 1\]"):
        pullback(cotangent, into=(None, None, {**none, "gain": gain[:, 0]}))
    assert bool((gain == 7.0).all())  # nothing was written


def test_what_has_no_derivative_has_no_cotangent():
    layer, args, kwargs = tangled()
    net, params, _ = stateless(layer)
    y, pullback = net.pullback(params, *args, **kwargs)
    cotangent = random_like(y)
    wrong = cotangent[0]._replace(best=paddle.ones([6], "int64"))
    with pytest.raises(TypeError, match=r"is paddle.int64 and has no derivative; give"):
        pullback((wrong, *cotangent[1:]))
    wrong = cotangent[0]._replace(label="found")
    with pytest.raises(TypeError, match="is str and has no derivative"):
        pullback((wrong, *cotangent[1:]))
    with pytest.raises(ValueError, match="the cotangent is nested as"):
        pullback(cotangent[:2])


def test_a_seed_gives_the_same_numbers():
    layer = Noisy().to(dtype="float64")
    net, params, buffers = stateless(layer)
    x = randn([6, 3], "float64")
    before = snapshot(layer)
    state = layer.state_dict()
    kept = {name: value.clone() for name, value in state.items()}
    cotangent = randn([6, 2], "float64", 1)
    paddle.seed(11)
    expected, grads = native(layer, [x], cotangent)
    after = layer.state_dict()["norm._mean"].clone()
    layer.set_state_dict(kept)

    paddle.seed(4)
    upcoming = paddle.rand([3])
    paddle.seed(4)
    y, pullback, new = net.pullback(params, x, seed=11, buffers=buffers)
    assert_same(net.forward(params, x, seed=np.int64(11)), y)
    assert_same(net.forward(params, x, seed=11, buffers=buffers), (y, new))
    assert_same(paddle.rand([3]), upcoming)  # the program's own numbers go on
    assert_same(y, expected.detach(), **EXACT)
    assert_same(new["norm._mean"], after)
    for _ in range(2):
        assert_same(pullback(cotangent), grads, **EXACT)
    assert not paddle.allclose(net.forward(params, x, seed=12), y)
    assert_unchanged(layer, before)


def test_a_seed_against_differences():
    layer = Noisy().to(dtype="float64")
    net, params, _ = stateless(layer)
    x, v = randn([6, 3], "float64"), randn([6, 3], "float64", 1)
    y, pullback = net.pullback(params, x, seed=2**64 - 1)
    cotangent = randn(y.shape, "float64", 2)

    def at(step):
        moved = net.forward(params, x + step * v, seed=2**64 - 1)
        return float((moved * cotangent).sum())

    slope = (at(1e-6) - at(-1e-6)) / 2e-6
    found = float((pullback(cotangent)[1][0] * v).sum())
    np.testing.assert_allclose(found, slope, rtol=1e-7)


def test_a_seed_of_the_layers_own_by_position():
    class Own(nn.Layer):
        def forward(self, x, seed=3):
            return x * seed

    net, params, _ = stateless(Own())
    x = randn([3])
    assert_same(net.forward(params, x, 2), 2 * x)


def test_the_other_mode():
    layer = Noisy()
    net, params, buffers = stateless(layer)
    before = snapshot(layer)
    quiet = net.in_mode(False)
    x, cotangent = randn([6, 3]), randn([6, 2], seed=1)
    assert net.training
    assert not quiet.training
    assert quiet.in_mode(False) is quiet
    y, new = quiet.forward(params, x, buffers=buffers, seed=3)
    assert_same(new, buffers)  # statistics stay
    _, pullback = quiet.pullback(params, x, seed=3)
    found = pullback(cotangent)
    again = quiet.in_mode(True)
    assert_same(again.forward(params, x, seed=3), net.forward(params, x, seed=3))
    assert_unchanged(layer, before)
    layer.eval()
    paddle.seed(3)
    expected, grads = native(layer, [x], cotangent)
    assert_same(y, expected.detach(), rtol=1e-6)
    assert_same(found, grads, rtol=1e-5, atol=1e-6)

    mixed = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Dropout(0.5))
    mixed[1].eval()
    net, params, _ = stateless(mixed)
    assert net.in_mode(True) is not net  # all of its layers
    chain = net.in_mode(False)
    assert (net.chain, chain.chain is not None) == (None, True)
    mixed.eval()
    assert_same(chain.forward(params, x), mixed(x).detach(), rtol=1e-6)


def test_new_buffers_are_the_callers_own():
    layer = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1D(4))
    net, params, buffers = stateless(layer, frozen="0.weight")
    x = randn([6, 3])
    kept = buffers["0.weight"].clone()
    for new in (
        net.forward(params, x, buffers=buffers)[1],
        net.pullback(params, x, buffers=buffers)[2],
    ):
        new["0.weight"][0, 0] = 99.0
        assert_same(buffers["0.weight"], kept)


def second_order(layer, args, kwargs, cotangent, vectors):
    """Of <gradients, vectors> by the layer's own graph, by every leaf."""
    given, structure = optree.tree_flatten((args, kwargs), none_is_leaf=True)
    leaves = [
        leaf.detach()
        if isinstance(leaf, paddle.Tensor) and leaf.is_floating_point()
        else leaf
        for leaf in given
    ]
    inputs = [a for a, b in zip(leaves, given, strict=True) if a is not b]
    cotangent = cotangent.clone()
    params = {n: p for n, p in layer.named_parameters() if not p.stop_gradient}
    for leaf in (*inputs, cotangent):
        leaf.stop_gradient = False
    own_args, own_kwargs = structure.unflatten(leaves)
    y = layer(*own_args, **own_kwargs)
    wanted = [*params.values(), *inputs]
    grads = paddle.grad([y], wanted, [cotangent], create_graph=True, allow_unused=True)
    total = sum(
        (g * v).sum() for g, v in zip(grads, vectors, strict=True) if g is not None
    )
    return grads, paddle.grad(total, [*wanted, cotangent], allow_unused=True)


def assert_same_or_none(one, other):
    """None is as good as zeros."""
    if one is None or other is None:
        assert all(part is None or not part.any() for part in (one, other))
    else:
        assert_same(one, other, rtol=1e-9, atol=1e-11)


def test_second_order_of_any_net():
    layer = Smooth().to(dtype="float64")
    image, scale = randn([4, 2, 5, 6], "float64"), randn([4, 1], "float64", 1)
    cotangent = randn([4, 2], "float64", 2)
    net, params, _ = stateless(layer)
    before = snapshot(layer)
    kwargs = {"scale": scale}
    shapes = [p.shape for p in params.values()] + [image.shape, scale.shape]
    vectors = [randn(shape, "float64", 3 + i) for i, shape in enumerate(shapes)]
    state = {n: v.clone() for n, v in layer.state_dict().items()}
    first, second = second_order(layer, (image,), kwargs, cotangent, vectors)
    layer.set_state_dict(state)

    vjp = VJP(net, 2, Nesting((0,), {"scale": 1}))
    grads, pullback = vjp.pullback(params, None, image, scale, cotangent)
    assert_same(list(grads), list(first), **EXACT)
    by_name, (_, *by_row) = pullback(tuple(vectors))
    found = [*by_name.values(), *by_row]
    for one, other in zip(found, second, strict=True):
        assert_same_or_none(one, other)

    # The product with a Hessian: of <y, cotangent>, by parameters and input.
    *by_params, by_image, _ = vectors
    direction = dict(zip(params, by_params, strict=True)), by_image
    along = [*vectors[:-1], paddle.zeros_like(scale)]
    expected = second_order(layer, (image,), kwargs, cotangent, along)[1]
    layer.set_state_dict(state)
    found, found_image = hvp(
        lambda pair: (net.forward(*pair, **kwargs) * cotangent).sum(),
        (params, image),
        direction,
    )
    for one, other in zip([*found.values(), found_image], expected, strict=False):
        assert_same_or_none(one, other)
    alone = hvp(
        lambda params: (net.forward(params, image, **kwargs) * cotangent).sum(),
        params,
        direction[0],
    )
    along = [*along[:-2], paddle.zeros_like(image), paddle.zeros_like(scale)]
    expected = second_order(layer, (image,), kwargs, cotangent, along)[1]
    layer.set_state_dict(state)
    for one, other in zip(alone.values(), expected, strict=False):
        assert_same_or_none(one, other)
    assert_unchanged(layer, before)


def test_second_order_of_a_random_net():
    """Along parameters and input, by differences of first gradients of that seed."""
    layer = Noisy(dropout=0.0).to(dtype="float64")
    net, params, _ = stateless(layer)
    before = snapshot(layer)
    point = params, randn([6, 3], "float64")
    v = {n: randn(p.shape, "float64", 2) for n, p in params.items()}
    v = v, randn([6, 3], "float64", 3)

    def loss(pair):
        return (net.forward(*pair, seed=5) ** 2).sum()

    def gradient(step):
        moved = optree.tree_map(lambda x, v: x + step * v, point, v)
        return value_and_grad(loss)(moved)[1]

    expected = optree.tree_map(
        lambda a, b: (a - b) / 2e-6, gradient(1e-6), gradient(-1e-6)
    )
    assert_same(hvp(loss, point, v), expected, rtol=1e-5, atol=1e-6)
    assert_unchanged(layer, before)


@programs_on
def test_second_order_of_a_layer_whose_kernel_has_no_gradient():
    paddle.set_default_dtype("float64")
    try:
        net, params, _ = stateless(nn.LSTM(3, 4))
    finally:
        paddle.set_default_dtype("float32")
    x, cotangent = randn([2, 5, 3], "float64"), randn([2, 5, 4], "float64", 1)

    def output(params, x):
        return net.forward(params, x)[0]

    def loss(tree):
        return (output(*tree) * cotangent).sum()

    point = params, x
    v = optree.tree_map(lambda p: randn(p.shape, "float64", 4), point)
    step = 1e-5

    def moved(sign):
        return optree.tree_map(lambda p, v: p + sign * step * v, point, v)

    close = {"rtol": 1e-6, "atol": 1e-8}
    slope = (output(*moved(1)) - output(*moved(-1))) / (2 * step)
    assert_same(jvp(output, point, v)[1], slope, **close)
    found, (plus, minus) = hvp(loss, point, v), (grad(loss)(moved(s)) for s in (1, -1))
    optree.tree_map(
        lambda h, a, b: assert_same(h, (a - b) / (2 * step), **close),
        found,
        plus,
        minus,
    )

    row = None, x, cotangent, None, None
    (*grads, _), pullback = VJP(net, 1, inputs=False).pullback(params, *row)
    assert len(grads) == 4
    by_params, (_, by_x, *_) = pullback((*v[0].values(), None))
    found = hvp(loss, point, (v[0], paddle.zeros_like(x)))
    assert_same((by_params, by_x), found, rtol=1e-10, atol=1e-12)
    with programs_disabled():
        again = VJP(net, 1, inputs=False).pullback(params, *row)[1]
        assert_same(again((*v[0].values(), None))[0], by_params, rtol=1e-9, atol=1e-11)


def test_second_order_of_a_batch_norm_in_evaluation():
    net, params, _ = stateless(nn.BatchNorm1D(3).eval().to(dtype="float64"))
    x = randn([4, 3], "float64")
    params = {n: randn(p.shape, "float64", 3) for n, p in params.items()}
    point = params, x
    v = optree.tree_map(lambda p: randn(p.shape, "float64", 4), point)

    def gradient(step):
        moved = optree.tree_map(lambda x, v: x + step * v, point, v)
        return value_and_grad(loss)(moved)[1]

    def loss(pair):
        return (net.forward(*pair) ** 3).sum()

    expected = optree.tree_map(
        lambda a, b: (a - b) / 2e-6, gradient(1e-6), gradient(-1e-6)
    )
    assert_same(hvp(loss, point, v), expected, rtol=1e-6, atol=1e-7)
