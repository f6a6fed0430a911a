"""The functions of a library as LLVM text, with C's calling convention.

Each has two forms. ``name`` takes the number of samples, if it has samples, and
pointers to inputs and outputs. It has its memory on the stack, or from ``malloc``.
``name_with_work`` takes memory as a further argument, ``name_work_bytes`` says how many
bytes. All check their arguments before they read or write anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Protocol

import numpy as np
from paddle import Tensor

from ..codegen.extents import ShapeEnv, SymInt
from ..codegen.fused_kernels.plan import ALIGNED
from ..codegen.fused_kernels.region import Region
from ..codegen.ir_builder import BYTES
from ..compiling.program import Program
from ..tracing.operations import Value

STACK_BYTES = 1 << 14
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

FUNCTION_ENDINGS = ("", "_with_work", "_work_bytes")
"""Endings of the names of the C functions that a function has."""

MAX_SAMPLES = 2**31 - 1
"""The most samples of a call."""

MAX_BYTES = 2**60
"""The most bytes of a tensor or of memory, of which there may be a few."""

NEVER_FLAG = "@never = internal constant i32 0"
"""The flag of regions, which tells them to go on."""

DECLARATIONS = "declare ptr @malloc(i64)\ndeclare void @free(ptr)\n" + (
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
)


class CTensor(Protocol):
    """A tensor that a function takes or returns: a pointer of this name."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> Sequence[tuple[int, int]]:
        """For each size a factor, and the power of the number of samples."""


class CFunction(Protocol):
    """A function of a library, and the program that it runs.

    The program is one region, or none. There may be one for a single sample, where its
    code is faster.
    """

    @property
    def name(self) -> str: ...

    @property
    def inputs(self) -> Sequence[CTensor]: ...

    @property
    def outputs(self) -> Sequence[CTensor]: ...

    @property
    def has_samples(self) -> bool: ...

    @property
    def max_samples(self) -> int: ...

    @property
    def program(self) -> Program: ...

    @property
    def one(self) -> CFunction | None: ...


def region_of(function: CFunction) -> Region | None:
    """Return the machine code, if anything is computed."""
    return next(iter(function.program.regions), None)


def _bytes(tensor: CTensor) -> SymInt:
    result = SymInt(BYTES[tensor.dtype])
    for size in tensor.shape:
        result = result.times(SymInt(*size))
    return result


def max_samples(program: Program) -> int:
    """Return the most samples of a call whose sizes stay far from 64 bits."""
    region, sizes = next(iter(program.regions), None), ShapeEnv(program.samples)
    extents = [
        sizes.product(v.shape).times(SymInt(BYTES[v.dtype]))
        for v in (*program.inputs, *program.outputs)
    ]
    extents += region.work if region is not None else []
    powers = [(MAX_BYTES / e.factor) ** (1 / e.power) for e in extents if e.power]
    return min([MAX_SAMPLES, *map(int, powers)])


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

    def symbol_of(self, tensor: Tensor) -> str:
        """Return the name of a tensor's data."""
        data = np.ascontiguousarray(tensor.numpy()).tobytes()
        return self._names.setdefault(data, f"@constant.{len(self._names)}")

    @property
    def definitions(self) -> Iterator[str]:
        """The definitions."""
        for data, name in self._names.items():
            head = f"{name} = internal constant [{len(data)} x i8]"
            yield f'{head} c"{_escaped(data)}", align {ALIGNED}'


def definitions_of(function: CFunction, constants: Constants) -> Iterator[str]:
    """Yield a function's definitions, except its region, which is ``@name.region``."""
    yield _function_with_work(function, constants)
    yield _work_bytes(function)
    yield _allocating_function(function)


def exported_symbols(function: CFunction) -> list[str]:
    """Return the names that others call."""
    return [f"{function.name}{ending}" for ending in FUNCTION_ENDINGS]


def parameters(function: CFunction) -> str:
    """Return the parameters of a function, without memory."""
    pointers = (
        f"ptr %{tensor.name}" for tensor in (*function.inputs, *function.outputs)
    )
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
        continue_label, exit_label = f"on.{self._count}", f"out.{self._count}"
        self.line(f"br i1 {condition}, label %{exit_label}, label %{continue_label}")
        self.rows += [f"{exit_label}:", f"  ret i32 {code}", f"{continue_label}:"]

    def any_of(self, conditions: Sequence[str]) -> str:
        result = conditions[0]
        for condition in conditions[1:]:
            result = self.emit(f"or i1 {result}, {condition}")
        return result

    def size(self, extent: SymInt) -> str:
        """Return a size as a number or a name."""
        if not extent.power:
            return str(extent.factor)
        result = str(extent.factor)
        for _ in range(extent.power):
            result = self.emit(f"mul i64 {result}, %n")
        return result


