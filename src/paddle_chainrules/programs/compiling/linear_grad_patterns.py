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
    """The indices of operations that compute a layer's gradients from one cotangent."""

    by_x: int
    by_weight: int
    by_bias: int | None


def fuse_linear_gradients(
    ops: Sequence[Operation],
    live_ins: Iterable[Value],
    zeros: dict[Any, Tensor],
    is_excluded: Callable[[Operation], bool] = lambda op: False,
) -> tuple[list[Operation], dict[Value, Tensor]]:
    """Fuse the gradient products of each linear layer; return new constants too.

    Args:
        live_ins: values defined before the operations.
        zeros: tensors of zeros by shape and dtype; others are added.
        is_excluded: tells which operations stay as they are.
    """
    ops = [*ops]
    fresh = fresh_numbers(live_ins, ops)
    constants: dict[Value, Tensor] = {}
    zero_by_shape: dict[Any, Value] = {}
    removed: set[int] = set()
    for layer in _find_layers(ops, is_excluded):
        *other_ops, last_op = sorted(i for i in layer if i is not None)
        earlier_outputs = {v for i in other_ops for v in ops[i].outputs}
        if any(
            not earlier_outputs.isdisjoint(op.inputs)
            for op in ops[other_ops[0] : last_op + 1]
        ):
            continue
        cotangent, weight, *_ = ops[layer.by_x].args
        x = ops[layer.by_weight].args[0]
        outputs = [ops[i].outputs[0] for i in layer if i is not None]
        args: tuple[Any, ...]
        if layer.by_bias is None:
            name, args = "matmul_grad", (x, weight, cotangent, False, False)
        else:
            shape = cotangent.shape[1:], cotangent.dtype
            if shape not in zero_by_shape:
                zero_by_shape[shape] = Value(next(fresh), *shape, cotangent.bytes)
                if shape not in zeros:
                    zeros[shape] = paddle.zeros(*shape)
                constants[zero_by_shape[shape]] = zeros[shape]
            name, args = (
                "addmm_grad",
                (zero_by_shape[shape], x, weight, cotangent, 1.0, 1.0),
            )
            outputs = [outputs[-1], *outputs[:-1]]
        ops[last_op] = replace(
            ops[last_op],
            operator=TABLE[name],
            args=args,
            outputs=tuple(outputs),
            many=True,
        )
        removed.update(other_ops)
    return [op for i, op in enumerate(ops) if i not in removed], constants


def _find_layers(
    ops: Sequence[Operation], is_excluded: Callable[[Operation], bool]
) -> list[_LinearGradients]:
    """Return the layers where both gradients are computed, or all three."""
    op_index: dict[tuple[str, Value], int] = {}
    for i, op in enumerate(ops):
        (out,) = op.outputs if len(op.outputs) == 1 else (None,)
        dtypes = {v.dtype for v in (*op.inputs, *op.outputs)}
        if out is None or dtypes not in ({"float32"}, {"float64"}) or is_excluded(op):
            continue
        name, args = op.operator.name, op.args
        if name == "matmul" and all(len(v.shape) == 2 for v in args[:2]):
            if args[2:] == (False, True):
                op_index.setdefault(("x", args[0]), i)
            elif args[2:] == (True, False):
                op_index.setdefault(("weight", args[1]), i)
        elif name == "sum" and args[1:] == ([0], None, False):
            op_index.setdefault(("bias", args[0]), i)
    layers = []
    for kind, cotangent in op_index:
        by_weight = op_index.get(("weight", cotangent))
        if kind == "x" and by_weight is not None:
            by_x = op_index[kind, cotangent]
            weight, x = ops[by_x].args[1], ops[by_weight].args[0]
            in_features, out_features = x.shape[1], cotangent.shape[1]
            if ops[by_x].outputs[0].shape == x.shape and weight.shape == (
                in_features,
                out_features,
            ):
                layers.append(
                    _LinearGradients(by_x, by_weight, op_index.get(("bias", cotangent)))
                )
    return layers
