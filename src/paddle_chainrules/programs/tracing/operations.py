"""Operations on values. Programs are made of these."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paddle import Tensor

from ..operators.entry import Operator


class Value:
    """A tensor of a program: its number, shape and dtype."""

    __slots__ = ("bytes", "dtype", "number", "shape")

    def __init__(
        self, number: int, shape: Sequence[int], dtype: str, size: int
    ) -> None:
        self.number, self.dtype = number, dtype
        self.shape, self.bytes = tuple(shape), size

    def __repr__(self) -> str:
        return f"t{self.number}: {self.dtype}{list(self.shape)}"


OF_SHAPES = frozenset(
    {"full_like", "zeros_like", "ones_like", "shape", "shape64", "numel"}
)
"""Operators whose results depend only on shapes, which are part of a program."""

COMPLEX = frozenset({"complex64", "complex128"})


@dataclass(eq=False)
class Operation:
    """A call of an operator; immutable.

    Attributes:
        operator: its entry in the table.
        args: in the canonical order, with values in place of tensors, also in lists.
        outputs: one for each tensor of the result.
        many: whether the result is a tuple or list.
        where: file and line of the user's code.
        inputs: the values among the arguments, in order.
    """

    operator: Operator
    args: tuple[Any, ...]
    outputs: tuple[Value, ...]
    many: bool
    where: str

    def __post_init__(self) -> None:
        self.inputs = tuple(values_in(self.args))

    @property
    def named(self) -> dict[str, Any]:
        """The arguments by their names."""
        return dict(zip(self.operator.arguments, self.args, strict=False))

    @property
    def structure(self) -> list[Value]:
        """Inputs that say where things begin, which can't have arbitrary values."""
        return values_in([self.args[i] for i in self.operator.structure])

    @property
    def is_complex(self) -> bool:
        """Tell whether an input or output is complex."""
        return any(v.dtype in COMPLEX for v in (*self.inputs, *self.outputs))

    def __repr__(self) -> str:
        left = ", ".join(map(repr, self.outputs))
        args = ", ".join(map(_format_arg, self.args))
        return f"{left} = {self.operator.name}({args})"


def fresh_numbers(values: Iterable[Value], ops: Iterable[Operation]) -> Iterator[int]:
    """Return numbers that none of these values has."""
    used = [v.number for v in values]
    used += [v.number for op in ops for v in (*op.inputs, *op.outputs)]
    return itertools.count(1 + max(used, default=0))


def values_in(args: Iterable[Any]) -> list[Value]:
    """Return the values in arguments, lists among them."""
    results: list[Value] = []
    for arg in args:
        if type(arg) is Value:
            results.append(arg)
        elif type(arg) in (list, tuple):
            results += values_in(arg)
    return results


def tensors_in(args: Iterable[Any]) -> list[Tensor]:
    """Return the tensors in arguments, in lists and slices too."""
    results = []
    for arg in args:
        if isinstance(arg, Tensor):
            results.append(arg)
        elif isinstance(arg, list | tuple):
            results += tensors_in(arg)
        elif isinstance(arg, slice):
            results += tensors_in((arg.start, arg.stop, arg.step))
    return results


def with_values(arg: Any, change: Callable[[Value], Any]) -> Any:
    """Return an argument with each value in it changed."""
    if isinstance(arg, Value):
        return change(arg)
    if type(arg) in (list, tuple):
        return type(arg)(with_values(item, change) for item in arg)
    return arg


def _format_arg(arg: Any) -> str:
    if isinstance(arg, Value):
        return f"t{arg.number}"
    if isinstance(arg, list | tuple):
        return f"[{', '.join(map(_format_arg, arg))}]"
    return repr(arg)


def inputs_read(op: Operation) -> Sequence[Value]:
    """Return the inputs whose contents it reads."""
    if not op.operator.shapes:
        return op.inputs
    indexed_args = enumerate(op.args)
    return values_in([arg for k, arg in indexed_args if k not in op.operator.shapes])
