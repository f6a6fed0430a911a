"""Sequences of unequal length, compared with padded ones and with each by itself."""

import pickle
from functools import partial

import numpy as np
import paddle
import pytest
from paddle import nn

from conftest import assert_same, randn
from paddle_chainrules import Packed, grad, jit, jvp, stateless, value_and_grad, vmap
from paddle_chainrules.nets.layers.paddles_own import is_paddles_own
from trees import assert_near

close = partial(assert_near, rtol=1e-12, least=0.0)
pytestmark = pytest.mark.usefixtures("in_double")
LENGTHS = (4, 1, 6, 2)
WIDTH = 3


def sequences(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((length, WIDTH)) for length in LENGTHS]


class Recurrent(nn.Layer):
    """One that takes sequences, or padded ones with their lengths."""

    def __init__(self, cell, **kinds):
        super().__init__()
        both = kinds.get("direction") == "bidirect"
        self.first, self.norm = nn.Linear(WIDTH, 5), nn.LayerNorm(5)
        self.cells = cell(5, 4, **kinds)
        self.last = nn.Linear(8 if both else 4, 2)

    def forward(self, x, lengths=None):
        h = nn.functional.tanh(self.norm(self.first(x)))
        if lengths is None:
            outputs, states = self.cells(h)
            return self.last(outputs.mean()), outputs, states
        time_major = self.cells.time_major
        h = h.transpose([1, 0, 2]) if time_major else h
        outputs, states = self.cells(h, sequence_length=lengths)
        outputs = outputs.transpose([1, 0, 2]) if time_major else outputs
        there = paddle.arange(outputs.shape[1]) < lengths.unsqueeze(1)
        total = (outputs * there.astype(outputs.dtype).unsqueeze(-1)).sum(1)
        count = lengths.unsqueeze(1).astype(total.dtype)
        return self.last(total / count), outputs, states


class Attention(nn.Layer):
    """An encoder that takes sequences, or padded ones with a mask."""

    def __init__(self):
        super().__init__()
        one = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
        self.first, self.encoder = nn.Linear(WIDTH, 8), nn.TransformerEncoder(one, 2)
        self.last = nn.Linear(8, 2)

    def forward(self, x, mask=None):
        h = self.first(x)
        if mask is None:
            return self.last(self.encoder(h).mean())
        outputs = self.encoder(h, mask[:, None, None, :])
        there = mask.astype(outputs.dtype).unsqueeze(-1)
        return self.last((outputs * there).sum(1) / there.sum(1))


RECURRENT = {
    "LSTM": (nn.LSTM, {}),
    "GRU of two layers": (nn.GRU, {"num_layers": 2}),
    "SimpleRNN both ways": (nn.SimpleRNN, {"direction": "bidirect"}),
    "GRU both ways": (nn.GRU, {"direction": "bidirect"}),
    "LSTM both ways": (nn.LSTM, {"direction": "bidirect", "num_layers": 2}),
    "GRU, time first": (nn.GRU, {"time_major": True}),
}


def same_gradients(loss, padded_loss, params, beside):
    """Of sequences and of padded ones, by parameters and elements."""
    x = Packed.of(sequences())
    padded = x.padded()
    expected, (grads, grad_x) = value_and_grad(padded_loss, argnums=(0, 1))(
        params, padded, beside(x)
    )
    for run in (loss, jit(loss)):
        value, (found, found_x) = value_and_grad(run, argnums=(0, 1))(params, x)
        close(value, expected)
        largest = max(float(part.abs().max()) for part in grads.values())
        for name, part in grads.items():  # those of the keys' biases are zero
            assert float((found[name] - part).abs().max()) <= 1e-12 * largest
        close(found_x.values, Packed.of_padded(grad_x, LENGTHS).values)
        assert found_x.offsets is None


@pytest.mark.parametrize(("cell", "kinds"), RECURRENT.values(), ids=RECURRENT)
def test_recurrent_layers_are_those_of_padded_sequences(cell, kinds):
    net, params, _ = stateless(Recurrent(cell, **kinds))
    weight = paddle.randn([len(LENGTHS), 2])

    def loss(params, x):
        return (net.forward(params, x)[0] * weight).sum()

    def padded_loss(params, x, lengths):
        return (net.forward(params, x, lengths)[0] * weight).sum()

    same_gradients(loss, padded_loss, params, lambda x: x.lengths)
    x = Packed.of(sequences())
    _, outputs, states = net.forward(params, x)
    _, padded, expected = net.forward(params, x.padded(), x.lengths)
    close(outputs.values, Packed.of_padded(padded, LENGTHS).values)
    pairs = zip(*(s if isinstance(s, tuple) else (s,) for s in (states, expected)))  # noqa: B905
    for found, other in pairs:
        close(found, other)
    for i, each in enumerate(sequences()):
        alone, _, _ = net.forward(params, Packed.of([each]))
        close(alone[0], net.forward(params, x)[0][i])


