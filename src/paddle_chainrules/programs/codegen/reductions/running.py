"""Running sums and products along lines, and their backward pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...tracing.operations import Operation, Value
from ..elements import exponentials
from ..elements.number import ElementValue
from ..elements.scalars import FLOATS, NotLowerable
from ..extents import ONE
from ..lowering import StageBuilder, lowers
from ..manipulation.indices import AxisSplit, lines_of
from .along import CarryInit, ScanInputs, ScanOutputs, ScanSpec, emit_scan

LOWEST = {"float32": "0xC7EFFFFFE0000000", "float64": "0xFFEFFFFFFFFFFFFF"}
"""The lowest finite numbers."""


def lines_along(
    builder: StageBuilder, x: Value, axis: Any, flat: bool = False
) -> AxisSplit:
    """Return how a tensor lies along an axis, or as one line.

    Raises:
        NotLowerable: the axis is not an integer.
    """
    if flat or not x.shape:
        return AxisSplit(ONE, builder.shape_env.product(x.shape), ONE)
    if type(axis) is not int:
        raise NotLowerable
    return lines_of(x.shape, axis % len(x.shape), builder.shape_env)


def _running(
    builder: StageBuilder,
    op: Operation,
    spec: ScanSpec,
    more: Callable[[ElementValue, ElementValue], ElementValue],
    exclusive: bool,
) -> None:
    """Combine all entries before a place, and the entry there unless exclusive."""
    x, (out,) = op.args[0], op.outputs
    if x.dtype != out.dtype or (exclusive and math.prod(x.shape) == 1):
        raise NotLowerable  # before a single number there is that, as Paddle has it

    def body(at: ScanInputs) -> ScanOutputs:
        (x,), (now,) = at.read, at.now
        result = more(now, x)
        return ScanOutputs([result], [now if exclusive else result])

    emit_scan(builder, op, spec, [builder.dense_view(x)], [builder.allocate(out)], body)


def _start(dtype: str, number: int) -> CarryInit:
    return CarryInit(dtype, f"{float(number)}" if dtype in FLOATS else f"{number}")


@lowers("cumsum")
def _cumsum_loop(builder: StageBuilder, op: Operation) -> None:
    x, axis, flatten, exclusive, reverse = op.args
    starts = [_start(x.dtype, 0)]
    spec = ScanSpec(lines_along(builder, x, axis, flatten), starts, reverse)
    _running(builder, op, spec, lambda now, x: now + x, exclusive)


@lowers("cumprod")
def _cumprod_loop(builder: StageBuilder, op: Operation) -> None:
    x, axis, exclusive, reverse = op.args
    spec = ScanSpec(lines_along(builder, x, axis), [_start(x.dtype, 1)], reverse)
    _running(builder, op, spec, lambda now, x: now * x, exclusive)


@lowers("cumprod_grad")
def _cumprod_grad_loop(builder: StageBuilder, op: Operation) -> None:
    """Multiply the product before each place by the slope of the rest, inclusive."""
    x, _, g, axis, exclusive, reverse = op.args
    (out,) = op.outputs
    if not {x.dtype, g.dtype, out.dtype} <= FLOATS:
        raise NotLowerable
    lines = lines_along(builder, x, axis)
    given, slopes, result = (
        builder.dense_view(x),
        builder.dense_view(g),
        builder.allocate(out),
    )

    def before(at: ScanInputs) -> ScanOutputs:
        (x,), (now,) = at.read, at.now
        return ScanOutputs([now * x], [now])

    def after(at: ScanInputs) -> ScanOutputs:
        (x, g, result), (now,) = at.read, at.now
        here = now if exclusive else g + now
        return ScanOutputs([(g + x * now) if exclusive else x * here], [result * here])

    spec = ScanSpec(lines, [_start(x.dtype, 1)], reverse)
    emit_scan(builder, op, spec, [given], [result], before)
    spec = ScanSpec(lines, [_start(x.dtype, 0)], not reverse)
    emit_scan(builder, op, spec, [given, slopes, result], [result], after)


def _exactly(
    formula: Callable[..., ElementValue], *given: ElementValue
) -> ElementValue:
    """Evaluate a function, for float32 numbers in float64."""
    if given[0].type == "double":
        return formula(*given)
    wide = (x.to("fpext", "double") for x in given)
    return formula(*wide).to("fptrunc", "float")


def _log_sum(x: ElementValue, y: ElementValue) -> ElementValue:
    """Return the logarithm of the sum of two exponentials, as in Paddle."""
    least, most = (y < x).where(y, x), (x < y).where(y, x)
    return exponentials.log1p(exponentials.exp(least - most)) + most


@lowers("logcumsumexp")
def _logcumsumexp_loop(builder: StageBuilder, op: Operation) -> None:
    x, axis, flatten, exclusive, reverse = op.args
    if x.dtype not in FLOATS:
        raise NotLowerable
    starts = [CarryInit(x.dtype, LOWEST[x.dtype])]
    lines = lines_along(builder, x, axis, flatten)
    spec = ScanSpec(lines, starts, reverse, is_dear=True)
    _running(builder, op, spec, lambda now, x: _exactly(_log_sum, now, x), exclusive)


@lowers("logcumsumexp_grad")
def _logcumsumexp_grad_loop(builder: StageBuilder, op: Operation) -> None:
    """Compute by quotients of neighbouring sums, which are at most one."""
    x, out, g, axis, flatten, exclusive, reverse = op.args
    dtype = x.dtype
    if exclusive or {dtype, out.dtype, g.dtype} != {dtype} or dtype not in FLOATS:
        raise NotLowerable
    starts = [_start(dtype, 0), CarryInit(dtype, LOWEST[dtype])]
    lines = lines_along(builder, x, axis, flatten)
    spec = ScanSpec(lines, starts, not reverse, is_dear=True)

    def body(at: ScanInputs) -> ScanOutputs:
        (x, out, g), (slope, following) = at.read, at.now
        factor = _exactly(lambda a, b: exponentials.exp(a - b), out, following)
        slope = g + slope.is_zero().where(0.0, factor * slope)
        share = _exactly(lambda a, b: exponentials.exp(a - b), x, out)
        return ScanOutputs([slope, out], [share * slope])

    reads = [builder.dense_view(value) for value in (x, out, g)]
    emit_scan(builder, op, spec, reads, [builder.allocate(op.outputs[0])], body)
