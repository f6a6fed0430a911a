"""Programs as Python source: a line an operation, tensors freed after use.

A program that is called often switches to source with loops of machine code. Its
function stays the same object, but its code changes.
"""

from __future__ import annotations

import builtins
import itertools
import keyword
import linecache
import math
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FunctionType
from typing import Any, NamedTuple, NoReturn

from paddle import Tensor

from ... import settings
from ...paddle_side.devices import ON_CPU_ALONE, are_on_cpu
from ..codegen.extents import ShapeEnv, SymInt
from ..codegen.fused_kernels.region import Region
from ..sizes.samples import SIZED
from ..tracing.operations import Value

_numbers = itertools.count()

_dropped_files: list[str] = []
"""Files of dropped functions.

Garbage is collected at any time, and code that iterates over the cache of lines must
still find them.
"""

MIN_REPEATED_OPS, MIN_OPS_PER_KIND, EARLY_SWITCH_CALL = 150, 6, 2
"""Limits for an early switch to loops.

A program with this many operators, and on average this many of each kind, switches at
this call.
"""

ELSEWHERE = "elsewhere"
"""The name of the function without loops."""

DENSE = frozenset({"matmul", "matmul_grad", "addmm", "addmm_grad"})
"""Operators whose results always lie in memory of their own, without gaps."""


def source(
    program: Any,
    reserved: dict[str, Any] | None = None,
    first_line: str = "",
    trusts: bool = False,
) -> tuple[str, dict[str, Any]]:
    """Return the source of a function of the inputs, and its global names.

    Args:
        reserved: global names in use; new ones are added.
        first_line: a line at the start of the body.
        trusts: whether inputs are known to have the shapes and dtypes of the capture.
    """
    names: dict[str, Any] = {} if reserved is None else reserved
    labels: dict[int, str] = {}
    dense: set[Value] = set()

    def name_of(value: Any, stem: str) -> str:
        if id(value) not in labels:
            label, n = stem, 1
            while label in names:
                n += 1
                label = f"{stem}_{n}"
            labels[id(value)] = label
            names[label] = value
        return labels[id(value)]

    def expr(arg: Any) -> str:
        if isinstance(arg, Value):
            label = f"t{arg.number}"
            if arg not in program.constants:
                return label
            # Another program of the same names may have another of this number.
            return name_of(program.constants[arg], label)
        if isinstance(arg, SymInt):
            return f"{arg.factor} * n**{arg.power}" if arg.power else f"{arg.factor}"
        if type(arg) is list:
            return f"[{', '.join(map(expr, arg))}]"
        if type(arg) is tuple:
            return f"({''.join(f'{expr(item)}, ' for item in arg)})"
        if type(arg) is slice:
            return f"slice({expr(arg.start)}, {expr(arg.stop)}, {expr(arg.step)})"
        if type(arg) is float and not math.isfinite(arg):
            return f"float({str(arg)!r})"
        if type(arg) is complex:
            return f"complex({expr(arg.real)}, {expr(arg.imag)})"
        if arg is None or type(arg) in (int, float, bool, str):
            return repr(arg)
        return name_of(arg, f"_{type(arg).__name__.lower()}")

    def region_lines(op: Any) -> Iterator[str]:
        def local_name(value: Value) -> str:
            return f"c{value.number}" if value in program.constants else expr(value)

        unchecked = [v for v in op.inputs if v not in dense]
        for value in unchecked:
            if value in program.constants:
                yield f"{local_name(value)} = {expr(value)}"
        dense.update(op.inputs, op.outputs)
        trusted = {*program.inputs} if trusts else set()
        fallback_call = f"{ELSEWHERE}({inputs})"
        yield from op.operator.lines(
            name_of, local_name, unchecked, trusted, fallback_call
        )

    inputs = ", ".join(map(expr, program.inputs))
    lines = [f"def {program.name}({inputs}):"]
    if first_line:
        lines.append(f"    {first_line}")
    if program.samples is not None:
        lines.append(f"    n = {_number_of_samples(program, _label)}")
    for op, dead in zip(program.ops, program.last_uses, strict=True):
        if isinstance(op.operator, Region):
            lines += [f"    {line}" for line in region_lines(op)]
            if dead:
                lines.append(f"    del {', '.join(map(expr, dead))}")
            continue
        if op.operator.name in DENSE:
            dense.update(op.outputs)
        sized_args = op.args
        if program.samples is not None and op.operator.name in SIZED:
            sized_args = tuple(map(ShapeEnv(program.samples).extents_in, op.args))
        args = [expr(arg) for arg in sized_args]
        run, outputs, many = op.operator.run, op.outputs, op.many
        if op.operator.lean is not None and {*outputs[1:]} <= {*dead}:
            run, many, dead = (
                op.operator.lean,
                False,
                [v for v in dead if v not in outputs[1:]],
            )
            outputs = outputs[:1]
        stem = op.operator.name.rpartition(".")[2].strip("_")
        if op in program.reused:
            run, order = op.operator.in_place[program.reused[op]]
            call = f"{name_of(run, run.__name__)}({', '.join(args[i] for i in order)})"
        elif instead := op.operator.instead and op.operator.instead(*sized_args):
            run, new_args = instead
            label = name_of(run, run.__name__)
            call = f"{label}({', '.join(map(expr, new_args))})"
        elif op.operator.infix and len(args) == 2:
            call = f"{args[0]} {op.operator.infix} {args[1]}"
        else:
            if stem in vars(builtins) or keyword.iskeyword(stem):
                stem += "_"
            call = f"{name_of(run, stem)}({', '.join(args)})"
        targets = ", ".join(map(expr, outputs))
        if many and len(outputs) == 1:
            targets += ","
        lines.append(f"    {targets} = {call}")
        if dead:
            lines.append(f"    del {', '.join(map(expr, dead))}")
    lines.append(f"    return [{', '.join(map(expr, program.outputs))}]")
    return "\n".join(lines) + "\n", names


