"""A builder of LLVM functions as text."""

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
"""The block's slot that holds the address of the cancel flag."""

PARALLEL = "!llvm.access.group !0"
"""Metadata of loads and stores in a loop that LLVM may vectorize."""

VECTORIZE, NO_VECTORIZE = ", !llvm.loop !1", ", !llvm.loop !3"
"""Loop metadata: LLVM vectorizes the loop, or leaves it as it is."""

VECTORIZABLE_LOOP = re.compile(r"br label %head\.\d+(, !llvm\.loop !1)?\ndone\.")
"""The end of a loop that LLVM's passes may optimize."""

METADATA = """
!0 = distinct !{}
!1 = distinct !{!1, !2}
!2 = !{!"llvm.loop.parallel_accesses", !0}
!3 = distinct !{!3, !4}
!4 = !{!"llvm.loop.isvectorized", i32 1}
"""
"""Metadata: no element is written before another is read, wherever outputs are."""


def vector_type(kind: str, lanes: int) -> str:
    """Return the type of a vector with this many lanes, or of one number for 0."""
    return f"<{lanes} x {kind}>" if lanes else kind


def splat(kind: str, constant: str, lanes: int) -> str:
    """Return a constant in all lanes."""
    return f"splat ({kind} {constant})" if lanes else constant


def memory_type(dtype: str) -> str:
    """Return LLVM's type of an element of a dtype in memory."""
    return "i8" if dtype == "bool" else TYPES[dtype]


class InstructionSink(Protocol):
    """A sink for instructions."""

    def emit(self, instruction: str) -> str:
        """Return the name of an instruction's result."""
        ...


def broadcast_lanes(lines: InstructionSink, kind: str, scalar: str, lanes: int) -> str:
    """Emit a vector with a scalar in all lanes; return the scalar itself for 0."""
    if not lanes:
        return scalar
    wide = vector_type(kind, lanes)
    first = lines.emit(f"insertelement {wide} poison, {kind} {scalar}, i64 0")
    zeros = f"<{lanes} x i32> zeroinitializer"
    return lines.emit(f"shufflevector {wide} {first}, {wide} poison, {zeros}")


class LoopCarried(NamedTuple):
    """A value that a loop carries from one iteration to the next.

    Attributes:
        kind: its type.
        start: its value before the first one.
        phi: its name in an iteration, and after the loop.
        next: the name that the body assigns for the next one.
    """

    kind: str
    start: str
    phi: str
    next: str


