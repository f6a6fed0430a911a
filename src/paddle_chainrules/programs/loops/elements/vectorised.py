"""Functions that vectorised loops call, for all lanes of a vector at once.

Where some lanes need another way, the C library computes them. A loop that contained
the function's instructions could not do that: LLVM vectorises no loop with branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps

from .number import Number

LANES = (2, 4, 8, 16)
"""The numbers of lanes that vectors of loops may have."""

PURE = "nounwind willreturn memory(none)"

Formula = Callable[[Number], Number]


@dataclass
class _Lines:
    """Instructions in their order."""

    found: list[str] = field(default_factory=list)

    def put(self, instruction: str) -> str:
        self.found.append(f"%v{len(self.found)} = {instruction}")
        return f"%v{len(self.found) - 1}"


@dataclass(frozen=True)
class Function:
    """A function of a number in float64, and of vectors of them.

    Attributes:
        name: the C library's.
        is_single: whether the result is wanted in float32.
        formula: its instructions.
        is_other: tells for which numbers the C library is called.
    """

    name: str
    is_single: bool
    formula: Formula
    is_other: Formula

    @property
    def symbol(self) -> str:
        return f"{self.name}_{'single' if self.is_single else 'double'}"

    @property
    def declarations(self) -> list[str]:
        """Declarations of the functions that it calls."""
        reduced = (f"@llvm.vector.reduce.or.v{n}i1(<{n} x i1>)" for n in LANES)
        return [
            f"declare double @{self.name}(double) {PURE}",
            *(f"declare i1 {each}" for each in reduced),
        ]

    @cached_property
    def text(self) -> str:
        """The LLVM text, with a version for each number of lanes.

        By the function attribute, LLVM finds the version for the vectors that it makes.
        """
        versions = {n: f"{self.symbol}_{n}" for n in LANES}
        called = ",".join(
            f"_ZGV_LLVM_N{n}v_{self.symbol}({version})"
            for n, version in versions.items()
        )
        alone = self._body(0, f'noinline "vector-function-abi-variant"="{called}"')
        bodies = [alone, *(self._body(n, "noinline") for n in LANES)]
        return "\n".join(line for body in bodies for line in body)

    def _body(self, lanes: int, how: str) -> Iterator[str]:
        lines = _Lines()
        x = Number("%x", "double", lines, self.is_single, lanes)
        found, is_other = self.formula(x), self.is_other(x)
        any_other = is_other.name
        if lanes:
            reduced = f"@llvm.vector.reduce.or.v{lanes}i1"
            any_other = lines.put(f"call i1 {reduced}(<{lanes} x i1> {any_other})")
        name = f"{self.symbol}_{lanes}" if lanes else self.symbol
        yield f"define {x.kind} @{name}({x.kind} %x) {PURE} {how} {{"
        yield from lines.found
        count = len(lines.found)
        yield f"br i1 {any_other}, label %other, label %usual"
        yield "usual:"
        yield f"ret {x.kind} {found.name}"
        yield "other:"
        asked = self._asked(x)
        chosen = is_other.where(asked, found)
        yield from lines.found[count:]
        yield f"ret {x.kind} {chosen.name}"
        yield "}"

    def _asked(self, x: Number) -> Number:
        """Return the C library's result for each lane."""
        function = f"call double @{self.name}(double"
        if not x.lanes:
            return x.make(f"{function} %x)")
        found = "poison"
        for i in range(x.lanes):
            lane = x.lines.put(f"extractelement {x.kind} %x, i32 {i}")
            value = x.lines.put(f"{function} {lane})")
            found = x.lines.put(
                f"insertelement {x.kind} {found}, double {value}, i32 {i}"
            )
        return Number(found, x.type, x.lines, x.is_single, x.lanes)


VECTORISED: dict[str, Function] = {}
"""The functions, by their names in LLVM text."""


def definitions(texts: Sequence[str]) -> list[str]:
    """Return the LLVM text of functions that others call, and of those they call."""
    called = [
        function
        for symbol, function in VECTORISED.items()
        if any(f"@{symbol}(" in text for text in texts)
    ]
    declarations = dict.fromkeys(line for f in called for line in f.declarations)
    return [*declarations, *(function.text for function in called)]


def vectorised(name: str, is_other: Formula) -> Callable[[Formula], Formula]:
    """Make a formula a function that is called, as a decorator.

    Args:
        name: of a function of the C library's, which gives the same.
        is_other: tells for which numbers the C library is called.
    """

    def put(formula: Formula) -> Formula:
        functions = [
            Function(name, is_single, formula, is_other) for is_single in (False, True)
        ]
        VECTORISED.update({f.symbol: f for f in functions})

        @wraps(formula)
        def called(x: Number) -> Number:
            function = functions[x.is_single]
            return x.make(f"call double @{function.symbol}(double {x.name})")

        return called

    return put
