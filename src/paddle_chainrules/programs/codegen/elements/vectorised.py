"""Functions that loops call, for all lanes of a vector at once.

The C library computes the lanes that a formula does not serve.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import wraps

from .number import ElementValue

PURE = "nounwind willreturn memory(none)"

Formula = Callable[[ElementValue], ElementValue]


@dataclass
class _InstructionList:
    """Instructions in their order."""

    instructions: list[str] = field(default_factory=list)

    def emit(self, instruction: str) -> str:
        self.instructions.append(f"%v{len(self.instructions)} = {instruction}")
        return f"%v{len(self.instructions) - 1}"


@dataclass(frozen=True)
class VectorisedFunction:
    """A function of a number in float64, and of vectors of them.

    Attributes:
        name: the C library's.
        is_single: whether the result is wanted in float32.
        formula: its instructions.
        needs_library: tells for which numbers the C library is called.
    """

    name: str
    is_single: bool
    formula: Formula
    needs_library: Formula

    @property
    def symbol(self) -> str:
        return f"{self.name}_{'single' if self.is_single else 'double'}"

    def declarations(self, lanes: int) -> list[str]:
        """Declare the functions that the version for this many lanes calls."""
        or_reduction = f"declare i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1>)"
        scalar_function = f"declare double @{self.name}(double) {PURE}"
        return [scalar_function, or_reduction] if lanes else [scalar_function]

    def text(self, lanes: int) -> str:
        """Return the LLVM text of the version for this many lanes, 0 for a number."""
        return "\n".join(self._body(lanes))

    def version_symbol(self, lanes: int) -> str:
        """Return the name of the version for this many lanes."""
        return f"{self.symbol}_{lanes}"

    def _body(self, lanes: int) -> Iterator[str]:
        lines = _InstructionList()
        x = ElementValue("%x", "double", lines, self.is_single, lanes)
        result, needs_library = self.formula(x), self.needs_library(x)
        any_needs_library = needs_library.name
        if lanes:
            or_reduction = f"@llvm.vector.reduce.or.v{lanes}i1"
            any_needs_library = lines.emit(
                f"call i1 {or_reduction}(<{lanes} x i1> {any_needs_library})"
            )
        yield (
            f"define {x.kind} @{self.version_symbol(lanes)}({x.kind} %x) "
            f"{PURE} noinline {{"
        )
        yield from lines.instructions
        count = len(lines.instructions)
        yield f"br i1 {any_needs_library}, label %other, label %usual"
        yield "usual:"
        yield f"ret {x.kind} {result.name}"
        yield "other:"
        library_results = self._library_results(x)
        chosen = needs_library.where(library_results, result)
        yield from lines.instructions[count:]
        yield f"ret {x.kind} {chosen.name}"
        yield "}"

    def _library_results(self, x: ElementValue) -> ElementValue:
        """Return the C library's result for each lane."""
        function = f"call double @{self.name}(double"
        if not x.lanes:
            return x.make(f"{function} %x)")
        result = "poison"
        for i in range(x.lanes):
            lane = x.lines.emit(f"extractelement {x.kind} %x, i32 {i}")
            value = x.lines.emit(f"{function} {lane})")
            result = x.lines.emit(
                f"insertelement {x.kind} {result}, double {value}, i32 {i}"
            )
        return ElementValue(result, x.type, x.lines, x.is_single, x.lanes)


VECTORISED: dict[str, VectorisedFunction] = {}
"""The functions, by their names in LLVM text."""


def definitions(texts: Sequence[str]) -> list[str]:
    """Return the LLVM text of functions that others call, and of those they call."""
    symbols = "|".join(VECTORISED)
    calls = {*re.findall(rf"@({symbols})_(\d+)\(", "\n".join(texts))}
    results = [(VECTORISED[symbol], int(lanes)) for symbol, lanes in sorted(calls)]
    declared = dict.fromkeys(line for f, n in results for line in f.declarations(n))
    return [*declared, *(function.text(lanes) for function, lanes in results)]


def vectorised(name: str, needs_library: Formula) -> Callable[[Formula], Formula]:
    """Make a formula a function that is called, as a decorator.

    Args:
        name: of a function of the C library's, which gives the same.
        needs_library: tells for which numbers the C library is called.
    """

    def register(formula: Formula) -> Formula:
        functions = [
            VectorisedFunction(name, is_single, formula, needs_library)
            for is_single in (False, True)
        ]
        VECTORISED.update({f.symbol: f for f in functions})

        @wraps(formula)
        def call_version(x: ElementValue) -> ElementValue:
            function = functions[x.is_single]
            version = function.version_symbol(x.lanes)
            return x.make(f"call {x.kind} @{version}({x.kind} {x.name})")

        return call_version

    return register
