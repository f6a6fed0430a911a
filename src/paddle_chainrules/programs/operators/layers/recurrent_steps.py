"""Recurrent layers decomposed: by layers, by directions, and step by step.

Layers run one by one where there is dropout between them. With sequences of several
lengths directions run one by one, since Paddle's gradients of the reverse direction are
wrong there. For machine code layers run step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.dtypes import single
from ..entry import TABLE, decompose_of
from ..shared import ops
from .recurrent import Arguments, layer_state, weight_indices

MAX_STEPS = 80
"""The most steps of all layers together. A layer with more stays one operator."""


@decompose_of("rnn")
def _rnn_decomposed(decomposed: bool, *args: Any) -> Any:
    """Decompose by layers and directions where needed, else for machine code by steps.

    One product adds the input's part of the gates for all steps at once. Then each step
    has a product and its gates.

    Returns None for what only Paddle's kernel supports: sequences of several lengths in
    one direction, layers without biases, many steps.
    """
    arguments = Arguments(*args)
    has_dropout = bool(arguments.dropout_prob) and not arguments.is_test
    by_direction = arguments.is_bidirec and arguments.sequence_length is not None
    if (has_dropout or by_direction) and arguments.num_layers > 1:
        return _run_by_layers(arguments, has_dropout)
    if by_direction and arguments.x.size:
        return _run_by_directions(arguments)
    num_directions = 1 + bool(arguments.is_bidirec)
    count = arguments.num_layers * num_directions
    if (
        not decomposed
        or arguments.sequence_length is not None
        or len(arguments.weight_list) != 4 * count
        or count * arguments.x.shape[0] > MAX_STEPS
        or arguments.x.dtype not in (paddle.float32, paddle.float64)
        or 0 in arguments.x.shape
    ):
        return None
    x, last_states = arguments.x, []
    for i in range(arguments.num_layers):
        outputs = []
        for direction in range(num_directions):
            k = i * num_directions + direction
            weights = [arguments.weight_list[j] for j in weight_indices(k, count)]
            first_states = [
                ops.squeeze(layer_state(state, k), [0]) for state in arguments.pre_state
            ]
            states, last_state = _run_layer(
                STEP_BY_MODE[arguments.mode], x, first_states, weights, bool(direction)
            )
            outputs.append(states)
            last_states.append(last_state)
        x = ops.concat(outputs, 2) if num_directions > 1 else outputs[0]
    return (
        x,
        None,
        [
            ops.stack([*states_of_kind], 0)
            for states_of_kind in zip(*last_states, strict=True)
        ],
    )


def _run_by_layers(arguments: Arguments, has_dropout: bool) -> Any:
    """Run layer by layer. Paddle's kernel draws once, for all layers alike."""
    x, all_last_states, factors = arguments.x, [], None
    num_directions = 1 + bool(arguments.is_bidirec)
    for i in range(arguments.num_layers):
        if i and has_dropout:
            if factors is None:
                factors = _draw_dropout_mask(x, arguments)
            x = x * factors / single(1.0 - single(arguments.dropout_prob))
        first, last = num_directions * i, num_directions * (i + 1)
        layer_arguments = _some_layers(arguments, x, first, last)
        x, _, *last_states = _split_results(ops.rnn(*layer_arguments))
        all_last_states.append(last_states)
    return x, None, _concat_states(all_last_states)


def _run_by_directions(arguments: Arguments) -> Any:
    """Run both directions of one layer, the reverse one on reversed sequences."""
    outputs, all_last_states = [], []
    for k in range(2):
        x = _reversed_sequences(arguments.x, arguments) if k else arguments.x
        layer_arguments = _some_layers(arguments, x, k, k + 1, is_bidirec=False)
        out, _, *last_states = _split_results(ops.rnn(*layer_arguments))
        outputs.append(_reversed_sequences(out, arguments) if k else out)
        all_last_states.append(last_states)
    return ops.concat(outputs, 2), None, _concat_states(all_last_states)


def _reversed_sequences(x: Tensor, arguments: Arguments) -> Tensor:
    """Reverse each sequence of ``[steps, n, width]`` within its length."""
    step = ops.reshape(paddle.arange(x.shape[0]), [-1, 1])
    length = ops.reshape(ops.cast(arguments.sequence_length, paddle.int64), [1, -1])
    source = ops.where(step < length, length - 1 - step, step + length * 0)
    return ops.take_along_axis(x, ops.expand(ops.unsqueeze(source, [2]), x.shape), 0)


