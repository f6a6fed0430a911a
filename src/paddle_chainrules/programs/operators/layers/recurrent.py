"""Recurrent layers: Paddle's kernels for both passes, and formulas of the second.

Paddle's kernel of the gradients takes lists, so Python can't call it: Paddle's own
engine calls it. For its derivatives we compute again what it kept, for all steps at
once, from the states that the layer gives. Formulas: the documentation of
``paddle.nn.LSTM``, ``GRU`` and ``SimpleRNN``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ....paddle_side.autograd.grad_mode import grad_mode
from ....paddle_side.interception import RAW
from ..axes import SECOND
from ..calls import Call, NoRule
from ..entry import TABLE, define, formula_of, reverse_of
from ..shared import ops

_run_backward: Any = paddle.base.core.eager.run_backward


class Arguments(NamedTuple):
    """Arguments of the operator ``rnn``. States and weights are lists."""

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


COUNT = len(Arguments._fields)


class Tape(NamedTuple):
    """One call that Paddle has recorded, for one backward pass."""

    leaves: list[Tensor]
    outputs: list[Tensor]


def _taped(args: Sequence[Any]) -> tuple[Tape, Any]:
    """Return a call on leaves of its own, and its second result.

    It has no dropout, since programs run layers one by one where there is dropout.
    """
    x, before, weights, length, dropout_state, _, *attrs, _ = args
    with grad_mode(True):
        leaves = [part.detach() for part in (x, *before, *weights)]
        for leaf in leaves:
            leaf.stop_gradient = False
        split = 1 + len(before)
        given = leaves[0], leaves[1:split], leaves[split:], length, dropout_state
        # In evaluation it keeps nothing.
        out, state, after = RAW.rnn(*given, 0.0, *attrs, False)
    return Tape(leaves, [out, *after]), state


def _rnn(*args: Any) -> list[Any]:
    """Return all tensors in one list. The second carries the tape, for one use."""
    tape, state = _taped(args)
    state.tape = [tape]
    out, *after = (part.detach() for part in tape.outputs)
    return [out, state, *after]


def _rnn_grad(*args: Any) -> list[Any]:
    """Return the gradients by x, states and weights.

    Args:
        args: those of ``rnn``, its first two results, and cotangents: that of the
            first, and a list of those of the states; None for zero.
    """
    *given, _, state, g, after = args
    try:
        tape = state.tape.pop()  # in one step, for other threads
    except (AttributeError, IndexError):
        tape, _ = _taped(given)
    pairs = [
        (y, dy)
        for y, dy in zip(tape.outputs, (g, *after), strict=True)
        if dy is not None
    ]
    _run_backward([y for y, _ in pairs], [dy for _, dy in pairs], False, None)
    return [
        paddle.zeros_like(leaf) if leaf.grad is None else leaf.grad.detach()
        for leaf in tape.leaves
    ]


define(
    "rnn",
    " ".join(Arguments._fields),
    run=_rnn,
    nested=lambda parts: (*parts[:2], [*parts[2:]]),
    lean=lambda *args: RAW.rnn(*args)[0],
    differentiable=(0, 1, 2),
    fixed=(1,),
    axes=SECOND,
)
define(
    "rnn_grad",
    f"{' '.join(Arguments._fields)} out dropout_state_out out_grad state_grad",
    run=_rnn_grad,
    axes=SECOND,
)


@reverse_of("rnn")
def _rnn_reverse(call: Call) -> Any:
    given = Arguments(*call.args)
    if len(given.weight_list) != 4 * given.num_layers * (1 + given.is_bidirec):
        raise NoRule("layers without biases; use biases that are zero and frozen")
    g, _, *after = call.cotangents
    by_x, *rest = TABLE["rnn_grad"].every([*given, *call.outputs[:2], g, after])
    split = len(given.pre_state)
    return [by_x, rest[:split], rest[split:], *(None for _ in given[3:])]


@formula_of("rnn_grad", keeps_kernel=True)
def _rnn_grad_formula(*args: Any) -> Any:
    """Return the gradients layer by layer, from the last."""
    given = Arguments(*args[:COUNT])
    out, _, g, after = args[COUNT:]
    if given.sequence_length is not None:
        raise NoRule("sequences of several lengths; use RNN with a cell")
    ways = 1 + given.is_bidirec
    if given.num_layers * ways == 1:
        layers = [[_single(given, 0, given.x, out)]]
    else:
        layers = _layers(given, ways)
    count = given.num_layers * ways
    zero = paddle.zeros_like(part_of(given.pre_state[0], 0))
    ends = [
        [zero if part is None else part_of(part, k) for part in after]
        for k in range(count)
    ]
    states: list[Any] = [None] * count
    weights: list[Any] = [None] * (4 * count)
    for i in reversed(range(given.num_layers)):
        parts = [None] * ways if g is None else [g]
        if ways > 1 and g is not None:
            parts = ops.split_with_num(g, 2, 2)
        inputs = []
        for way, (layer, part) in enumerate(zip(layers[i], parts, strict=True)):
            k = i * ways + way
            part = ops.flip(part, [0]) if way and part is not None else part
            by_x, states[k], results = layer.gradients(part, ends[k])
            inputs.append(ops.flip(by_x, [0]) if way else by_x)
            for place, grad in zip(sources(k, count), results, strict=True):
                weights[place] = grad
        g = inputs[0] if ways == 1 else inputs[0] + inputs[1]
    joined = [ops.concat([*parts], 0) for parts in zip(*states, strict=True)]
    return (g, *joined, *weights)


def _layers(given: Arguments, ways: int) -> list[list[_RecurrentLayer]]:
    """Return all layers in all directions, computed once more one by one."""
    x, results = given.x, []
    for i in range(given.num_layers):
        outs, row = [], []
        for way in range(ways):
            turned = ops.flip(x, [0]) if way else x
            single = _single(given, i * ways + way, turned, None)
            row.append(single)
            outs.append(ops.flip(single.out, [0]) if way else single.out)
        x = ops.concat(outs, 2) if ways > 1 else outs[0]
        results.append(row)
    return results


def _single(given: Arguments, k: int, x: Tensor, out: Tensor | None) -> _RecurrentLayer:
    """Return one layer in one direction, by its number."""
    count = given.num_layers * (1 + given.is_bidirec)
    one = given._replace(
        x=x,
        pre_state=[part_of(state, k) for state in given.pre_state],
        weight_list=[given.weight_list[i] for i in sources(k, count)],
        dropout_prob=0.0,
        is_bidirec=False,
        input_size=x.shape[-1],
        num_layers=1,
    )
    return BACK[given.mode](one, ops.rnn(*one)[0] if out is None else out)


def sources(k: int, count: int) -> tuple[int, ...]:
    """Return where the weights of a layer are, and its biases, by x and by h."""
    return 2 * k, 2 * k + 1, 2 * (count + k), 2 * (count + k) + 1


def part_of(state: Tensor, k: int) -> Tensor:
    return ops.slice(state, [0], [k], [k + 1], [1], [])


def _rows(x: Tensor) -> Tensor:
    return ops.reshape(x, [-1, x.shape[-1]])


class _RecurrentLayer:
    """One layer in one direction, with the values of its gates at all steps.

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
        """Return the gradient through the weights of the state, plus the rest."""
        if rest is None:
            return ops.matmul(g, self.w_h, False, False)
        return ops.addmm(rest, g, self.w_h, 1.0, 1.0)

    def gradients(self, g: Tensor | None, ends: Sequence[Tensor]) -> tuple[Any, ...]:
        """Return gradients by x, by the states before, and by weights and biases."""
        ends = [ops.reshape(part, part.shape[1:]) for part in ends]
        steps = [None] * self.steps if g is None else ops.unbind(g, 0)
        by_x, by_h, before = self.back(steps, ends)
        x = self.given.x
        weights = [
            ops.matmul(by_x, _rows(x), True, False),
            ops.matmul(by_h, _rows(self.h), True, False),
            ops.sum(by_x, [0], None, False),
            ops.sum(by_h, [0], None, False),
        ]
        by_input = ops.matmul(by_x, self.given.weight_list[0], False, False)
        states = [ops.unsqueeze(part, [0]) for part in before]
        return ops.reshape(by_input, x.shape), states, weights

    def back(self, g: Sequence[Any], ends: Sequence[Tensor]) -> tuple[Any, ...]:
        """Return gradients by the gates' inputs from x and from h, and by the states.

        Args:
            g: cotangents of the results of the steps, None for zero.
            ends: cotangents of the last states.
        """
        raise NotImplementedError


