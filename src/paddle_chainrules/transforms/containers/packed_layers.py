"""Functions and layers of Paddle's that take sequences of unequal length."""

from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn

from ...paddle_side.patching.argument_kinds import handles_kind
from .packed import Packed, repacked, same_offsets

__all__ = ["Packed"]


def _map_elementwise(*functions: Any) -> None:
    """Have functions that work on each element by itself take a Packed."""

    def on_elements(function: Any) -> Any:
        def on_values(x: Any = None, *args: Any, **kwargs: Any) -> Packed:
            if x is None:
                name, x = next(iter(kwargs.items()))
                del kwargs[name]
            return x.like(function(x.values, *args, **kwargs))

        return on_values

    for function in functions:
        handles_kind(Packed, function)(on_elements(function))


_map_elementwise(
    *(F.dropout, F.alpha_dropout),
    *(F.relu, F.relu6, F.gelu, F.silu, F.swish, F.mish, F.elu, F.selu, F.celu),
    *(F.leaky_relu, F.softplus, F.softsign, F.hardswish, F.hardsigmoid, F.hardtanh),
    *(F.tanhshrink, F.softshrink, F.hardshrink, F.log_sigmoid, F.sigmoid, F.tanh),
    *(paddle.tanh, paddle.exp, paddle.sin, paddle.cos, paddle.square, paddle.abs),
    *(paddle.sqrt, paddle.log),
)


@handles_kind(Packed, F.layer_norm)
def _layer_norm(x: Packed, normalized_shape: Any, *args: Any, **kwargs: Any) -> Packed:
    return x.like(F.layer_norm(x.values, normalized_shape, *args, **kwargs))


@handles_kind(Packed, F.softmax, F.log_softmax)
def _softmax(x: Packed, axis: int = -1, *args: Any, **kwargs: Any) -> Any:
    raise TypeError(
        f"softmax of a Packed along axis {axis}: of each element or along its sequence;"
        " say by x.map(paddle.nn.functional.softmax), or on x.padded(-1e30)"
    )


@handles_kind(Packed, nn.layer.rnn.RNNBase, nn.RNN, nn.BiRNN)
def _recurrent(
    forward: Any,
    layer: Any,
    inputs: Packed,
    initial_states: Any = None,
    sequence_length: Any = None,
    **kwargs: Any,
) -> tuple[Packed, Any]:
    if sequence_length is not None:
        raise ValueError(
            "a Packed has the lengths of its sequences, got sequence_length too; leave "
            "it out"
        )
    _refuse_empty(inputs)
    padded = inputs.padded()
    if layer.time_major:
        padded = padded.transpose([1, 0, *range(2, padded.ndim)])
    forward_args = padded, initial_states, inputs.lengths
    outputs, states = forward(layer, *forward_args, **kwargs)
    if layer.time_major:
        outputs = outputs.transpose([1, 0, 2])
    return repacked(outputs, inputs), states


@handles_kind(Packed, nn.MultiHeadAttention)
def _attention(
    forward: Any,
    layer: Any,
    query: Packed,
    key: Any = None,
    value: Any = None,
    attn_mask: Any = None,
    cache: Any = None,
) -> Any:
    key = query if key is None else key
    value = key if value is None else value
    if not (isinstance(key, Packed) and isinstance(value, Packed)) or cache is not None:
        raise TypeError(
            "attention of a Packed takes keys and values that are Packed too, and no "
            f"cache, got {type(key).__name__} and {type(value).__name__}; use "
            "padded() and mask() of all"
        )
    for sequences in (query, key, value):
        _refuse_empty(sequences)
    if len(query) != len(key) or not (value is key or same_offsets(key, value)):
        raise ValueError(
            "attention needs as many sequences of keys as of queries, and values of "
            f"the keys' offsets, got {query!r}, {key!r} and {value!r}; give sequences "
            "that belong together"
        )
    mask = key.mask().unsqueeze([1, 2])
    if attn_mask is not None:
        raise TypeError(
            "attention of a Packed masks what lies beyond the ends, got attn_mask too; "
            "use padded() and mask(), and combine both masks"
        )
    padded = (sequences.padded() for sequences in (query, key, value))
    result = forward(layer, *padded, attn_mask=mask)
    if isinstance(result, tuple):
        return (repacked(result[0], query), *result[1:])
    return repacked(result, query)


def _refuse_empty(x: Packed) -> None:
    """Refuse empty sequences, for which Paddle's kernels end the process."""
    if not len(x) or not x.max_length:
        raise ValueError(
            "recurrent layers and attention need an element at least, got "
            f"{x!r}; leave such batches out"
        )


@handles_kind(Packed, F.embedding)
def _embedding(x: Packed, weight: Any, *args: Any, **kwargs: Any) -> Packed:
    return x.like(F.embedding(x.values, weight, *args, **kwargs))


@handles_kind(Packed, F.linear)
def _linear(x: Packed, weight: Any, bias: Any = None, name: Any = None) -> Packed:
    if x.values.ndim < 2:
        raise ValueError(
            f"elements of a Packed are vectors where they meet a weight, got {x!r}; "
            "make vectors of them by x.map(lambda v: v.unsqueeze(-1))"
        )
    return x.like(F.linear(x.values, weight, bias))