def _some_layers(
    arguments: Arguments, x: Tensor, first: int, last: int, **others: Any
) -> Arguments:
    """Return the arguments of some layers, or directions, as one layer on x."""
    # Biases come after weights, where there are any.
    biases = 2 * (1 + bool(arguments.is_bidirec)) * arguments.num_layers
    return arguments._replace(
        x=x,
        pre_state=[
            ops.slice(state, [0], [first], [last], [1], [])
            for state in arguments.pre_state
        ],
        weight_list=[
            weight
            for offset in (0, biases)
            for weight in arguments.weight_list[offset + 2 * first : offset + 2 * last]
        ],
        dropout_prob=0.0,
        input_size=x.shape[2],
        num_layers=1,
        **others,
    )


def _concat_states(all_last_states: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Join the last states of layers, a tensor for each kind of state."""
    return [ops.concat([*group], 0) for group in zip(*all_last_states, strict=True)]


def _split_results(result: Any) -> list[Tensor]:
    """Return the output, the kernel's residuals, and the last states, in one list."""
    out, reserve, *states = result
    nested = len(states) == 1 and isinstance(states[0], list | tuple)
    return [out, reserve, *(states[0] if nested else states)]


def _draw_dropout_mask(x: Tensor, arguments: Arguments) -> Tensor:
    """Draw a mask: ones for entries that remain, zeros for dropped ones."""
    ones = paddle.ones(x.shape, x.dtype)
    attrs = (
        arguments.dropout_prob,
        "upscale_in_train",
        arguments.seed,
        bool(arguments.seed),
    )
    _, mask = TABLE["dropout_of_ones"].bind([ones, *attrs])
    return ops.cast(mask, x.dtype)


def _run_layer(
    step: Callable[..., list[Tensor]],
    x: Tensor,
    state: list[Tensor],
    weights: Sequence[Tensor],
    is_reverse: bool,
) -> tuple[Tensor, list[Tensor]]:
    """Run one layer in one direction; return the states of all steps, and the last."""
    w_x, w_h, b_x, b_h = weights
    steps, n, _ = x.shape
    all_gates_x = (
        ops.matmul(ops.reshape(x, [steps * n, x.shape[2]]), w_x, False, True) + b_x
    )
    step_gates = ops.unbind(ops.reshape(all_gates_x, [steps, n, w_x.shape[0]]), 0)
    outputs = []
    for gates_x in reversed(step_gates) if is_reverse else step_gates:
        gates_h = ops.matmul(state[0], w_h, False, True) + b_h
        state = step(gates_x, gates_h, state)
        outputs.append(state[0])
    return ops.stack(outputs[::-1] if is_reverse else outputs, 0), state


def _lstm_step(
    gates_x: Tensor, gates_h: Tensor, state: Sequence[Tensor]
) -> list[Tensor]:
    i, f, n, o = ops.split_with_num(gates_x + gates_h, 4, 1)
    c = ops.sigmoid(f) * state[1] + ops.sigmoid(i) * ops.tanh(n)
    return [ops.sigmoid(o) * ops.tanh(c), c]


def _gru_step(
    gates_x: Tensor, gates_h: Tensor, state: Sequence[Tensor]
) -> list[Tensor]:
    (r_x, z_x, n_x), (r_h, z_h, n_h) = (
        ops.split_with_num(g, 3, 1) for g in (gates_x, gates_h)
    )
    z = ops.sigmoid(z_x + z_h)
    n = ops.tanh(n_x + ops.sigmoid(r_x + r_h) * n_h)
    return [(state[0] - n) * z + n]


def _tanh_step(gates_x: Tensor, gates_h: Tensor, _: Sequence[Tensor]) -> list[Tensor]:
    return [ops.tanh(gates_x + gates_h)]


def _relu_step(gates_x: Tensor, gates_h: Tensor, _: Sequence[Tensor]) -> list[Tensor]:
    return [ops.relu(gates_x + gates_h)]


STEP_BY_MODE = {
    "LSTM": _lstm_step,
    "GRU": _gru_step,
    "RNN_TANH": _tanh_step,
    "RNN_RELU": _relu_step,
}
"""By mode, a function from the gates' inputs and the state to the next state."""