def test_encoders_are_those_of_padded_sequences_with_a_mask():
    net, params, _ = stateless(Attention())
    weight = paddle.randn([len(LENGTHS), 2])

    def loss(params, x):
        return (net.forward(params, x) * weight).sum()

    def padded_loss(params, x, mask):
        return (net.forward(params, x, mask) * weight).sum()

    same_gradients(loss, padded_loss, params, lambda x: x.mask())
    whole = net.forward(params, Packed.of(sequences()))
    for i, each in enumerate(sequences()):
        close(net.forward(params, Packed.of([each]))[0], whole[i])


def test_second_derivatives_and_forward_mode():
    net, params, _ = stateless(nn.Sequential(nn.Linear(WIDTH, 4), nn.Tanh()))
    x = Packed.of(sequences())

    def total(params, x):
        y = net.forward(params, x)
        return ((y.mean() if isinstance(y, Packed) else y.mean(0)) ** 3).sum()

    def squared(params, x):
        return sum((g**2).sum() for g in grad(total)(params, x).values())

    def alone(params, parts):
        # The mean of each by itself, and the gradients of the sum.
        def losses(params):
            return sum(total(params, part) for part in parts)

        return sum((g**2).sum() for g in grad(losses)(params).values())

    parts = [paddle.to_tensor(s) for s in sequences()]
    expected = grad(alone)(params, parts)
    for run in (squared, jit(squared)):
        for name, part in grad(run)(params, x).items():
            close(part, expected[name])
    tangent = Packed.of(sequences(seed=1))
    _, along = jvp(lambda x: net.forward(params, x), (x,), (tangent,))
    tensors = x.values, tangent.values
    _, other = jvp(lambda x: net.forward(params, x), *((t,) for t in tensors))
    close(along.values, other)


def test_words():
    words = [np.array([1, 2]), np.array([3, 1, 5]), np.array([7])]
    net, params, _ = stateless(nn.Embedding(9, 4))
    x = Packed.of(words)
    y, pullback = net.pullback(params, x)
    grads, (grad_x,) = pullback(y)  # a cotangent of the output's kind
    flat, expected = net.pullback(params, x.values)
    close(y.values, flat)
    close(grads["weight"], expected(flat)[0]["weight"])
    assert grad_x.values is None
    for i, each in enumerate(words):
        assert y[i].shape == [len(each), 4]


def test_reductions_slices_and_sequences_without_elements():
    rows = [*sequences(), np.zeros((0, WIDTH))]
    x = Packed.of(rows)
    assert repr(x) == "Packed(5 sequences of 0 to 6 elements of shape [3], float64)"
    for found, of in ((x.sum(), np.sum), (x.max(), np.max), (x.mean(), np.mean)):
        for i, row in enumerate(rows[:-1]):
            close(found[i], paddle.to_tensor(of(row, axis=0)))
    assert x.sum()[4].tolist() == x.mean()[4].tolist() == [0, 0, 0]
    full = x[:4]
    for i, row in enumerate(rows[:4]):
        close(full.last()[i], paddle.to_tensor(row[-1]))
        close(full.first()[i], paddle.to_tensor(row[0]))
        close(x[i - 5], paddle.to_tensor(row))
    assert x[1:3].lengths.tolist() == [1, 6]
    assert x.padded(7.0)[1, 1:].min() == 7
    assert x.mask().sum(1).tolist() == [*LENGTHS, 0]
    for run in (lambda x: (x.last(), x.first()), jit(lambda x: (x.last(), x.first()))):
        for found, at in zip(run(x), (-1, 0), strict=True):
            close(found[2], paddle.to_tensor(rows[2][at]))
            assert found[4].tolist() == [0, 0, 0]
    close(Packed.of_padded(x.padded(), [*LENGTHS, 0]).values, x.values)


def test_arithmetic_is_that_of_elements():
    x = Packed.of(sequences())
    values = x.values
    close(((2 * x - x / 4 + 1) * x).values, (2 * values - values / 4 + 1) * values)
    bias = paddle.randn([WIDTH])
    close((bias - x).values, bias - x.values)
    close(x.map(paddle.exp).values, paddle.exp(x.values))


@pytest.mark.parametrize("steps", [1, 3])
def test_programs_serve_other_lengths(steps):
    net, params, _ = stateless(Recurrent(nn.GRU), jit=True)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rows = [rng.standard_normal((k, WIDTH)) for k in rng.permutation([2, 3, 5])]
        for _ in range(steps):
            x = Packed.of(rows)
            y, _, _ = net.forward(params, x)
            for i, row in enumerate(rows):
                close(net.forward(params, Packed.of([row]))[0][0], y[i])


