"""LLVM numbers with Python operators, so that rules read like mathematics."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ..ir_builder import InstructionSink, broadcast_lanes, splat, vector_type

BITS = {"float": "i32", "double": "i64", "i32": "float", "i64": "double"}
"""The type with as many bits, integer or floating point."""

FRACTION = {"float": 23, "double": 52}
"""The bits of a number of this type behind its leading one."""

SUFFIX = {"float": "f32", "double": "f64"}

Real = int | float


class Polynomial(NamedTuple):
    """Coefficients, the constant first, for results of either precision."""

    single: tuple[float, ...]
    double: tuple[float, ...]


@lru_cache(maxsize=1024)
def _constant_text(value: Real, type: str, sign: float) -> str:
    """Return a constant as LLVM text; zeros are told apart by their sign."""
    if type not in FRACTION:
        return str(value)
    exact = float(value)
    if type == "float":
        (exact,) = struct.unpack("f", struct.pack("f", exact))
    return f"0x{struct.pack('>d', exact).hex().upper()}"


@dataclass(eq=False, slots=True)  # not frozen, which is slow to make
class ElementValue:
    """A number of any type, or a vector with one for each lane.

    Python's operators on it write instructions. No floating point instruction is
    contracted. Only :meth:`fma` adds to a product, rounded once or twice, depending on
    the processor.

    Attributes:
        name: the name in LLVM.
        type: of it, or of each lane: ``float``, ``double``, ``i1``, ``i32``, ``i64``.
        lines: the instruction sink.
        is_single: whether the result is wanted in float32, so that shorter polynomials
            will do.
        lanes: of a vector, 0 for a scalar.
    """

    name: str
    type: str
    lines: InstructionSink
    is_single: bool = False
    lanes: int = 0

    @property
    def kind(self) -> str:
        """Its type in LLVM text."""
        return vector_type(self.type, self.lanes)

    def kind_of(self, type: str) -> str:
        """Return another type with as many lanes."""
        return vector_type(type, self.lanes)

    def make(self, instruction: str, type: str | None = None) -> ElementValue:
        """Return the result of an instruction, of this type or another."""
        name = self.lines.emit(instruction)
        return ElementValue(
            name, type or self.type, self.lines, self.is_single, self.lanes
        )

    def constant(self, value: Real) -> ElementValue:
        """Return a number of this type, rounded once."""
        text = _constant_text(value, self.type, math.copysign(1, value))
        text = splat(self.type, text, self.lanes)
        return ElementValue(text, self.type, self.lines, self.is_single, self.lanes)

    def broadcast(self, lanes: int) -> ElementValue:
        """Return a vector with this number in all lanes; the number itself for 0."""
        name = broadcast_lanes(self.lines, self.type, self.name, lanes)
        return ElementValue(name, self.type, self.lines, self.is_single, lanes)

    def _as_value(self, value: ElementValue | Real) -> ElementValue:
        return value if isinstance(value, ElementValue) else self.constant(value)

    def _binary(
        self, instruction: str, y: ElementValue | Real, type: str | None = None
    ) -> ElementValue:
        y = self._as_value(y)
        return self.make(f"{instruction} {self.kind} {self.name}, {y.name}", type)

    def _arithmetic(self, name: str, y: ElementValue | Real) -> ElementValue:
        return self._binary(f"f{name}" if self.type in FRACTION else name, y)

    def __add__(self, y: ElementValue | Real) -> ElementValue:
        return self._arithmetic("add", y)

    __radd__ = __add__

    def __sub__(self, y: ElementValue | Real) -> ElementValue:
        return self._arithmetic("sub", y)

    def __rsub__(self, y: Real) -> ElementValue:
        return self.constant(y) - self

    def __mul__(self, y: ElementValue | Real) -> ElementValue:
        return self._arithmetic("mul", y)

    __rmul__ = __mul__

    def __truediv__(self, y: ElementValue | Real) -> ElementValue:
        return self._arithmetic("div", y)

    def __rtruediv__(self, y: Real) -> ElementValue:
        return self.constant(y) / self

    def __neg__(self) -> ElementValue:
        return self.make(f"fneg {self.kind} {self.name}")

    def __abs__(self) -> ElementValue:
        return self.intrinsic("fabs")

    def sqrt(self) -> ElementValue:
        return self.intrinsic("sqrt")

    def maximum(self, y: ElementValue) -> ElementValue:
        """Return the larger one, as ``std::max`` does: this one where either is NaN."""
        return (self < y).where(y, self)

    def __lt__(self, y: ElementValue | Real) -> ElementValue:
        return self._binary("fcmp olt", y, "i1")

    def __le__(self, y: ElementValue | Real) -> ElementValue:
        return self._binary("fcmp ole", y, "i1")

    def __gt__(self, y: ElementValue | Real) -> ElementValue:
        return self._binary("fcmp ogt", y, "i1")

    def __ge__(self, y: ElementValue | Real) -> ElementValue:
        return self._binary("fcmp oge", y, "i1")

    def equals(self, y: ElementValue | Real) -> ElementValue:
        """Tell whether floating point numbers are equal."""
        return self._binary("fcmp oeq", y, "i1")

    def is_nan(self) -> ElementValue:
        return self._binary("fcmp uno", self, "i1")

    def is_zero(self) -> ElementValue:
        """Tell whether an integer or a floating point number is zero."""
        compared = "fcmp oeq" if self.type in FRACTION else "icmp eq"
        return self._binary(compared, 0, "i1")

    def __and__(self, y: ElementValue | Real) -> ElementValue:
        return self._binary("and", y)

    def __or__(self, y: ElementValue | Real) -> ElementValue:
        return self._binary("or", y)

    def __xor__(self, y: ElementValue | Real) -> ElementValue:
        return self._binary("xor", y)

    def __lshift__(self, count: int) -> ElementValue:
        return self._binary("shl", count)

    def __rshift__(self, count: int) -> ElementValue:
        """Shift right, keeping the sign."""
        return self._binary("ashr", count)

    def where(self, x: ElementValue | Real, y: ElementValue | Real) -> ElementValue:
        """Choose one of two by this bit. One of the two is a :class:`ElementValue`."""
        if not isinstance(x, ElementValue):
            x = y.constant(x) if isinstance(y, ElementValue) else self.constant(x)
        y = x._as_value(y)
        condition = f"select {self.kind} {self.name}"
        return x.make(f"{condition}, {x.kind} {x.name}, {y.kind} {y.name}")

    def bits(self) -> ElementValue:
        """Return the same bits as an integer, or those of an integer as a number."""
        other = BITS[self.type]
        target = self.kind_of(other)
        return self.make(f"bitcast {self.kind} {self.name} to {target}", other)

    def to(self, instruction: str, type: str) -> ElementValue:
        """Convert to another type, by one of LLVM's instructions."""
        to = self.kind_of(type)
        return self.make(f"{instruction} {self.kind} {self.name} to {to}", type)

    def intrinsic(self, name: str, *others: ElementValue) -> ElementValue:
        """Call a function of LLVM's."""
        suffix = f"v{self.lanes}" * bool(self.lanes) + SUFFIX[self.type]
        arguments = ", ".join(f"{x.kind} {x.name}" for x in (self, *others))
        return self.make(f"call {self.kind} @llvm.{name}.{suffix}({arguments})")

    def fma(self, y: ElementValue | Real, z: ElementValue | Real) -> ElementValue:
        """Return ``self * y + z``, rounded once where the processor can."""
        return self.intrinsic("fmuladd", self._as_value(y), self._as_value(z))

    def two_product(self, y: ElementValue | Real) -> tuple[ElementValue, ElementValue]:
        """Return the rounded product and its rounding error."""
        y = self._as_value(y)
        rounded = self * y
        return rounded, self.intrinsic("fma", y, -rounded)

    def two_square(self) -> tuple[ElementValue, ElementValue]:
        """Return the rounded square and its rounding error."""
        return self.two_product(self)

    def copysign(self, y: ElementValue) -> ElementValue:
        return self.intrinsic("copysign", y)

    def polynomial(self, coefficients: Polynomial | Sequence[float]) -> ElementValue:
        """Evaluate a polynomial here, by Horner's scheme."""
        if isinstance(coefficients, Polynomial):
            coefficients = coefficients[not self.is_single]
        *rest, last = coefficients
        result = self.constant(last)
        for c in reversed(rest):
            result = result.fma(self, c)
        return result

    def round_to_integer(self) -> tuple[ElementValue, ElementValue]:
        """Return the nearest integer, as a floating point number and as an integer.

        It adds 1.5 times 2 to the power of the fraction's bits. That works for numbers
        of some 30 bits and 50; for others the result is any number.
        """
        shift = 1.5 * 2.0 ** FRACTION[self.type]
        shifted = self + shift
        return shifted - shift, shifted.bits() - self.constant(shift).bits()

    def power_of_two(self) -> ElementValue:
        """Return 2 to an integer within the exponents of normal numbers."""
        fraction = {"i32": 23, "i64": 52}[self.type]
        bias = {"i32": 127, "i64": 1023}[self.type]
        return ((self + bias) << fraction).bits()
