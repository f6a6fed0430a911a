"""Elements in another order, repeated, chosen from several tensors, in windows."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.interception import RAW
from ....paddle_side.rules import in_place
from ....paddle_side.rules.derivatives import formulas
from ....paddle_side.rules.derivatives.formulas import by_rules
from ..axes import ANYWHERE, Images, OtherAxes
from ..calls import Call, NoRule
from ..entry import define, formula_of, reverse_of
from ..kernels import linear_in_first
from ..known_shapes import define_of_known_shape
from ..shared import ops, shaped_as, summed_to
from .flat_indices import flat_gather_gradient, flat_indices

for name, axes in (
    *(("pixel_shuffle", Images()), ("pixel_unshuffle", Images())),
    *(("channel_shuffle", Images()), ("temporal_shift", Images())),
):
    define(name, axes=axes)
    linear_in_first(name)


@formula_of("pixel_shuffle", "pixel_unshuffle_grad")
def _pixel_shuffle_formula(x: Tensor, factor: int, data_format: str) -> Tensor:
    """Move channels into neighbouring pixels."""
    if data_format != "NCHW":
        raise NoRule("channels that are last; transpose them")
    n, channels, height, width = x.shape
    split_shape = [n, channels // factor**2, factor, factor, height, width]
    transposed = ops.transpose(ops.reshape(x, split_shape), [0, 1, 4, 2, 5, 3])
    return ops.reshape(transposed, [n, split_shape[1], height * factor, width * factor])


@formula_of("pixel_unshuffle", "pixel_shuffle_grad")
def _pixel_unshuffle_formula(x: Tensor, factor: int, data_format: str) -> Tensor:
    """Move neighbouring pixels into channels."""
    if data_format != "NCHW":
        raise NoRule("channels that are last; transpose them")
    n, channels, height, width = x.shape
    split_sizes = [height // factor, factor, width // factor, factor]
    transposed = ops.transpose(
        ops.reshape(x, [n, channels, *split_sizes]), [0, 1, 3, 5, 2, 4]
    )
    return ops.reshape(
        transposed, [n, channels * factor**2, split_sizes[0], split_sizes[2]]
    )


@formula_of("channel_shuffle")
def _channel_shuffle_formula(x: Tensor, groups: int, data_format: str) -> Tensor:
    return _shuffle_channels(x, [groups, -1], data_format)


@formula_of("channel_shuffle_grad")
def _channel_shuffle_grad_formula(x: Tensor, groups: int, data_format: str) -> Tensor:
    return _shuffle_channels(x, [-1, groups], data_format)


def _shuffle_channels(x: Tensor, table_shape: list[int], data_format: str) -> Tensor:
    """Arrange channels in a table and read it by columns."""
    if data_format != "NCHW":
        raise NoRule("channels that are last; transpose them")
    n, _, *space = x.shape
    table = ops.reshape(x, [n, *table_shape, *space])
    return ops.reshape(ops.transpose(table, [0, 2, 1, 3, 4]), x.shape)


define("view_shape", "x dims", view=True, tape=in_place.view)
define("repeat_interleave", axes=ANYWHERE)
define_of_known_shape("repeat_interleave_with_tensor_index", differentiable=(0,))
define("broadcast_tensors", "x", axes=ANYWHERE, tape=formulas.broadcast_tensors)
define("reduce_as", differentiable=(0,), shapes=(1,), axes=ANYWHERE)


def _chooses_among_no_rows(inputs: list[Tensor], index: Tensor, *_: Any) -> bool:
    """Tell whether there is no row, of which Paddle's gradient ends the process."""
    return 0 in index.shape


define(
    "multiplex",
    "x index",
    differentiable=(0,),
    tape=by_rules("multiplex", 0, where=_chooses_among_no_rows),
)


