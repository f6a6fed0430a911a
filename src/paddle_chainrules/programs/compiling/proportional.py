"""Values that are multiples of other values, computed from these."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..operators.table import TABLE
from ..tracing.common_subexpressions import key_of
from ..tracing.operations import Operation, Value, with_values

Term = tuple[float, Value]
"""A factor, and the value that it multiplies."""

SCALING = frozenset({"scale", *(f"Tensor.__{n}__" for n in ("mul", "rmul", "truediv"))})
"""Operators that may multiply by a number."""

MIN_FACTOR, MAX_FACTOR = 1e-6, 1e6
"""Bounds of computed factors, so that none is too small or large for its dtype."""

EPSILON = sys.float_info.epsilon

FLOATS = frozenset({"float32", "float64"})


def is_plain(op: Operation) -> bool:
    """Tell whether an operation has one output, of its inputs' real dtype."""
    dtypes = {v.dtype for v in (*op.inputs, *op.outputs)}
    is_single = len(op.outputs) == 1 and not op.many and not op.operator.random
    return is_single and len(dtypes) == 1 and dtypes <= FLOATS


def is_sum(op: Operation) -> bool:
    """Tell whether an operation adds or subtracts two tensors of one shape."""
    if op.operator.name not in ("add", "subtract") or not is_plain(op):
        return False
    return len({v.shape for v in (*op.inputs, *op.outputs)}) == 1


def linear_in(op: Operation) -> tuple[int, ...]:
    """Return the arguments in each of which an operation is linear, if known."""
    if op.operator.name == "sum" and op.args[2] is not None:  # a dtype
        return ()
    if not is_plain(op):
        return ()
    return tuple(k for k in op.operator.linear if type(op.args[k]) is Value)


def scale_and_operand(op: Operation) -> tuple[float, Value] | None:
    """Return the number and the tensor that an operation multiplies, else None."""
    if not is_plain(op):
        return None
    name = op.operator.name
    if name not in SCALING or (name == "scale" and op.args[2] != 0):
        return None
    x, number = op.args[:2]
    if type(x) is not Value or type(number) not in (int, float):
        return None
    if not is_moderate(number):
        return None
    return (1.0 / number if name.endswith("div__") else float(number)), x


def is_moderate(number: float) -> bool:
    return MIN_FACTOR <= abs(number) <= MAX_FACTOR


def ratio(a: float, b: float) -> float:
    """Return ``a / b``, rounded to a short number where rounding error allows it."""
    result = a / b
    for near in (float(f"{result:.12g}"), 1.0 / float(f"{b / a:.12g}")):
        if abs(near - result) <= 8 * EPSILON * abs(result):
            return near
    return result


def scale_op(x: Value, number: float, out: Value, where: str) -> Operation:
    """Return the operation that multiplies the tensor by a number."""
    if number == -1:
        return Operation(TABLE["scale"], (x, -1.0, 0.0, True), (out,), False, where)
    return Operation(TABLE["Tensor.__mul__"], (x, number), (out,), False, where)


def reuse_multiples(
    ops: Sequence[Operation], outputs: Iterable[Value]
) -> list[Operation]:
    """Compute multiples of earlier values from these values.

    Factors come last then: the products of ``-4 x`` are -4 times those of x.
    """
    output_values, first_by_key = {*outputs}, dict[Any, tuple[Value, float]]()
    terms: dict[Value, Term] = {}
    alias: dict[Value, Value] = {}
    results = []
    for op in ops:
        args = tuple(with_values(arg, lambda v: alias.get(v, v)) for arg in op.args)
        op = replace(op, args=args) if args != op.args else op
        results.append(op)
        if not is_plain(op):
            continue
        (out,) = op.outputs
        factor, multiplied = _factor_and_rest(op, terms)
        if type(multiplied) is Value:
            if is_moderate(factor):
                terms[out] = factor, multiplied
            continue
        first, first_factor = first_by_key.setdefault(multiplied, (out, factor))
        if first is out or not is_moderate(multiple := ratio(factor, first_factor)):
            continue
        terms[out] = multiple, first
        if multiple == 1:
            alias[out] = first
        if multiple != 1 or out not in output_values:
            results[-1] = scale_op(first, multiple, out, op.where)
    return results


def _factor_and_rest(op: Operation, terms: dict[Value, Term]) -> tuple[float, Any]:
    """Return a factor, and a value or a key of what it multiplies.

    The key is the same for equal values.
    """

    def term_of(value: Value) -> Term:
        return terms.get(value, (1.0, value))

    if (scale := scale_and_operand(op)) is not None:
        factor, x = term_of(scale[1])
        return scale[0] * factor, x
    if is_sum(op):
        (a, x), (b, y) = map(term_of, op.args)
        b = -b if op.operator.name == "subtract" else b
        if x is y:
            return a + b, x
        if x.number > y.number:
            a, x, b, y = b, y, a, x
        return a, ("sum", x, y, ratio(b, a))
    factor, args = 1.0, [*op.args]
    for k in linear_in(op):
        factor_k, args[k] = term_of(args[k])
        factor *= factor_k
    return factor, (op.operator.name, *arg_keys(op, args))


def arg_keys(op: Operation, args: Sequence[Any]) -> list[Any]:
    """Return keys that are the same for equal arguments of an operator.

    Where only the shape of an argument counts, the shape is the key.
    """
    return [
        arg.shape if k in op.operator.shapes and type(arg) is Value else key_of(arg)
        for k, arg in enumerate(args)
    ]
