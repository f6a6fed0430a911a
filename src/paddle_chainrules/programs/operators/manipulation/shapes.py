"""The same elements in another shape or order, side by side, or apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.interception import RAW
from ....paddle_side.rules import in_place
from ....paddle_side.rules.derivatives import formulas
from ....paddle_side.rules.derivatives.formulas import by_rules, where_traced
from ..axes import (
    ANYWHERE,
    ELEMENTS,
    FIRST,
    IN_ORDER,
    MATRICES,
    AxesArgument,
    ShapePolymorphic,
    batched_axis,
)
from ..calls import BatchCall, Call, NoRule
from ..entry import (
    batch_of,
    define,
    formula_of,
    holds_for_complex,
    instead_of,
    reverse_of,
    tape_of,
)
from ..shared import aligned, ops, shaped_as


class Transposed(ShapePolymorphic):
    """The kind that puts all axes in another order."""

    batches = True

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        x, order = call.args
        return [ops.transpose(x, [0, *(batched_axis(n, len(order)) for n in order)])]

    def keeps_rows(
        self,
        args: Mapping[str, Any],
        row_inputs: Sequence[Any],
        outputs: Any,
        num_row_axes: int,
    ) -> bool:
        return [*args["perm"][:num_row_axes]] == [*range(num_row_axes)]


class Stacked(ShapePolymorphic):
    """The kind that stacks tensors along a new axis."""

    batches = True

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        operands, axis = call.args
        return [ops.stack(operands, axis % len(call.shapes[0]) + 1)]

    def keeps_rows(
        self,
        args: Mapping[str, Any],
        row_inputs: Sequence[Any],
        outputs: Any,
        num_row_axes: int,
    ) -> bool:
        axis, rank = args["axis"], len(row_inputs[0].shape) + 1
        return isinstance(axis, int) and axis % rank >= num_row_axes


class Flipped(AxesArgument):
    """The kind that flips along axes, along none without axes."""

    def batched_axes(self, axis: Any, ndim: int) -> Any:
        return super().batched_axes(axis, ndim) if axis else axis


class Rolled(AxesArgument):
    """The kind that rolls along axes, or without axes the flattened tensor."""

    def batched_axes(self, axis: Any, ndim: int) -> Any:
        if isinstance(axis, list | tuple) and not axis:
            raise NoRule("all axes as one; give an axis, or reshape before")
        return super().batched_axes(axis, ndim)


for name in ("reshape", "unsqueeze", "squeeze", "flatten"):
    define(name, view=True, axes=IN_ORDER, linear=(0,))
define("transpose", view=True, axes=Transposed(), linear=(0,), tape=in_place.view)
define("Tensor.T", "x", view=True, axes=ANYWHERE, linear=(0,))
PARTS: dict[str, Any] = {"axes": AxesArgument("axis", splits_or_joins=True)}
PARTS["linear"] = (0,)
"""The settings of operators that split or join along an axis."""
define("concat", defaults={"axis": 0}, **PARTS)
define("stack", defaults={"axis": 0}, axes=Stacked(), linear=(0,))
define("split", view=True, **PARTS)
define("split_with_num", view=True, **PARTS)
define("unbind", "x axis", view=True, tape=in_place.part_view, **PARTS)
define(
    "unstack",
    "x axis num",
    view=True,
    tape=where_traced(formulas.unstack, 0, checked=True),
    **PARTS,
)
MAX_EXPAND_AXES = 7
"""The most axes that Paddle's kernels for expand and tile take."""


define("expand", view=True, axes=ELEMENTS, linear=(0,))
define(
    "expand_as",
    "x y target_shape",
    differentiable=(0,),
    shapes=(1,),
    defaults={"target_shape": []},
    axes=ANYWHERE,
    linear=(0,),
)
for name in ("tril", "triu"):
    define(name, "x diagonal", defaults={"diagonal": 0}, axes=MATRICES, linear=(0,))
