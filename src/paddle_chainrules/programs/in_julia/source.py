"""A program's operations as lines of Julia."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import paddle

from ..compiling.program import Program
from ..operators.calls import NoRule
from ..operators.table import TABLE
from ..tracing.operations import Operation, Value, values_in
from .operators import (  # noqa: F401, which put rules into the table
    einsum,
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
    Bracketed,
    Dotted,
    Infix,
    JuliaCall,
    Several,
)
from .repeated import Repeated

OF_REAL_NUMBERS = {
    name for name in TABLE if name.endswith("_grad") and name != "slice_grad"
}
"""Operators whose expressions leave out conjugates."""

LONGEST = 160
"""Characters of an expression into which others go."""


class Source:
    """The body of a function of Julia's, a line an operation.

    Args:
        program: what it does.
        names: of Julia's for inputs and constants.
        kind: the dtype of floating point numbers that any type of Julia's stands for.
    """

    def __init__(self, program: Program, names: Mapping[Value, str], kind: str) -> None:
        self._program, self._kind = program, kind
        self._names = dict(names)
        self._numbers = itertools.count(1)
        self._waiting: dict[Value, Dotted] = {}
        self._uses = Counter(v for op in program.ops for v in op.inputs)
        self._uses.update(program.outputs)
        self._repeated = Repeated(program)
        self.lines: list[tuple[str, str]] = []
        self._spread = _spread(program)
        for op in program.ops:
            self._write(op)
        self.outputs = [self._name(v) for v in program.outputs]

    def _write(self, op: Operation) -> None:
        if op.outputs[0] in self._spread:
            self._names[op.outputs[0]] = self._name(op.inputs[0])
            return
        rule = op.operator.julia
        if rule is None:
            raise NoRule(
                f"the operator {op.operator.name}{_at(op)} in Julia; write it in "
                "others that have one"
            )
        if op.is_complex and op.operator.name in OF_REAL_NUMBERS:
            raise NoRule(
                f"complex numbers of the operator {op.operator.name}{_at(op)} in "
                "Julia; compute with real and imaginary parts"
            )
        outs = [v.shape for v in op.outputs]
        inner = op.operator.name in ELEMENTWISE
        call = JuliaCall(
            [self._argument(arg, outs[0] if inner else None) for arg in op.args],
            [_every(arg, lambda v: v.shape) for arg in op.args],
            [_every(arg, lambda v: v.dtype) for arg in op.args],
            outs,
            [bool(self._uses[v]) for v in op.outputs],
            op.outputs[0].dtype,
            self._kind,
        )
        try:
            text = rule(call)
        except NoRule as error:
            error.args = (f"{error} ({op.operator.name}{_at(op)})",)
            raise
        used = [v for v in op.outputs if self._uses[v]]
        if isinstance(text, Several):
            left = [self._named(v) if v in used else "_" for v in op.outputs]
            while left and left[-1] == "_":
                left.pop()
            self._line(", ".join(left) + ("," if len(left) == 1 else ""), text, op)
            return
        out = op.outputs[0]
        if used not in ([], [out]):
            raise NoRule(
                f"a second result of the operator {op.operator.name}{_at(op)} in "
                "Julia; use the first alone"
            )
        if isinstance(text, Dotted):
            is_once = self._uses[out] == 1 and out not in self._program.outputs
            if op in self._repeated or is_once:
                self._waiting[out] = text
                return
            text = str(text) if out.shape else f"fill({text})"
        self._line(self._named(out), text, op)

    def _line(self, left: str, right: str, op: Operation) -> None:
        self.lines.append((f"{left} = {right}", op.where))

    def _named(self, value: Value) -> str:
        """A new name."""
        name = self._names[value] = f"t{next(self._numbers)}"
        return name

    def _argument(self, arg: Any, within: tuple[int, ...] | None) -> Any:
        if isinstance(arg, Value):
            return self._name(arg, within)
        if type(arg) in (list, tuple):
            return type(arg)(self._argument(part, None) for part in arg)
        return str(arg) if isinstance(arg, paddle.dtype) else arg

    def _name(self, value: Value, within: tuple[int, ...] | None = None) -> str:
        """A name, or an expression that goes into another of that shape."""
        waiting = self._waiting.get(value)
        if waiting is None:
            return self._names[value]
        if within == value.shape and len(waiting) < LONGEST:
            return Bracketed(f"({waiting})") if isinstance(waiting, Infix) else waiting
        del self._waiting[value]
        name = self._named(value)
        text = str(waiting) if value.shape else f"fill({waiting})"
        self.lines.append((f"{name} = {text}", ""))
        return name


def _spread(program: Program) -> set[Value]:
    """What broadcasting repeats by itself, beside a tensor of the full shape."""
    takers: dict[Value, list[Operation]] = {}
    for op in program.ops:
        for v in op.inputs:
            takers.setdefault(v, []).append(op)
    found: set[Value] = set()
    for op in program.ops:
        out = op.outputs[0]
        if op.operator.name not in ("expand", "expand_as") or out in program.outputs:
            continue
        if len(op.inputs[0].shape) == len(out.shape) and all(
            taker.operator.name in ELEMENTWISE
            and any(
                v.shape == out.shape and v not in found
                for v in taker.inputs
                if v is not out
            )
            for taker in takers.get(out, ())
        ):
            found.add(out)
    return found


def _at(op: Operation) -> str:
    return f" at {op.where}" if op.where else ""


def _every(arg: Any, of: Callable[[Value], Any]) -> Any:
    if isinstance(arg, Value):
        return of(arg)
    if type(arg) in (list, tuple) and values_in([arg]):
        return [_every(part, of) for part in arg]
    return None
