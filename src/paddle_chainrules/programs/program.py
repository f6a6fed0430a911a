"""A function of tensors as a straight line of Paddle's operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from paddle import Tensor

from .operators.entry import Operator


class Value:
    """A tensor of a program, which has a number, a shape and a dtype."""

    __slots__ = ("bytes", "dtype", "number", "shape")

    def __init__(
        self, number: int, shape: Sequence[int], dtype: str, size: int
    ) -> None:
        self.number, self.dtype = number, dtype
        self.shape, self.bytes = tuple(shape), size

    def __repr__(self) -> str:
        return f"t{self.number}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True, eq=False)
class Operation:
    """A call of an operator.

    Attributes:
        operator: its entry in the table.
        args: in the canonical order; values where tensors are, also in lists.
        outputs: one for each tensor of the result.
        many: whether the result is a tuple or list.
        where: file and line of the user's code.
    """

    operator: Operator
    args: tuple[Any, ...]
    outputs: tuple[Value, ...]
    many: bool
    where: str

    @cached_property
    def inputs(self) -> tuple[Value, ...]:
        """The values among the arguments, in order."""
        return tuple(values_in(self.args))

    def __repr__(self) -> str:
        left = ", ".join(map(repr, self.outputs))
        args = ", ".join(map(_text, self.args))
        return f"{left} = {self.operator.name}({args})"


def values_in(args: Any) -> Iterator[Value]:
    """The values in arguments, lists among them."""
    for arg in args:
        if isinstance(arg, Value):
            yield arg
        elif isinstance(arg, list | tuple):
            yield from values_in(arg)


def with_values(arg: Any, change: Callable[[Value], Any]) -> Any:
    """An argument with each value in it changed."""
    if isinstance(arg, Value):
        return change(arg)
    if type(arg) in (list, tuple):
        return type(arg)(with_values(part, change) for part in arg)
    return arg


def _text(arg: Any) -> str:
    if isinstance(arg, Value):
        return f"t{arg.number}"
    if isinstance(arg, list | tuple):
        return f"[{', '.join(map(_text, arg))}]"
    return repr(arg)


@dataclass(frozen=True, eq=False)
class Program:
    """Operations from inputs and constants to outputs; immutable.

    Attributes:
        inputs: the values that come with a call.
        constants: tensors that the function found elsewhere, held by reference.
        ops: in the order in which they run.
        outputs: what a call gives.
    """

    inputs: tuple[Value, ...]
    constants: dict[Value, Tensor]
    ops: tuple[Operation, ...]
    outputs: tuple[Value, ...]
    name: str = field(default="program")

    def __getstate__(self) -> dict[str, Any]:
        # What is made of the rest is made anew.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        """The outputs at tensors of the inputs' shapes and dtypes, unchecked."""
        found: list[Tensor] = self.function(*inputs)
        return found

    @cached_property
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        return any(op.operator.random for op in self.ops)

    @cached_property
    def function(self) -> Callable[..., list[Tensor]]:
        """The compiled source."""
        from .source import compiled

        return compiled(self)

    def python(self) -> str:
        """The source that runs."""
        from .source import source

        return source(self)[0]

    @cached_property
    def last_uses(self) -> list[list[Value]]:
        """After each operation, what of its inputs and outputs is not used any more."""
        kept = {*self.outputs, *self.inputs, *self.constants}
        found: list[list[Value]] = []
        for op in reversed(self.ops):
            here = [*op.inputs, *op.outputs]
            found.append([v for v in dict.fromkeys(here) if v not in kept])
            kept.update(here)
        return found[::-1]

    @cached_property
    def peak_bytes(self) -> int:
        """The most bytes of tensors made by the program at a time, but for views."""
        now = most = 0
        for op, gone in zip(self.ops, self.last_uses, strict=True):
            now += sum(v.bytes for v in op.outputs)
            most = max(most, now)
            made = sum(v.bytes for v in gone)
            now -= made
        return most

    def __repr__(self) -> str:
        """A line an operation: result, operator, arguments, and where it came from."""
        rows = [f"{op!r}" for op in self.ops]
        width = min(max(map(len, rows), default=0), 88)
        head = ", ".join(map(repr, self.inputs))
        lines = [f"program({head}):"]
        for value, tensor in self.constants.items():
            lines.append(f"  {value!r} = constant {tensor.name}")
        for row, op in zip(rows, self.ops, strict=True):
            lines.append(f"  {row:{width}}  # {op.where}" if op.where else f"  {row}")
        lines.append(f"  return {', '.join(f't{v.number}' for v in self.outputs)}")
        return "\n".join(lines)
