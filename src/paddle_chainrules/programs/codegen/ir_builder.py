"""An LLVM function as text that is written line by line."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from .extents import ONE, ZERO, SymInt

TYPES = {
    "float32": "float",
    "float64": "double",
    "bool": "i1",
    "uint8": "i8",
    "int32": "i32",
    "int64": "i64",
}
"""LLVM's types, by dtype."""

BYTES = {"float32": 4, "float64": 8, "bool": 1, "uint8": 1, "int32": 4, "int64": 8}

FLAG = 1
"""The place in the block of the address of a flag that tells to stop."""

PARALLEL = "!llvm.access.group !0"
"""Mark of reads and writes in a loop that LLVM may turn into vectors."""

AS_VECTORS, AS_IT_IS = ", !llvm.loop !1", ", !llvm.loop !3"
"""What LLVM does with a loop: it turns it into vectors, or leaves it as it is."""

LEFT_TO_LLVM = re.compile(r"br label %head\.\d+(, !llvm\.loop !1)?\ndone\.")
"""The end of a loop that LLVM's passes are to make faster."""

METADATA = """
!0 = distinct !{}
!1 = distinct !{!1, !2}
!2 = !{!"llvm.loop.parallel_accesses", !0}
!3 = distinct !{!3, !4}
!4 = !{!"llvm.loop.isvectorized", i32 1}
"""
"""Metadata: no element is written before another is read, wherever outputs are."""


def vector(kind: str, lanes: int) -> str:
    """Return the type of a vector with this many lanes, or of one number for 0."""
    return f"<{lanes} x {kind}>" if lanes else kind


def splat(kind: str, constant: str, lanes: int) -> str:
    """Return a constant in all lanes."""
    return f"splat ({kind} {constant})" if lanes else constant


def in_memory(dtype: str) -> str:
    """Return the type in which an element lies in memory."""
    return "i8" if dtype == "bool" else TYPES[dtype]


class InstructionSink(Protocol):
    """A place for instructions."""

    def emit(self, instruction: str) -> str:
        """Return the name of an instruction's result."""
        ...


def spread(lines: InstructionSink, kind: str, number: str, lanes: int) -> str:
    """Return a number that is not constant in all lanes."""
    if not lanes:
        return number
    whole = vector(kind, lanes)
    first = lines.emit(f"insertelement {whole} poison, {kind} {number}, i64 0")
    zeros = f"<{lanes} x i32> zeroinitializer"
    return lines.emit(f"shufflevector {whole} {first}, {whole} poison, {zeros}")


class LoopCarried(NamedTuple):
    """A number that goes from one iteration of a loop to the next.

    Attributes:
        kind: its type.
        start: before the first one.
        now: its name in an iteration, and after the loop.
        next: the name that the body gives to it for the next one.
    """

    kind: str
    start: str
    now: str
    next: str


