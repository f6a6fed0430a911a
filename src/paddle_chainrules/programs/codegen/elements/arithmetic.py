"""Arithmetic, comparisons, choices and casts of one element, bit for bit as Paddle's.

Functions are in :mod:`.functions`.
"""

from __future__ import annotations

import math

from ..ir_builder import TYPES
from .number import ElementValue
from .scalars import FLOATS, ElementCall, NotLowerable, loop_of


def _infix(
    instruction: str, *names: str, turned: bool = False, whole: str | None = None
) -> None:
    """Register an instruction on two numbers as a rule.

    Args:
        turned: whether the second argument comes first.
        whole: the instruction on two integers.
    """

    @loop_of(*names)
    def rule(call: ElementCall) -> str:
        if whole and "bool" not in call.dtypes:
            result = _of_integers(call, whole, turned)
            if result is not None:
                return result
        x, y = call.number(0), call.number(1)
        return call.two(instruction, *((y, x) if turned else (x, y)))


_infix("fadd", "add", "Tensor.__add__", "Tensor.__radd__", whole="add")
_infix("fsub", "subtract", "Tensor.__sub__", whole="sub")
_infix("fsub", "Tensor.__rsub__", turned=True, whole="sub")
_infix("fmul", "multiply", "Tensor.__mul__", "Tensor.__rmul__", whole="mul")
_infix("fdiv", "divide", "Tensor.__truediv__")
_infix("fdiv", "Tensor.__rtruediv__", turned=True)
_infix("fcmp olt", "less_than", "Tensor.__lt__", whole="icmp slt")
_infix("fcmp ole", "less_equal", "Tensor.__le__", whole="icmp sle")
_infix("fcmp ogt", "greater_than", "Tensor.__gt__", whole="icmp sgt")
_infix("fcmp oge", "greater_equal", "Tensor.__ge__", whole="icmp sge")


EQUAL = 1e-15
"""Values that differ by less than this are equal, as in Paddle."""


@loop_of("equal", "Tensor.__eq__", steps=4)
def _equal_element(call: ElementCall) -> str:
    if whole := _of_integers(call, "icmp eq"):
        return whole
    x, y = call.number(0), call.number(1)
    lanes = call.scalars.lanes
    kind = TYPES[call.floats]
    apart = ElementValue(call.two("fsub", x, y), kind, call.scalars, lanes=lanes)
    near = abs(apart) < EQUAL
    same = call.two("fcmp oeq", x, y)  # of both infinite
    return call.scalars.emit(f"or {call.scalars.kind('bool')} {same}, {near.name}")


@loop_of("not_equal", "Tensor.__ne__")
def _not_equal_element(call: ElementCall) -> str:
    if whole := _of_integers(call, "icmp ne"):
        return whole
    raise NotLowerable


LARGEST = 2**31 - 1
"""The largest integer of 32 bits."""


def _of_integers(
    call: ElementCall, instruction: str, turned: bool = False
) -> str | None:
    """Write an instruction on two integers or truths; return None for other types.

    Raises:
        NotLowerable: one is neither a tensor nor a small integer, or the result is of
            another kind.
    """
    kinds = {d for d in call.dtypes if d is not None}
    if len(kinds) != 1 or not kinds <= {"int32", "int64", "bool"}:
        return None
    if any(type(arg) not in (int, str) for arg in call.args):
        raise NotLowerable
    if any(type(arg) is int and abs(arg) > LARGEST for arg in call.args):
        raise NotLowerable
    if call.dtype not in ("bool", *kinds):
        raise NotLowerable
    kind = kinds.pop()
    x, y = (
        arg if dtype else call.literal(kind, str(arg))
        for arg, dtype in zip(call.args, call.dtypes, strict=True)
    )
    if turned:
        x, y = y, x
    return call.scalars.emit(f"{instruction} {call.scalars.kind(kind)} {x}, {y}")


@loop_of("matmul")
def _matmul_element(call: ElementCall) -> str:
    return call.two("fmul", call.args[0], call.args[1])


@loop_of("scale")
def _scale_element(call: ElementCall) -> str:
    x, factor, bias, after = call.args
    if call.dtypes[1]:
        raise NotLowerable
    if not after:
        x = call.two("fadd", x, call.constant(bias))
    if factor != 1:
        x = call.two("fmul", x, call.constant(factor))
    return call.two("fadd", x, call.constant(bias)) if after and bias else str(x)


@loop_of("isnan")
def _isnan_element(call: ElementCall) -> str:
    return call.two("fcmp uno", call.args[0], call.args[0])


@loop_of("isinf")
def _isinf_element(call: ElementCall) -> str:
    return call.two("fcmp oeq", _size(call), call.constant(math.inf))


@loop_of("isfinite")
def _isfinite_element(call: ElementCall) -> str:
    return call.two("fcmp olt", _size(call), call.constant(math.inf))


def _size(call: ElementCall) -> str:
    if call.dtypes[0] not in FLOATS:
        raise NotLowerable
    return abs(call.element(0)).name


@loop_of("where")
def _where_element(call: ElementCall) -> str:
    if call.dtypes != ["bool", call.dtype, call.dtype]:
        raise NotLowerable
    return call.select(*call.args)


@loop_of("logical_not")
def _logical_not_element(call: ElementCall) -> str:
    if call.dtypes != ["bool"]:
        raise NotLowerable
    return (call.element(0) ^ 1).name


def _logical(instruction: str, *names: str) -> None:
    @loop_of(*names)
    def rule(call: ElementCall) -> str:
        if call.dtypes != ["bool", "bool"]:
            raise NotLowerable
        x, y = call.args
        return call.scalars.emit(f"{instruction} {call.scalars.kind('bool')} {x}, {y}")


_logical("and", "logical_and")
_logical("or", "logical_or")
_logical("xor", "logical_xor")


def _bits(instruction: str, *names: str) -> None:
    """Register an instruction on truths and integers."""

    @loop_of(*names)
    def rule(call: ElementCall) -> str:
        result = _of_integers(call, instruction)
        if result is None:
            raise NotLowerable
        return result


_bits("and", "bitwise_and", "Tensor.__and__")
_bits("or", "bitwise_or", "Tensor.__or__")
_bits("xor", "bitwise_xor", "Tensor.__xor__")


@loop_of("bitwise_not")
def _bitwise_not_element(call: ElementCall) -> str:
    if call.dtypes not in (["bool"], ["int32"], ["int64"]):
        raise NotLowerable
    return (call.element(0) ^ -1).name


CASTS = {
    ("float32", "float64"): "fpext",
    ("float64", "float32"): "fptrunc",
    **{(d, f): "uitofp" for d in ("bool", "uint8") for f in FLOATS},
    **{(d, f): "sitofp" for d in ("int32", "int64") for f in FLOATS},
    **{(f, d): "fptosi" for d in ("int32", "int64") for f in FLOATS},
    **{("bool", d): "zext" for d in ("int32", "int64")},
    ("int32", "int64"): "sext",
    ("int64", "int32"): "trunc",
}


@loop_of("cast", steps=0)
def _cast_element(call: ElementCall) -> str:
    before, after = call.dtypes[0] or "", call.dtype
    if before == after:
        return str(call.args[0])
    if (before, after) not in CASTS:
        raise NotLowerable
    attrs = CASTS[before, after]
    result = call.element(0).to(attrs, TYPES[after])
    # What is too large for an integer is some number.
    if attrs == "fptosi":
        result = result.make(f"freeze {result.kind} {result.name}")
    return result.name


@loop_of("expand", steps=0)
def _expand_element(call: ElementCall) -> str:
    return str(call.args[0])
