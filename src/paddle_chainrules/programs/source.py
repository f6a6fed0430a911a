"""Programs as Python that runs: a line an operation, tensors freed after use."""

from __future__ import annotations

import builtins
import itertools
import keyword
import linecache
import math
import weakref
from collections.abc import Callable
from typing import Any

from .operations import Value

_numbers = itertools.count()


def source(program: Any) -> tuple[str, dict[str, Any]]:
    """The text of a function of the inputs, and the names that it finds elsewhere."""
    names: dict[str, Any] = {}
    labels: dict[int, str] = {}

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
            return f"t{arg.number}"
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

    inputs = ", ".join(map(text, program.inputs))
    lines = [f"def {program.name}({inputs}):"]
    for value, tensor in program.constants.items():
        names[f"t{value.number}"] = tensor
    for op, gone in zip(program.ops, program.last_uses, strict=True):
        args = [text(arg) for arg in op.args]
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
        elif instead := op.operator.instead and op.operator.instead(*op.args):
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


def compiled(program: Any) -> Callable[..., Any]:
    """The function, whose lines errors show."""
    text, names = source(program)
    file = f"<{program.name} {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), names)
    found: Callable[..., Any] = names[program.name]
    weakref.finalize(found, linecache.cache.pop, file, None)
    return found
