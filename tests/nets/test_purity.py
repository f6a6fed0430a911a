"""Layers and functions that write into what they are given: the caller's bytes stay."""

import numpy as np
import paddle
import pytest
from paddle import nn

from conftest import assert_same, randn
from layers import Writer
from paddle_chainrules import RowSparse, jvp, stateless, value_and_grad, vjp

HOWS = [
    *("add", "item", "quietly", "set_value", "view", "params", "assigned", "integers"),
]


def bytes_of(*tensors):
    return [t.numpy().tobytes() for t in tensors]


@pytest.mark.parametrize("frozen", [(), "frozen"])
@pytest.mark.parametrize("how", HOWS)
def test_a_layer_that_writes(how, frozen):
    paddle.seed(0)
    layer = Writer(how)
    net, params, buffers = stateless(layer, frozen)
    x, n = randn([4, 3]), paddle.to_tensor([1, 2])
    held = [x, n, *params.values(), *net.buffers.values(), *buffers.values()]
    before = bytes_of(*held)
    first = net.forward(params, x, n)
    cotangent = randn([4, 3], seed=1)
    kept = bytes_of(cotangent)
    found = []
    for _ in range(3):  # the first call is of copies anyway
        assert_same(net.forward(params, x, n), first)
        y, pullback = net.pullback(params, x, n)
        assert_same(y, first, rtol=1e-6)
        found.append(pullback(cotangent))
        assert bytes_of(*held) == before
        assert bytes_of(cotangent) == kept
    assert_same(found[1:], [found[0]] * 2)
    theta = net.flatten(params)
    assert_same(net.pullback(theta, x, n)[0], first, rtol=1e-6)
    assert theta.numpy().tobytes() == net.flatten(params).numpy().tobytes()


@pytest.mark.parametrize("how", ["add", "item", "quietly", "set_value", "view"])
def test_a_function_that_writes(how):
    layer, x, v = Writer(how), randn([4, 3], "float64"), randn([4, 3], "float64", 1)
    before = bytes_of(x)

    def fn(x):
        getattr(layer, how)(x, None)
        return (x * x).sum()

    def plain(x):
        return fn(x.clone())

    slope = (plain(x + 1e-6 * v) - plain(x - 1e-6 * v)) / 2e-6
    if how in ("quietly", "set_value"):  # as native: what happens quietly is constant
        slope = None
    call = value_and_grad(fn)
    for _ in range(3):
        value, grad = call(x)
        assert_same(value, plain(x))
        if slope is not None:
            assert_same((grad * v).sum(), slope, rtol=1e-6)
            assert_same(jvp(fn, (x,), (v,))[1], slope, rtol=1e-6)
        vjp(fn, x)
        assert bytes_of(x) == before


WRITES = {
    "add_": lambda t: t.add_(paddle.ones([3])),
    "set_value": lambda t: t.set_value(t + 1),
    "copy_": lambda t: t.copy_(t + 1, True),
    "assign": lambda t: paddle.assign(t + 1, output=t),
}


class Later(nn.Layer):
    """Writes into its argument or its buffer where it is told to."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", randn([4, 3]))

    def forward(self, x, how=None, where="x"):
        if how is not None:
            with paddle.no_grad():
                WRITES[how](x if where == "x" else self.table)
        return x * 2 + self.table


@pytest.mark.parametrize("call", ["forward", "pullback"])
@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("where", ["x", "table"])
def test_a_later_call_that_writes_is_refused(where, how, call):
    net, params, buffers = stateless(Later())
    x = randn([4, 3])
    expected = 2 * x + buffers["table"]
    net.forward(params, x)
    with pytest.raises(
        RuntimeError, match=r"written into one of (its arg|the buffers)"
    ):
        getattr(net, call)(params, x, how, where)
    held = [x, *net.buffers.values()]
    before = bytes_of(*held)
    for _ in range(2):
        getattr(net, call)(params, x, how, where)
        assert bytes_of(*held) == before
    # Buffers that are given are copied, so that the caller's stay as they are.
    net, params, buffers = stateless(Later())
    x = randn([4, 3])
    net.forward(params, x)
    y, new = net.forward(params, x, how, "table", buffers=buffers)
    assert_same(y, expected + 1, rtol=1e-6)
    assert_same(new["table"], buffers["table"] + 1)


@pytest.mark.parametrize("how", WRITES)
def test_a_later_call_of_a_function_that_writes(how):
    """Paddle's own refusal to write into a leaf comes when it has written."""
    call = value_and_grad(lambda x, how: (how and WRITES[how](x), x.sum())[1])
    x = randn([4, 3])
    total = x.sum() + 12
    call(x, None)
    refusals = {
        "set_value": (RuntimeError, "written into one of its arguments"),
    }
    if how in refusals:
        error, why = refusals[how]
        with pytest.raises(error, match=why):
            call(x, how)
        return
    value, grad = call(x, how)
    assert_same(value, total, rtol=1e-6)
    assert_same(grad, paddle.ones([4, 3]))