def _strided(x: Tensor, *attrs: Any) -> Tensor:
    """Return a strided view of a tensor that fills its own memory."""
    dims, stride, offset = attrs
    last_offsets = (
        stride_of_axis * (n - 1) for n, stride_of_axis in zip(dims, stride, strict=True)
    )
    if offset // x.element_size() + sum(last_offsets) >= x.size:
        raise NotImplementedError(
            "strides that reach beyond a tensor, into one that it is a part of; take "
            "them of that one"
        )
    if x._offset() or not x.is_contiguous():
        raise NotImplementedError(
            "as_strided of a view, whose strides count in the memory of another "
            "tensor; take a clone"
        )
    return RAW.as_strided(x, *attrs)


define(
    "tensor_unfold",
    "x axis size step",
    view=True,
    axes=OtherAxes("axis"),
    tape=by_rules("tensor_unfold", 0),
)
define(
    "as_strided",
    "x dims stride offset",
    run=_strided,
    view=True,
    tape=by_rules("as_strided", 0),
)


@reverse_of("view_shape")
def _view_shape_reverse(call: Call) -> list[Any]:
    return [shaped_as(call.cotangent, call.args[0]), None]


@reverse_of("repeat_interleave")
def _repeat_interleave_reverse(call: Call) -> list[Any]:
    x, count, axis, _ = call.args
    axis %= x.ndim
    shape = [*x.shape[: axis + 1], count, *x.shape[axis + 1 :]]
    g = ops.sum(ops.reshape(call.cotangent, shape), [axis + 1], None, False)
    return [g, None, None, None]


@reverse_of("repeat_interleave_with_tensor_index")
def _repeat_interleave_with_tensor_index_reverse(call: Call) -> list[Any]:
    x, counts, axis, *_ = call.args
    axis %= x.ndim
    g = call.cotangent
    indices = paddle.arange(x.shape[axis])
    source = ops.repeat_interleave_with_tensor_index(indices, counts, 0, g.shape[axis])
    return [ops.gather_grad(x, source, g, axis), *[None] * 4]


@reverse_of("broadcast_tensors")
def _broadcast_tensors_reverse(call: Call) -> list[Any]:
    pairs = zip(call.cotangents, call.args[0], strict=True)
    return [[None if g is None else summed_to(g, x) for g, x in pairs]]


@reverse_of("reduce_as")
def _reduce_as_reverse(call: Call) -> list[Any]:
    return [ops.expand(call.cotangent, call.args[0].shape), None]


@reverse_of("multiplex")
def _multiplex_reverse(call: Call) -> list[Any]:
    inputs, index = call.args
    g = call.cotangent
    row = ops.reshape(index, [-1, *[1] * (g.ndim - 1)])
    zero = paddle.zeros_like(g)
    masks = (ops.expand(row == k, g.shape) for k in range(len(inputs)))
    return [[ops.where(mask, g, zero) for mask in masks], None]


@reverse_of("tensor_unfold")
def _tensor_unfold_reverse(call: Call) -> list[Any]:
    x, *attrs = call.args
    indices = ops.tensor_unfold(flat_indices(x), *attrs)
    return [flat_gather_gradient(x, indices, call.cotangent), *(None for _ in attrs)]


@reverse_of("as_strided")
def _as_strided_reverse(call: Call) -> list[Any]:
    x, *attrs = call.args
    dtype = {4: "int32", 8: "int64"}.get(x.element_size())
    if dtype is None or x._offset() or not x.is_contiguous():
        raise NoRule("strides over a view, or over this dtype; give x.contiguous()")
    dims, strides, offset = attrs
    first, rest = divmod(offset, x.element_size())
    steps = (n * (dim - 1) for n, dim in zip(strides, dims, strict=True))
    if rest or (0 not in dims and first + sum(steps) >= x.size):
        raise NoRule(
            "strides beyond the tensor, or an offset that is no multiple of its "
            f"{x.element_size()} bytes an element; offset counts bytes"
        )
    indices = ops.as_strided(flat_indices(x, dtype), *attrs)
    return [flat_gather_gradient(x, indices, call.cotangent), *(None for _ in attrs)]
