"""Arithmetic, comparisons, choices and casts of one element, bit for bit as Paddle's.

Functions are in :mod:`.functions`.
"""

from __future__ import annotations

import math

from ....paddle_side.dtypes import FLOATS
from ..ir_builder import TYPES
from .number import ElementValue
from .scalars import ElementCall, NotLowerable, element_rule


def _register_binary(
    instruction: str,
    *names: str,
    swapped: bool = False,
    integer_instruction: str | None = None,
) -> None:
    """Register an instruction on two numbers as a rule.

    Args:
        transposed: whether the second argument comes first.
        integer_instruction: the instruction on two integers.
    """

    @element_rule(*names)
    def rule(call: ElementCall) -> str:
        if integer_instruction and "bool" not in call.dtypes:
            result = _emit_on_integers(call, integer_instruction, swapped)
            if result is not None:
                return result
        x, y = call.operand(0), call.operand(1)
        return call.binary(instruction, *((y, x) if swapped else (x, y)))


_register_binary(
    "fadd", "add", "Tensor.__add__", "Tensor.__radd__", integer_instruction="add"
)
_register_binary("fsub", "subtract", "Tensor.__sub__", integer_instruction="sub")
_register_binary("fsub", "Tensor.__rsub__", swapped=True, integer_instruction="sub")
_register_binary(
    "fmul", "multiply", "Tensor.__mul__", "Tensor.__rmul__", integer_instruction="mul"
)
_register_binary("fdiv", "divide", "Tensor.__truediv__")
_register_binary("fdiv", "Tensor.__rtruediv__", swapped=True)
_register_binary(
    "fcmp olt", "less_than", "Tensor.__lt__", integer_instruction="icmp slt"
)
_register_binary(
    "fcmp ole", "less_equal", "Tensor.__le__", integer_instruction="icmp sle"
)
_register_binary(
    "fcmp ogt", "greater_than", "Tensor.__gt__", integer_instruction="icmp sgt"
)
_register_binary(
    "fcmp oge", "greater_equal", "Tensor.__ge__", integer_instruction="icmp sge"
)


EQUAL = 1e-15
"""Values that differ by less than this are equal, as in Paddle."""


@element_rule("equal", "Tensor.__eq__", cost=4)
def _equal_element(call: ElementCall) -> str:
    if result := _emit_on_integers(call, "icmp eq"):
        return result
    x, y = call.operand(0), call.operand(1)
    lanes = call.scalars.lanes
    kind = TYPES[call.floats]
    difference = ElementValue(
        call.binary("fsub", x, y), kind, call.scalars, lanes=lanes
    )
    is_near = abs(difference) < EQUAL
    is_same = call.binary("fcmp oeq", x, y)  # of both infinite
    return call.scalars.emit(
        f"or {call.scalars.kind('bool')} {is_same}, {is_near.name}"
    )


@element_rule("not_equal", "Tensor.__ne__")
def _not_equal_element(call: ElementCall) -> str:
    if result := _emit_on_integers(call, "icmp ne"):
        return result
    raise NotLowerable


LARGEST = 2**31 - 1
"""The largest integer of 32 bits."""


def _emit_on_integers(
    call: ElementCall, instruction: str, swapped: bool = False
) -> str | None:
    """Emit an instruction on two integers or truths; return None for other types.

    Raises:
        NotLowerable: one is neither a tensor nor a small integer, or the result is of
            another kind.
    """
    kinds = {d for d in call.dtypes if d is not None}
    if len(kinds) != 1 or not kinds <= {"int32", "int64", "bool"}:
        return None
    if any(type(arg) not in (int, str) for arg in call.args):
        raise NotLowerable
    largest = 1 if "bool" in kinds else LARGEST
    smallest = 0 if "bool" in kinds else -LARGEST
    if any(type(arg) is int and not smallest <= arg <= largest for arg in call.args):
        raise NotLowerable
    if call.dtype not in ("bool", *kinds):
        raise NotLowerable
    kind = kinds.pop()
    x, y = (
        arg if dtype else call.literal(kind, str(arg))
        for arg, dtype in zip(call.args, call.dtypes, strict=True)
    )
    if swapped:
        x, y = y, x
    return call.scalars.emit(f"{instruction} {call.scalars.kind(kind)} {x}, {y}")


@element_rule("matmul")
def _matmul_element(call: ElementCall) -> str:
    return call.binary("fmul", call.args[0], call.args[1])


@element_rule("scale")
def _scale_element(call: ElementCall) -> str:
    x, factor, bias, bias_after_scale = call.args
    if call.dtypes[1]:
        raise NotLowerable
    if not bias_after_scale:
        x = call.binary("fadd", x, call.constant(bias))
    if factor != 1:
        x = call.binary("fmul", x, call.constant(factor))
    return (
        call.binary("fadd", x, call.constant(bias))
        if bias_after_scale and bias
        else str(x)
    )


@element_rule("isnan")
def _isnan_element(call: ElementCall) -> str:
    return call.binary("fcmp uno", call.args[0], call.args[0])


@element_rule("isinf")
def _isinf_element(call: ElementCall) -> str:
    return call.binary("fcmp oeq", _magnitude(call), call.constant(math.inf))


@element_rule("isfinite")
def _isfinite_element(call: ElementCall) -> str:
    return call.binary("fcmp olt", _magnitude(call), call.constant(math.inf))


def _magnitude(call: ElementCall) -> str:
    if call.dtypes[0] not in FLOATS:
        raise NotLowerable
    return abs(call.element(0)).name


@element_rule("where")
def _where_element(call: ElementCall) -> str:
    if call.dtypes != ["bool", call.dtype, call.dtype]:
        raise NotLowerable
    return call.select(*call.args)


@element_rule("logical_not")
def _logical_not_element(call: ElementCall) -> str:
    if call.dtypes != ["bool"]:
        raise NotLowerable
    return (call.element(0) ^ 1).name


def _register_logical(instruction: str, *names: str) -> None:
    @element_rule(*names)
    def rule(call: ElementCall) -> str:
        if call.dtypes != ["bool", "bool"]:
            raise NotLowerable
        x, y = call.args
        return call.scalars.emit(f"{instruction} {call.scalars.kind('bool')} {x}, {y}")


_register_logical("and", "logical_and")
_register_logical("or", "logical_or")
_register_logical("xor", "logical_xor")


def _register_bitwise(instruction: str, *names: str) -> None:
    """Register an instruction on truths and integers."""

    @element_rule(*names)
    def rule(call: ElementCall) -> str:
        result = _emit_on_integers(call, instruction)
        if result is None:
            raise NotLowerable
        return result


_register_bitwise("and", "bitwise_and", "Tensor.__and__")
_register_bitwise("or", "bitwise_or", "Tensor.__or__")
_register_bitwise("xor", "bitwise_xor", "Tensor.__xor__")


@element_rule("bitwise_not")
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


@element_rule("cast", cost=0)
def _cast_element(call: ElementCall) -> str:
    source, target = call.dtypes[0] or "", call.dtype
    if source == target:
        return str(call.args[0])
    if (source, target) not in CASTS:
        raise NotLowerable
    instruction = CASTS[source, target]
    result = call.element(0).to(instruction, TYPES[target])
    # What is too large for an integer is some number.
    if instruction == "fptosi":
        result = result.make(f"freeze {result.kind} {result.name}")
    return result.name


@element_rule("expand", cost=0)
def _expand_element(call: ElementCall) -> str:
    return str(call.args[0])
