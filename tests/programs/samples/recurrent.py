"""Arguments of recurrent layers."""

from __future__ import annotations

from typing import Any

import paddle

from .tensors import t

Row = tuple[Any, ...]

NOTHING = paddle.zeros([1], "uint8")


def _layers(mode: str, gates: int, layers: int, both: bool, is_test: bool) -> Row:
    hidden, inputs, ways = 2, 3, 1 + both
    weights, biases = [], []
    for layer in range(layers):
        width = ways * hidden if layer else inputs
        for _ in range(ways):
            weights += [t(gates * hidden, width), t(gates * hidden, hidden)]
            biases += [t(gates * hidden), t(gates * hidden)]
    states = [t(layers * ways, 4, hidden) for _ in range(1 + (mode == "LSTM"))]
    rest = (None, NOTHING, 0.0, both, inputs, hidden, layers, mode, 0, is_test)
    return (t(5, 4, inputs), states, [*weights, *biases], *rest)


RECURRENT: dict[str, list[Row]] = {
    "rnn": [
        _layers("LSTM", 4, 1, False, False),
        _layers("LSTM", 4, 1, False, True),
        _layers("GRU", 3, 1, False, False),
        _layers("RNN_TANH", 1, 1, False, False),
        _layers("RNN_RELU", 1, 1, False, False),
        _layers("LSTM", 4, 1, True, False),
        _layers("GRU", 3, 2, False, False),
        _layers("RNN_TANH", 1, 2, True, False),
    ]
}
