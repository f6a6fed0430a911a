"""Operations in place, of views and of what has views: the right slope or a refusal."""

import weakref

import numpy as np
import paddle
import pytest
from paddle.autograd import PyLayer

from conftest import assert_same, randn
from paddle_chainrules import value_and_grad, vjp


def slopes(fn, primals, step=1e-6):
    """Central differences of a scalar function, element by element."""
    found = []
    for i, x in enumerate(primals):
        slope = np.zeros(x.size)
        for k in range(x.size):
            ends = []
            for sign in (1, -1):
                value = x.numpy().reshape(-1).copy()
                value[k] += sign * step
                given = [p.clone() for p in primals]
                given[i] = paddle.to_tensor(value.reshape(x.shape))
                ends.append(float(fn(*given)))
            slope[k] = (ends[0] - ends[1]) / (2 * step)
        found.append(paddle.to_tensor(slope.reshape(x.shape)))
    return tuple(found)


def last_of_its_name(x, v):
    y = (x * 1.5).reshape([-1])
    y.add_(v.flatten())
    return y


def relu_of_a_view(x, v):
    y = x * 1.5
    return paddle.nn.functional.relu_(y.reshape([-1])) * v.flatten()


def transposed(x, v):
    y = (x * 1.5).T
    y.scale_(2.0)
    y[1:] = v.T[1:]
    return y


def a_constant_added_to_a_view(x, v):
    y = x * v
    y.T.add_(paddle.ones([1]).astype(y.dtype))
    return y


def another_shape_in_place(x, v):
    y = x * 1.5
    z = y.reshape_([12])
    return y * z * v.flatten()


def onto_a_constant(x, v):
    t = paddle.zeros(x.shape, x.dtype)
    t.add_(x)
    return t * v


def out_argument(x, v):
    y = x * 1.5
    paddle.add(x, v, out=y)
    return y


EXACT = [
    last_of_its_name,
    relu_of_a_view,
    transposed,
    a_constant_added_to_a_view,
    another_shape_in_place,
    onto_a_constant,
    out_argument,
]


def by_a_view(x, v):
    y = x * 1.5
    y.T.add_(v.T)
    return y * y


def an_output_by_a_view(x, v):
    y = x * 1.5
    y.T.add_(v.T)
    return y


def elements_of_a_view(x, v):
    y = x * 1.5
    y.reshape([-1])[2:5] = v.reshape([-1])[3:6]
    return y


def a_view_from_before(x, v):
    y = x * 1.5
    view = y.flatten()
    y.add_(v)
    return view


def two_views(x, v):
    y = x * 1.5
    one, other = y.reshape([-1]), y.T
    one.add_(v.reshape([-1]))
    return other


def a_view_of_a_view(x, v):
    y = (x * 1.5).T
    y.unsqueeze(0).add_(v.T.unsqueeze(0))
    return y


def a_new_axis(x, v):
    y = x * 1.5
    y[None].add_(v[None])
    return y


def an_argument_by_a_view(x, v):
    x.T.add_(v.T)
    return x


def a_view_of_a_constant(x, v):
    t = paddle.zeros(x.shape, x.dtype)
    t.reshape([-1]).add_(x.flatten())
    return t * v


def a_transposed_constant(x, v):
    t = paddle.zeros(x.shape, x.dtype)
    t.T.add_(x.T)
    return t * v


def a_constant_with_a_view(x, v):
    t = paddle.zeros(x.shape, x.dtype)
    view = t.reshape([-1])
    t.add_(x)
    return view * v.flatten()


def a_view_of_a_part(x, v):
    y = x * 1.5
    y[0].reshape([2, 2]).add_(v[0].reshape([2, 2]))
    return y


def one_of_unbind(x, v):
    y = x * 1.5
    paddle.unbind(y)[0].add_(v[0])
    return y


def copied_into(x, v):
    y = x * 1.5
    y.copy_(v, True)
    return y


def a_value_set(x, v):
    y = x * 1.5
    y.set_value(v)
    return y


REFUSED = [
    by_a_view,
    an_output_by_a_view,
    elements_of_a_view,
    a_view_from_before,
    two_views,
    a_view_of_a_view,
    a_new_axis,
    an_argument_by_a_view,
    a_view_of_a_constant,
    a_transposed_constant,
    a_constant_with_a_view,
    a_view_of_a_part,
    one_of_unbind,
    copied_into,
    a_value_set,
]


def once(fn):
    return lambda x, v: (fn(x, v) ** 2).sum()


def nested(fn):
    """A function of the gradients, so that these are differentiated."""

    def norm(x, v):
        _, grads = value_and_grad(once(fn), argnums=(0, 1))(x, v)
        return sum((g**3).sum() for g in grads if g is not None)

    return norm


@pytest.fixture
def primals():
    return randn([3, 4], "float64", 1), randn([3, 4], "float64", 2)


@pytest.mark.parametrize("depth", [once, nested])
@pytest.mark.parametrize("fn", EXACT)
def test_exact(fn, depth, primals):
    call = depth(fn)
    value, pullback = vjp(call, *primals)
    assert_same(value, call(*(p.clone() for p in primals)), rtol=1e-12)
    for grad, slope in zip(
        pullback(paddle.ones_like(value)), slopes(call, primals), strict=True
    ):
        grad = paddle.zeros_like(slope) if grad is None else grad
        assert_same(grad, slope, atol=1e-6 * float(slope.abs().max()) + 1e-7)


@pytest.mark.parametrize("depth", [once, nested])
@pytest.mark.parametrize("fn", REFUSED)
def test_refused(fn, depth, primals):
    before = [p.numpy().tobytes() for p in primals]
    with pytest.raises(NotImplementedError, match=r"[Ww]rite|Assign to the whole"):
        vjp(depth(fn), *primals)
    assert [p.numpy().tobytes() for p in primals] == before


def test_a_graph_that_was_written_into_is_let_go():
    """To read ``grad_fn``, Paddle 3.3.1 keeps the graph for ever."""

    class Traced(PyLayer):
        @staticmethod
        def forward(ctx, x):
            contexts.append(weakref.ref(ctx))
            return x * 2

        @staticmethod
        def backward(ctx, cotangent):
            return cotangent * 2

    def fn(x):
        y = Traced.apply(x).T
        y.add_(x.T)
        y[0, 0] = x[1, 1]
        return y.sum()

    contexts = []
    _, pullback = vjp(fn, randn([3, 4]))
    del _, pullback
    assert contexts
    assert all(context() is None for context in contexts)