class _SimpleCell(_RecurrentLayer):
    def back(self, g: Sequence[Any], ends: Sequence[Tensor]) -> tuple[Any, ...]:
        (dh,) = ends
        if self.given.mode == "RNN_RELU":
            slope = ops.cast(self.out > 0.0, self.out.dtype)
        else:
            slope = 1.0 - self.out * self.out
        slopes, results = ops.unbind(slope, 0), []
        dh = dh if g[-1] is None else dh + g[-1]
        for t in reversed(range(self.steps)):
            results.append(dh * slopes[t])
            dh = self._back(results[-1], g[t - 1] if t else None)
        gates = _rows(ops.stack(results[::-1], 0))
        return gates, gates, [dh]


class _GRU(_RecurrentLayer):
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
        results, gates = [], []
        for t in reversed(range(self.steps)):
            results.append(dh)
            gates.append(ops.concat([dh, dh, dh], 1) * slopes[t])
            rest = dh * kept[t]
            rest = rest if not t or g[t - 1] is None else rest + g[t - 1]
            dh = self._back(gates[-1], rest)
        each = ops.stack(results[::-1], 0)
        by_x = ops.concat([each * by_r, each * by_z, each * by_n], 2)
        return _rows(by_x), _rows(ops.stack(gates[::-1], 0)), [dh]


class _LSTM(_RecurrentLayer):
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
    "RNN_TANH": _SimpleCell,
    "RNN_RELU": _SimpleCell,
}