def _number_of_samples(program: Any, name_of: Callable[[Value], str]) -> str:
    """Return an expression for the number of samples, from the size of an input."""
    size, varying, _ = program.samples
    for value in program.inputs:
        for k, dim in enumerate(value.shape):
            if dim in varying:
                return f"{name_of(value)}.shape[{k}] // {dim // size}"
    return "0"  # no size varies with it


def compile_program(
    program: Any,
    with_loops: Callable[[], Any] | None = None,
    begin: Callable[[], Any] = lambda: None,
) -> Callable[..., Any]:
    """Compile the function, so that errors show its lines.

    Its attribute ``trusting`` is the same function for callers who know the shapes and
    dtypes of their arguments. It skips the checks once the function has switched to
    loops, and is the function itself before. Its attribute ``entered`` is None until
    then, and where the program is more than one region; see :func:`entered`.

    Args:
        with_loops: gives the program with loops. The function switches to it at a
            certain call, so that a program gives the same bits in each process.
        begin: begins to make it; is called in good time before.
    """
    names: dict[str, Any] = {}
    if with_loops is None or not are_on_cpu(program.constants.values()):
        if program.regions:
            names[ELSEWHERE] = _refuse_elsewhere
        result = _python_function(program, names)
        result.trusting, result.entered = result, None  # type: ignore[attr-defined]
        return result

    def switch_to_loops() -> None:
        try:
            looped = with_loops()
            trusting = _function_with_loops(program, looped, {}, trusts=True)
            result.__code__ = _function_with_loops(program, looped, names).__code__
            result.trusting = trusting  # type: ignore[attr-defined]
            result.entered = entered(looped)  # type: ignore[attr-defined]
        except Exception as error:
            result.__code__ = _python_function(program, names).__code__
            is_out_of_memory = isinstance(error, MemoryError)
            warnings.warn(
                f"programs run without loops of machine code: {error}"
                + (
                    ""
                    if is_out_of_memory
                    else f"; reinstall llvmlite, or set {settings.LOOPS}=off"
                ),
                stacklevel=4,
            )
        except BaseException:  # an interrupt, after which the next call switches
            names["calls"] = itertools.count(switch_call)
            raise

    def count_call(call: int) -> None:
        if call == switch_call:
            switch_to_loops()
        elif call == switch_call // 2:
            with suppress(Exception):  # switch_to_loops raises and reports it again
                begin()

    switch_call = _calls_before_switch(program)
    names.update(calls=itertools.count(), reached=count_call)
    first_line = "reached(next(calls))"
    result = _python_function(program, names, first_line)
    result.trusting, result.entered = result, None  # type: ignore[attr-defined]
    if not switch_call:
        switch_to_loops()
    return result


def _refuse_elsewhere(*_: Any) -> NoReturn:
    raise ValueError(
        "loops of machine code take tensors of the CPU and indices that are in range, "
        "and got others; call the program itself, of which with_loops gives the loops"
    )


def _calls_before_switch(program: Any) -> int:
    """Return the number of calls after which a program switches to loops.

    It is low where a program repeats itself, as unrolled loops do. Their operators
    cost much and their code costs little.
    """
    op_kinds = {(op.operator.name, *(v.shape for v in op.inputs)) for op in program.ops}
    repeats = len(program.ops) >= MIN_REPEATED_OPS and len(
        program.ops
    ) >= MIN_OPS_PER_KIND * len(op_kinds)
    return (
        min(settings.CALLS_BEFORE_CODE, EARLY_SWITCH_CALL)
        if repeats
        else settings.CALLS_BEFORE_CODE
    )