def test_layers_with_a_forward_of_their_own_run_it_once():
    class Twice(nn.MultiHeadAttention):
        def forward(self, query, key=None, value=None, attn_mask=None, cache=None):
            return super().forward(query, key, value, attn_mask, cache) * 2.0

    class Outputs(nn.GRU):
        def forward(self, x):
            return super().forward(x)[0]

    x = Packed.of(sequences())
    layer, plain = Twice(WIDTH, 1), nn.MultiHeadAttention(WIDTH, 1)
    plain.set_state_dict(layer.state_dict())
    close(layer(x).values, 2 * plain(x).values)
    cells = Outputs(WIDTH, 4)
    for i, row in enumerate(sequences()):
        close(cells(Packed.of([row])).values, cells(x)[i])


def test_numpys_numbers_and_files():
    x = Packed.of(sequences())
    close((np.float64(2) * x).values, 2 * x.values)
    close((np.ones(WIDTH) - x).values, 1 - x.values)
    again = pickle.loads(pickle.dumps(x))
    assert again.max_length == x.max_length
    layer = nn.Linear(WIDTH, 2)
    close(layer(again).values, layer(x).values)


@pytest.mark.parametrize(
    "make",
    [lambda: nn.LSTM(3, 4), lambda: nn.TransformerEncoderLayer(8, 2, 16), nn.GELU],
    ids=["LSTM", "encoder", "GELU"],
)
def test_layers_stay_paddles_own_where_they_take_sequences(make):
    Packed.of(sequences())
    assert is_paddles_own(make())


@pytest.mark.parametrize("cell", [nn.GRU, nn.SimpleRNN])
def test_both_ways_from_given_states(cell):
    x = Packed.of(sequences())
    net, params, _ = stateless(cell(WIDTH, 2, direction="bidirect"))
    states = randn([2, len(x), 2], x.values.dtype, 3)

    def loss(params, states, *args, padded=False):
        outputs, last = net(params, args[0], states, *args[1:])
        values = outputs if padded else outputs.values
        return (values**2).sum() + (last**3).sum()

    found = grad(loss, (0, 1))(params, states, x)
    expected = grad(partial(loss, padded=True), (0, 1))(
        params, states, x.padded(), x.lengths
    )
    assert_same(found, expected, rtol=1e-6, atol=1e-7)


REFUSED = {
    "empty": lambda x: nn.GRU(3, 2)(x[0:0]),
    "no elements": lambda x: nn.GRU(3, 2)(
        Packed(x.values[:0], paddle.to_tensor([0, 0, 0]))
    ),
    "keys of others": lambda x: nn.MultiHeadAttention(3, 1)(x, x[:2], x[:2]),
    "values of others": lambda x: nn.MultiHeadAttention(3, 1)(
        x, x, Packed.of(sequences()[::-1])
    ),
    "an array of rows": lambda x: x + np.ones((5, 3)),
    "numbers beside vectors": lambda x: x + x.map(lambda v: v[:, 0]),
    "numbers to a weight": lambda x: nn.Linear(3, 2)(x.map(lambda v: v[:, 0])),
    "too short": lambda x: Packed(x.values, x.offsets, 3),
    "lengths of floats": lambda x: Packed.of_padded(x.padded(), [1.5, 1, 1, 1]),
    "another layer": lambda x: stateless(nn.Conv1D(3, 2, 1))[0].forward(
        stateless(nn.Conv1D(3, 2, 1))[1], x
    ),
    "attribute": lambda x: x.reshape([3]),
    "rows beside": lambda x: x + paddle.ones([5, 3]),
    "other lengths": lambda x: x + Packed.of(sequences()[::-1]),
    "none": lambda x: Packed.of([]),
    "offsets": lambda x: Packed(x.values, x.offsets + 1),
    "dtype": lambda x: Packed(x.values, x.offsets.astype("int32")),
    "list": lambda x: Packed([1.0], x.offsets),
    "a tuple": lambda x: (1.0, 2.0) * x,
    "place": lambda x: x[9],
    "step": lambda x: x[::2],
    "softmax": lambda x: nn.functional.softmax(x),
    "rows": lambda x: x.map(lambda values: values.sum(0, keepdim=True)),
    "padded lengths": lambda x: Packed.of_padded(x.padded(), [9, 1, 1, 1]),
    "samples": lambda x: vmap(lambda x: x.mean())(x),
    "lengths twice": lambda x: nn.GRU(3, 2)(x, sequence_length=x.lengths),
    "mask twice": lambda x: nn.MultiHeadAttention(3, 1)(x, attn_mask=x.mask()),
    "keys": lambda x: nn.MultiHeadAttention(3, 1)(x, x.padded(), x.padded()),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_what_is_refused_says_why_and_what_to_do(call):
    with pytest.raises((TypeError, ValueError, AttributeError, IndexError), match=";"):
        call(Packed.of(sequences()))
