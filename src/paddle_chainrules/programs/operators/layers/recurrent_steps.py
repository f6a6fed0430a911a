"""Recurrent layers decomposed for machine code.

Layers run one by one where there is dropout between them, and step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.dtypes import single
from ..entry import TABLE, decompose_of
from ..shared import ops
from .recurrent import Arguments, part_of, sources

LONGEST = 80
"""The most steps of all layers together. A layer with more stays one operator."""


@decompose_of("rnn")
def _rnn_decomposed(decomposed: bool, *args: Any) -> Any:
    """Decompose into steps for machine code.

    One product adds the input's part of the gates for all steps at once. Then each step
    has a product and its gates.

    Returns None for what only Paddle's kernel supports: sequences of several lengths,
    layers without biases, many steps.
    """
    given = Arguments(*args)
    if given.dropout_prob and not given.is_test and given.num_layers > 1:
        return _with_dropout(given)
    ways = 1 + bool(given.is_bidirec)
    count = given.num_layers * ways
    if (
        not decomposed
        or given.sequence_length is not None
        or len(given.weight_list) != 4 * count
        or count * given.x.shape[0] > LONGEST
        or given.x.dtype not in (paddle.float32, paddle.float64)
        or 0 in given.x.shape
    ):
        return None
    x, ends = given.x, []
    for i in range(given.num_layers):
        outs = []
        for way in range(ways):
            k = i * ways + way
            weights = [given.weight_list[j] for j in sources(k, count)]
            first = [ops.squeeze(part_of(s, k), [0]) for s in given.pre_state]
            result, last = _in_steps(STEP[given.mode], x, first, weights, bool(way))
            outs.append(result)
            ends.append(last)
        x = ops.concat(outs, 2) if ways > 1 else outs[0]
    return x, None, [ops.stack([*row], 0) for row in zip(*ends, strict=True)]


def _with_dropout(given: Arguments) -> Any:
    """Run layer by layer. Paddle's kernel draws once, for all layers alike."""
    x, ends, factors = given.x, [], None
    ways = 1 + bool(given.is_bidirec)
    biases = 2 * ways * given.num_layers  # come after weights, where there are any
    for i in range(given.num_layers):
        if i:
            if factors is None:
                factors = _drawn(x, given)
            x = x * factors / single(1.0 - single(given.dropout_prob))
        first, last = ways * i, ways * (i + 1)
        states = [ops.slice(s, [0], [first], [last], [1], []) for s in given.pre_state]
        rows = (slice(at + 2 * first, at + 2 * last) for at in (0, biases))
        one = given._replace(
            x=x,
            pre_state=states,
            weight_list=[w for row in rows for w in given.weight_list[row]],
            dropout_prob=0.0,
            input_size=x.shape[2],
            num_layers=1,
        )
        x, _, *after = _split_results(ops.rnn(*one))
        ends.append(after)
    return x, None, [ops.concat([*row], 0) for row in zip(*ends, strict=True)]


def _split_results(result: Any) -> list[Tensor]:
    """Return the output, what the kernel keeps, and the last states, in one list."""
    out, kept, *after = result
    nested = len(after) == 1 and isinstance(after[0], list | tuple)
    return [out, kept, *(after[0] if nested else after)]


def _drawn(x: Tensor, given: Arguments) -> Tensor:
    """Return a one for each entry that stays, a zero for others."""
    ones = paddle.ones(x.shape, x.dtype)
    attrs = given.dropout_prob, "upscale_in_train", given.seed, bool(given.seed)
    _, mask = TABLE["dropout_of_ones"].every([ones, *attrs])
    return ops.cast(mask, x.dtype)


def _in_steps(
    step: Callable[..., list[Tensor]],
    x: Tensor,
    state: list[Tensor],
    weights: Sequence[Tensor],
    is_back: bool,
) -> tuple[Tensor, list[Tensor]]:
    """Run one layer in one direction; return the states of all steps, and the last."""
    w_x, w_h, b_x, b_h = weights
    steps, n, _ = x.shape
    by_x = ops.matmul(ops.reshape(x, [steps * n, x.shape[2]]), w_x, False, True) + b_x
    each = ops.unbind(ops.reshape(by_x, [steps, n, w_x.shape[0]]), 0)
    results = []
    for given in reversed(each) if is_back else each:
        by_h = ops.matmul(state[0], w_h, False, True) + b_h
        state = step(given, by_h, state)
        results.append(state[0])
    return ops.stack(results[::-1] if is_back else results, 0), state


def _lstm_step(by_x: Tensor, by_h: Tensor, state: Sequence[Tensor]) -> list[Tensor]:
    i, f, n, o = ops.split_with_num(by_x + by_h, 4, 1)
    c = ops.sigmoid(f) * state[1] + ops.sigmoid(i) * ops.tanh(n)
    return [ops.sigmoid(o) * ops.tanh(c), c]


def _gru_step(by_x: Tensor, by_h: Tensor, state: Sequence[Tensor]) -> list[Tensor]:
    (r_x, z_x, n_x), (r_h, z_h, n_h) = (
        ops.split_with_num(g, 3, 1) for g in (by_x, by_h)
    )
    z = ops.sigmoid(z_x + z_h)
    n = ops.tanh(n_x + ops.sigmoid(r_x + r_h) * n_h)
    return [(state[0] - n) * z + n]


def _tanh_step(by_x: Tensor, by_h: Tensor, _: Sequence[Tensor]) -> list[Tensor]:
    return [ops.tanh(by_x + by_h)]


def _relu_step(by_x: Tensor, by_h: Tensor, _: Sequence[Tensor]) -> list[Tensor]:
    return [ops.relu(by_x + by_h)]


STEP = {
    "LSTM": _lstm_step,
    "GRU": _gru_step,
    "RNN_TANH": _tanh_step,
    "RNN_RELU": _relu_step,
}
"""By mode, a function from the gates' inputs and the state to the next state."""