class FunctionBuilder:
    """A function of ``%block``, numbers and addresses, and maybe of ``%work``, memory.

    It returns whether it was left before its end.

    Args:
        head: how it begins: linkage, name, parameters, attributes.

    Attributes:
        head: how it begins.
        lines: of the body, in their order.
        is_shared: whether several threads run it, each a part of its loops.
    """

    def __init__(self, head: str = "zeroext i1 @NAME(ptr noalias %block)") -> None:
        self.head = head
        self.lines: list[str] = []
        self._first: list[str] = []
        """Instructions that are computed once, before all others."""
        self._block = "start"
        self._fresh = itertools.count()
        self._numbers: dict[object, str] = {}
        self._is_left = False
        self.is_shared = False

    def name(self, stem: str = "v") -> str:
        """Return a name that nothing has."""
        return f"%{stem}.{next(self._fresh)}"

    def emit(self, instruction: str, stem: str = "v") -> str:
        """Write an instruction, and return the name of its result."""
        result = self.name(stem)
        self.lines.append(f"{result} = {instruction}")
        return result

    def line(self, text: str) -> None:
        """Write an instruction without a result, or a comment."""
        self.lines.append(text)

    def _once(self, key: object, instruction: str, stem: str) -> str:
        if key not in self._numbers:
            self._numbers[key] = result = self.name(stem)
            self._first.append(f"{result} = {instruction}")
        return self._numbers[key]

    def argument(self, place: int, kind: str, stem: str) -> str:
        """Return what a place of the block holds: a number (i64), an address (ptr)."""
        at = f"getelementptr inbounds i64, ptr %block, i64 {place}"
        where = self._once(("at", place), at, "at")
        return self._once((place, kind), f"load {kind}, ptr {where}", stem)

    def moved(self, base: str, dtype: str, terms: Sequence[SymInt]) -> str:
        """Return the address this many elements further."""
        steps = self.number(*terms)
        if steps == "0":
            return base
        kind = in_memory(dtype)
        place = f"getelementptr inbounds {kind}, ptr {base}, i64 {steps}"
        return self._once(place, place, "at")

    def along(self, base: str, kind: str, stride: SymInt, index: str) -> str:
        """Return the address this many strides further, for use in a loop."""
        if stride == ZERO:
            return base
        steps = index
        if stride != ONE:
            steps = self.emit(f"mul i64 {index}, {self.number(stride)}")
        return self.emit(f"getelementptr inbounds {kind}, ptr {base}, i64 {steps}", "p")

    def further(self, base: str, kind: str, count: int) -> str:
        """Return the address this many elements further, where it is computed now."""
        if not count:
            return base
        return self.emit(f"getelementptr inbounds {kind}, ptr {base}, i64 {count}", "p")

    def on_stack(self, count: int, align: int, key: object = "stack") -> str:
        """Return the address of this many bytes that last as long as the call."""
        return self._once(key, f"alloca [{count} x i8], align {align}", "stack")

    def aligned(self, base: str, align: int) -> str:
        """Return the next address that is a multiple of a number."""
        number = self._once(("int", base), f"ptrtoint ptr {base} to i64", "int")
        up = self._once(("up", base), f"add i64 {number}, {align - 1}", "int")
        down = self._once(("down", base), f"and i64 {up}, {-align}", "int")
        return self._once(("ptr", base), f"inttoptr i64 {down} to ptr", "at")

    def number(self, *terms: SymInt) -> str:
        """Return the sum of these."""
        result = str(sum(term.factor for term in terms if not term.power))
        for term in terms:
            if term.power and term.factor:
                one = self._monomial(term)
                total = f"add i64 {result}, {one}"
                result = one if result == "0" else self._once(total, total, "size")
        return result

    def _monomial(self, term: SymInt) -> str:
        if not term.power:
            return str(term.factor)
        n = self.argument(0, "i64", "n")
        if term == (1, 1):
            return n
        below = self._monomial(SymInt(term.factor, term.power - 1))
        return self._once(term, f"mul i64 {below}, {n}", "size")

    def begin(self, rows: Sequence[str]) -> None:
        """Write instructions before all others."""
        self._first[:0] = rows

    def part(self, count: str) -> tuple[str, str]:
        """Return this thread's iterations: the first, and the one after the last."""
        if not self.is_shared:
            return "0", count
        before = self.emit(f"mul i64 {count}, %thread")
        upto = self.emit(f"add i64 {before}, {count}")
        start, stop = (self.emit(f"udiv i64 {n}, %threads") for n in (before, upto))
        return start, stop

    def whole(self, start: str, stop: str, step: int) -> str:
        """Return the end of a loop with this step whose last step is whole."""
        if start == "0" and stop.isdecimal():
            return str(int(stop) // step * step)
        many = self.emit(f"sub i64 {stop}, {start}")
        even = self.emit(f"and i64 {many}, -{step}")
        return self.emit(f"add i64 {start}, {even}")

    @contextmanager
    def loop(
        self,
        count: str,
        carried: Sequence[LoopCarried] = (),
        how: str = "",
        start: str = "0",
        step: int = 1,
    ) -> Iterator[str]:
        """Write a loop around what is written meanwhile; give the name of its index.

        Args:
            how: :data:`AS_VECTORS`, :data:`AS_IT_IS`, or nothing: LLVM looks for what
                is the same in all iterations, but makes no vectors.
            step: from an index to the next.
        """
        k = next(self._fresh)
        before, i = self._block, f"%i.{k}"
        head = [f"br label %head.{k}", f"head.{k}:"]
        head.append(f"{i} = phi i64 [ {start}, %{before} ], [ %next.{k}, %tail.{k} ]")
        for each in carried:
            first, after = f"[ {each.start}, %{before} ]", f"[ {each.next}, %tail.{k} ]"
            head.append(f"{each.now} = phi {each.kind} {first}, {after}")
        head.append(f"%more.{k} = icmp slt i64 {i}, {count}")
        head.append(f"br i1 %more.{k}, label %body.{k}, label %done.{k}")
        self.lines += [*head, f"body.{k}:"]
        self._block = f"body.{k}"
        yield i
        self.lines += [f"br label %tail.{k}", f"tail.{k}:"]
        self.lines.append(f"%next.{k} = add nuw nsw i64 {i}, {step}")
        self.lines += [f"br label %head.{k}{how}", f"done.{k}:"]
        self._block = f"done.{k}"

    @contextmanager
    def where(self, condition: str) -> Iterator[None]:
        """Write what is written meanwhile for the case that this is true."""
        k = next(self._fresh)
        go = f"br i1 {condition}, label %then.{k}, label %after.{k}"
        self.lines += [go, f"then.{k}:"]
        self._block = f"then.{k}"
        yield
        self.lines += [f"br label %after.{k}", f"after.{k}:"]
        self._block = f"after.{k}"

    def bailout_if(self, condition: str) -> None:
        """Leave the function where this is true."""
        following = f"on.{next(self._fresh)}"
        go = f"br i1 {condition}, label %left, label %{following}"
        self.lines += [go, f"{following}:"]
        self._block, self._is_left = following, True

    def poll_cancel(self) -> None:
        """Leave the function where the flag is set."""
        flag = self.argument(FLAG, "ptr", "flag")
        now = self.emit(f"load volatile i32, ptr {flag}", "now")
        self.bailout_if(self.emit(f"icmp ne i32 {now}, 0", "stop"))

    def __str__(self) -> str:
        rows = [*self._first, *self.lines, "ret i1 false"]
        if self._is_left:
            rows += ["left:", "ret i1 true"]
        body = "\n".join(r if r.endswith(":") else f"  {r}" for r in rows)
        return f"define {self.head} {{\nstart:\n{body}\n}}"
