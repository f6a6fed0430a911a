"""Running sums and products along lines, and their backward pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ....paddle_side.dtypes import FLOATS
from ...tracing.operations import Operation, Value
from ..elements import exponentials
from ..elements.number import ElementValue
from ..elements.scalars import NotLowerable
from ..extents import ONE
from ..lowering import StageBuilder, lowering_rule
from ..manipulation.indices import AxisSplit, split_axis
from .along import CarryInit, ScanInputs, ScanOutputs, ScanSpec, add_scan

LOWEST = {"float32": "0xC7EFFFFFE0000000", "float64": "0xFFEFFFFFFFFFFFFF"}
"""The lowest finite numbers."""


def split_along(
    builder: StageBuilder, x: Value, axis: Any, flat: bool = False
) -> AxisSplit:
    """Return a tensor's shape split at an axis, or as one line.

    Raises:
        NotLowerable: the axis is not an integer.
    """
    if flat or not x.shape:
        return AxisSplit(ONE, builder.shape_env.product(x.shape), ONE)
    if type(axis) is not int:
        raise NotLowerable
    return split_axis(x.shape, axis % len(x.shape), builder.shape_env)


def _add_running(
    builder: StageBuilder,
    op: Operation,
    spec: ScanSpec,
    combine: Callable[[ElementValue, ElementValue], ElementValue],
    exclusive: bool,
) -> None:
    """Add a scan that combines all entries up to each one, itself unless exclusive."""
    x, (out,) = op.args[0], op.outputs
    if x.dtype != out.dtype or (exclusive and math.prod(x.shape) == 1):
        raise NotLowerable  # before a single number there is that, as Paddle has it

    def body(inputs: ScanInputs) -> ScanOutputs:
        (x,), (carry,) = inputs.entries, inputs.carry
        result = combine(carry, x)
        return ScanOutputs([result], [carry if exclusive else result])

    add_scan(builder, op, spec, [builder.dense_view(x)], [builder.allocate(out)], body)


def _carry_init(dtype: str, number: int) -> CarryInit:
    return CarryInit(dtype, f"{float(number)}" if dtype in FLOATS else f"{number}")


@lowering_rule("cumsum")
def _lower_cumsum(builder: StageBuilder, op: Operation) -> None:
    x, axis, flatten, exclusive, reverse = op.args
    inits = [_carry_init(x.dtype, 0)]
    spec = ScanSpec(split_along(builder, x, axis, flatten), inits, reverse)
    _add_running(builder, op, spec, lambda carry, x: carry + x, exclusive)


@lowering_rule("cumprod")
def _lower_cumprod(builder: StageBuilder, op: Operation) -> None:
    x, axis, exclusive, reverse = op.args
    spec = ScanSpec(split_along(builder, x, axis), [_carry_init(x.dtype, 1)], reverse)
    _add_running(builder, op, spec, lambda carry, x: carry * x, exclusive)


@lowering_rule("cumprod_grad")
def _lower_cumprod_grad(builder: StageBuilder, op: Operation) -> None:
    """Multiply the product before each entry by the slope of the rest, inclusive."""
    x, _, g, axis, exclusive, reverse = op.args
    (out,) = op.outputs
    if not {x.dtype, g.dtype, out.dtype} <= FLOATS:
        raise NotLowerable
    split = split_along(builder, x, axis)
    entries, cotangents, result = (
        builder.dense_view(x),
        builder.dense_view(g),
        builder.allocate(out),
    )

    def forward_body(inputs: ScanInputs) -> ScanOutputs:
        (x,), (carry,) = inputs.entries, inputs.carry
        return ScanOutputs([carry * x], [carry])

    def backward_body(inputs: ScanInputs) -> ScanOutputs:
        (x, g, result), (carry,) = inputs.entries, inputs.carry
        slope = carry if exclusive else g + carry
        return ScanOutputs(
            [(g + x * carry) if exclusive else x * slope], [result * slope]
        )

    spec = ScanSpec(split, [_carry_init(x.dtype, 1)], reverse)
    add_scan(builder, op, spec, [entries], [result], forward_body)
    spec = ScanSpec(split, [_carry_init(x.dtype, 0)], not reverse)
    add_scan(builder, op, spec, [entries, cotangents, result], [result], backward_body)


def _in_float64(
    formula: Callable[..., ElementValue], *args: ElementValue
) -> ElementValue:
    """Evaluate a function, for float32 numbers in float64."""
    if args[0].type == "double":
        return formula(*args)
    widened = (x.to("fpext", "double") for x in args)
    return formula(*widened).to("fptrunc", "float")


def _log_sum(x: ElementValue, y: ElementValue) -> ElementValue:
    """Return the logarithm of the sum of two exponentials, as in Paddle."""
    smaller, larger = (y < x).where(y, x), (x < y).where(y, x)
    return exponentials.log1p(exponentials.exp(smaller - larger)) + larger


@lowering_rule("logcumsumexp")
def _lower_logcumsumexp(builder: StageBuilder, op: Operation) -> None:
    x, axis, flatten, exclusive, reverse = op.args
    if x.dtype not in FLOATS:
        raise NotLowerable
    inits = [CarryInit(x.dtype, LOWEST[x.dtype])]
    split = split_along(builder, x, axis, flatten)
    spec = ScanSpec(split, inits, reverse, is_expensive=True)
    _add_running(
        builder, op, spec, lambda carry, x: _in_float64(_log_sum, carry, x), exclusive
    )


@lowering_rule("logcumsumexp_grad")
def _lower_logcumsumexp_grad(builder: StageBuilder, op: Operation) -> None:
    """Compute by quotients of neighbouring sums, which are at most one."""
    x, out, g, axis, flatten, exclusive, reverse = op.args
    dtype = x.dtype
    if exclusive or {dtype, out.dtype, g.dtype} != {dtype} or dtype not in FLOATS:
        raise NotLowerable
    inits = [_carry_init(dtype, 0), CarryInit(dtype, LOWEST[dtype])]
    split = split_along(builder, x, axis, flatten)
    spec = ScanSpec(split, inits, not reverse, is_expensive=True)

    def body(inputs: ScanInputs) -> ScanOutputs:
        (x, out, g), (slope, next_out) = inputs.entries, inputs.carry
        factor = _in_float64(lambda a, b: exponentials.exp(a - b), out, next_out)
        slope = g + slope.is_zero().where(0.0, factor * slope)
        share = _in_float64(lambda a, b: exponentials.exp(a - b), x, out)
        return ScanOutputs([slope, out], [share * slope])

    reads = [builder.dense_view(value) for value in (x, out, g)]
    add_scan(builder, op, spec, reads, [builder.allocate(op.outputs[0])], body)
