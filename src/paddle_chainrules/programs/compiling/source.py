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
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import FunctionType
from typing import Any

import paddle
from paddle import Tensor

from .. import switch
from ..codegen.extents import ShapeEnv, SymInt
from ..codegen.fused_kernels.region import Region
from ..sizes.samples import SIZED
from ..tracing.operations import Value

_numbers = itertools.count()

_gone: list[str] = []
"""Files of dropped functions.

Garbage is collected at any time, and code that iterates over the cache of lines must
still find them.
"""

ON_CPU_ALONE = not (
    paddle.device.is_compiled_with_cuda()
    or paddle.device.is_compiled_with_xpu()
    or paddle.device.get_all_custom_device_type()
)
"""Tells whether there is no other device on which a program could be called."""

MIN_REPEATED_OPS, ALIKE, EARLY = 150, 6, 2
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
    known: dict[str, Any] | None = None,
    first: str = "",
    trusts: bool = False,
) -> tuple[str, dict[str, Any]]:
    """Return the text of a function of the inputs, and the names found elsewhere.

    Args:
        known: names that are taken already.
        first: a line that comes first.
        trusts: whether inputs are known to have the shapes and dtypes of the capture.
    """
    names: dict[str, Any] = {} if known is None else known
    labels: dict[int, str] = {}
    dense: set[Value] = set()

    def named(value: Any, stem: str) -> str:
        if id(value) not in labels:
            label, n = stem, 1
            while label in names:
                n += 1
                label = f"{stem}_{n}"
            labels[id(value)] = label
            names[label] = value
        return labels[id(value)]

    def text(arg: Any) -> str:
        if isinstance(arg, Value):
            label = f"t{arg.number}"
            if arg not in program.constants:
                return label
            # Another program of the same names may have another of this number.
            return named(program.constants[arg], label)
        if isinstance(arg, SymInt):
            return f"{arg.factor} * n**{arg.power}" if arg.power else f"{arg.factor}"
        if type(arg) is list:
            return f"[{', '.join(map(text, arg))}]"
        if type(arg) is tuple:
            return f"({''.join(f'{text(part)}, ' for part in arg)})"
        if type(arg) is slice:
            return f"slice({text(arg.start)}, {text(arg.stop)}, {text(arg.step)})"
        if type(arg) is float and not math.isfinite(arg):
            return f"float({str(arg)!r})"
        if type(arg) is complex:
            return f"complex({text(arg.real)}, {text(arg.imag)})"
        if arg is None or type(arg) in (int, float, bool, str):
            return repr(arg)
        return named(arg, f"_{type(arg).__name__.lower()}")

    def region(op: Any) -> Iterator[str]:
        def local(value: Value) -> str:
            return f"c{value.number}" if value in program.constants else text(value)

        looked_at = [v for v in op.inputs if v not in dense]
        for value in looked_at:
            if value in program.constants:
                yield f"{local(value)} = {text(value)}"
        dense.update(op.inputs, op.outputs)
        trusted = {*program.inputs} if trusts else set()
        again = f"{ELSEWHERE}({inputs})"
        yield from op.operator.lines(named, local, looked_at, trusted, again)

    inputs = ", ".join(map(text, program.inputs))
    lines = [f"def {program.name}({inputs}):"]
    if first:
        lines.append(f"    {first}")
    if program.samples is not None:
        lines.append(f"    n = {_number_of_samples(program)}")
    for op, gone in zip(program.ops, program.last_uses, strict=True):
        if isinstance(op.operator, Region):
            lines += [f"    {line}" for line in region(op)]
            if gone:
                lines.append(f"    del {', '.join(map(text, gone))}")
            continue
        if op.operator.name in DENSE:
            dense.update(op.outputs)
        sized = op.args
        if program.samples is not None and op.operator.name in SIZED:
            sized = tuple(map(ShapeEnv(program.samples).extents_in, op.args))
        args = [text(arg) for arg in sized]
        run, outputs, many = op.operator.run, op.outputs, op.many
        if op.operator.lean is not None and {*outputs[1:]} <= {*gone}:
            run, many, gone = (
                op.operator.lean,
                False,
                [v for v in gone if v not in outputs[1:]],
            )
            outputs = outputs[:1]
        stem = op.operator.name.rpartition(".")[2].strip("_")
        if op in program.reused:
            run, order = op.operator.in_place[program.reused[op]]
            call = f"{named(run, run.__name__)}({', '.join(args[i] for i in order)})"
        elif instead := op.operator.instead and op.operator.instead(*sized):
            run, given = instead
            label = named(run, run.__name__)
            call = f"{label}({', '.join(map(text, given))})"
        elif op.operator.infix and len(args) == 2:
            call = f"{args[0]} {op.operator.infix} {args[1]}"
        else:
            if stem in vars(builtins) or keyword.iskeyword(stem):
                stem += "_"
            call = f"{named(run, stem)}({', '.join(args)})"
        left = ", ".join(map(text, outputs))
        if many and len(outputs) == 1:
            left += ","
        lines.append(f"    {left} = {call}")
        if gone:
            lines.append(f"    del {', '.join(map(text, gone))}")
    lines.append(f"    return [{', '.join(map(text, program.outputs))}]")
    return "\n".join(lines) + "\n", names