class Slope(nn.Layer):
    """The slope of a net by its input, as nets for differential equations give it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x, slope=True):
        x.stop_gradient = False
        self.linear.bias.stop_gradient = slope
        y = paddle.tanh(self.linear(x))
        return paddle.grad(y, x, create_graph=True)[0] if slope else y


@pytest.mark.parametrize("first", ["forward", "pullback"])
def test_a_layer_that_asks_for_gradients_of_its_input(first):
    net, params, _ = stateless(Slope())
    x = randn([5, 3])
    w, b = params["linear.weight"], params["linear.bias"]
    slope = (1 - paddle.tanh(x @ w + b) ** 2) @ w.T
    for call in (first, "forward", "pullback", "forward"):
        found = getattr(net, call)(params, x)
        assert_same(found[0] if call == "pullback" else found, slope, rtol=1e-5)
        assert all(t.stop_gradient and t.grad is None for t in (x, w, b))
        y = net.forward(params, x, False)
        assert y.stop_gradient
        assert_same(y, paddle.tanh(x @ w + b), rtol=1e-5)
        assert all(t.stop_gradient and t.grad is None for t in (x, w, b))
    with paddle.no_grad():
        assert_same(net.forward(params, x), slope, rtol=1e-5)
    leaf = x.detach()
    leaf.stop_gradient = False
    net.forward(params, leaf, False).sum().backward()
    assert_same(leaf.grad, slope, rtol=1e-5)


def test_buffers_that_are_only_read_are_not_copied():
    seen = []

    class Reading(nn.Layer):
        def __init__(self):
            super().__init__()
            self.register_buffer("read", randn([3]))
            self.register_buffer("written", randn([3]))

        def forward(self, x):
            seen.append((self.read.data_ptr(), self.written.data_ptr()))
            self.written.add_(paddle.ones([3]))
            return x * self.read + self.written

    net, params, _ = stateless(Reading())
    x = randn([2, 3])
    first = net.forward(params, x)
    held = [net.buffers[name].data_ptr() for name in ("read", "written")]
    for _ in range(2):
        assert_same(net.pullback(params, x)[0], first)
        assert seen[-1][0] == held[0]
        assert seen[-1][1] != held[1]


def test_results_share_no_memory_with_the_net():
    class Gives(nn.Layer):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", randn([3]))
            self.weight = self.create_parameter([3])

        def forward(self, x):
            return self.table, self.weight, x, self.table.reshape([1, 3])

    for frozen in ((), "*"):
        net, params, _ = stateless(Gives(), frozen)
        x = randn([3])
        held = [x, *params.values(), *net.buffers.values()]
        before = bytes_of(*held)
        for outputs in (net.forward(params, x), net.pullback(params, x)[0]):
            for output in outputs:
                output.zero_()
        assert bytes_of(*held) == before


def test_the_cotangent_of_a_layer_that_returns_its_input():
    class Returns(nn.Layer):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return x, self.linear(x), x

    net, params, _ = stateless(Returns())
    x, bars = randn([4, 3]), [randn([4, 3], seed=i) for i in (1, 2, 3)]
    _, pullback = net.pullback(params, x)
    before = bytes_of(*bars)
    first = pullback(tuple(bars))
    assert bytes_of(*bars) == before
    weight = params["linear.weight"]
    expected = bars[0] + bars[2] + bars[1] @ weight.T
    assert_same(first[1][0], expected, rtol=1e-5, atol=1e-6)
    assert_same(pullback(tuple(bars)), first)
    first[1][0].zero_()
    assert bytes_of(*bars) == before


@pytest.mark.parametrize("kind", ["chain", "norms", "embedding"])
def test_trainable_leaves_change_nothing(kind):
    """With gradients by Paddle's own means in view, the same numbers, no refusal."""
    paddle.seed(0)
    layer = {
        "chain": lambda: nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)),
        "norms": lambda: nn.Sequential(
            nn.Linear(3, 4), nn.LayerNorm(4), nn.Softmax(), nn.Linear(4, 2)
        ),
        "embedding": lambda: nn.Embedding(5, 3, sparse=True),
    }[kind]()
    x = paddle.to_tensor([[1, 2]]) if kind == "embedding" else randn([5, 3])
    net, params, _ = stateless(layer)
    trainable = {n: p.clone() for n, p in params.items()}
    for p in trainable.values():
        p.stop_gradient = False
    y, pullback = net.pullback(params, x)
    cotangent = randn(y.shape, seed=4)
    expected = pullback(cotangent)
    found, again = net.pullback(trainable, x)
    assert_same(found, y, rtol=1e-5, atol=1e-6)
    assert_same(again(cotangent), expected, rtol=1e-5, atol=1e-6)
    assert all(p.grad is None for p in trainable.values())


