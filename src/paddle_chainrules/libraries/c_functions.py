"""The functions of a library as LLVM text, with C's calling convention.

Each has two forms. ``name`` takes the number of samples, if it has samples, and
pointers to inputs and outputs. It has its memory on the stack, or from ``malloc``.
``name_with_work`` takes memory as a further argument, ``name_work_bytes`` says how many
bytes. All check their arguments before they read or write anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from paddle import Tensor

from ..programs.codegen.extents import SymInt
from ..programs.codegen.fused_kernels.plan import ALIGNED
from ..programs.codegen.ir_builder import BYTES
from ..programs.tracing.operations import Value
from .exports import LibraryFunction, TensorParameter
from .names import LONGER

ON_STACK = 1 << 14
"""The most bytes of memory that a function takes from the stack."""

ERRORS = (
    "ok",
    "a pointer is null or not aligned to its elements",
    "the number of samples is below 1 or too large",
    "an output overlaps an input or another output",
    "there is not enough memory",
    "an index is out of range",
)
"""What the functions return, by number."""

POINTER, SAMPLES, OVERLAP, MEMORY, INDEX = range(1, len(ERRORS))

NEVER = "@never = internal constant i32 0"
"""The flag of regions, which tells them to go on."""

DECLARED = "declare ptr @malloc(i64)\ndeclare void @free(ptr)\n" + (
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
)


def string(name: str, text: str, linkage: str = "internal") -> str:
    """Return the definition of a text that ends with zero."""
    data = text.encode() + b"\0"
    return f'@{name} = {linkage} constant [{len(data)} x i8] c"{_escaped(data)}"'


def _escaped(data: bytes) -> str:
    return "".join(f"\\{byte:02X}" for byte in data)


class Constants:
    """The tensors inside a library, each of them once."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}

    def named(self, tensor: Tensor) -> str:
        """Return the name of a tensor's data."""
        data = np.ascontiguousarray(tensor.numpy()).tobytes()
        return self._names.setdefault(data, f"@constant.{len(self._names)}")

    @property
    def texts(self) -> Iterator[str]:
        """The definitions."""
        for data, name in self._names.items():
            head = f"{name} = internal constant [{len(data)} x i8]"
            yield f'{head} c"{_escaped(data)}", align {ALIGNED}'


def texts_of(function: LibraryFunction, constants: Constants) -> Iterator[str]:
    """Yield a function's definitions, except its region, which is ``@name.region``."""
    yield _checked_function(function, constants)
    yield _work_bytes(function)
    yield _own_memory(function)


def names_of(function: LibraryFunction) -> list[str]:
    """Return the names that others call."""
    return [f"{function.name}{ending}" for ending in LONGER]


def parameters(function: LibraryFunction) -> str:
    """Return the parameters of a function, without memory."""
    pointers = (f"ptr %{each.name}" for each in (*function.inputs, *function.outputs))
    return ", ".join([*(["i64 %n"] if function.has_samples else []), *pointers])


class _CInstructions:
    """Instructions of a function in their order.

    Their names have a dot, which those of inputs and outputs have not.
    """

    def __init__(self) -> None:
        self.rows: list[str] = []
        self._count = 0

    def emit(self, instruction: str) -> str:
        self._count += 1
        self.rows.append(f"  %v.{self._count} = {instruction}")
        return f"%v.{self._count}"

    def line(self, text: str) -> None:
        self.rows.append(f"  {text}")

    def bailout_if(self, condition: str, code: int) -> None:
        """Return this number where a condition holds."""
        self._count += 1
        on, out = f"on.{self._count}", f"out.{self._count}"
        self.line(f"br i1 {condition}, label %{out}, label %{on}")
        self.rows += [f"{out}:", f"  ret i32 {code}", f"{on}:"]

    def any_of(self, conditions: Sequence[str]) -> str:
        result = conditions[0]
        for each in conditions[1:]:
            result = self.emit(f"or i1 {result}, {each}")
        return result

    def size(self, extent: SymInt) -> str:
        """Return a size as a number or a name."""
        if not extent.power:
            return str(extent.factor)
        result = str(extent.factor)
        for _ in range(extent.power):
            result = self.emit(f"mul i64 {result}, %n")
        return result


def _outside_pointers(
    function: LibraryFunction, constants: Constants
) -> dict[Value, str]:
    """Return the pointer to each value that lies outside of a region."""
    program = function.program
    results: dict[Value, str] = {}
    for value, each in zip(program.outputs, function.outputs, strict=True):
        results.setdefault(value, f"%{each.name}")
    for value, tensor in program.constants.items():
        results[value] = constants.named(tensor)
    for value, each in zip(program.inputs, function.inputs, strict=True):
        results[value] = f"%{each.name}"
    return results


def _work(function: LibraryFunction) -> list[SymInt]:
    region = function.region
    return [*region.work] if region is not None and not region.on_stack else []


def _checked_function(function: LibraryFunction, constants: Constants) -> str:
    """Return the function that is given its memory."""
    to = _CInstructions()
    pointers = [*function.inputs, *function.outputs]
    if function.has_samples:
        few = to.emit("icmp slt i64 %n, 1")
        many = to.emit(f"icmp sgt i64 %n, {function.most}")
        to.bailout_if(to.emit(f"or i1 {few}, {many}"), SAMPLES)
    numbers = {
        each.name: to.emit(f"ptrtoint ptr %{each.name} to i64") for each in pointers
    }
    to.bailout_if(to.any_of([*_unfit(to, pointers, numbers)]), POINTER)
    ends = {
        each.name: to.emit(f"add i64 {numbers[each.name]}, {to.size(each.bytes)}")
        for each in pointers
    }
    overlaps = [*_overlaps(to, function, numbers, ends)]
    if overlaps:
        to.bailout_if(to.any_of(overlaps), OVERLAP)
    if function.one is not None:
        is_one = to.emit("icmp eq i64 %n, 1")
        to.line(f"br i1 {is_one}, label %.one, label %.many")
        to.rows.append(".one:")
        _emit_body(to, function.one, constants)
        to.rows += ["  ret i32 0", ".many:"]
    _emit_body(to, function, constants)
    head = f"define i32 @{function.name}_with_work({parameters(function)}, ptr %work)"
    return "\n".join([f"{head} nounwind {{", *to.rows, "  ret i32 0", "}"])


