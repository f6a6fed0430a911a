"""Operators on one element, or on vectors of them, as instructions of LLVM.

The results equal those of Paddle's kernels, bit for bit: the same operations of IEEE
754 in the same order, none of them contracted.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ....paddle_side.dtypes import FLOATS
from ...operators.entry import Operator
from ...operators.table import TABLE
from ...tracing.operations import Operation, Value
from ..ir_builder import TYPES, broadcast_lanes, splat, vector_type
from .number import ElementValue

Shape = tuple[int, ...]
Read = tuple[Value, Shape]
"""A tensor, and the shape in which its memory is read.

It is broadcast to the result's shape.
"""


class NotLowerable(Exception):
    """Raised for a call that does not act on each element by itself."""


@dataclass
class ElementBuilder:
    """Instructions on one element, or on a vector of them, each of them once.

    Attributes:
        stem: the start of all names.
        size: the name of a number of elements, a sum.
        lanes: of the vectors, 0 for one element.
    """

    stem: str = "%v"
    size: Callable[..., str] = str
    lanes: int = 0
    lines: list[str] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)

    def emit(self, instruction: str) -> str:
        """Return the name of an instruction's result."""
        name = self._names.get(instruction)
        if name is None:
            name = self._names[instruction] = f"{self.stem}.{len(self._names)}"
            self.lines.append(f"{name} = {instruction}")
        return name

    def kind(self, dtype: str) -> str:
        """Return the type of elements of a dtype."""
        return vector_type(TYPES[dtype], self.lanes)


@dataclass(frozen=True)
class ElementCall:
    """A call to emit for one element or a vector of them.

    Attributes:
        args: LLVM names for tensors; other arguments as they are.
        dtypes: of the arguments, None for those that are not tensors.
        dtype: of the result.
        scalars: the instruction sink.
    """

    args: Sequence[Any]
    dtypes: Sequence[str | None]
    dtype: str
    scalars: ElementBuilder

    @property
    def floats(self) -> str:
        """The one dtype of all tensors among the arguments.

        Raises:
            NotLowerable: there are several dtypes.
        """
        kinds = {d for d in self.dtypes if d is not None}
        if len(kinds) != 1 or not kinds <= FLOATS:
            raise NotLowerable
        return kinds.pop()

    def operand(self, i: int) -> str:
        """Return an argument, with a scalar in the tensors' dtype."""
        return self.args[i] if self.dtypes[i] else self.constant(self.args[i])

    def constant(self, value: Any) -> str:
        """Emit a number of the tensors' dtype, rounded once.

        Raises:
            NotLowerable: it is not a real number, or is too large.
        """
        if type(value) not in (int, float, bool):
            raise NotLowerable
        exact = float(value)
        if self.floats == "float32":
            try:
                (exact,) = struct.unpack("f", struct.pack("f", exact))
            except OverflowError:
                raise NotLowerable from None
        return self.literal(self.floats, f"0x{struct.pack('>d', exact).hex().upper()}")

    def literal(self, dtype: str, text: str) -> str:
        """Emit a constant that is LLVM text already."""
        return splat(TYPES[dtype], text, self.scalars.lanes)

    def binary(self, instruction: str, x: str, y: str) -> str:
        """Emit an instruction on two numbers of the arguments' dtype."""
        return self.scalars.emit(
            f"{instruction} {self.scalars.kind(self.floats)} {x}, {y}"
        )

    def select(self, chosen: str, x: str, y: str) -> str:
        bit, kind = map(self.scalars.kind, ("bool", self.dtype))
        return self.scalars.emit(f"select {bit} {chosen}, {kind} {x}, {kind} {y}")

    def element(self, i: int) -> ElementValue:
        """Return an argument, a tensor, as a number to compute with."""
        dtype, lanes = self.dtypes[i] or "", self.scalars.lanes
        is_single = self.dtype == "float32"
        return ElementValue(self.args[i], TYPES[dtype], self.scalars, is_single, lanes)

    def operands(self) -> list[Any]:
        """Return the arguments, with tensors as numbers to compute with.

        Raises:
            NotLowerable: they are not all of the result's dtype.
        """
        if self.floats != self.dtype:
            raise NotLowerable
        pairs = enumerate(zip(self.args, self.dtypes, strict=True))
        return [self.element(i) if dtype else arg for i, (arg, dtype) in pairs]


FUNCTIONS = {
    **dict.fromkeys(("fabs", "sqrt", "floor", "ceil", "trunc", "rint"), 1),
    **dict.fromkeys(("copysign", "maximum", "minimum"), 2),
    **dict.fromkeys(("fma", "fmuladd"), 3),
}
"""Intrinsic functions of LLVM that rules call, with their number of arguments."""

Rule = Callable[[ElementCall], str]

COST: dict[str, int] = {}
"""The cost of an operator, in about as many arithmetic operations."""


def element_rule(*names: str, cost: int = 1) -> Callable[[Rule], Rule]:
    """Register an element rule of these operators and its cost, as a decorator."""

    def register(rule: Rule) -> Rule:
        for name in names:
            TABLE[name].loop, COST[name] = rule, cost
        return rule

    return register