def test_an_lstm_with_trainable_leaves():
    """Its kernel has no second derivative, and the rules have one."""
    net, params, _ = stateless(nn.LSTM(3, 4))
    x = randn([2, 5, 3])
    (y, _), pullback = net.pullback(params, x)
    cotangent = (randn(y.shape, seed=2), None)
    expected = pullback(cotangent)
    trainable = {n: p.clone() for n, p in params.items()}
    for p in trainable.values():
        p.stop_gradient = False
    grads, (by_x,) = net.pullback(trainable, x)[1](cotangent)
    assert_same((grads, (by_x,)), expected, rtol=1e-5, atol=1e-6)
    (by_x**2).sum().backward()
    assert all(p.grad is not None for p in trainable.values())


class Words(nn.Layer):
    def __init__(self, sparse):
        super().__init__()
        self.words = nn.Embedding(7, 3, sparse=sparse)
        self.linear = nn.Linear(3, 2)

    def forward(self, i):
        return self.linear(self.words(i))


def test_sparse_embeddings():
    paddle.seed(0)
    layer = Words(sparse=True)
    net, params, _ = stateless(layer)
    plain, _, _ = stateless(Words(sparse=False))
    i = paddle.to_tensor([[1, 2, 2], [5, 1, 2]])
    y, pullback = net.pullback(params, i)
    cotangent = randn(y.shape, seed=1)
    expected, _ = plain.pullback(params, i)[1](cotangent)
    for _ in range(2):  # the first recording is of copies
        grads, _ = pullback(cotangent)
        assert_same(grads, expected, rtol=1e-6, atol=1e-7)
        rows, _ = pullback(cotangent, sparse="words.*")
        table = rows["words.weight"]
        assert isinstance(table, RowSparse)
        assert sorted(set(table.rows.tolist())) == [1, 2, 5]
        assert_same(table.to_dense(), expected["words.weight"], rtol=1e-6, atol=1e-7)
        assert table.coalesce().rows.tolist() == [1, 2, 5]
        assert_same(rows["linear.weight"], expected["linear.weight"], rtol=1e-6)
        into = {n: paddle.ones_like(p) for n, p in params.items()}
        pullback(cotangent, into=(into, None), accumulate=True)
        assert_same(into["words.weight"], grads["words.weight"] + 1, rtol=1e-6)
        sparse = {**into, "words.weight": RowSparse.zeros([7, 3])}
        for _ in range(2):
            pullback(cotangent, into=(sparse, None), accumulate=True)
        total = sparse["words.weight"].to_dense()
        assert_same(total, 2 * grads["words.weight"], rtol=1e-6, atol=1e-7)
        by_theta, _ = net.pullback(net.flatten(params), i)[1](cotangent)
        assert_same(by_theta, net.flatten(expected), rtol=1e-6, atol=1e-7)
        _, pullback = net.pullback(params, i)
    bad = {**into, "words.weight": RowSparse.zeros([7, 2])}
    with pytest.raises(ValueError, match=r"shape \[7, 2\], the gradient \[7, 3\]"):
        pullback(cotangent, into=(bad, None))
    with pytest.raises(ValueError, match="no such parameter"):
        pullback(cotangent, sparse="nothing")
    loss = value_and_grad(lambda p: (net.forward(p, i) ** 2).sum())
    assert_same(
        loss(params)[1],
        value_and_grad(lambda p: (plain.forward(p, i) ** 2).sum())(params)[1],
        rtol=1e-5,
        atol=1e-6,
    )
    assert np.isfinite(float(loss(params)[0]))
