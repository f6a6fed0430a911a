"""Recurrent layers: Paddle's kernels for both passes, and formulas of the second.

Paddle's kernel of the gradients takes lists, so Python can't call it: Paddle's own
engine calls it. For its derivatives we recompute its residuals, for all steps at
once, from the states that the layer returns. Formulas: the documentation of
``paddle.nn.LSTM``, ``GRU`` and ``SimpleRNN``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ....paddle_side.autograd.grad_mode import grad_mode
from ....paddle_side.interception import RAW
from ....paddle_side.rules import requested_gradients
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


NUM_ARGUMENTS = len(Arguments._fields)


class Tape(NamedTuple):
    """One call that Paddle has recorded, for one backward pass."""

    leaves: list[Tensor]
    outputs: list[Tensor]


def _record_call(args: Sequence[Any]) -> tuple[Tape, Any]:
    """Record a call on new leaves; return its tape, and its second result.

    It has no dropout, since programs run layers one by one where there is dropout.
    """
    x, states, weights, length, dropout_state, _, *attrs, _ = args
    with grad_mode(True):
        leaves = [value.detach() for value in (x, *states, *weights)]
        for leaf in leaves:
            leaf.stop_gradient = False
        split = 1 + len(states)
        rnn_args = leaves[0], leaves[1:split], leaves[split:], length, dropout_state
        # In evaluation it keeps nothing.
        out, state, last_states = RAW.rnn(*rnn_args, 0.0, *attrs, False)
    return Tape(leaves, [out, *last_states]), state


def _rnn(*args: Any) -> list[Any]:
    """Return all tensors in one list. The second carries the tape, for one use."""
    tape, state = _record_call(args)
    state.tape = [tape]
    out, *last_states = (output.detach() for output in tape.outputs)
    return [out, state, *last_states]


def _rnn_grad(*args: Any) -> list[Any]:
    """Return the gradients by x, states and weights.

    Args:
        args: those of ``rnn``, its first two results, and cotangents: that of the
            first, and a list of those of the states; None for zero.
    """
    *rnn_args, _, state, g, state_grads = args
    try:
        tape = state.tape.pop()  # in one step, for other threads
    except (AttributeError, IndexError):
        tape, _ = _record_call(rnn_args)
    pairs = [
        (y, dy)
        for y, dy in zip(tape.outputs, (g, *state_grads), strict=True)
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
    nested=lambda outputs: (*outputs[:2], [*outputs[2:]]),
    lean=lambda *args: RAW.rnn(*args)[0],
    differentiable=(0, 1, 2),
    fixed=(1,),
    axes=SECOND,
    tape=requested_gradients.rnn,
)
define(
    "rnn_grad",
    f"{' '.join(Arguments._fields)} out dropout_state_out out_grad state_grad",
    run=_rnn_grad,
    axes=SECOND,
)


@reverse_of("rnn")
def _rnn_reverse(call: Call) -> Any:
    arguments = Arguments(*call.args)
    if len(arguments.weight_list) != 4 * arguments.num_layers * (
        1 + arguments.is_bidirec
    ):
        raise NoRule("layers without biases; use biases that are zero and frozen")
    g, _, *state_grads = call.cotangents
    x_grad, *grads = TABLE["rnn_grad"].bind(
        [*arguments, *call.outputs[:2], g, state_grads]
    )
    num_states = len(arguments.pre_state)
    return [
        x_grad,
        grads[:num_states],
        grads[num_states:],
        *(None for _ in arguments[3:]),
    ]


@formula_of("rnn_grad", keeps_kernel=True)
def _rnn_grad_formula(*args: Any) -> Any:
    """Return the gradients layer by layer, from the last."""
    arguments = Arguments(*args[:NUM_ARGUMENTS])
    out, _, g, state_grads = args[NUM_ARGUMENTS:]
    if arguments.sequence_length is not None:
        raise NoRule("sequences of several lengths; use RNN with a cell")
    num_directions = 1 + arguments.is_bidirec
    if arguments.num_layers * num_directions == 1:
        layers = [[_single_layer(arguments, 0, arguments.x, out)]]
    else:
        layers = _recomputed_layers(arguments, num_directions)
    count = arguments.num_layers * num_directions
    zero = paddle.zeros_like(layer_state(arguments.pre_state[0], 0))
    last_state_grads = [
        [
            zero if cotangent is None else layer_state(cotangent, k)
            for cotangent in state_grads
        ]
        for k in range(count)
    ]
    states: list[Any] = [None] * count
    weights: list[Any] = [None] * (4 * count)
    for i in reversed(range(arguments.num_layers)):
        cotangents = [None] * num_directions if g is None else [g]
        if num_directions > 1 and g is not None:
            cotangents = ops.split_with_num(g, 2, 2)
        inputs = []
        for direction, (layer, cotangent) in enumerate(
            zip(layers[i], cotangents, strict=True)
        ):
            k = i * num_directions + direction
            cotangent = (
                ops.flip(cotangent, [0])
                if direction and cotangent is not None
                else cotangent
            )
            x_grad, states[k], weight_grads = layer.gradients(
                cotangent, last_state_grads[k]
            )
            inputs.append(ops.flip(x_grad, [0]) if direction else x_grad)
            for weight_index, grad in zip(
                weight_indices(k, count), weight_grads, strict=True
            ):
                weights[weight_index] = grad
        g = inputs[0] if num_directions == 1 else inputs[0] + inputs[1]
    state_gradients = [
        ops.concat([*cotangents], 0) for cotangents in zip(*states, strict=True)
    ]
    return (g, *state_gradients, *weights)


def _recomputed_layers(
    arguments: Arguments, num_directions: int
) -> list[list[_RecurrentLayer]]:
    """Return all layers in all directions, computed once more one by one."""
    x, layers = arguments.x, []
    for i in range(arguments.num_layers):
        outputs, layers_of_level = [], []
        for direction in range(num_directions):
            sequence = ops.flip(x, [0]) if direction else x
            layer = _single_layer(
                arguments, i * num_directions + direction, sequence, None
            )
            layers_of_level.append(layer)
            outputs.append(ops.flip(layer.out, [0]) if direction else layer.out)
        x = ops.concat(outputs, 2) if num_directions > 1 else outputs[0]
        layers.append(layers_of_level)
    return layers


def _single_layer(
    arguments: Arguments, k: int, x: Tensor, out: Tensor | None
) -> _RecurrentLayer:
    """Return one layer in one direction, by its number."""
    count = arguments.num_layers * (1 + arguments.is_bidirec)
    layer_arguments = arguments._replace(
        x=x,
        pre_state=[layer_state(state, k) for state in arguments.pre_state],
        weight_list=[arguments.weight_list[i] for i in weight_indices(k, count)],
        dropout_prob=0.0,
        is_bidirec=False,
        input_size=x.shape[-1],
        num_layers=1,
    )
    return LAYERS_BY_MODE[arguments.mode](
        layer_arguments, ops.rnn(*layer_arguments)[0] if out is None else out
    )


def weight_indices(layer: int, count: int) -> tuple[int, ...]:
    """Return the indices of a layer's weights by x and h, then of its biases."""
    return 2 * layer, 2 * layer + 1, 2 * (count + layer), 2 * (count + layer) + 1


