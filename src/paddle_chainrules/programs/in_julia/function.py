"""A program as a Julia function of tuples of arrays."""

from __future__ import annotations

import itertools
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from paddle import Tensor

from ...paddle_side.dtypes import dtype_name
from ..compiling.decompositions import decompose_by_formulas
from ..compiling.passes import program_of
from ..compiling.program import Program
from ..tracing.operations import Operation, with_values
from .operators.call import FLOATS, TYPES, row, typed_number
from .source import JuliaSource, has_expression

OF_TYPE = r"\bT\b"
"""The places in a line that name the type of numbers."""


class TupleParameter(NamedTuple):
    """Arrays that come as one tuple.

    Attributes:
        name: of the tuple; the names of its arrays begin with its first letter.
        labels: describes each array, for comments; empty where there is nothing to say.
    """

    name: str
    labels: Sequence[str]


class JuliaFunction(NamedTuple):
    """A Julia function: its text, and the tensors of its last argument."""

    text: str
    constants: tuple[Tensor, ...]


def julia_function(
    name: str,
    program: Program,
    groups: Sequence[TupleParameter],
    nest: Callable[[list[str]], Any] = list,
    count: int = 0,
) -> JuliaFunction:
    """Return the text of a function of a tuple for each group, and one of constants.

    Args:
        groups: into which the program's inputs fall, in order.
        nest: arranges the names of the outputs in tuples, lists, dicts.
        count: the number of samples that is called ``n``.

    Raises:
        NoRule: an operator has no Julia expression.
    """
    program = folded(program, count)
    kind = kind_of(program)
    program = _with_formulas(program, kind)
    names, head, samples = {}, [], ""
    values = iter(program.inputs)
    used = {v for op in program.ops for v in op.inputs} | {*program.outputs}
    types: dict[str, str] = {}
    for group in groups:
        for k, label in enumerate(group.labels):
            value = next(values)
            names[value] = f"{group.name[0]}{k + 1}"
            if value.dtype == kind and group.name != "saved":
                types.setdefault(group.name, f"eltype({group.name}[{k + 1}])")
            where = [i for i, size in enumerate(value.shape) if size == count]
            if where and not samples:
                place = len(value.shape) - where[0]
                samples = f"    n = size({group.name}[{k + 1}], {place})"
            if value in used:
                note = f" # {label}" if label else ""
                head.append(f"    {names[value]} = {group.name}[{k + 1}]{note}")
    constants: list[Tensor] = []
    numbers = itertools.count(1)
    for value, tensor in program.constants.items():
        names[value] = f"k{next(numbers)}"
        text = _filled(tensor, kind)
        if text is None:
            row_of_all = _one_row(tensor, count)
            constants.append(tensor if row_of_all is None else row_of_all)
            text = f"constants[{len(constants)}]"
            if row_of_all is not None:
                times = ", ".join([*["1"] * (tensor.ndim - 1), str(count)])
                text = f"repeat({text}, {times})"
        head.append(f"    {names[value]} = {text}")
    body = JuliaSource(program, names, kind)
    lines = [f"    {line}" + (f" # {at}" if at else "") for line, at in body.lines]
    lines = [samples, *head, *lines] if samples else [*head, *lines]
    if any(re.search(OF_TYPE, line.partition(" # ")[0]) for line in lines):
        each = [*types.values()] or [TYPES[kind]]
        of_all = f"promote_type({', '.join(each)})" if len(each) > 1 else each[0]
        lines.insert(0, f"    T = {of_all}")
    arguments = ", ".join([*(group.name for group in groups), "constants"])
    end = nested(nest(body.outputs))
    text = "\n".join(
        [f"function {name}({arguments})", *lines, f"    return {end}", "end", ""]
    )
    return JuliaFunction(text, tuple(constants))


def _with_formulas(program: Program, kind: str) -> Program:
    """Replace operators that have no Julia expression by formulas."""

    def lacks(op: Operation) -> bool:
        return not has_expression(op, kind)

    given = (*program.inputs, *program.constants)
    ops, more = decompose_by_formulas(program.ops, given, program.outputs, lacks)
    known = {**program.constants, **more}
    return program_of(ops, program.inputs, known, program.outputs, program.name)


def folded(program: Program, count: int) -> Program:
    """Remove operations on constants alone, except those that depend on the count."""
    constants, ops = {**program.constants}, []
    for op in program.ops:
        moves = any(count in v.shape for v in op.outputs) or op.operator.random
        if op.inputs and not moves and all(v in constants for v in op.inputs):
            args = [with_values(arg, constants.__getitem__) for arg in op.args]
            made = zip(op.outputs, op.operator.every(args), strict=False)
            constants.update(made)
        else:
            ops.append(op)
    return program_of(ops, program.inputs, constants, program.outputs, program.name)


def nested(tree: Any) -> str:
    """Write names in tuples, lists and dicts in Julia's notation."""
    if isinstance(tree, dict):
        keys = tree if isinstance(tree, OrderedDict) else sorted(tree)
        inner = (f"{symbol(key)} = {nested(tree[key])}" for key in keys)
        return f"(; {', '.join(inner)})"
    if hasattr(tree, "_fields"):
        return nested(OrderedDict(tree._asdict()))
    if isinstance(tree, list | tuple):
        return row([*map(nested, tree)])
    if tree is None or isinstance(tree, bool):
        return {None: "nothing", True: "true", False: "false"}[tree]
    return str(tree)


def symbol(name: str) -> str:
    """Return a name as a Julia symbol."""
    return name if name.isidentifier() else f'var"{name}"'


def kind_of(program: Program) -> str:
    """Return the floating point dtype that it computes in."""
    results = Counter(v.dtype for op in program.ops for v in op.outputs)
    results.update(v.dtype for v in (*program.inputs, *program.outputs))
    return max(FLOATS, key=lambda dtype: results[dtype])


def _one_row(tensor: Tensor, count: int) -> Tensor | None:
    """Return the row of a constant that all samples share; None where they differ."""
    if not tensor.ndim or tensor.shape[0] != count or count < 2:
        return None
    numbers = tensor.numpy()
    return tensor[:1] if np.array_equal(numbers[1:], numbers[:-1]) else None


def _filled(tensor: Tensor, kind: str) -> str | None:
    """Return an expression for a constant whose entries are all equal."""
    dtype = dtype_name(tensor.dtype)
    if dtype not in TYPES or not tensor.size:
        return None
    numbers = tensor.numpy()
    first = numbers.reshape(-1)[0]
    if not np.all(numbers == first):
        return None
    number = typed_number(first.item(), dtype, kind)
    if not tensor.ndim:
        return f"fill({number})"
    return f"fill({number}, {row([*reversed(tensor.shape)])})"
