"""Recurrent layers: Paddle's kernel forth, and back through time in few operators.

Paddle's kernel of the gradients takes lists, with which it can't be called from Python.
What it kept is computed again here, for all steps at once, from the states that the
layer gives. Formulas: the documentation of ``paddle.nn.LSTM``, ``GRU``, ``SimpleRNN``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ...paddle_side.interception import RAW
from .calls import Call, NoRule
from .entry import define, formula_of, reverse_of
from .shared import ops


def _rnn(*args: Any) -> list[Any]:
    """All tensors in one list."""
    given = Arguments(*args)
    if given.dropout_prob and not given.is_test and given.num_layers > 1:
        raise NotImplementedError(
            "dropout between the layers of an RNN has no program; call it without jit, "
            "or use layers of their own with Dropout between them"
        )
    out, dropout_state, states = RAW.rnn(*args)
    return [out, dropout_state, *states]


class Arguments(NamedTuple):
    """Of the operator ``rnn``; states and weights are lists."""

    x: Tensor
    pre_state: Sequence[Tensor]
    weight_list: Sequence[Tensor]
    sequence_length: Any
    dropout_state_in: Any
    dropout_prob: float
    is_bidirec: bool
    input_size: int
    hidden_size: int
    num_layers: int
    mode: str
    seed: int
    is_test: bool


define(
    "rnn",
    " ".join(Arguments._fields),
    run=_rnn,
    nested=lambda parts: (*parts[:2], [*parts[2:]]),
    differentiable=(0, 1, 2),
    fixed=(1,),
)


@formula_of("rnn")
def _(*args: Any) -> Any:
    """Several layers, or two directions, as layers of one direction."""
    given = Arguments(*args)
    ways = 2 if given.is_bidirec else 1
    count = 2 * given.num_layers * ways
    rest = (*args[3:6], False)
    x, states = given.x, []
    for layer in range(given.num_layers):
        outs = []
        for way in range(ways):
            k = layer * ways + way
            sources = [2 * k, 2 * k + 1, count + 2 * k, count + 2 * k + 1]
            weights = [given.weight_list[i] for i in sources]
            before = [_part(state, k) for state in given.pre_state]
            turned = ops.flip(x, [0]) if way else x
            how = (x.shape[-1], given.hidden_size, 1, *args[10:])
            out, _, after = ops.rnn(turned, before, weights, *rest, *how)
            outs.append(ops.flip(out, [0]) if way else out)
            states.append(after)
        x = ops.concat(outs, 2) if ways > 1 else outs[0]
    joined = [ops.concat([*parts], 0) for parts in zip(*states, strict=True)]
    return (x, None, *joined)


def _part(state: Tensor, k: int) -> Tensor:
    return ops.slice(state, [0], [k], [k + 1], [1], [])


@reverse_of("rnn")
def _(call: Call) -> Any:
    given = Arguments(*call.args)
    if given.sequence_length is not None:
        raise NoRule("sequences of several lengths; use RNN with a cell")
    ways = 2 if given.is_bidirec else 1
    if len(given.weight_list) != 4 * given.num_layers * ways:
        raise NoRule("layers without biases; use biases that are zero and frozen")
    if given.num_layers * ways > 1:
        return NotImplemented
    layer = BACK[given.mode](given, call.outputs[0])
    g, _, *after = call.cotangents
    zero = paddle.zeros_like(given.pre_state[0])
    ends = [ops.reshape(zero if a is None else a, zero.shape[1:]) for a in after]
    steps = [None] * given.x.shape[0] if g is None else ops.unbind(g, 0)
    by_x, by_h, before = layer.back(steps, ends)
    x, h = _rows(given.x), _rows(layer.h)
    w_x = given.weight_list[0]
    weights = [
        ops.matmul(by_x, x, True, False),
        ops.matmul(by_h, h, True, False),
        ops.sum(by_x, [0], None, False),
        ops.sum(by_h, [0], None, False),
    ]
    by_input = ops.reshape(ops.matmul(by_x, w_x, False, False), given.x.shape)
    states = [ops.reshape(state, zero.shape) for state in before]
    return [by_input, states, weights, *(None for _ in range(10))]


def _rows(x: Tensor) -> Tensor:
    return ops.reshape(x, [-1, x.shape[-1]])


class _Layer:
    """One layer in one direction, with what its gates were at all steps.

    Attributes:
        h: the states before each step, of shape ``[steps, n, hidden]``.
    """

    gates = 1

    def __init__(self, given: Arguments, out: Tensor) -> None:
        self.given, self.out, self.steps = given, out, given.x.shape[0]
        self.h = self._before(given.pre_state[0], out)
        w_x, self.w_h, b_x, b_h = given.weight_list
        shape = [*out.shape[:2], self.gates * given.hidden_size]
        by_x = ops.matmul(_rows(given.x), w_x, False, True) + b_x
        by_h = ops.matmul(_rows(self.h), self.w_h, False, True) + b_h
        self.by_x, self.by_h = ops.reshape(by_x, shape), ops.reshape(by_h, shape)

    def _before(self, first: Tensor, all: Tensor) -> Tensor:
        if self.steps == 1:
            return first
        rest = ops.slice(all, [0], [0], [self.steps - 1], [1], [])
        return ops.concat([first, rest], 0)

    def _split(self, x: Tensor) -> list[Tensor]:
        return list(ops.split_with_num(x, self.gates, 2))

    def _back(self, g: Tensor, rest: Tensor | None) -> Tensor:
        """Through the weights of the state, and what comes to it otherwise."""
        if rest is None:
            return ops.matmul(g, self.w_h, False, False)
        return ops.addmm(rest, g, self.w_h, 1.0, 1.0)


class _Simple(_Layer):
    def back(self, g: Sequence[Any], ends: Sequence[Tensor]) -> tuple[Any, ...]:
        """Gradients by what goes into the gates from x, from h, and by the states.

        Args:
            g: cotangents of the results of the steps, None for zero.
            ends: cotangents of the last states.
        """
        (dh,) = ends
        if self.given.mode == "RNN_RELU":
            slope = ops.cast(self.out > 0.0, self.out.dtype)
        else:
            slope = 1.0 - self.out * self.out
        slopes, found = ops.unbind(slope, 0), []
        dh = dh if g[-1] is None else dh + g[-1]
        for t in reversed(range(self.steps)):
            found.append(dh * slopes[t])
            dh = self._back(found[-1], g[t - 1] if t else None)
        gates = _rows(ops.stack(found[::-1], 0))
        return gates, gates, [dh]


class _GRU(_Layer):
    gates = 3

    def back(self, g: Sequence[Any], ends: Sequence[Tensor]) -> tuple[Any, ...]:
        (dh,) = ends
        (r_x, z_x, n_x), (r_h, z_h, n_h) = map(self._split, (self.by_x, self.by_h))
        r, z = ops.sigmoid(r_x + r_h), ops.sigmoid(z_x + z_h)
        n = ops.tanh(n_x + r * n_h)
        by_n = (1.0 - z) * (1.0 - n * n)
        by_z = (self.h - n) * z * (1.0 - z)
        by_r = by_n * n_h * r * (1.0 - r)
        slopes = ops.unbind(ops.concat([by_r, by_z, by_n * r], 2), 0)
        kept = ops.unbind(z, 0)
        dh = dh if g[-1] is None else dh + g[-1]
        found, gates = [], []
        for t in reversed(range(self.steps)):
            found.append(dh)
            gates.append(ops.concat([dh, dh, dh], 1) * slopes[t])
            rest = dh * kept[t]
            rest = rest if not t or g[t - 1] is None else rest + g[t - 1]
            dh = self._back(gates[-1], rest)
        each = ops.stack(found[::-1], 0)
        by_x = ops.concat([each * by_r, each * by_z, each * by_n], 2)
        return _rows(by_x), _rows(ops.stack(gates[::-1], 0)), [dh]


class _LSTM(_Layer):
    gates = 4

    def back(self, g: Sequence[Any], ends: Sequence[Tensor]) -> tuple[Any, ...]:
        dh, dc = ends
        i, f, n, o = self._split(self.by_x + self.by_h)
        i, f, n, o = ops.sigmoid(i), ops.sigmoid(f), ops.tanh(n), ops.sigmoid(o)
        first = self.given.pre_state[1]
        kept, added, cells = ops.unbind(f, 0), ops.unbind(i * n, 0), []
        c = ops.reshape(first, first.shape[1:])
        for t in range(self.steps):
            c = kept[t] * c + added[t]
            cells.append(c)
        all = ops.stack(cells, 0)
        shown = ops.tanh(all)
        by_c = ops.unbind(o * (1.0 - shown * shown), 0)
        of_gates = [
            n * i * (1.0 - i),
            self._before(first, all) * f * (1.0 - f),
            i * (1.0 - n * n),
            shown * o * (1.0 - o),
        ]
        slopes, gates = ops.unbind(ops.concat(of_gates, 2), 0), []
        dh = dh if g[-1] is None else dh + g[-1]
        for t in reversed(range(self.steps)):
            dc = dh * by_c[t] + dc
            gates.append(ops.concat([dc, dc, dc, dh], 1) * slopes[t])
            dc = dc * kept[t]
            dh = self._back(gates[-1], g[t - 1] if t else None)
        rows = _rows(ops.stack(gates[::-1], 0))
        return rows, rows, [dh, dc]


BACK: dict[str, Any] = {
    "LSTM": _LSTM,
    "GRU": _GRU,
    "RNN_TANH": _Simple,
    "RNN_RELU": _Simple,
}