def layer_state(state: Tensor, layer: int) -> Tensor:
    return ops.slice(state, [0], [layer], [layer + 1], [1], [])


def _as_rows(x: Tensor) -> Tensor:
    return ops.reshape(x, [-1, x.shape[-1]])


class _RecurrentLayer:
    """One layer in one direction, with the values of its gates at all steps.

    Attributes:
        h: the states before each step, of shape ``[steps, n, hidden]``.
    """

    num_gates = 1

    def __init__(self, arguments: Arguments, out: Tensor) -> None:
        self.arguments, self.out, self.steps = arguments, out, arguments.x.shape[0]
        self.h = self._previous_states(arguments.pre_state[0], out)
        w_x, self.w_h, b_x, b_h = arguments.weight_list
        shape = [*out.shape[:2], self.num_gates * arguments.hidden_size]
        gates_x = ops.matmul(_as_rows(arguments.x), w_x, False, True) + b_x
        gates_h = ops.matmul(_as_rows(self.h), self.w_h, False, True) + b_h
        self.gates_x, self.gates_h = (
            ops.reshape(gates_x, shape),
            ops.reshape(gates_h, shape),
        )

    def _previous_states(self, first: Tensor, states: Tensor) -> Tensor:
        if self.steps == 1:
            return first
        later = ops.slice(states, [0], [0], [self.steps - 1], [1], [])
        return ops.concat([first, later], 0)

    def _split_gates(self, x: Tensor) -> list[Tensor]:
        return list(ops.split_with_num(x, self.num_gates, 2))

    def _state_gradient(self, g: Tensor, addend: Tensor | None) -> Tensor:
        """Return the gradient through the weights of the state, plus the rest."""
        if addend is None:
            return ops.matmul(g, self.w_h, False, False)
        return ops.addmm(addend, g, self.w_h, 1.0, 1.0)

    def gradients(
        self, g: Tensor | None, last_state_grads: Sequence[Tensor]
    ) -> tuple[Any, ...]:
        """Return gradients by x, by the states before, and by weights and biases."""
        last_state_grads = [
            ops.reshape(state, state.shape[1:]) for state in last_state_grads
        ]
        step_grads = [None] * self.steps if g is None else ops.unbind(g, 0)
        gates_x_grad, gates_h_grad, first_state_grads = self.gate_gradients(
            step_grads, last_state_grads
        )
        x = self.arguments.x
        weights = [
            ops.matmul(gates_x_grad, _as_rows(x), True, False),
            ops.matmul(gates_h_grad, _as_rows(self.h), True, False),
            ops.sum(gates_x_grad, [0], None, False),
            ops.sum(gates_h_grad, [0], None, False),
        ]
        input_grad = ops.matmul(
            gates_x_grad, self.arguments.weight_list[0], False, False
        )
        states = [ops.unsqueeze(state, [0]) for state in first_state_grads]
        return ops.reshape(input_grad, x.shape), states, weights

    def gate_gradients(
        self, g: Sequence[Any], last_state_grads: Sequence[Tensor]
    ) -> tuple[Any, ...]:
        """Return gradients by the gates' inputs from x and from h, and by the states.

        Args:
            g: cotangents of the results of the steps, None for zero.
            last_state_grads: cotangents of the last states.
        """
        raise NotImplementedError


