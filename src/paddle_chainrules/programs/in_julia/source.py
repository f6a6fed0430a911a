"""A program's operations as lines of Julia."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import paddle

from ..compiling.program import Program
from ..operators.calls import NoRule
from ..operators.table import TABLE
from ..tracing.operations import Operation, Value, values_in, with_values
from .operators import (  # noqa: F401, which put rules into the table
    elementwise,
    images,
    normalization,
    products,
    recurrent,
    reductions,
    shapes,
    spectral,
)
from .operators.call import (
    ELEMENTWISE,
    BracketedExpression,
    ElementwiseExpression,
    Infix,
    JuliaCall,
    TupleExpression,
)
from .repeated import InlinedResults

REAL_ONLY = {name for name in TABLE if name.endswith("_grad") and name != "slice_grad"}
"""Operators whose expressions leave out conjugates."""

MAX_INLINED_LENGTH = 160
"""The most characters of an expression that others are inserted into."""


class JuliaSource:
    """The body of a Julia function, a line an operation.

    Args:
        program: the program to write.
        names: Julia names for inputs and constants.
        kind: the floating point dtype that any Julia type may replace.
    """

    def __init__(self, program: Program, names: Mapping[Value, str], kind: str) -> None:
        self._program, self._kind = program, kind
        self._names = dict(names)
        self._name_numbers = itertools.count(1)
        self._pending: dict[Value, ElementwiseExpression] = {}
        self._uses = Counter(v for op in program.ops for v in op.inputs)
        self._uses.update(program.outputs)
        self._inlined = InlinedResults(program)
        self.lines: list[tuple[str, str]] = []
        self._broadcast = _broadcast_values(program)
        for op in program.ops:
            self._write(op)
        self.outputs = [self._name_or_text(v) for v in program.outputs]

    def _write(self, op: Operation) -> None:
        if op.outputs[0] in self._broadcast:
            self._names[op.outputs[0]] = self._name_or_text(op.inputs[0])
            return
        shape = op.outputs[0].shape if op.operator.name in ELEMENTWISE else None
        used = [bool(self._uses[v]) for v in op.outputs]
        text = _expression(op, lambda v: self._name_or_text(v, shape), used, self._kind)
        used_outputs = [v for v in op.outputs if self._uses[v]]
        if isinstance(text, TupleExpression):
            targets = [
                self._new_name(v) if v in used_outputs else "_" for v in op.outputs
            ]
            while targets and targets[-1] == "_":
                targets.pop()
            self._append_line(
                ", ".join(targets) + ("," if len(targets) == 1 else ""), text, op
            )
            return
        out = op.outputs[0]
        if used_outputs not in ([], [out]):
            raise NoRule(
                f"a second result of the operator {op.operator.name}{_location(op)} in "
                "Julia; use the first alone"
            )
        if isinstance(text, ElementwiseExpression):
            is_once = self._uses[out] == 1 and out not in self._program.outputs
            if op in self._inlined or is_once:
                self._pending[out] = text
                return
            text = str(text) if out.shape else f"fill({text})"
        self._append_line(self._new_name(out), text, op)

    def _append_line(self, target: str, expression: str, op: Operation) -> None:
        self.lines.append((f"{target} = {expression}", op.where))

    def _new_name(self, value: Value) -> str:
        name = self._names[value] = f"t{next(self._name_numbers)}"
        return name

    def _name_or_text(self, value: Value, shape: tuple[int, ...] | None = None) -> str:
        """Return a name, or an expression to insert into another of that shape."""
        waiting = self._pending.get(value)
        if waiting is None:
            return self._names[value]
        if shape == value.shape and len(waiting) < MAX_INLINED_LENGTH:
            return (
                BracketedExpression(f"({waiting})")
                if isinstance(waiting, Infix)
                else waiting
            )
        del self._pending[value]
        name = self._new_name(value)
        text = str(waiting) if value.shape else f"fill({waiting})"
        self.lines.append((f"{name} = {text}", ""))
        return name


def has_expression(op: Operation, kind: str) -> bool:
    """Tell whether an operation has a Julia expression.

    Args:
        kind: as of :class:`JuliaSource`.
    """
    used = [True, *[False] * (len(op.outputs) - 1)]
    try:
        _expression(op, str, used, kind)
    except NoRule:
        return False
    return True


def _expression(
    op: Operation, name: Callable[[Value], str], is_used: Sequence[bool], kind: str
) -> str:
    """Return the expression of an operation.

    Args:
        name: gives the name of a value.
        is_used: tells for each result whether something takes it.
        kind: as of :class:`JuliaSource`.

    Raises:
        NoRule: there is no such expression.
    """
    rule = op.operator.julia
    if rule is None:
        raise NoRule(
            f"the operator {op.operator.name}{_location(op)} in Julia; write it in "
            "others that have one"
        )
    if op.is_complex and op.operator.name in REAL_ONLY:
        raise NoRule(
            f"complex numbers of the operator {op.operator.name}{_location(op)} in "
            "Julia; compute with real and imaginary parts"
        )
    call = JuliaCall(
        [_argument(arg, name) for arg in op.args],
        [_map_values(arg, lambda v: v.shape) for arg in op.args],
        [_map_values(arg, lambda v: v.dtype) for arg in op.args],
        [v.shape for v in op.outputs],
        is_used,
        op.outputs[0].dtype,
        kind,
    )
    try:
        return rule(call)
    except NoRule as error:
        error.args = (f"{error} ({op.operator.name}{_location(op)})",)
        raise


def _argument(arg: Any, name: Callable[[Value], str]) -> Any:
    if isinstance(arg, paddle.dtype):
        return str(arg)
    return with_values(arg, name)


def _broadcast_values(program: Program) -> set[Value]:
    """Return values that broadcasting repeats by itself, beside a full-shape tensor."""
    takers: dict[Value, list[Operation]] = {}
    for op in program.ops:
        for v in op.inputs:
            takers.setdefault(v, []).append(op)
    broadcast: set[Value] = set()
    for op in program.ops:
        out = op.outputs[0]
        if op.operator.name not in ("expand", "expand_as") or out in program.outputs:
            continue
        if len(op.inputs[0].shape) == len(out.shape) and all(
            taker.operator.name in ELEMENTWISE
            and any(
                v.shape == out.shape and v not in broadcast
                for v in taker.inputs
                if v is not out
            )
            for taker in takers.get(out, ())
        ):
            broadcast.add(out)
    return broadcast


def _location(op: Operation) -> str:
    return f" at {op.where}" if op.where else ""


def _map_values(arg: Any, function: Callable[[Value], Any]) -> Any:
    if isinstance(arg, Value):
        return function(arg)
    if type(arg) in (list, tuple) and values_in([arg]):
        return [_map_values(item, function) for item in arg]
    return None
