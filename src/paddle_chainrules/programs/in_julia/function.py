"""A program as a Julia function of tuples of arrays."""

from __future__ import annotations

import itertools
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from paddle import Tensor

from ...paddle_side.dtypes import dtype_name
from ..compiling.decompositions import decompose_by_formulas
from ..compiling.passes import program_of
from ..compiling.program import Program
from ..compiling.rematerialize import recompute_cheap_residuals
from ..compiling.split import ForwardBackward
from ..sizes.any_size import is_same_tensor
from ..tracing.operations import Operation, with_values
from .any_batch import of_any_batch
from .operators.call import FLOATS, TYPES, tuple_text, typed_number
from .repeated import can_inline
from .source import JuliaSource, has_expression

TYPE_NAME = r"\bT\b"
"""A pattern of the type parameter in a line."""


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

    @classmethod
    def of(
        cls,
        name: str,
        program: Program,
        groups: Mapping[str, Sequence[str]],
        nest: Callable[[list[str]], Any] = list,
        count: int = 0,
    ) -> JuliaFunction:
        """Return a program as a function of a tuple for each group of its inputs.

        Args:
            groups: the names of the tuples, each with labels of its arrays.
            nest: arranges the names of the outputs in tuples, lists, dicts.
            count: the number of samples that is called ``n``.

        Raises:
            NoRule: an operator has no Julia expression.
        """
        parameters = [*map(TupleParameter, groups, groups.values())]
        return julia_function(name, program, parameters, nest, count)

    @classmethod
    def joined(
        cls, functions: Sequence[JuliaFunction | None], counts: Sequence[int]
    ) -> JuliaFunction | None:
        """Join functions for three numbers of samples to one for any, if possible."""
        present = [function for function in functions if function is not None]
        if len(present) < len(functions):
            return None
        text = of_any_batch([function.text for function in present], counts)
        first = present[0].constants
        same = all(
            len(other.constants) == len(first)
            and all(map(is_same_tensor, first, other.constants))
            for other in present[1:]
        )
        return cls(text, first) if same and text is not None else None

    @staticmethod
    def inlining(halves: ForwardBackward) -> ForwardBackward:
        """Return a split whose backward pass repeats what Julia's loops inline."""
        return recompute_cheap_residuals(halves.unpacked, can_inline)


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
    program = fold_constants(program, count)
    kind = float_dtype(program)
    program = _decompose_missing(program, kind)
    names_of_values, header, samples = {}, [], ""
    values = iter(program.inputs)
    used = {v for op in program.ops for v in op.inputs} | {*program.outputs}
    types: dict[str, str] = {}
    for group in groups:
        for k, label in enumerate(group.labels):
            value = next(values)
            names_of_values[value] = f"{group.name[0]}{k + 1}"
            if value.dtype == kind and group.name != "saved":
                types.setdefault(group.name, f"eltype({group.name}[{k + 1}])")
            sample_axes = [i for i, size in enumerate(value.shape) if size == count]
            if sample_axes and not samples:
                dimension = len(value.shape) - sample_axes[0]
                samples = f"    n = size({group.name}[{k + 1}], {dimension})"
            if value in used:
                comment = f" # {label}" if label else ""
                header.append(
                    f"    {names_of_values[value]} = {group.name}[{k + 1}]{comment}"
                )
    constants: list[Tensor] = []
    constant_numbers = itertools.count(1)
    for value, tensor in program.constants.items():
        names_of_values[value] = f"k{next(constant_numbers)}"
        text = _fill_text(tensor, kind)
        if text is None:
            shared_row = _shared_row(tensor, count)
            constants.append(tensor if shared_row is None else shared_row)
            text = f"constants[{len(constants)}]"
            if shared_row is not None:
                repeats = ", ".join([*["1"] * (tensor.ndim - 1), str(count)])
                text = f"repeat({text}, {repeats})"
        header.append(f"    {names_of_values[value]} = {text}")
    body = JuliaSource(program, names_of_values, kind)
    lines = [
        f"    {line}" + (f" # {location}" if location else "")
        for line, location in body.lines
    ]
    lines = [samples, *header, *lines] if samples else [*header, *lines]
    if any(re.search(TYPE_NAME, line.partition(" # ")[0]) for line in lines):
        element_types = [*types.values()] or [TYPES[kind]]
        number_type = (
            f"promote_type({', '.join(element_types)})"
            if len(element_types) > 1
            else element_types[0]
        )
        lines.insert(0, f"    T = {number_type}")
    arguments = ", ".join([*(group.name for group in groups), "constants"])
    result = nested_text(nest(body.outputs))
    text = "\n".join(
        [f"function {name}({arguments})", *lines, f"    return {result}", "end", ""]
    )
    return JuliaFunction(text, tuple(constants))


def _decompose_missing(program: Program, kind: str) -> Program:
    """Replace operators that have no Julia expression by formulas."""

    def lacks(op: Operation) -> bool:
        return not has_expression(op, kind)

    known_values = (*program.inputs, *program.constants)
    ops, new_constants = decompose_by_formulas(
        program.ops, known_values, program.outputs, lacks
    )
    constants = {**program.constants, **new_constants}
    return program_of(ops, program.inputs, constants, program.outputs, program.name)


def fold_constants(program: Program, count: int) -> Program:
    """Compute operations on constants alone, except those that depend on the count."""
    constants, ops = {**program.constants}, []
    for op in program.ops:
        is_varying = any(count in v.shape for v in op.outputs) or op.operator.random
        if op.inputs and not is_varying and all(v in constants for v in op.inputs):
            args = [with_values(arg, constants.__getitem__) for arg in op.args]
            results = zip(op.outputs, op.operator.bind(args), strict=False)
            constants.update(results)
        else:
            ops.append(op)
    return program_of(ops, program.inputs, constants, program.outputs, program.name)


def nested_text(tree: Any) -> str:
    """Write names in tuples, lists and dicts in Julia's notation."""
    if isinstance(tree, dict):
        keys = tree if isinstance(tree, OrderedDict) else sorted(tree)
        inner = (f"{symbol(key)} = {nested_text(tree[key])}" for key in keys)
        return f"(; {', '.join(inner)})"
    if hasattr(tree, "_fields"):
        return nested_text(OrderedDict(tree._asdict()))
    if isinstance(tree, list | tuple):
        return tuple_text([*map(nested_text, tree)])
    if tree is None or isinstance(tree, bool):
        return {None: "nothing", True: "true", False: "false"}[tree]
    return str(tree)


def symbol(name: str) -> str:
    """Return a name as a Julia symbol."""
    return name if name.isidentifier() else f'var"{name}"'


def float_dtype(program: Program) -> str:
    """Return the floating point dtype that it computes in."""
    counts = Counter(v.dtype for op in program.ops for v in op.outputs)
    counts.update(v.dtype for v in (*program.inputs, *program.outputs))
    return max(FLOATS, key=lambda dtype: counts[dtype])


def _shared_row(tensor: Tensor, count: int) -> Tensor | None:
    """Return the row of a constant that all samples share; None where they differ."""
    if not tensor.ndim or tensor.shape[0] != count or count < 2:
        return None
    numbers = tensor.numpy()
    return tensor[:1] if np.array_equal(numbers[1:], numbers[:-1]) else None


def _fill_text(tensor: Tensor, kind: str) -> str | None:
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
    return f"fill({number}, {tuple_text([*reversed(tensor.shape)])})"
