"""Vectors of one width, as LLVM text."""

from __future__ import annotations

from ..ir_builder import (
    BYTES,
    TYPES,
    FunctionBuilder,
    LoopCarried,
    broadcast_lanes,
    vector_type,
)


class VectorType:
    """Vectors of one width, as LLVM text."""

    def __init__(self, ir: FunctionBuilder, dtype: str, width: int) -> None:
        self._ir, self._real, self._size = ir, TYPES[dtype], BYTES[dtype]
        self._width, self._lanes = width, width if width > 1 else 0
        self.kind = vector_type(self._real, self._lanes)
        self._suffix = f"v{width}f{8 * self._size}"

    def load(self, pointer: str) -> str:
        return self._ir.emit(f"load {self.kind}, ptr {pointer}, align {self._size}")

    def store(self, vector_type: str, pointer: str) -> None:
        operands = f"{self.kind} {vector_type}, ptr {pointer}, align {self._size}"
        self._ir.line(f"store {operands}")

    def load_broadcast(self, pointer: str) -> str:
        """Return a vector with one number in all lanes."""
        return self.broadcast(self._ir.emit(f"load {self._real}, ptr {pointer}"))

    def broadcast(self, number: str) -> str:
        """Return a vector with this number in all lanes."""
        return broadcast_lanes(self._ir, self._real, number, self._lanes)

    def multiply(self, a: str, b: str) -> str:
        return self._ir.emit(f"fmul contract {self.kind} {a}, {b}")

    def add(self, a: str, b: str) -> str:
        return self._ir.emit(self.add_instruction(a, b))

    def add_instruction(self, a: str, b: str) -> str:
        return f"fadd contract {self.kind} {a}, {b}"

    def sum_lanes(self, vector_type: str) -> str:
        """Return the sum of its entries, in any order."""
        if self._width == 1:
            return vector_type
        args = f"({self._real} -0.0, {self.kind} {vector_type})"
        name = f"@llvm.vector.reduce.fadd.{self._suffix}"
        return self._ir.emit(f"call reassoc {self._real} {name}{args}")

    def interleave(self, a: str, b: str, first: int) -> str:
        """Return two entries of each in turn, from this one on."""
        lanes = f"i32 {first}, i32 {first + self._width}"
        lanes += f", i32 {first + 1}, i32 {first + 1 + self._width}"
        return self._ir.emit(
            f"shufflevector {self.kind} {a}, {self.kind} {b}, <4 x i32> <{lanes}>"
        )

    def carried_sum(self, start: str = "") -> LoopCarried:
        """Return a sum that a loop carries, from zero or from this on."""
        start = start or ("zeroinitializer" if self._width > 1 else "0.0")
        names = self._ir.fresh_name("sum"), self._ir.fresh_name("next")
        return LoopCarried(self.kind, start, *names)