def emit_element(
    op: Operation, name_of: Callable[[Read], str], scalars: ElementBuilder
) -> str:
    """Emit an operation on one element; return the name of its result.

    Raises:
        NotLowerable: there is no rule.
    """
    rule = op.operator.loop
    if rule is None or len(op.outputs) != 1 or op.many:
        raise NotLowerable
    shapes = _outer_product_shapes(op) if op.operator.name == "matmul" else None
    if reduction_of(op):
        kept_dims(op)
    args, dtypes = [], []
    for i, arg in enumerate(op.args):
        is_tensor = isinstance(arg, Value)
        shape = shapes[i] if shapes and i < len(shapes) else None
        args.append(name_of((arg, shape or arg.shape)) if is_tensor else arg)
        dtypes.append(arg.dtype if is_tensor else None)
    dtype = op.outputs[0].dtype
    if not {d for d in (*dtypes, dtype) if d is not None} <= TYPES.keys():
        raise NotLowerable
    return rule(ElementCall(args, dtypes, dtype, scalars))


def _outer_product_shapes(op: Operation) -> tuple[Shape, Shape]:
    """Return the shapes in which a column and a row are read for an outer product.

    Raises:
        NotLowerable: the arguments are not a column and a row.
    """
    x, y, x_is_transposed, y_is_transposed = op.args
    if len(x.shape) != 2 or len(y.shape) != 2:
        raise NotLowerable
    rows, inner = x.shape[::-1] if x_is_transposed else x.shape
    columns = y.shape[0 if y_is_transposed else 1]
    if inner != 1:
        raise NotLowerable
    return (rows, 1), (1, columns)


@element_rule("sum", "prod", "max", "amax", "min", "amin")
def _sum_element(call: ElementCall) -> str:
    """Return the term of a reduction, which :func:`reduction_of` describes."""
    source_dtype = call.dtypes[0]
    if call.dtype == "int64" and source_dtype in ("bool", "int32", "int64"):
        extension = {"bool": "zext", "int32": "sext"}.get(source_dtype)
        x = call.element(0)
        return x.to(extension, "i64").name if extension else x.name
    if call.dtype != call.floats:
        raise NotLowerable
    return str(call.args[0])


def _divide_by_count(call: ElementCall) -> str:
    x, count = call.args
    kind = TYPES[call.floats]
    number = call.scalars.emit(f"sitofp i64 {call.scalars.size(count)} to {kind}")
    return call.binary(
        "fdiv", x, broadcast_lanes(call.scalars, kind, number, call.scalars.lanes)
    )


OVER_COUNT = Operator("over_count", "x count", run=operator.truediv)
"""A sum divided by the number of its terms, an :class:`Extent`."""
OVER_COUNT.loop, COST[OVER_COUNT.name] = _divide_by_count, 1


class Reduction(NamedTuple):
    """An associative operation that reduces many numbers to one.

    Attributes:
        start: the result for no numbers.
        instruction: the format of an instruction, of the type, its suffix and
            the operands.
    """

    start: str
    instruction: str

    def combine(
        self, kind: str, x: str, y: str, flags: str = "", lanes: int = 0
    ) -> str:
        """Return the instruction on two numbers of a type, or on vectors of them."""
        suffix = f"v{lanes}" * bool(lanes) + ("f32" if kind == "float" else "f64")
        kind = vector_type(kind, lanes)
        return self.instruction.format(kind=kind, suffix=suffix, x=x, y=y, flags=flags)


SUM = Reduction("0.0", "fadd{flags} {kind} {x}, {y}")
COUNT = Reduction("0", "add {kind} {x}, {y}")
PRODUCT = Reduction("1.0", "fmul{flags} {kind} {x}, {y}")
_LARGEST, _LEAST = (
    Reduction(
        f"0x{sign}FF0000000000000",
        f"call {{kind}} @llvm.{name}.{{suffix}}({{kind}} {{x}}, {{kind}} {{y}})",
    )
    for sign, name in (("F", "maximum"), ("7", "minimum"))
)
"""Reductions whose result is NaN if one number is NaN."""

REDUCTIONS = {
    "sum": SUM,
    "prod": PRODUCT,
    **dict.fromkeys(("max", "amax"), _LARGEST),
    **dict.fromkeys(("min", "amin"), _LEAST),
}
"""The reductions, by the operator's name."""


def reduction_of(op: Operation) -> Reduction | None:
    """Return an operation's reduction, if it is one."""
    name = op.operator.name
    if name in REDUCTIONS and op.outputs[0].dtype == "int64":
        return COUNT
    return REDUCTIONS.get(name)


def loop_shape(op: Operation) -> Shape:
    """Return the iteration domain of an operation's loop."""
    result: Shape = (op.args[0] if reduction_of(op) else op.outputs[0]).shape
    return result


def kept_dims(op: Operation) -> frozenset[int]:
    """Return the dimensions that a reduction keeps.

    Raises:
        NotLowerable: the dimensions are not integers.
    """
    x, axes, *_ = op.args
    rank = len(x.shape)
    if op.outputs[0].dtype == "int64" and op.operator.name != "sum":
        raise NotLowerable
    if op.operator.name == "prod" and op.args[3]:
        axes = []
    reduced_axes = [axes] if type(axes) is int else [*(axes or range(rank))]
    if any(type(axis) is not int for axis in reduced_axes):
        raise NotLowerable
    return frozenset(range(rank)) - {axis % max(rank, 1) for axis in reduced_axes}
