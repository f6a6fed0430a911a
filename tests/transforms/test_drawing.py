"""Derivatives of what draws: on the draw of their call, as if it was called once."""

import threading

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from conftest import assert_same, randn
from differences import slope_along
from paddle_chainrules import (
    grad,
    hessian,
    hvp,
    jacfwd,
    jacrev,
    jit,
    jvp,
    linearize,
    stateless,
    value_and_grad,
    vjp,
)

SHAPE, SEED = [2, 3, 4], 5


class Wave(nn.Layer):
    """Uses what it draws twice, in what is curved."""

    def __init__(self):
        super().__init__()
        self.inner, self.drop = nn.Linear(4, 6), nn.Dropout(0.3)

    def forward(self, x):
        y = self.drop(paddle.tanh(self.inner(x)))
        return y * y + paddle.sin(y) * paddle.rand([6], x.dtype)


class Attention(nn.Layer):
    def forward(self, x):
        heads = x.reshape([2, 3, 2, 2])
        how = {"dropout_p": 0.4, "training": self.training}
        return F.scaled_dot_product_attention(heads, heads.exp(), heads**2, **how)


class Of(nn.Layer):
    """A function of the numbers, and of whether it is trained."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x, self.training)


LAYERS = {
    "Dropout": lambda: nn.Dropout(0.4),
    "Dropout: downscaled": lambda: nn.Dropout(0.4, mode="downscale_in_infer"),
    "Dropout: all": lambda: nn.Dropout(1.0),
    "Dropout: along an axis": lambda: nn.Dropout(0.4, axis=1),
    "AlphaDropout": lambda: nn.AlphaDropout(0.4),
    "RReLU": lambda: nn.RReLU(0.1, 0.4),
    "MultiHeadAttention": lambda: nn.MultiHeadAttention(4, 2, dropout=0.4),
    "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(4, 2, 7, 0.3),
    "TransformerEncoderLayer: gelu": lambda: nn.TransformerEncoderLayer(
        4, 2, 7, 0.3, activation="gelu"
    ),
    "attention": Attention,
    "a wave": Wave,
    "fused": lambda: Of(
        lambda x, training: paddle.incubate.nn.functional.fused_dropout_add(
            x, x * x, 0.4, training=training
        )
    ),
    "max": lambda: Of(
        lambda x, training: F.dropout(
            nn.FractionalMaxPool2D(2)(x.reshape([1, 2, 3, 4])) ** 2, 0.3, None, training
        )
    ),
}
SOFT = {
    "gumbel_softmax": lambda: Of(lambda x, training: F.gumbel_softmax(x, 0.7)),
    "gumbel_softmax: along an axis": lambda: Of(
        lambda x, training: F.gumbel_softmax(x, 0.7, axis=1)
    ),
    "bernoulli": lambda: Of(
        lambda x, training: x**2 * paddle.bernoulli(F.sigmoid(x.detach()))
    ),
}
ALL = LAYERS | SOFT


ignored = pytest.mark.filterwarnings("ignore:Currently, fused_dropout_add")


def layer_of(name, dtype="float64", training=True):
    paddle.seed(1)
    layer = ALL[name]().to(dtype=dtype)
    return layer.train() if training else layer.eval()


def drawn(function, *args):
    """What a function gives from a seed on, and what is drawn next."""
    paddle.seed(SEED)
    return function(*args), paddle.rand([3])


def by_differences(function, x, v, step=1e-5):
    return slope_along(lambda x: drawn(function, x)[0].detach(), x, v, step)


WAYS = {
    "jvp": lambda f, x, v: jvp(f, (x,), (v,)),
    "linearize": lambda f, x, v: (lambda y, push: (y, push(v)))(*linearize(f, x)),
    "linearize, again": lambda f, x, v: (
        lambda y, push: (y, (push(v), paddle.rand([2]), push(v))[2])
    )(*linearize(f, x)),
    "jit of jvp": lambda f, x, v: jit(lambda x, v: jvp(f, (x,), (v,)))(x, v),
    "jvp of jit": lambda f, x, v: jvp(jit(f), (x,), (v,)),
    "jacfwd": lambda f, x, v: (
        None,
        (jacfwd(f)(x) * v).sum([-3, -2, -1]),
    ),
}


@ignored
@pytest.mark.thinned(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ALL)
def test_forward_mode_is_on_the_draw_of_the_call(name, way):
    layer, x, v = layer_of(name), randn(SHAPE, "float64"), randn(SHAPE, "float64", 1)
    expected, after = drawn(layer, x)
    for _ in range(2):
        (value, slope), following = drawn(WAYS[way], layer, x, v)
        if value is not None:
            assert_same(value, expected.detach(), rtol=1e-12, atol=1e-14)
        assert_same(slope, by_differences(layer, x, v), rtol=1e-6, atol=1e-8)
        if way != "linearize, again":
            assert_same(following, after)


@ignored
@pytest.mark.parametrize("name", ALL)
def test_forward_mode_in_float32(name):
    """Beside native gradients, at the same draw."""
    layer, x, v = layer_of(name, "float32"), randn(SHAPE), randn(SHAPE, seed=1)
    leaf = x.clone()
    leaf.stop_gradient = False
    expected, after = drawn(layer, leaf)
    (value, slope), following = drawn(lambda: jvp(layer, (x,), (v,)))
    assert_same(following, after)
    assert_same(value, expected.detach(), rtol=1e-4, atol=1e-5)
    if "gumbel" in name:  # of which Paddle's own is wrong
        return
    for seed in range(3):
        cotangent = randn(expected.shape, seed=seed)
        (by_x,) = paddle.grad(expected, leaf, cotangent, retain_graph=True)
        terms, others = cotangent * slope, by_x * v
        scale = float(terms.abs().sum()) + 1e-3
        assert abs(float(terms.sum() - others.sum())) < 1e-5 * scale


@ignored
@pytest.mark.parametrize("name", ALL)
def test_second_derivatives_are_on_one_draw(name):
    layer, x, v = layer_of(name), randn(SHAPE, "float64"), randn(SHAPE, "float64", 1)
    weight = randn(layer(x).shape, "float64", 2)

    def loss(x):
        return (layer(x) ** 2 * weight).sum()

    expected = by_differences(grad(loss), x, v)
    _, after = drawn(loss, x)
    for second in (
        lambda: hvp(loss, x, v),
        lambda: jvp(grad(loss), (x,), (v,))[1],
        lambda: vjp(grad(loss), x)[1](v)[0],
        lambda: (hessian(loss)(x) * v).sum([-3, -2, -1]),
        lambda: jit(lambda x, v: hvp(loss, x, v))(x, v),
    ):
        found, following = drawn(second)
        assert_same(found, expected, rtol=1e-6, atol=1e-7)
        assert_same(following, after)


@pytest.mark.parametrize("name", ["Dropout", "a wave", "TransformerEncoderLayer"])
def test_stateless_nets_are_differentiated_forward_at_a_seed(name):
    layer, x, v = layer_of(name), randn(SHAPE, "float64"), randn(SHAPE, "float64", 1)
    for how in ({}, {"jit": True}):
        net, params, _ = stateless(layer, **how)

        def function(x, net=net, params=params):
            return net.forward(params, x, seed=SEED)

        for _ in range(3):
            (value, slope), following = drawn(lambda f: jvp(f, (x,), (v,)), function)
            assert_same(value, drawn(layer, x)[0].detach(), rtol=1e-10, atol=1e-12)
            assert_same(slope, by_differences(layer, x, v), rtol=1e-6, atol=1e-8)
            assert_same(following, drawn(lambda: None)[1])


@ignored
@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [n for n in LAYERS if n not in ("max", "a wave")])
def test_in_evaluation_nothing_is_drawn(name, dtype):
    layer, x, v = layer_of(name, dtype, False), randn(SHAPE, dtype), randn(SHAPE, dtype)
    net, params, _ = stateless(layer)
    expected = layer(x).detach()
    scale = float(expected.abs().max())
    close = {"atol": scale * (1e-12 if dtype == "float64" else 1e-5)}
    cotangent = randn(expected.shape, dtype, 1)
    paddle.seed(SEED)
    for way in WAYS.values():
        value, _ = way(layer, x, v)
        if value is not None:
            assert_same(value, expected, **close)
    for function in (layer, jit(layer)):
        value, pullback = vjp(function, x)
        assert_same(value, expected, **close)
        pullback(cotangent)
    for _ in range(2):
        value, pullback = net.pullback(params, x)
        assert_same(value, expected, **close)
        pullback(cotangent)
    hvp(lambda x: (layer(x) ** 2).sum(), x, v)
    grad(lambda x: (grad(lambda x: (layer(x) ** 2).sum())(x) * v).sum())(x)
    # Of which the directions above have drawn twice.
    assert_same(paddle.rand([3]), drawn(lambda: paddle.rand([2]))[1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dropout_in_evaluation_is_the_identity(dtype):
    x, v = randn([3, 5]).astype(dtype), randn([3, 5], seed=1).astype(dtype)
    function = nn.Dropout(0.37).eval()
    for way in WAYS if dtype in ("float32", "float64") else ["jvp", "linearize"]:
        if way == "jacfwd":
            continue
        value, slope = WAYS[way](function, x, v)
        assert bool((value == x).all())
        assert bool((slope == v).all())


def raising(x):
    raise LookupError(str(F.dropout(x, 0.4).shape))


FAILING = {
    "jvp": lambda f, x: jvp(f, (x,), (x,)),
    "vjp": lambda f, x: vjp(f, x),
    "linearize": lambda f, x: linearize(f, x),
    "value_and_grad": lambda f, x: value_and_grad(f)(x),
    "hvp": lambda f, x: hvp(f, x, x),
    "hessian": lambda f, x: hessian(f)(x),
    "jacrev": lambda f, x: jacrev(f)(x),
    "jacfwd": lambda f, x: jacfwd(f)(x),
    "jit": lambda f, x: jit(f)(x),
    "jit of grad": lambda f, x: jit(grad(f))(x),
    "vjp of jit": lambda f, x: vjp(jit(f), x),
}


@pytest.mark.parametrize("way", FAILING)
def test_an_error_leaves_the_random_state(way):
    for _ in range(2):
        paddle.seed(SEED)
        if way != "jit":  # of which a function that fails is called by itself
            with pytest.raises(LookupError):
                FAILING[way](raising, randn([2, 3]))
            assert_same(paddle.rand([3]), drawn(lambda: None)[1])


@pytest.mark.parametrize("way", ["jvp", "jacfwd", "hvp", "hessian", "value_and_grad"])
def test_a_refusal_leaves_the_random_state(way):
    layer = nn.LSTM(4, 5, 2, dropout=0.3)

    def function(x):  # which has no second derivative
        lengths = paddle.arange(1, x.shape[0] + 1) % x.shape[1] + 1
        found = layer(F.dropout(x, 0.4), sequence_length=lengths)[0]
        return found if way in ("jvp", "jacfwd", "value_and_grad") else found.sum()

    refused = ValueError if way == "value_and_grad" else NotImplementedError
    for _ in range(2):
        paddle.seed(SEED)
        with pytest.raises(refused):
            FAILING[way](function, randn(SHAPE))
        assert_same(paddle.rand([3]), drawn(lambda: None)[1])


@pytest.mark.parametrize("name", ["Dropout", "a wave", "MultiHeadAttention"])
def test_a_function_that_is_called_twice_draws_once(name):
    """That it reaches parameters is known only after a first call."""
    layer, x = layer_of(name), randn(SHAPE, "float64")
    expected, after = drawn(layer, x)
    cotangent = randn(expected.shape, "float64", 1)
    (by_x,) = drawn(lambda: vjp(layer, x)[1](cotangent))[0]
    for function in (layer, jit(layer), lambda x: jit(layer)(x)):
        for _ in range(2):
            (value, pullback), following = drawn(vjp, function, x)
            assert_same(value.detach(), expected.detach(), rtol=1e-12)
            assert_same(following, after)
            assert_same(pullback(cotangent)[0].detach(), by_x.detach(), rtol=1e-10)


def test_a_function_that_writes_draws_once():
    def writing(x):
        y = F.dropout(x, 0.4)
        x[0] = 2.0
        return y * x

    x = randn([3, 4], "float64")
    expected, after = drawn(lambda: writing(x.clone()))
    for _ in range(2):
        (value, _), following = drawn(vjp, writing, x)
        assert_same(value, expected)
        assert_same(following, after)


def test_the_slopes_are_those_that_were_kept():
    """Numbers that are dropped have no derivative, others all the same."""
    x, v = randn([40, 5], "float64"), randn([40, 5], "float64", 1)
    value, slope = jvp(lambda x: F.dropout(x, 0.4), (x,), (v,))
    kept = (value != 0).numpy()
    assert 0.4 < kept.mean() < 0.8
    assert_same(slope, v / 0.6 * paddle.to_tensor(kept).astype("float64"), rtol=1e-7)


def test_a_masked_choice_has_no_slope():
    x = paddle.to_tensor([[0.3, -np.inf, 0.7]], dtype="float64")
    v = paddle.to_tensor([[1.0, 2.0, 3.0]], dtype="float64")
    value, slope = jvp(lambda x: F.gumbel_softmax(x, 0.5), (x,), (v,))
    p, q = value[0, 0].item(), value[0, 2].item()
    expected = [[p * q * (1 - 3) / 0.5, 0.0, p * q * (3 - 1) / 0.5]]
    expected = paddle.to_tensor(expected, dtype="float64")
    assert_same(slope, expected, rtol=1e-7, atol=1e-14)


@pytest.mark.parametrize("rnn", [nn.LSTM, nn.GRU, nn.SimpleRNN])
@pytest.mark.usefixtures("in_double")
def test_an_rnn_with_dropout_draws_nothing_in_evaluation(rnn):
    """Its way back is called again, by a program that has lost what it kept."""
    paddle.seed(1)
    layer = rnn(4, 5, 2, dropout=0.5).eval()
    x, v = randn(SHAPE, "float64"), randn(SHAPE, "float64", 1)

    def function(x):
        return layer(x)[0]

    expected = by_differences(function, x, v)
    for way in ("jvp", "linearize, again", "jit of jvp"):
        assert_same(WAYS[way](function, x, v)[1], expected, rtol=1e-6, atol=1e-9)
    net, params, _ = stateless(layer, jit=True)
    cotangent = randn([2, 3, 5], "float64", 2)
    units = np.eye(24).reshape([24, *SHAPE])
    slopes = [by_differences(function, x, paddle.to_tensor(unit)) for unit in units]
    native = paddle.stack([(y * cotangent).sum() for y in slopes]).reshape(SHAPE)
    for _ in range(3):
        (_, state), pullback = net.pullback(params, x)
        none = (None, None) if isinstance(state, tuple) else None
        for _ in range(3):
            found = pullback((cotangent, none))[1][0]
            assert_same(found, native, rtol=1e-6, atol=1e-9)


def test_an_error_after_numbers_of_a_seed():
    net, params, _ = stateless(nn.Dropout(0.4))

    def function(x):
        y = net.forward(params, x, seed=7)
        raise LookupError(str(y.shape))

    for way in FAILING:
        if way == "jit":
            continue
        paddle.seed(SEED)
        with pytest.raises(LookupError):
            FAILING[way](function, randn([2, 3]))
        assert_same(paddle.rand([3]), drawn(lambda: None)[1])


def test_numbers_drawn_without_a_graph_are_held():
    def function(x):
        with paddle.no_grad():
            noise = paddle.randn([4], x.dtype)
        return F.hardswish(x * noise) * F.rrelu(x * paddle.rand([4], x.dtype))

    x, v = randn([3, 4], "float64"), randn([3, 4], "float64", 1)
    expected, after = drawn(function, x)
    for way in ("jvp", "linearize, again", "jit of jvp", "jvp of jit"):
        (value, slope), following = drawn(WAYS[way], function, x, v)
        assert_same(value, expected, rtol=1e-12)
        assert_same(slope, by_differences(function, x, v), rtol=1e-6, atol=1e-8)
        if way != "linearize, again":
            assert_same(following, after)


def test_another_thread_draws_on():
    """What it draws meanwhile is not drawn again after an error here."""
    stop, seen = threading.Event(), []

    def draw():
        while not stop.is_set():
            seen.append(tuple(paddle.rand([4]).tolist()))

    def failing(x):
        raise LookupError(str(paddle.sin(x).shape))

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for _ in range(200):
            with pytest.raises(LookupError):
                jvp(failing, (randn([3]),), (randn([3]),))
    finally:
        stop.set()
        thread.join()
    assert len(seen) > 10
    assert len({*seen}) == len(seen)