def _unfit(
    to: _CInstructions, pointers: Sequence[TensorParameter], numbers: dict[str, str]
) -> Iterator[str]:
    """Yield whether pointers are null or not aligned."""
    for each in pointers:
        yield to.emit(f"icmp eq ptr %{each.name}, null")
        if (size := BYTES[each.dtype]) > 1:
            rest = to.emit(f"and i64 {numbers[each.name]}, {size - 1}")
            yield to.emit(f"icmp ne i64 {rest}, 0")


def _overlaps(
    to: _CInstructions,
    function: LibraryFunction,
    starts: dict[str, str],
    ends: dict[str, str],
) -> Iterator[str]:
    """Yield whether outputs overlap inputs or one another."""
    pairs = [(out, given) for out in function.outputs for given in function.inputs]
    for one, other in [*pairs, *combinations(function.outputs, 2)]:
        begins = to.emit(f"icmp ult i64 {starts[one.name]}, {ends[other.name]}")
        goes_on = to.emit(f"icmp ult i64 {starts[other.name]}, {ends[one.name]}")
        yield to.emit(f"and i1 {begins}, {goes_on}")


def _emit_body(
    to: _CInstructions, function: LibraryFunction, constants: Constants
) -> None:
    """Write what a function does with arguments that are right."""
    places = _outside_pointers(function, constants)
    if function.region is not None:
        _call(to, function, places)
    for value, each in zip(function.program.outputs, function.outputs, strict=True):
        if places[value] != f"%{each.name}":  # given, or the same as another
            size = to.size(each.bytes)
            given = f"ptr %{each.name}, ptr {places[value]}, i64 {size}, i1 false"
            to.line(f"call void @llvm.memcpy.p0.p0.i64({given})")


def _call(
    to: _CInstructions, function: LibraryFunction, places: Mapping[Value, str]
) -> None:
    """Write the call of the region, with its block of addresses."""
    region = function.region
    assert region is not None
    work = _work(function)
    rows = ["ptr @never", *(f"ptr {places[value]}" for value in region.order)]
    rows += ["ptr %work"] * bool(work)
    block = f"%block.{function.name}"
    to.rows.insert(0, f"  {block} = alloca [{len(rows) + 1} x i64], align 8")
    to.line(f"store i64 {'%n' if function.has_samples else 0}, ptr {block}")
    for place, row in enumerate(rows, 1):
        at = to.emit(f"getelementptr i64, ptr {block}, i64 {place}")
        to.line(f"store {row}, ptr {at}")
    if work:
        to.bailout_if(to.emit("icmp eq ptr %work, null"), MEMORY)
    left = to.emit(f"call i1 @{function.name}.region(ptr {block})")
    if region.may_bail_out:
        to.bailout_if(left, INDEX)


def _work_bytes(function: LibraryFunction) -> str:
    """Return the function that says how many bytes of memory it needs."""
    to = _CInstructions()
    total = _bytes(to, function)
    given = "i64 %n" if function.has_samples else ""
    head = f"define i64 @{function.name}_work_bytes({given}) nounwind {{"
    return "\n".join([head, *to.rows, f"  ret i64 {total}", "}"])


def _bytes(to: _CInstructions, function: LibraryFunction) -> str:
    work = _work(function)
    total = str(ALIGNED if work else 0)
    for extent in work:
        total = to.emit(f"add i64 {total}, {to.size(extent)}")
    if work and function.one is not None:
        is_one = to.emit("icmp eq i64 %n, 1")
        total = to.emit(f"select i1 {is_one}, i64 0, i64 {total}")
    return total


def _own_memory(function: LibraryFunction) -> str:
    """Return the function that finds memory itself."""
    given = parameters(function)
    head = f"define i32 @{function.name}({given}) nounwind {{"
    call = f"call i32 @{function.name}_with_work({given}, ptr WORK)"
    to = _CInstructions()
    if not _work(function):
        code = to.emit(call.replace("WORK", "null"))
        return "\n".join([head, *to.rows, f"  ret i32 {code}", "}"])
    room = to.emit(f"alloca [{ON_STACK} x i8], align {ALIGNED}")
    if function.has_samples:  # or the size below is none
        few = to.emit("icmp slt i64 %n, 1")
        many = to.emit(f"icmp sgt i64 %n, {function.most}")
        to.bailout_if(to.emit(f"or i1 {few}, {many}"), SAMPLES)
    size = _bytes(to, function)
    fits = to.emit(f"icmp ule i64 {size}, {ON_STACK}")
    to.line(f"br i1 {fits}, label %small.work, label %large.work")
    to.rows.append("small.work:")
    to.line(f"%the.status = {call.replace('WORK', room)}")
    to.line("ret i32 %the.status")
    to.rows.append("large.work:")
    memory = to.emit(f"call ptr @malloc(i64 {size})")
    to.bailout_if(to.emit(f"icmp eq ptr {memory}, null"), MEMORY)
    code = to.emit(call.replace("WORK", memory))
    to.line(f"call void @free(ptr {memory})")
    return "\n".join([head, *to.rows, f"  ret i32 {code}", "}"])