def _outside_pointers(function: CFunction, constants: Constants) -> dict[Value, str]:
    """Return the pointer to each value that lies outside of a region."""
    program = function.program
    results: dict[Value, str] = {}
    for value, parameter in zip(program.outputs, function.outputs, strict=True):
        results.setdefault(value, f"%{parameter.name}")
    for value, tensor in program.constants.items():
        results[value] = constants.symbol_of(tensor)
    for value, parameter in zip(program.inputs, function.inputs, strict=True):
        results[value] = f"%{parameter.name}"
    return results


def _work_sizes(function: CFunction) -> list[SymInt]:
    region = region_of(function)
    return [*region.work] if region is not None and not region.on_stack else []


def _function_with_work(function: CFunction, constants: Constants) -> str:
    """Return the function that takes its memory as an argument."""
    instructions = _CInstructions()
    pointers = [*function.inputs, *function.outputs]
    if function.has_samples:
        too_few = instructions.emit("icmp slt i64 %n, 1")
        too_many = instructions.emit(f"icmp sgt i64 %n, {function.max_samples}")
        instructions.bailout_if(
            instructions.emit(f"or i1 {too_few}, {too_many}"), SAMPLES
        )
    addresses = {
        tensor.name: instructions.emit(f"ptrtoint ptr %{tensor.name} to i64")
        for tensor in pointers
    }
    instructions.bailout_if(
        instructions.any_of([*_unfit_pointers(instructions, pointers, addresses)]),
        POINTER,
    )
    ends = {
        tensor.name: instructions.emit(
            f"add i64 {addresses[tensor.name]}, {instructions.size(_bytes(tensor))}"
        )
        for tensor in pointers
    }
    overlaps = [*_overlaps(instructions, function, addresses, ends)]
    if overlaps:
        instructions.bailout_if(instructions.any_of(overlaps), OVERLAP)
    if function.one is not None:
        is_one = instructions.emit("icmp eq i64 %n, 1")
        instructions.line(f"br i1 {is_one}, label %.one, label %.many")
        instructions.rows.append(".one:")
        _emit_body(instructions, function.one, constants)
        instructions.rows += ["  ret i32 0", ".many:"]
    _emit_body(instructions, function, constants)
    head = f"define i32 @{function.name}_with_work({parameters(function)}, ptr %work)"
    return "\n".join([f"{head} nounwind {{", *instructions.rows, "  ret i32 0", "}"])


def _unfit_pointers(
    instructions: _CInstructions,
    pointers: Sequence[CTensor],
    addresses: dict[str, str],
) -> Iterator[str]:
    """Yield whether pointers are null or not aligned."""
    for tensor in pointers:
        yield instructions.emit(f"icmp eq ptr %{tensor.name}, null")
        if (size := BYTES[tensor.dtype]) > 1:
            remainder = instructions.emit(
                f"and i64 {addresses[tensor.name]}, {size - 1}"
            )
            yield instructions.emit(f"icmp ne i64 {remainder}, 0")


def _overlaps(
    instructions: _CInstructions,
    function: CFunction,
    starts: dict[str, str],
    ends: dict[str, str],
) -> Iterator[str]:
    """Yield whether outputs overlap inputs or one another."""
    pairs = [
        (out, input_tensor)
        for out in function.outputs
        for input_tensor in function.inputs
    ]
    for first, second in [*pairs, *combinations(function.outputs, 2)]:
        starts_before = instructions.emit(
            f"icmp ult i64 {starts[first.name]}, {ends[second.name]}"
        )
        ends_after = instructions.emit(
            f"icmp ult i64 {starts[second.name]}, {ends[first.name]}"
        )
        yield instructions.emit(f"and i1 {starts_before}, {ends_after}")