class FunctionBuilder:
    """LLVM's IRBuilder for one function, on text.

    The function takes ``%block``, sizes and addresses, and maybe ``%work``, memory. It
    returns whether it bailed out.

    Args:
        head: how it begins: linkage, name, parameters, attributes.

    Attributes:
        head: how it begins.
        lines: of the body, in their order.
        is_parallel: whether several threads run it, each a range of its loops.
    """

    def __init__(self, head: str = "zeroext i1 @NAME(ptr noalias %block)") -> None:
        self.head = head
        self.lines: list[str] = []
        self._entry_lines: list[str] = []
        """Instructions that are computed once, before all others."""
        self._label = "start"
        self._counter = itertools.count()
        self._hoisted: dict[object, str] = {}
        self._has_bailout = False
        self.is_parallel = False

    def fresh_name(self, stem: str = "v") -> str:
        """Return a name that no value has yet."""
        return f"%{stem}.{next(self._counter)}"

    def emit(self, instruction: str, stem: str = "v") -> str:
        """Append an instruction, and return the name of its result."""
        result = self.fresh_name(stem)
        self.lines.append(f"{result} = {instruction}")
        return result

    def line(self, text: str) -> None:
        """Append an instruction without a result, or a comment."""
        self.lines.append(text)

    def _hoist(self, key: object, instruction: str, stem: str) -> str:
        if key not in self._hoisted:
            self._hoisted[key] = result = self.fresh_name(stem)
            self._entry_lines.append(f"{result} = {instruction}")
        return self._hoisted[key]

    def load_slot(self, slot: int, kind: str, stem: str) -> str:
        """Load a slot of the block in the entry: a number (i64) or an address (ptr)."""
        gep = f"getelementptr inbounds i64, ptr %block, i64 {slot}"
        address = self._hoist(("at", slot), gep, "at")
        return self._hoist((slot, kind), f"load {kind}, ptr {address}", stem)

    def hoisted_address(self, base: str, dtype: str, terms: Sequence[SymInt]) -> str:
        """Return an address at an offset in elements, computed in the entry."""
        offset = self.size_value(*terms)
        if offset == "0":
            return base
        kind = memory_type(dtype)
        gep = f"getelementptr inbounds {kind}, ptr {base}, i64 {offset}"
        return self._hoist(gep, gep, "at")

    def indexed_address(self, base: str, kind: str, stride: SymInt, index: str) -> str:
        """Emit the address ``index`` strides after a base, for use in a loop."""
        if stride == ZERO:
            return base
        offset = index
        if stride != ONE:
            offset = self.emit(f"mul i64 {index}, {self.size_value(stride)}")
        return self.emit(
            f"getelementptr inbounds {kind}, ptr {base}, i64 {offset}", "p"
        )

    def offset_address(self, base: str, kind: str, count: int) -> str:
        """Emit the address a constant number of elements after a base."""
        if not count:
            return base
        return self.emit(f"getelementptr inbounds {kind}, ptr {base}, i64 {count}", "p")

    def alloca(self, count: int, align: int, key: object = "stack") -> str:
        """Return the address of this many bytes on the stack."""
        return self._hoist(key, f"alloca [{count} x i8], align {align}", "stack")

    def aligned(self, base: str, align: int) -> str:
        """Return the next address that is a multiple of a number."""
        number = self._hoist(("int", base), f"ptrtoint ptr {base} to i64", "int")
        up = self._hoist(("up", base), f"add i64 {number}, {align - 1}", "int")
        down = self._hoist(("down", base), f"and i64 {up}, {-align}", "int")
        return self._hoist(("ptr", base), f"inttoptr i64 {down} to ptr", "at")

    def size_value(self, *terms: SymInt) -> str:
        """Return the sum of some sizes, computed in the entry."""
        result = str(sum(term.factor for term in terms if not term.power))
        for term in terms:
            if term.power and term.factor:
                monomial = self._monomial(term)
                addition = f"add i64 {result}, {monomial}"
                result = (
                    monomial
                    if result == "0"
                    else self._hoist(addition, addition, "size")
                )
        return result

    def _monomial(self, term: SymInt) -> str:
        if not term.power:
            return str(term.factor)
        n = self.load_slot(0, "i64", "n")
        if term == (1, 1):
            return n
        lower_power = self._monomial(SymInt(term.factor, term.power - 1))
        return self._hoist(term, f"mul i64 {lower_power}, {n}", "size")

    def prepend_entry(self, rows: Sequence[str]) -> None:
        """Put instructions before all others."""
        self._entry_lines[:0] = rows

    def thread_range(self, count: str) -> tuple[str, str]:
        """Return this thread's range of iterations: start and stop."""
        if not self.is_parallel:
            return "0", count
        scaled_start = self.emit(f"mul i64 {count}, %thread")
        scaled_stop = self.emit(f"add i64 {scaled_start}, {count}")
        start, stop = (
            self.emit(f"udiv i64 {n}, %threads") for n in (scaled_start, scaled_stop)
        )
        return start, stop

    def vector_loop_end(self, start: str, stop: str, step: int) -> str:
        """Return where a loop with this step ends so that its last step is complete."""
        if start == "0" and stop.isdecimal():
            return str(int(stop) // step * step)
        length = self.emit(f"sub i64 {stop}, {start}")
        rounded_length = self.emit(f"and i64 {length}, -{step}")
        return self.emit(f"add i64 {start}, {rounded_length}")

    @contextmanager
    def loop(
        self,
        count: str,
        carried: Sequence[LoopCarried] = (),
        metadata: str = "",
        start: str = "0",
        step: int = 1,
    ) -> Iterator[str]:
        """Open a loop around what is emitted meanwhile; give the name of its index.

        Args:
            metadata: :data:`VECTORIZE`, :data:`NO_VECTORIZE`, or nothing: LLVM hoists
                loop invariants, but does not vectorize.
            step: from an index to the next.
        """
        k = next(self._counter)
        predecessor, i = self._label, f"%i.{k}"
        head = [f"br label %head.{k}", f"head.{k}:"]
        head.append(
            f"{i} = phi i64 [ {start}, %{predecessor} ], [ %next.{k}, %tail.{k} ]"
        )
        for carry in carried:
            initial, following = (
                f"[ {carry.start}, %{predecessor} ]",
                f"[ {carry.next}, %tail.{k} ]",
            )
            head.append(f"{carry.phi} = phi {carry.kind} {initial}, {following}")
        head.append(f"%more.{k} = icmp slt i64 {i}, {count}")
        head.append(f"br i1 %more.{k}, label %body.{k}, label %done.{k}")
        self.lines += [*head, f"body.{k}:"]
        self._label = f"body.{k}"
        yield i
        self.lines += [f"br label %tail.{k}", f"tail.{k}:"]
        self.lines.append(f"%next.{k} = add nuw nsw i64 {i}, {step}")
        self.lines += [f"br label %head.{k}{metadata}", f"done.{k}:"]
        self._label = f"done.{k}"

    @contextmanager
    def if_then(self, condition: str) -> Iterator[None]:
        """Open a branch taken if a condition is true."""
        k = next(self._counter)
        branch = f"br i1 {condition}, label %then.{k}, label %after.{k}"
        self.lines += [branch, f"then.{k}:"]
        self._label = f"then.{k}"
        yield
        self.lines += [f"br label %after.{k}", f"after.{k}:"]
        self._label = f"after.{k}"

    def bailout_if(self, condition: str) -> None:
        """Leave the function if a condition is true."""
        continue_label = f"on.{next(self._counter)}"
        branch = f"br i1 {condition}, label %left, label %{continue_label}"
        self.lines += [branch, f"{continue_label}:"]
        self._label, self._has_bailout = continue_label, True

    def poll_cancel(self) -> None:
        """Leave the function if the cancel flag is set."""
        flag = self.load_slot(FLAG, "ptr", "flag")
        flag_value = self.emit(f"load volatile i32, ptr {flag}", "now")
        self.bailout_if(self.emit(f"icmp ne i32 {flag_value}, 0", "stop"))

    def __str__(self) -> str:
        rows = [*self._entry_lines, *self.lines, "ret i1 false"]
        if self._has_bailout:
            rows += ["left:", "ret i1 true"]
        body = "\n".join(r if r.endswith(":") else f"  {r}" for r in rows)
        return f"define {self.head} {{\nstart:\n{body}\n}}"