define(
    "masked_fill",
    "x mask value",
    differentiable=(0, 2),
    axes=ANYWHERE,
    tape=by_rules("masked_fill", 2),
)
define("tile", view=True, axes=ANYWHERE, linear=(0,))
define("meshgrid", "x", tape=formulas.meshgrid)
define("pad", "x paddings value", differentiable=(0,), axes=FIRST)
define("flip", "x axis", axes=Flipped("axis"), linear=(0,))
define("roll", "x shifts axis", defaults={"axis": []}, axes=Rolled("axis"), linear=(0,))
holds_for_complex("reshape", "unsqueeze", "squeeze", "flatten", "transpose")
holds_for_complex("concat", "stack", "split", "unbind", "unstack", "meshgrid")
holds_for_complex("expand", "tile", "tril", "triu", "pad", "flip", "roll")
holds_for_complex("masked_fill")


@reverse_of("reshape", "unsqueeze", "squeeze")
def _reshape_reverse(call: Call) -> list[Any]:
    return [shaped_as(call.cotangent, call.args[0]), None]


@reverse_of("flatten")
def _flatten_reverse(call: Call) -> list[Any]:
    return [shaped_as(call.cotangent, call.args[0]), None, None]


@reverse_of("transpose")
def _transpose_reverse(call: Call) -> list[Any]:
    perm = [axis % len(call.args[1]) for axis in call.args[1]]
    inverse = [perm.index(i) for i in range(len(perm))]
    return [ops.transpose(call.cotangent, inverse), None]


MAX_SLICE_AXES = 6
"""The most axes that some of Paddle's kernels take, as those for slices do."""

MANY_ROWS = 128
"""From this many rows on, strided copies are cheaper than Paddle's kernels.

The kernels cut and join rows one after another.
"""


def _has_many_rows(shape: Sequence[int], axis: Any) -> bool:
    """Tell whether slices are faster, and may be taken."""
    return (
        type(axis) is int
        and len(shape) <= MAX_SLICE_AXES
        and math.prod(shape[: axis % len(shape)]) >= MANY_ROWS
    )


@instead_of("split")
def _split_instead(x: Any, sections: Any, axis: Any) -> tuple[Any, Any] | None:
    is_static = isinstance(sections, list | tuple) and all(
        type(n) is int and (n > 0 or n == -1) for n in sections
    )
    return (
        (slices, (x, sections, axis))
        if is_static and _has_many_rows(x.shape, axis)
        else None
    )


@instead_of("split_with_num")
def _split_with_num_instead(x: Any, count: Any, axis: Any) -> tuple[Any, Any] | None:
    is_static = type(count) is int and _has_many_rows(x.shape, axis)
    return (slices, (x, count, axis)) if is_static else None