def _emit_body(
    instructions: _CInstructions, function: CFunction, constants: Constants
) -> None:
    """Emit the body of a function, after its arguments were checked."""
    pointers = _outside_pointers(function, constants)
    if region_of(function) is not None:
        _emit_region_call(instructions, function, pointers)
    for value, parameter in zip(
        function.program.outputs, function.outputs, strict=True
    ):
        if pointers[value] != f"%{parameter.name}":  # given, or the same as another
            size = instructions.size(_bytes(parameter))
            copy_args = (
                f"ptr %{parameter.name}, ptr {pointers[value]}, i64 {size}, i1 false"
            )
            instructions.line(f"call void @llvm.memcpy.p0.p0.i64({copy_args})")


def _emit_region_call(
    instructions: _CInstructions,
    function: CFunction,
    pointers: Mapping[Value, str],
) -> None:
    """Write the call of the region, with its block of addresses."""
    region = region_of(function)
    assert region is not None
    work = _work_sizes(function)
    rows = ["ptr @never", *(f"ptr {pointers[value]}" for value in region.order)]
    rows += ["ptr %work"] * bool(work)
    block = f"%block.{function.name}"
    instructions.rows.insert(0, f"  {block} = alloca [{len(rows) + 1} x i64], align 8")
    instructions.line(f"store i64 {'%n' if function.has_samples else 0}, ptr {block}")
    for slot, row in enumerate(rows, 1):
        address = instructions.emit(f"getelementptr i64, ptr {block}, i64 {slot}")
        instructions.line(f"store {row}, ptr {address}")
    if work:
        instructions.bailout_if(instructions.emit("icmp eq ptr %work, null"), MEMORY)
    failed = instructions.emit(f"call i1 @{function.name}.region(ptr {block})")
    if region.may_bail_out:
        instructions.bailout_if(failed, INDEX)


def _work_bytes(function: CFunction) -> str:
    """Return the function that says how many bytes of memory it needs."""
    instructions = _CInstructions()
    total = _work_bytes_value(instructions, function)
    parameter_list = "i64 %n" if function.has_samples else ""
    head = f"define i64 @{function.name}_work_bytes({parameter_list}) nounwind {{"
    return "\n".join([head, *instructions.rows, f"  ret i64 {total}", "}"])


def _work_bytes_value(instructions: _CInstructions, function: CFunction) -> str:
    work = _work_sizes(function)
    total = str(ALIGNED if work else 0)
    for extent in work:
        total = instructions.emit(f"add i64 {total}, {instructions.size(extent)}")
    if work and function.one is not None:
        is_one = instructions.emit("icmp eq i64 %n, 1")
        total = instructions.emit(f"select i1 {is_one}, i64 0, i64 {total}")
    return total


def _allocating_function(function: CFunction) -> str:
    """Return the function that allocates memory itself."""
    parameter_list = parameters(function)
    head = f"define i32 @{function.name}({parameter_list}) nounwind {{"
    call = f"call i32 @{function.name}_with_work({parameter_list}, ptr WORK)"
    instructions = _CInstructions()
    if not _work_sizes(function):
        code = instructions.emit(call.replace("WORK", "null"))
        return "\n".join([head, *instructions.rows, f"  ret i32 {code}", "}"])
    stack_memory = instructions.emit(f"alloca [{STACK_BYTES} x i8], align {ALIGNED}")
    if function.has_samples:  # or the size below is none
        too_few = instructions.emit("icmp slt i64 %n, 1")
        too_many = instructions.emit(f"icmp sgt i64 %n, {function.max_samples}")
        instructions.bailout_if(
            instructions.emit(f"or i1 {too_few}, {too_many}"), SAMPLES
        )
    size = _work_bytes_value(instructions, function)
    fits = instructions.emit(f"icmp ule i64 {size}, {STACK_BYTES}")
    instructions.line(f"br i1 {fits}, label %small.work, label %large.work")
    instructions.rows.append("small.work:")
    instructions.line(f"%the.status = {call.replace('WORK', stack_memory)}")
    instructions.line("ret i32 %the.status")
    instructions.rows.append("large.work:")
    memory = instructions.emit(f"call ptr @malloc(i64 {size})")
    instructions.bailout_if(instructions.emit(f"icmp eq ptr {memory}, null"), MEMORY)
    code = instructions.emit(call.replace("WORK", memory))
    instructions.line(f"call void @free(ptr {memory})")
    return "\n".join([head, *instructions.rows, f"  ret i32 {code}", "}"])
