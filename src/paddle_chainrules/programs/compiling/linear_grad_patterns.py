"""The gradient products of a layer as one operator.

One call computes both gradients of a product of matrices, or all three of an affine map
with a bias. That gives the same bits in less time where matrices are small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ..operators.table import TABLE
from ..tracing.operations import Operation, Value, fresh_numbers


class _LinearGradients(NamedTuple):
    """The gradients of one cotangent: by the input, the weight and the bias."""

    by_x: int
    by_weight: int
    by_bias: int | None


def fused(
    ops: Sequence[Operation],
    given: Iterable[Value],
    zeros: dict[Any, Tensor],
    apart: Callable[[Operation], bool] = lambda op: False,
) -> tuple[list[Operation], dict[Value, Tensor]]:
    """Return the same with one operator for each layer's gradients, and its constants.

    Args:
        given: values that exist before.
        zeros: those made so far, by shape and dtype; others are added.
        apart: tells which operations stay as they are.
    """
    ops = [*ops]
    fresh = fresh_numbers(given, ops)
    constants: dict[Value, Tensor] = {}
    shapes: dict[Any, Value] = {}
    gone: set[int] = set()
    for layer in _layers(ops, apart):
        *others, last = sorted(i for i in layer if i is not None)
        made = {v for i in others for v in ops[i].outputs}
        if any(not made.isdisjoint(op.inputs) for op in ops[others[0] : last + 1]):
            continue
        cotangent, weight, *_ = ops[layer.by_x].args
        x = ops[layer.by_weight].args[0]
        results = [ops[i].outputs[0] for i in layer if i is not None]
        args: tuple[Any, ...]
        if layer.by_bias is None:
            name, args = "matmul_grad", (x, weight, cotangent, False, False)
        else:
            shape = cotangent.shape[1:], cotangent.dtype
            if shape not in shapes:
                shapes[shape] = Value(next(fresh), *shape, cotangent.bytes)
                if shape not in zeros:
                    zeros[shape] = paddle.zeros(*shape)
                constants[shapes[shape]] = zeros[shape]
            name, args = "addmm_grad", (shapes[shape], x, weight, cotangent, 1.0, 1.0)
            results = [results[-1], *results[:-1]]
        ops[last] = replace(
            ops[last],
            operator=TABLE[name],
            args=args,
            outputs=tuple(results),
            many=True,
        )
        gone.update(others)
    return [op for i, op in enumerate(ops) if i not in gone], constants


def _layers(
    ops: Sequence[Operation], apart: Callable[[Operation], bool]
) -> list[_LinearGradients]:
    """Return the layers where both gradients are asked for, or all three."""
    places: dict[tuple[str, Value], int] = {}
    for i, op in enumerate(ops):
        (out,) = op.outputs if len(op.outputs) == 1 else (None,)
        kinds = {v.dtype for v in (*op.inputs, *op.outputs)}
        if out is None or kinds not in ({"float32"}, {"float64"}) or apart(op):
            continue
        name, args = op.operator.name, op.args
        if name == "matmul" and all(len(v.shape) == 2 for v in args[:2]):
            if args[2:] == (False, True):
                places.setdefault(("x", args[0]), i)
            elif args[2:] == (True, False):
                places.setdefault(("weight", args[1]), i)
        elif name == "sum" and args[1:] == ([0], None, False):
            places.setdefault(("bias", args[0]), i)
    results = []
    for kind, cotangent in places:
        by_weight = places.get(("weight", cotangent))
        if kind == "x" and by_weight is not None:
            by_x = places[kind, cotangent]
            weight, x = ops[by_x].args[1], ops[by_weight].args[0]
            inner, outer = x.shape[1], cotangent.shape[1]
            if ops[by_x].outputs[0].shape == x.shape and weight.shape == (inner, outer):
                results.append(
                    _LinearGradients(by_x, by_weight, places.get(("bias", cotangent)))
                )
    return results
