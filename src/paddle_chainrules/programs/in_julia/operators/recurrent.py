"""Recurrent layers, in Julia by loops over the steps."""

from __future__ import annotations

from typing import Any

from ...operators.calls import NoRule
from ...operators.layers.recurrent import Arguments
from .call import JuliaCall, TupleExpression, julia_of, tuple_text

CELLS = {
    "LSTM": "lstm_cell",
    "GRU": "gru_cell",
    "RNN_TANH": "tanh_cell",
    "RNN_RELU": "relu_cell",
}


@julia_of("rnn")
def _rnn_julia(call: JuliaCall) -> str:
    arguments = Arguments(*call.args)
    if arguments.sequence_length is not None:
        raise NoRule("sequences with their lengths in Julia; give whole ones")
    if arguments.dropout_prob and not arguments.is_test and arguments.num_layers > 1:
        raise NoRule("dropout between layers in Julia; put the layer into evaluation")
    num_directions = 2 if arguments.is_bidirec else 1
    count = 2 * num_directions * arguments.num_layers
    names: list[Any] = [*arguments.weight_list]
    weights, biases = names[:count], names[count:]
    biases = biases or ["nothing"] * count
    layers = []
    for k in range(arguments.num_layers):
        directions = []
        for direction in range(num_directions):
            start = 2 * (k * num_directions + direction)
            directions.append(
                tuple_text([*weights[start : start + 2], *biases[start : start + 2]])
            )
        layers.append(tuple_text(directions))
    states = tuple_text(arguments.pre_state)
    cell = CELLS[arguments.mode]
    return TupleExpression(
        f"recurrent({cell}, {arguments.x}, {states}, {tuple_text(layers)})"
    )
