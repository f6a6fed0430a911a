"""Slices, and rows by tensors of their indices."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ....errors import CaptureError
from ....paddle_side.rules import in_place, requested_gradients
from ....paddle_side.rules.derivatives import formulas
from ....paddle_side.rules.derivatives.formulas import where_traced
from ..axes import ANYWHERE, batched_arg
from ..calls import BatchCall, Call, NoRule
from ..entry import (
    batch_of,
    define,
    holds_for_complex,
    raw,
    reverse_of,
    tape_of,
)
from ..kernels import by_kernel, linear_in_first
from ..known_shapes import define_of_known_shape
from ..shared import aligned, ops
from .brackets import Sliced, gather_gradient, join_samples


def scatter_by_mask(x: Tensor, mask: Tensor, grad_out: Tensor) -> Tensor:
    """Return zeros of the shape of x, with the selected values scattered by the mask.

    Raises:
        CaptureError: the mask selects another count than at the capture.
    """
    try:
        result: Tensor = raw("masked_select_grad")(x, mask, grad_out)
    except ValueError as error:
        raise CaptureError(
            f"masked_select gave shape {grad_out.shape} when the program was captured, "
            "and its mask selects another number here; call the function without jit, "
            "or make the mask a constant"
        ) from error
    return result


define(
    "slice",
    "x axes starts ends infer_flags decrease_axis",
    view=True,
    axes=Sliced(),
    linear=(0,),
)
define(
    "slice_grad",
    "x out_grad axes starts ends infer_flags decrease_axis",
    differentiable=(1,),
    shapes=(0,),
    axes=Sliced(),
    linear=(1,),
)
define("strided_slice", view=True, axes=Sliced())
define("crop", "x shape offsets")
define(
    "gather",
    "x index axis",
    differentiable=(0,),
    defaults={"axis": 0},
    axes=ANYWHERE,
    linear=(0,),
    tape=where_traced(formulas.gather, 0),
)
define(
    "gather_grad",
    "x index out_grad axis",
    differentiable=(2,),
    shapes=(0,),
    axes=ANYWHERE,
)
define("index_select", "x index axis", differentiable=(0,), axes=ANYWHERE, linear=(0,))
define(
    "embedding",
    "x weight padding_idx sparse",
    differentiable=(1,),
    axes=ANYWHERE,
    linear=(1,),
    tape=requested_gradients.embedding,
)
define("index_add", "x index add_value axis", differentiable=(0, 2), axes=ANYWHERE)
define("gather_nd", "x index", differentiable=(0,), axes=ANYWHERE, linear=(0,))
define("scatter_nd_add", "x index updates", differentiable=(0, 2))
define("index_sample", "x index", differentiable=(0,), axes=ANYWHERE, linear=(0,))
define_of_known_shape("masked_select", differentiable=(0,))
define("masked_select_grad", run=scatter_by_mask, differentiable=(2,), shapes=(0,))

linear_in_first("strided_slice")
by_kernel("masked_select")
holds_for_complex("slice", "slice_grad", "strided_slice", "strided_slice_grad")
holds_for_complex("gather", "gather_grad", "index_select", "embedding")
holds_for_complex("masked_select", "masked_select_grad")


@reverse_of("slice")
def _slice_reverse(call: Call) -> list[Any]:
    x, *attrs = call.args
    return [ops.slice_grad(x, call.cotangent, *attrs), *(None for _ in attrs)]


@reverse_of("slice_grad")
def _slice_grad_reverse(call: Call) -> list[Any]:
    _, _, *attrs = call.args
    return [None, ops.slice(call.cotangent, *attrs), *(None for _ in attrs)]


@reverse_of("crop")
def _crop_reverse(call: Call) -> list[Any]:
    x, _, offsets = call.args
    sizes = zip(x.shape, offsets, call.out.shape, strict=True)
    paddings = [n for size, start, n in sizes for n in (start, size - start - n)]
    return [ops.pad(call.cotangent, paddings, 0.0), None, None]


@reverse_of("gather", "index_select")
def _gather_reverse(call: Call) -> list[Any]:
    x, index, axis = call.args
    axis = int(axis) % x.ndim
    return [gather_gradient(x, index, call.cotangent, axis), None, None]


@reverse_of("gather_grad")
def _gather_grad_reverse(call: Call) -> list[Any]:
    _, index, _, axis = call.args
    return [None, None, ops.gather(call.cotangent, index, axis), None]


@reverse_of("embedding")
def _embedding_reverse(call: Call) -> list[Any]:
    x, weight, padding_idx, _ = call.args
    g = ops.reshape(call.cotangent, [-1, weight.shape[1]])
    index = ops.reshape(x, [-1])
    if padding_idx != -1:
        mask = ops.cast(index != padding_idx, g.dtype)
        g = g * ops.unsqueeze(mask, [1])
    return [None, ops.gather_grad(weight, index, g, 0), None, None]


@reverse_of("masked_select_grad")
def _masked_select_grad_reverse(call: Call) -> list[Any]:
    return [None, None, ops.masked_select(call.cotangent, call.args[1])]


@reverse_of("index_add")
def _index_add_reverse(call: Call) -> list[Any]:
    _, index, _, axis = call.args
    g = call.cotangent
    value_grad = ops.gather(g, index, axis % g.ndim) if 2 in call.wanted else None
    return [g, None, value_grad, None]


@reverse_of("gather_nd")
def _gather_nd_reverse(call: Call) -> list[Any]:
    x, index = call.args
    g = call.cotangent
    if index.ndim == 1:
        index, g = ops.unsqueeze(index, [0]), ops.unsqueeze(g, [0])
    return [ops.scatter_nd_add(paddle.zeros_like(x), index, g), None]


@reverse_of("scatter_nd_add")
def _scatter_nd_add_reverse(call: Call) -> list[Any]:
    index = call.args[1]
    updates_grad = ops.gather_nd(call.cotangent, index) if 2 in call.wanted else None
    return [call.cotangent, None, updates_grad]


@reverse_of("index_sample")
def _index_sample_reverse(call: Call) -> list[Any]:
    x, index = call.args
    zeros = paddle.zeros_like(x)
    return [ops.put_along_axis(zeros, index, call.cotangent, 1, "add", True), None]


# Of many samples.


@batch_of("masked_select")
def _masked_select_batch(call: BatchCall) -> list[Any]:
    x, mask, _ = call.args
    if 1 in call.batched:
        raise NoRule("a mask of each sample, of which each may take another number")
    result = ops.masked_select(aligned(x, mask.ndim), mask)
    return [ops.reshape(result, [call.size, *call.shapes[0]])]


@batch_of("gather", "index_select")
def _gather_batch(call: BatchCall) -> list[Any]:
    x, index, axis = call.args
    axis = axis % call.ndim(0)
    if 1 not in call.batched:
        result = ops.gather(x, ops.reshape(index, [-1]), axis + 1)
        return [ops.reshape(result, [call.size, *call.shapes[0]])]
    if axis:
        raise NoRule("indices of each sample along a later axis; move it to the front")
    if 0 in call.batched:
        x, index = join_samples(call, 0, 1)
    result = ops.gather(x, ops.reshape(index, [-1]), 0)
    return [ops.reshape(result, [call.size, *call.shapes[0]])]


@batch_of("gather_grad")
def _gather_grad_batch(call: BatchCall) -> list[Any]:
    _, index, _, axis = call.args
    x, grad = batched_arg(call, 0), batched_arg(call, 2)
    axis = axis % call.ndim(0)
    if 1 not in call.batched:
        return [ops.gather_grad(x, index, grad, axis + 1)]
    if axis:
        raise NoRule("indices of each sample along a later axis; move it to the front")
    rows, indices = join_samples(call, 0, 1)
    grad = ops.reshape(grad, [-1, *rows.shape[1:]])
    return [ops.reshape(ops.gather_grad(rows, indices, grad, 0), x.shape)]


@batch_of("embedding")
def _embedding_batch(call: BatchCall) -> list[Any]:
    padding = call.args[2]
    if 1 not in call.batched:
        return [ops.embedding(*call.args)]
    if padding != -1:
        raise NoRule("tables of each sample with padding; give one table")
    table, indices = join_samples(call, 1, 0)
    result = ops.embedding(indices, table, -1, False)
    return [ops.reshape(result, [call.size, *call.shapes[0]])]


@batch_of("gather_nd")
def _gather_nd_batch(call: BatchCall) -> list[Any]:
    x, index = call.args
    if 0 not in call.batched:
        return [ops.gather_nd(x, index)]
    index = batched_arg(call, 1)
    sample_indices = paddle.arange(call.size, dtype=index.dtype)
    sample_indices = ops.reshape(sample_indices, [call.size, *[1] * (index.ndim - 1)])
    sample_indices = ops.expand(sample_indices, [*index.shape[:-1], 1])
    return [ops.gather_nd(x, ops.concat([sample_indices, index], index.ndim - 1))]


@batch_of("index_sample")
def _index_sample_batch(call: BatchCall) -> list[Any]:
    operands = [batched_arg(call, i) for i in (0, 1)]
    rows = [ops.reshape(operand, [-1, operand.shape[-1]]) for operand in operands]
    result = ops.index_sample(*rows)
    return [ops.reshape(result, [call.size, *call.shapes[0]])]


tape_of("slice", "strided_slice")(in_place.part_view)
