"""A program of one sample run for many at once, by the batch rules of its operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
from paddle import Tensor

from .operations import Value, values_in, with_values
from .operators.calls import BatchCall, NoRule
from .program import Program


def batched(
    program: Program, tensors: Sequence[Tensor], flags: Sequence[bool]
) -> tuple[list[Tensor], list[bool]]:
    """Outputs of all samples, and of each whether it differs from sample to sample.

    Args:
        tensors: for the program's inputs.
        flags: of each whether it has samples along its first axis, of one number.

    Raises:
        NoRule: an operator has no rule.
    """
    known = {**program.constants, **dict(zip(program.inputs, tensors, strict=True))}
    many = {v for v, flag in zip(program.inputs, flags, strict=True) if flag}
    size = next(t.shape[0] for t, flag in zip(tensors, flags, strict=True) if flag)
    for op, gone in zip(program.ops, program.last_uses, strict=True):
        args = [with_values(arg, known.__getitem__) for arg in op.args]
        if many.isdisjoint(op.inputs):
            known.update(zip(op.outputs, op.operator.every(args), strict=True))
        else:
            rule = op.operator.batch
            if op.is_complex:
                raise NoRule(
                    f"the operator {op.operator.name} over a batch of complex numbers; "
                    "call the function for each sample"
                )
            if rule is None:
                raise NoRule(
                    f"the operator {op.operator.name} over a batch; call the function "
                    "for each sample"
                )
            places = set()
            for i, arg in enumerate(op.args):
                if not many.isdisjoint(values_in([arg])):
                    places.add(i)
                    if not isinstance(arg, Value):
                        args[i] = [_in_list(v, known, many, size) for v in arg]
            shapes = [v.shape for v in op.outputs]
            found = rule(BatchCall(args, frozenset(places), size, shapes))
            known.update(zip(op.outputs, found, strict=True))
            many.update(op.outputs)
        for value in gone:
            known.pop(value, None)
    return [known[v] for v in program.outputs], [v in many for v in program.outputs]


def _in_list(
    value: Any, known: dict[Value, Tensor], many: set[Value], size: int
) -> Tensor:
    found = known[value]
    return found if value in many else paddle._C_ops.expand(found, [size, *found.shape])