def slices(x: Tensor, sections: Sequence[int] | int, axis: int) -> list[Tensor]:
    """Split into contiguous slices, by their number or by their sizes.

    Args:
        sections: as ``paddle.split`` takes them, -1 for what the others leave.
    """
    size = x.shape[axis]
    if isinstance(sections, int):
        sections = [size // sections] * sections
    remaining = size - sum(n for n in sections if n > 0)
    bounds = accumulate((remaining if n == -1 else n for n in sections), initial=0)
    return [
        RAW.slice(x, [axis], [start], [stop], [1], []).contiguous()
        for start, stop in pairwise(bounds)
    ]


@instead_of("concat")
def _concat_instead(operands: Any, axis: Any) -> tuple[Any, Any] | None:
    shapes = {v.shape for v in operands}
    if (
        len(shapes) != 1
        or len(operands) < 2
        or not _has_many_rows(operands[0].shape, axis)
    ):
        return None
    return stacked, (operands, axis % len(operands[0].shape))


def stacked(operands: Sequence[Tensor], axis: int) -> Tensor:
    """Concatenate tensors of one shape along an axis, by stack and reshape."""
    shape = operands[0].shape
    shape[axis] *= len(operands)
    return RAW.reshape(RAW.stack(operands, axis), shape)


@reverse_of("concat")
def _concat_reverse(call: Call) -> list[Any]:
    operands, axis = call.args
    axis = int(axis) % call.cotangent.ndim
    return [ops.split(call.cotangent, [x.shape[axis] for x in operands], axis), None]


@reverse_of("stack")
def _stack_reverse(call: Call) -> list[Any]:
    axis = call.args[1]
    return [ops.unbind(call.cotangent, axis % call.cotangent.ndim), None]


def _cotangents_or_zeros(call: Call) -> list[Tensor]:
    """Return the cotangents, with zeros for missing ones."""
    return [
        paddle.zeros_like(out) if g is None else g
        for out, g in zip(call.outputs, call.cotangents, strict=True)
    ]


@reverse_of("split", "split_with_num")
def _split_reverse(call: Call) -> list[Any]:
    x, _, axis = call.args
    return [ops.concat(_cotangents_or_zeros(call), int(axis) % x.ndim), None, None]


@reverse_of("unbind", "unstack")
def _unbind_reverse(call: Call) -> list[Any]:
    x, axis, *attrs = call.args
    return [
        ops.stack(_cotangents_or_zeros(call), axis % x.ndim),
        None,
        *(None for _ in attrs),
    ]


def _expand_gradient(g: Tensor, x: Tensor) -> Tensor:
    lead = g.ndim - x.ndim
    axes = [*range(lead)]
    axes += [
        i + lead for i, n in enumerate(x.shape) if n == 1 and g.shape[i + lead] != 1
    ]
    if axes:
        g = ops.sum(g, axes, None, False)
    return g if g.shape == x.shape else shaped_as(g, x)


@reverse_of("expand")
def _expand_reverse(call: Call) -> list[Any]:
    return [_expand_gradient(call.cotangent, call.args[0]), None]


@reverse_of("expand_as")
def _expand_as_reverse(call: Call) -> list[Any]:
    return [_expand_gradient(call.cotangent, call.args[0]), None, None]


def repeats(x: Tensor, times: Any) -> list[tuple[int, int]]:
    """Return the repeats of a tensor along each axis of the result, and its size."""
    times = [int(n) for n in times]
    shape = [1] * (len(times) - x.ndim) + x.shape
    times = [1] * (len(shape) - len(times)) + times
    return [*zip(times, shape, strict=True)]


def _num_split_axes(pairs: Sequence[tuple[int, int]]) -> int:
    """Return the number of axes after each that repeats is split in two."""
    return sum(1 + (count > 1) for count, _ in pairs)


def tile_by_axis(x: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """Repeat along one axis after another, by tensors of three axes."""
    shape = [size for _, size in pairs]
    for axis, (count, size) in enumerate(pairs):
        if count != 1:
            before = math.prod(shape[:axis])
            rows = ops.reshape(x, [before, 1, size * math.prod(shape[axis + 1 :])])
            x = ops.expand(rows, [before, count, rows.shape[2]])
            shape[axis] = count * size
    return ops.reshape(x, shape)


def _tile_gradient_by_axis(g: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """Return the gradient of a tile along one axis after another."""
    shape = [*g.shape]
    for axis, (count, size) in enumerate(pairs):
        if count != 1:
            before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
            g = ops.sum(ops.reshape(g, [before, count, size * after]), [1], None, False)
            shape[axis] = size
    return ops.reshape(g, shape)


@formula_of("tile")
def _tile_formula(x: Tensor, times: Any) -> Tensor:
    """Split each axis in two and repeat one of them."""
    pairs = repeats(x, times)
    if _num_split_axes(pairs) > MAX_EXPAND_AXES:
        return tile_by_axis(x, pairs)
    split_shape = [
        n for count, size in pairs for n in ([1, size] if count > 1 else [size])
    ]
    repeated_shape = [
        n for count, size in pairs for n in ([count, size] if count > 1 else [size])
    ]
    repeated = ops.expand(ops.reshape(x, split_shape), repeated_shape)
    return ops.reshape(repeated, [count * size for count, size in pairs])


@reverse_of("tile")
def _tile_reverse(call: Call) -> list[Any]:
    x, times = call.args
    split_shape: list[int] = []
    repeat_axes = []
    pairs = repeats(x, times)
    if _num_split_axes(pairs) > MAX_EXPAND_AXES:
        return [shaped_as(_tile_gradient_by_axis(call.cotangent, pairs), x), None]
    for count, size in pairs:
        if count > 1:
            repeat_axes.append(len(split_shape))
            split_shape.append(count)
        split_shape.append(size)
    g = ops.reshape(call.cotangent, split_shape)
    g = ops.sum(g, repeat_axes, None, False) if repeat_axes else g
    return [shaped_as(g, x), None]


@reverse_of("tril")
def _tril_reverse(call: Call) -> list[Any]:
    return [ops.tril(call.cotangent, call.args[1]), None]


@reverse_of("triu")
def _triu_reverse(call: Call) -> list[Any]:
    return [ops.triu(call.cotangent, call.args[1]), None]


@formula_of("tril")
def _tril_formula(x: Tensor, diagonal: int) -> Tensor:
    return _masked_matrix(x, lambda row, column: column - row <= diagonal)


@formula_of("triu")
def _triu_formula(x: Tensor, diagonal: int) -> Tensor:
    return _masked_matrix(x, lambda row, column: column - row >= diagonal)


def _masked_matrix(x: Tensor, condition: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return matrices with zeros where a condition on row and column is false."""
    rows = paddle.arange(x.shape[-2], dtype="float32").reshape([-1, 1])
    columns = paddle.arange(x.shape[-1], dtype="float32").reshape([1, -1])
    mask = ops.expand(condition(rows, columns), x.shape)
    return _where(mask, x, ops.expand(paddle.zeros([], x.dtype), x.shape))


_WITHOUT_WHERE = (paddle.uint8, paddle.int8, paddle.int16)
"""Dtypes for which Paddle has no kernel of ``where``."""


def _where(mask: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Choose between tensors of one dtype, whatever it is."""
    if x.dtype not in _WITHOUT_WHERE:
        return ops.where(mask, x, y)
    chosen = ops.where(mask, ops.cast(x, paddle.int32), ops.cast(y, paddle.int32))
    return ops.cast(chosen, x.dtype)


@formula_of("masked_fill")
def _masked_fill_formula(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    shape = paddle.broadcast_shape(x.shape, mask.shape)
    value = value if value.dtype == x.dtype else value.astype(x.dtype)
    x, mask, value = (ops.expand(operand, shape) for operand in (x, mask, value))
    return _where(mask, value, x)


@reverse_of("pad")
def _pad_reverse(call: Call) -> list[Any]:
    _, paddings, _ = call.args
    if min(paddings, default=0) < 0:
        raise NoRule("negative paddings; take a slice instead")
    before, after = paddings[::2], paddings[1::2]
    sizes = call.cotangent.shape
    axes = [*range(len(sizes))]
    ends = [n - m for n, m in zip(sizes, after, strict=True)]
    result = ops.slice(call.cotangent, axes, before, ends, [1] * len(axes), [])
    return [result, None, None]


@reverse_of("meshgrid")
def _meshgrid_reverse(call: Call) -> list[Any]:
    (inputs,) = call.args
    grads = []
    for k, (x, g) in enumerate(zip(inputs, call.cotangents, strict=True)):
        other_axes = [i for i in range(len(inputs)) if i != k]
        g = ops.sum(g, other_axes, None, False) if g is not None and other_axes else g
        grads.append(None if g is None else ops.reshape(g, x.shape))
    return [grads]


@reverse_of("flip")
def _flip_reverse(call: Call) -> list[Any]:
    return [ops.flip(call.cotangent, call.args[1]), None]


@reverse_of("roll")
def _roll_reverse(call: Call) -> list[Any]:
    _, shifts, axis = call.args
    shifts = [shifts] if isinstance(shifts, int) else shifts
    return [ops.roll(call.cotangent, [-n for n in shifts], axis), None, None]


# In Taylor series, of many samples, and in Julia.


@batch_of("reshape", "unsqueeze", "squeeze", "flatten")
def _reshape_batch(call: BatchCall) -> list[Any]:
    return [ops.reshape(call.args[0], [call.size, *call.shapes[0]])]


@batch_of("Tensor.T")
def _t_batch(call: BatchCall) -> list[Any]:
    x = call.args[0]
    return [ops.transpose(x, [0, *range(x.ndim - 1, 0, -1)])]


@batch_of("expand")
def _expand_batch(call: BatchCall) -> list[Any]:
    shape = call.shapes[0]
    return [ops.expand(aligned(call.args[0], len(shape)), [call.size, *shape])]


@batch_of("tile")
def _tile_batch(call: BatchCall) -> list[Any]:
    x, times = call.args
    return [ops.tile(aligned(x, len(call.shapes[0])), [1, *times])]


@batch_of("pad")
def _pad_batch(call: BatchCall) -> list[Any]:
    x, paddings, value = call.args
    if isinstance(value, Tensor):
        raise NoRule("a tensor as the value to pad with; give a number")
    return [ops.pad(x, [0, 0, *paddings], value)]


tape_of("reshape", "flatten", "squeeze", "unsqueeze")(in_place.view)