def _function_with_loops(
    plain: Any, program: Any, names: dict[str, Any], trusts: bool = False
) -> FunctionType:
    """Return the Python function of a program with loops.

    It leaves calls on other devices to the plain function, and calls with indices out
    of range.
    """
    may_bail_out = any(region.may_bail_out for region in program.regions)
    if may_bail_out or not ON_CPU_ALONE:
        names[ELSEWHERE] = _python_function(plain, names)
    first_line = ""
    if not ON_CPU_ALONE and len(program.ops) > 1:  # before one of them draws numbers
        inputs = "".join(f"t{value.number}, " for value in program.inputs)
        names["are_on_cpu"] = are_on_cpu
        first_line = f"if not are_on_cpu(({inputs})): return {ELSEWHERE}({inputs})"
    return _python_function(program, names, first_line, trusts)


class WholeEntry(NamedTuple):
    """Machine code that is a whole program, and what it takes and gives.

    It checks all inputs. It returns None, having done nothing, if one is not as it was
    at the capture.

    Attributes:
        enter: the builtin function.
        inputs: the program's inputs and constants in its order.
        outputs: what it gives, in its order.
        program: the program.
    """

    enter: Callable[..., list[Tensor] | None]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    program: Any

    def lines(
        self,
        result: str,
        name_of: Callable[[Value], str],
        bind: Callable[[Any], str],
    ) -> tuple[list[str], list[str]]:
        """Return lines that enter it, or return None, and names of the outputs.

        Args:
            result: a name for what it gives; names of its outputs begin with this.
            name_of: gives the name of an input.
            bind: gives a name for an object.
        """
        constants, samples = self.program.constants, self.program.samples

        def label(value: Value) -> str:
            if value in constants:
                return bind(constants[value])
            return name_of(value)

        args = ", ".join(map(label, self.inputs))
        condition = f"{result} is None"
        if samples is not None:
            number = _number_of_samples(self.program, name_of)
            condition += f" or not 1 < {number} <= {samples.most}"
        lines = [
            f"{result} = {bind(self.enter)}({args})",
            f"if {condition}: return None",
        ]
        names = {v: f"{result}_{k}" for k, v in enumerate(self.outputs)}
        lines.append(f"[{', '.join(names.values())}] = {result}")
        return lines, [names.get(v) or label(v) for v in self.program.outputs]


def entry_of(program: Any) -> WholeEntry | None:
    """Return the machine code of a program with loops.

    None if the program is more than one region, or does not use all inputs.
    """
    if len(program.ops) != 1 or not isinstance(program.ops[0].operator, Region):
        return None
    (op,), region = program.ops, program.ops[0].operator
    count = len(op.outputs)
    inputs, outputs = region.order[:-count], region.order[-count:]
    if region.entry is None or not {*program.inputs} <= {*inputs}:
        return None
    return WholeEntry(region.entry, tuple(inputs), tuple(outputs), program)


def entered(program: Any) -> Callable[..., list[Tensor] | None] | None:
    """Return a function that checks all inputs, and runs the program.

    So a caller need not know their shapes and dtypes. Its attribute ``entry`` is the
    :class:`WholeEntry`.

    Returns:
        None if there is no such entry.
    """
    entry = entry_of(program)
    if entry is None:
        return None
    names: dict[str, Any] = {}

    def bind(value: Any) -> str:
        name = f"_{len(names)}"
        names[name] = value
        return name

    inputs = ", ".join(map(_label, program.inputs))
    lines, outputs = entry.lines("made", _label, bind)
    body = "".join(f"    {line}\n" for line in lines)
    exec(f"def entered({inputs}):\n{body}    return [{', '.join(outputs)}]", names)
    result: Any = names["entered"]
    result.entry = entry
    return result


def _label(value: Value) -> str:
    return f"t{value.number}"


def _python_function(
    program: Any, names: dict[str, Any], first_line: str = "", trusts: bool = False
) -> FunctionType:
    source_text, names = source(program, names, first_line, trusts)
    file = f"<{program.name} {next(_numbers)}>"
    with suppress(IndexError):
        while True:
            linecache.cache.pop(_dropped_files.pop(), None)
    linecache.cache[file] = (
        len(source_text),
        None,
        source_text.splitlines(keepends=True),
        file,
    )
    exec(compile(source_text, file, "exec"), names)
    result: FunctionType = names.pop(program.name)
    weakref.finalize(result.__code__, _dropped_files.append, file)
    return result
