"""Recurrent layers, in Julia by loops over the steps."""

from __future__ import annotations

from typing import Any

from ...operators.calls import NoRule
from ...operators.layers.recurrent import Arguments
from .call import JuliaCall, TupleExpression, julia_of, row

CELLS = {
    "LSTM": "lstm_cell",
    "GRU": "gru_cell",
    "RNN_TANH": "tanh_cell",
    "RNN_RELU": "relu_cell",
}


@julia_of("rnn")
def _rnn_julia(call: JuliaCall) -> str:
    given = Arguments(*call.args)
    if given.sequence_length is not None:
        raise NoRule("sequences with their lengths in Julia; give whole ones")
    if given.dropout_prob and not given.is_test and given.num_layers > 1:
        raise NoRule("dropout between layers in Julia; put the layer into evaluation")
    ways = 2 if given.is_bidirec else 1
    count = 2 * ways * given.num_layers
    names: list[Any] = [*given.weight_list]
    weights, biases = names[:count], names[count:]
    biases = biases or ["nothing"] * count
    layers = []
    for k in range(given.num_layers):
        each = []
        for way in range(ways):
            at = 2 * (k * ways + way)
            each.append(row([*weights[at : at + 2], *biases[at : at + 2]]))
        layers.append(row(each))
    states = row(given.pre_state)
    cell = CELLS[given.mode]
    return TupleExpression(f"recurrent({cell}, {given.x}, {states}, {row(layers)})")
