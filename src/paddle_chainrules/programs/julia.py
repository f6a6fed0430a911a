"""Programs as functions of Julia's, by the expressions of their operators."""

from __future__ import annotations

from typing import Any

import paddle

from .operations import Operation, Value
from .operators.calls import JuliaCall, NoRule
from .program import Program


def julia_source(program: Program) -> str:
    """The text of a function of arrays, whose dimensions are Paddle's in reverse.

    Constants are arguments of it too, after the inputs.

    Raises:
        NoRule: an operator has no expression.
    """
    given = ", ".join(f"t{v.number}" for v in (*program.inputs, *program.constants))
    used = {v for op in program.ops for v in op.inputs} | {*program.outputs}
    lines = [f"function {program.name}({given})"]
    for op in program.ops:
        if not used.isdisjoint(op.outputs[1:]):
            raise NoRule(
                f"a second result of the operator {op.operator.name} in Julia; use "
                "the first alone"
            )
        lines.append(f"    t{op.outputs[0].number} = {expression(op)}")
    outputs = "".join(f"t{v.number}, " for v in program.outputs)
    return "\n".join([*lines, f"    return ({outputs})", "end", ""])


def expression(op: Operation) -> str:
    """The first result of an operation as an expression of Julia.

    Raises:
        NoRule: it has none.
    """
    if op.is_complex:
        raise NoRule(
            f"complex numbers of the operator {op.operator.name} in Julia; compute "
            "with real and imaginary parts"
        )
    rule = op.operator.julia
    if rule is None:
        raise NoRule(
            f"the operator {op.operator.name} in Julia; write it in others that have "
            "one"
        )
    shapes = [arg.shape if isinstance(arg, Value) else None for arg in op.args]
    out = op.outputs[0]
    return rule(JuliaCall([_text(a) for a in op.args], shapes, out.shape, out.dtype))


def _text(arg: Any) -> Any:
    if isinstance(arg, Value):
        return f"t{arg.number}"
    return str(arg) if isinstance(arg, paddle.dtype) else arg
