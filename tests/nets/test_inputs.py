"""Tensors of every kind in memory as inputs and parameters: right, or refused."""

import os

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paddle import nn

from conftest import assert_same
from paddle_chainrules import FCNet, stateless, vjp

EXAMPLES = int(os.environ.get("EXAMPLES", "150"))
NETS = {
    "closed": lambda: FCNet((3, 4, 2), "tanh", "float64"),
    "recorded": lambda: stateless(
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), nn.Sigmoid()).to(
            dtype="float64"
        )
    )[0],
}


def contiguous(values):
    return values


def every_other(values):
    if values.size == 0:
        return values
    wide = paddle.zeros([2 * n + 1 for n in values.shape], dtype=values.dtype)
    steps = tuple(slice(1, None, 2) for _ in values.shape)
    wide[steps] = values
    return wide[steps]


def transposed(values):
    return values.T.contiguous().T


def backwards(values):
    return values.flip([0]).contiguous()[::-1]


def from_the_middle(values):
    flat = paddle.concat([paddle.ones([5]).astype(values.dtype), values.reshape([-1])])
    return flat[5:].reshape(values.shape)


def unaligned(values):
    """A tensor on numpy's memory that starts at an odd address."""
    array = values.numpy()
    buffer = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype)
    buffer = buffer.reshape(array.shape)
    buffer[...] = array
    return paddle.utils.dlpack.from_dlpack(buffer) if array.size else values


def expanded(values):
    """All rows one row in memory."""
    return values[:1].expand(values.shape) if values.shape[0] else values


def requiring(values):
    values = values.clone()
    values.stop_gradient = False
    return values


MEMORY = (
    *(contiguous, every_other, transposed, backwards, from_the_middle),
    *(unaligned, expanded, requiring),
)

numbers = st.one_of(
    st.floats(-3, 3), st.sampled_from([0.0, -0.0, np.nan, np.inf, -np.inf, 1e300])
)


@pytest.mark.parametrize("name", NETS)
@settings(max_examples=EXAMPLES, deadline=None)
@given(
    rows=st.integers(0, 6),
    data=st.data(),
    how=st.lists(st.sampled_from(MEMORY), min_size=1, max_size=3),
    how_params=st.sampled_from(MEMORY),
)
def test_memory_of_any_kind_gives_the_same(name, rows, data, how, how_params):
    net = NETS[name]()
    values = data.draw(st.lists(numbers, min_size=3 * rows, max_size=3 * rows))
    x = paddle.to_tensor(np.array(values).reshape(rows, 3))
    rng = np.random.default_rng(0)
    params = {
        n: paddle.to_tensor(rng.standard_normal(s))
        for n, s in zip(net.spec.names, net.spec.shapes, strict=True)
    }
    for function in how:
        x = function(x)
    params = {n: how_params(p) for n, p in params.items()}
    plain = paddle.to_tensor(x.numpy().copy())
    plain_params = {n: paddle.to_tensor(p.numpy().copy()) for n, p in params.items()}
    expected, back = net.pullback(plain_params, plain)
    y_bar = paddle.to_tensor(rng.standard_normal(expected.shape))
    grads, (x_bar,) = back(y_bar)

    y, again = net.pullback(params, x)
    found, (found_x,) = again(every_other(y_bar) if rows else y_bar)
    pairs = zip(found.values(), grads.values(), strict=True)
    for a, b in ((y, expected), (found_x, x_bar), *pairs):
        assert a.shape == b.shape
        np.testing.assert_allclose(
            a.detach().numpy(), b.numpy(), rtol=1e-9, atol=1e-12, equal_nan=True
        )
    np.testing.assert_array_equal(x.numpy(), plain.numpy())


@pytest.mark.parametrize("shape", [[3], [0, 3], [1, 3], [1, 1, 3], [2, 0, 3]])
@pytest.mark.parametrize("name", NETS)
def test_shapes_with_little_in_them(name, shape):
    net = NETS[name]()
    params = {
        n: paddle.ones(list(s), dtype="float64")
        for n, s in zip(net.spec.names, net.spec.shapes, strict=True)
    }
    x = paddle.ones(shape, dtype="float64") * 0.5
    y, back = net.pullback(params, x)
    assert list(y.shape) == [*shape[:-1], 2]
    grads, (x_bar,) = back(paddle.ones_like(y))
    assert x_bar.shape == x.shape
    assert {n: g.shape for n, g in grads.items()} == {
        n: p.shape for n, p in params.items()
    }


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    data=st.data(),
    how=st.sampled_from(MEMORY),
    shape=st.lists(st.integers(0, 3), max_size=4),
)
def test_functions_of_memory_of_any_kind(data, how, shape):
    size = int(np.prod(shape))
    values = data.draw(st.lists(st.floats(-3, 3), min_size=size, max_size=size))
    x = paddle.to_tensor(np.array(values, "float64").reshape(shape))
    x = how(x) if shape else x
    y, pullback = vjp(lambda x: paddle.sin(x) * x, x)
    (found,) = pullback(paddle.ones_like(y))
    array = x.detach().numpy()
    expected = np.cos(array) * array + np.sin(array)
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-9, atol=1e-12)
    assert found.shape == x.shape


def test_what_numpy_lends_may_be_read_only():
    array = np.arange(6.0).reshape(2, 3)
    array.flags.writeable = False
    net = NETS["closed"]()
    params = net.init(0)
    y = net.forward(params, paddle.to_tensor(array))
    assert_same(y, net.forward(params, paddle.to_tensor(array.copy())))
