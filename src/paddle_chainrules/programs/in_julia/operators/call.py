"""The arguments and the registration of rules that write operators in Julia.

Arrays have their dimensions in the opposite order there: Paddle's first axis is Julia's
last dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...operators.calls import NoRule
from ...operators.table import TABLE

Shape = tuple[int, ...]

FLOATS = {"float16": "Float16", "float32": "Float32", "float64": "Float64"}
TYPES = {
    **FLOATS,
    **{f"int{n}": f"Int{n}" for n in (8, 16, 32, 64)},
    "uint8": "UInt8",
    "bool": "Bool",
}
"""Julia's types, by dtype."""


@dataclass(frozen=True)
class JuliaCall:
    """One call, for the rule that writes it.

    Attributes:
        args: Julia names for tensors; other arguments as they are.
        shapes: of the arguments in Paddle, lists of them for lists, None for other
            arguments.
        dtypes: the same with their dtypes.
        outs: shapes of all results.
        used: tells for each result whether something takes it.
        dtype: of the first result.
        kind: the floating point dtype that the function computes in. The Julia function
            takes any type in its place.
    """

    args: Sequence[Any]
    shapes: Sequence[Any]
    dtypes: Sequence[Any]
    outs: Sequence[Shape]
    used: Sequence[bool]
    dtype: str
    kind: str

    @property
    def out(self) -> Shape:
        """The shape of the first result."""
        return self.outs[0]

    def ndim(self, i: int = 0) -> int:
        """Return the number of dimensions of an argument."""
        return len(self.shapes[i])

    def number(self, value: Any, dtype: str | None = None) -> str:
        """Write a number of the result's type, or of another.

        Whole and short numbers are written as they are, since they are exact in any
        type; others in the type that Julia's function computes in.

        Raises:
            NoRule: the type has none in Julia.
        """
        dtype = dtype or self.dtype
        if isinstance(value, complex) or "complex" in dtype:
            raise NoRule(
                "complex numbers in Julia; compute with real and imaginary parts"
            )
        if dtype not in TYPES:
            raise NoRule(f"numbers of type {dtype} in Julia; use float32 or float64")
        if dtype in ("bool", "int64"):
            return plain_number(int(value) if dtype == "int64" else bool(value))
        if dtype in ("float32", "float64") and math.isfinite(value):
            if value == int(value) and abs(value) < 1 << 24:
                return str(int(value))
            if float(np.float32(value)) == value:
                short = repr(float(value)).replace("e", "f")
                return short if "f" in short else f"{short}f0"
        return typed_number(value, dtype, self.kind)

    def operand(self, i: int) -> str:
        """Write argument i of a scalar function: a name or a number."""
        arg = self.args[i]
        if self.shapes[i] is not None:
            return arg.bare if isinstance(arg, BracketedExpression) else str(arg)
        return self.number(self.args[i])


def typed_number(value: Any, dtype: str, kind: str) -> str:
    """Write a number as one of its dtype, or of the Julia type for ``kind``."""
    if dtype in FLOATS:
        value = float(value)
    elif dtype != "bool":
        value = int(value)
    return f"{'T' if dtype == kind else TYPES[dtype]}({plain_number(value)})"


def plain_number(value: bool | int | float) -> str:
    """Write a number in Julia's notation."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"
    return repr(value)


class ElementwiseExpression(str):
    """An elementwise expression that others may be inserted into."""


class Infix(ElementwiseExpression):
    """An expression that needs brackets within another."""


class BracketedExpression(str):
    """An expression in brackets."""

    @property
    def bare(self) -> str:
        return self[1:-1]


class TupleExpression(str):
    """An expression of a tuple of all results."""


Rule = Callable[[JuliaCall], str]


def julia_of(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of these operators, as a decorator."""

    def register(rule: Rule) -> Rule:
        for name in names:
            TABLE[name].julia = rule
        return rule

    return register


ELEMENTWISE: set[str] = set()
"""Operators whose rules give an :class:`ElementwiseExpression` of their tensors."""


def elementwise(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of these :data:`ELEMENTWISE` operators, as a decorator."""
    ELEMENTWISE.update(names)
    return julia_of(*names)


def dim(axis: int, ndim: int) -> int:
    """Return the Julia dimension for an axis of Paddle's, which may be negative."""
    return ndim - axis % ndim


def dims(axes: Any, ndim: int) -> str:
    """Write a tuple of dimensions, in order; all for no axes."""
    axis_list = [axes] if isinstance(axes, int) else [*(axes or ())]
    dimensions = sorted(dim(int(a), ndim) for a in axis_list) or [*range(1, ndim + 1)]
    return tuple_text(dimensions)


def tuple_text(items: Sequence[Any]) -> str:
    """Write a tuple."""
    inner = ", ".join(map(str, items))
    return f"({inner},)" if len(items) == 1 else f"({inner})"


def size_text(shape: Shape) -> str:
    """Write the size of the Julia array."""
    return tuple_text([*reversed(shape)])


def reshaped_text(text: str, call: JuliaCall) -> str:
    """Write an array reshaped to the sizes of the result."""
    return f"reshape({text}, {size_text(call.out)})"