def _number_of_samples(program: Any) -> str:
    """Return an expression for the number of samples, from the size of an input."""
    size, varying, _ = program.samples
    for value in program.inputs:
        for k, result in enumerate(value.shape):
            if result in varying:
                return f"t{value.number}.shape[{k}] // {result // size}"
    return "0"  # no size within goes along with it


def compiled(
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
    if with_loops is None:
        result = _python_function(program, names)
        result.trusting, result.entered = result, None  # type: ignore[attr-defined]
        return result

    def go_over() -> None:
        try:
            looped = with_loops()
            trusting = _looped(program, looped, {}, trusts=True)
            result.__code__ = _looped(program, looped, names).__code__
            result.trusting = trusting  # type: ignore[attr-defined]
            result.entered = entered(looped)  # type: ignore[attr-defined]
        except Exception as error:
            result.__code__ = _python_function(program, names).__code__
            is_short = isinstance(error, MemoryError)
            warnings.warn(
                f"programs run without loops of machine code: {error}"
                + (
                    ""
                    if is_short
                    else f"; reinstall llvmlite, or set {switch.LOOPS}=off"
                ),
                stacklevel=4,
            )
        except BaseException:  # an interrupt, after which the next call goes over
            names["calls"] = itertools.count(patience)
            raise

    def reached(call: int) -> None:
        if call == patience:
            go_over()
        elif call == patience // 2:
            with suppress(Exception):  # go_over meets it again, and says so
                begin()

    patience = _patience(program)
    names.update(calls=itertools.count(), reached=reached)
    first = "reached(next(calls))"
    result = _python_function(program, names, first)
    result.trusting, result.entered = result, None  # type: ignore[attr-defined]
    if not patience:
        go_over()
    return result


def _patience(program: Any) -> int:
    """Return the call at which it switches to loops.

    It is early where a program repeats itself, as unrolled loops do. Their operators
    cost much and their code costs little.
    """
    kinds = {(op.operator.name, *(v.shape for v in op.inputs)) for op in program.ops}
    repeats = len(program.ops) >= MIN_REPEATED_OPS and len(program.ops) >= ALIKE * len(
        kinds
    )
    return min(switch.CALLS_BEFORE_CODE, EARLY) if repeats else switch.CALLS_BEFORE_CODE


def _looped(
    plain: Any, program: Any, names: dict[str, Any], trusts: bool = False
) -> FunctionType:
    """Return the function with loops.

    It leaves calls on other devices to the plain function, and calls with indices out
    of range.
    """
    may_bail_out = any(region.may_bail_out for region in program.regions)
    if may_bail_out or not ON_CPU_ALONE:
        names[ELSEWHERE] = _python_function(plain, names)
    if ON_CPU_ALONE:
        return _python_function(program, names, trusts=trusts)
    inputs = ", ".join(f"t{value.number}" for value in program.inputs)
    if program.inputs:
        tensor = f"t{program.inputs[0].number}"
    else:
        tensor, names["constant"] = "constant", next(iter(program.constants.values()))
    first = f"if not {tensor}.place.is_cpu_place(): return {ELSEWHERE}({inputs})"
    return _python_function(program, names, first, trusts)


def entered(program: Any) -> Callable[..., list[Tensor] | None] | None:
    """Return a function of the inputs that looks at all of them, and runs the program.

    It gives None, having done nothing, if one is not as it was at the capture. So a
    caller need not know their shapes and dtypes.

    Returns:
        None if the program is more than one region, or leaves inputs out.
    """
    if len(program.ops) != 1 or not isinstance(program.ops[0].operator, Region):
        return None
    (op,), region = program.ops, program.ops[0].operator
    count = len(op.outputs)
    given, made = region.order[:-count], region.order[-count:]
    if region.entry is None or not {*program.inputs} <= {*given}:
        return None
    names: dict[str, Any] = {"enter": region.entry}

    def text(value: Value) -> str:
        if value in program.constants:
            names[f"c{value.number}"] = program.constants[value]
            return f"c{value.number}"
        return f"t{value.number}"

    def row(values: Iterable[Value]) -> str:
        return ", ".join(map(text, values))

    fits = "made is not None"
    if program.samples is not None:
        fits += f" and 1 < {_number_of_samples(program)} <= {program.samples.most}"
    lines = [
        f"def entered({row(program.inputs)}):",
        f"    made = enter({row(given)})",
        f"    if not ({fits}): return None",
        f"    [{row(made)}] = made",
        f"    return [{row(program.outputs)}]",
    ]
    exec("\n".join(lines), names)
    result: Callable[..., list[Tensor] | None] = names["entered"]
    return result


def _python_function(
    program: Any, names: dict[str, Any], first: str = "", trusts: bool = False
) -> FunctionType:
    text, names = source(program, names, first, trusts)
    file = f"<{program.name} {next(_numbers)}>"
    with suppress(IndexError):
        while True:
            linecache.cache.pop(_gone.pop(), None)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), names)
    result: FunctionType = names.pop(program.name)
    weakref.finalize(result.__code__, _gone.append, file)
    return result