class _SimpleCell(_RecurrentLayer):
    def gate_gradients(
        self, g: Sequence[Any], last_state_grads: Sequence[Tensor]
    ) -> tuple[Any, ...]:
        (dh,) = last_state_grads
        if self.arguments.mode == "RNN_RELU":
            slope = ops.cast(self.out > 0.0, self.out.dtype)
        else:
            slope = 1.0 - self.out * self.out
        slopes, gate_grads = ops.unbind(slope, 0), []
        dh = dh if g[-1] is None else dh + g[-1]
        for t in reversed(range(self.steps)):
            gate_grads.append(dh * slopes[t])
            dh = self._state_gradient(gate_grads[-1], g[t - 1] if t else None)
        all_gate_grads = _as_rows(ops.stack(gate_grads[::-1], 0))
        return all_gate_grads, all_gate_grads, [dh]


class _GRU(_RecurrentLayer):
    num_gates = 3

    def gate_gradients(
        self, g: Sequence[Any], last_state_grads: Sequence[Tensor]
    ) -> tuple[Any, ...]:
        (dh,) = last_state_grads
        (r_x, z_x, n_x), (r_h, z_h, n_h) = map(
            self._split_gates, (self.gates_x, self.gates_h)
        )
        r, z = ops.sigmoid(r_x + r_h), ops.sigmoid(z_x + z_h)
        n = ops.tanh(n_x + r * n_h)
        n_slope = (1.0 - z) * (1.0 - n * n)
        z_slope = (self.h - n) * z * (1.0 - z)
        r_slope = n_slope * n_h * r * (1.0 - r)
        slopes = ops.unbind(ops.concat([r_slope, z_slope, n_slope * r], 2), 0)
        update_gates = ops.unbind(z, 0)
        dh = dh if g[-1] is None else dh + g[-1]
        step_state_grads, gate_grads = [], []
        for t in reversed(range(self.steps)):
            step_state_grads.append(dh)
            gate_grads.append(ops.concat([dh, dh, dh], 1) * slopes[t])
            direct = dh * update_gates[t]
            direct = direct if not t or g[t - 1] is None else direct + g[t - 1]
            dh = self._state_gradient(gate_grads[-1], direct)
        all_state_grads = ops.stack(step_state_grads[::-1], 0)
        gates_x_grad = ops.concat(
            [
                all_state_grads * r_slope,
                all_state_grads * z_slope,
                all_state_grads * n_slope,
            ],
            2,
        )
        return _as_rows(gates_x_grad), _as_rows(ops.stack(gate_grads[::-1], 0)), [dh]


class _LSTM(_RecurrentLayer):
    num_gates = 4

    def gate_gradients(
        self, g: Sequence[Any], last_state_grads: Sequence[Tensor]
    ) -> tuple[Any, ...]:
        dh, dc = last_state_grads
        i, f, n, o = self._split_gates(self.gates_x + self.gates_h)
        i, f, n, o = ops.sigmoid(i), ops.sigmoid(f), ops.tanh(n), ops.sigmoid(o)
        first = self.arguments.pre_state[1]
        forget_gates, cell_inputs, cells = ops.unbind(f, 0), ops.unbind(i * n, 0), []
        c = ops.reshape(first, first.shape[1:])
        for t in range(self.steps):
            c = forget_gates[t] * c + cell_inputs[t]
            cells.append(c)
        all_cells = ops.stack(cells, 0)
        tanh_cells = ops.tanh(all_cells)
        cell_slopes = ops.unbind(o * (1.0 - tanh_cells * tanh_cells), 0)
        gate_slopes = [
            n * i * (1.0 - i),
            self._previous_states(first, all_cells) * f * (1.0 - f),
            i * (1.0 - n * n),
            tanh_cells * o * (1.0 - o),
        ]
        slopes, gate_grads = ops.unbind(ops.concat(gate_slopes, 2), 0), []
        dh = dh if g[-1] is None else dh + g[-1]
        for t in reversed(range(self.steps)):
            dc = dh * cell_slopes[t] + dc
            gate_grads.append(ops.concat([dc, dc, dc, dh], 1) * slopes[t])
            dc = dc * forget_gates[t]
            dh = self._state_gradient(gate_grads[-1], g[t - 1] if t else None)
        all_gate_grads = _as_rows(ops.stack(gate_grads[::-1], 0))
        return all_gate_grads, all_gate_grads, [dh, dc]


LAYERS_BY_MODE: dict[str, Any] = {
    "LSTM": _LSTM,
    "GRU": _GRU,
    "RNN_TANH": _SimpleCell,
    "RNN_RELU": _SimpleCell,
}
