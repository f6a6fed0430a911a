"""The same elements in another shape or order, side by side, or apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.interception import RAW
from ..axes import (
    ANYWHERE,
    ELEMENTS,
    FIRST,
    IN_ORDER,
    MATRICES,
    AxesArgument,
    ShapePolymorphic,
    moved,
)
from ..calls import BatchCall, Call, JetCall, NoRule
from ..entry import (
    batch_of,
    define,
    formula_of,
    holds_for_complex,
    instead_of,
    jet_of,
    reverse_of,
)
from ..series import linear_series
from ..shared import aligned, ops, shaped_as


class Transposed(ShapePolymorphic):
    """The kind that puts all axes in another order."""

    batches = True

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        x, order = call.args
        return [ops.transpose(x, [0, *(moved(n, len(order)) for n in order)])]

    def keeps_rows(
        self, args: Mapping[str, Any], given: Sequence[Any], outputs: Any, count: int
    ) -> bool:
        return [*args["perm"][:count]] == [*range(count)]


class Stacked(ShapePolymorphic):
    """The kind that stacks tensors along a new axis."""

    batches = True

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        parts, axis = call.args
        return [ops.stack(parts, axis % len(call.shapes[0]) + 1)]

    def keeps_rows(
        self, args: Mapping[str, Any], given: Sequence[Any], outputs: Any, count: int
    ) -> bool:
        axis, rank = args["axis"], len(given[0].shape) + 1
        return isinstance(axis, int) and axis % rank >= count


class Flipped(AxesArgument):
    """The kind that flips along axes, along none without axes."""

    def moved(self, axis: Any, ndim: int) -> Any:
        return super().moved(axis, ndim) if axis else axis


class Rolled(AxesArgument):
    """The kind that rolls along axes, or over all elements in a row without axes."""

    def moved(self, axis: Any, ndim: int) -> Any:
        if isinstance(axis, list | tuple) and not axis:
            raise NoRule("all axes as one; give an axis, or reshape before")
        return super().moved(axis, ndim)


for name in ("reshape", "unsqueeze", "squeeze", "flatten"):
    define(name, view=True, axes=IN_ORDER, linear=(0,))
define("transpose", view=True, axes=Transposed(), linear=(0,))
define("Tensor.T", "x", view=True, axes=ANYWHERE)
define("concat", defaults={"axis": 0}, axes=AxesArgument("axis", parts=True))
define("stack", defaults={"axis": 0}, axes=Stacked())
define("split", view=True, axes=AxesArgument("axis", parts=True))
define("split_with_num", view=True, axes=AxesArgument("axis", parts=True))
define("unbind", "x axis", view=True, axes=AxesArgument("axis", parts=True))
define("unstack", "x axis num", view=True, axes=AxesArgument("axis", parts=True))
MAX_AXES = 8
"""The most axes that Paddle's kernels for expand and tile take."""


def _expand(x: Tensor, shape: Any) -> Tensor:
    """Expand, with axes side by side as one where there are too many for Paddle."""
    if max(len(shape), x.ndim) <= MAX_AXES or isinstance(shape, Tensor):
        return RAW.expand(x, shape)
    given = [1] * (len(shape) - x.ndim) + x.shape
    pairs = [(n, n if m == -1 else m) for n, m in zip(given, shape, strict=True)]
    groups: list[list[int]] = []
    for n, m in pairs:
        if groups and (groups[-1][0] == groups[-1][1]) == (n == m):
            groups[-1] = [groups[-1][0] * n, groups[-1][1] * m]
        else:
            groups.append([n, m])
    result = RAW.expand(RAW.reshape(x, [n for n, _ in groups]), [m for _, m in groups])
    return RAW.reshape(result, [m for _, m in pairs])


def _tile(x: Tensor, times: Any) -> Tensor:
    """Tile, along one axis after another where there are too many for Paddle."""
    if isinstance(times, Tensor) or max(len(times), x.ndim) <= MAX_AXES:
        return RAW.tile(x, times)
    return _tiled_in_turn(x, _repeats(x, times))


define("expand", run=_expand, view=True, axes=ELEMENTS, linear=(0,))
define(
    "expand_as",
    "x y target_shape",
    differentiable=(0,),
    shapes=(1,),
    defaults={"target_shape": []},
    axes=ANYWHERE,
)
define("tril", "x diagonal", defaults={"diagonal": 0}, axes=MATRICES)
define("triu", "x diagonal", defaults={"diagonal": 0}, axes=MATRICES)
define("masked_fill", "x mask value", differentiable=(0, 2), axes=ANYWHERE)
define("tile", run=_tile, view=True, axes=ANYWHERE)
define("meshgrid", "x")
define("pad", "x paddings value", differentiable=(0,), axes=FIRST)
define("flip", "x axis", axes=Flipped("axis"))
define("roll", "x shifts axis", defaults={"axis": []}, axes=Rolled("axis"))
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
    back = [perm.index(i) for i in range(len(perm))]
    return [ops.transpose(call.cotangent, back), None]


MANY_ROWS = 128
"""From this many rows on, strided copies are cheaper than Paddle's kernels.

The kernels cut and join rows one after another.
"""


def _cuts(shape: Sequence[int], axis: Any) -> bool:
    return type(axis) is int and math.prod(shape[: axis % len(shape)]) >= MANY_ROWS


@instead_of("split")
def _split_instead(x: Any, sections: Any, axis: Any) -> tuple[Any, Any] | None:
    known = isinstance(sections, list | tuple) and all(
        type(n) is int and (n > 0 or n == -1) for n in sections
    )
    return (slices, (x, sections, axis)) if known and _cuts(x.shape, axis) else None


@instead_of("split_with_num")
def _split_with_num_instead(x: Any, count: Any, axis: Any) -> tuple[Any, Any] | None:
    known = type(count) is int and _cuts(x.shape, axis)
    return (slices, (x, count, axis)) if known else None


def slices(x: Tensor, sections: Sequence[int] | int, axis: int) -> list[Tensor]:
    """Return parts by their number or by their sizes, in memory of their own.

    Args:
        sections: as ``paddle.split`` takes them, -1 for what the others leave.
    """
    whole = x.shape[axis]
    if isinstance(sections, int):
        sections = [whole // sections] * sections
    rest = whole - sum(n for n in sections if n > 0)
    ends = accumulate((rest if n == -1 else n for n in sections), initial=0)
    return [
        RAW.slice(x, [axis], [start], [stop], [1], []).contiguous()
        for start, stop in pairwise(ends)
    ]


@instead_of("concat")
def _concat_instead(parts: Any, axis: Any) -> tuple[Any, Any] | None:
    shapes = {v.shape for v in parts}
    if len(shapes) != 1 or len(parts) < 2 or not _cuts(parts[0].shape, axis):
        return None
    return stacked, (parts, axis % len(parts[0].shape))


def stacked(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Stack tensors of one shape along a new axis."""
    shape = parts[0].shape
    shape[axis] *= len(parts)
    return RAW.reshape(RAW.stack(parts, axis), shape)


@reverse_of("concat")
def _concat_reverse(call: Call) -> list[Any]:
    parts, axis = call.args
    axis = int(axis) % call.cotangent.ndim
    return [ops.split(call.cotangent, [p.shape[axis] for p in parts], axis), None]


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
    x, axis, *rest = call.args
    return [
        ops.stack(_cotangents_or_zeros(call), axis % x.ndim),
        None,
        *(None for _ in rest),
    ]


def _summed_back(g: Tensor, x: Tensor) -> Tensor:
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
    return [_summed_back(call.cotangent, call.args[0]), None]


@reverse_of("expand_as")
def _expand_as_reverse(call: Call) -> list[Any]:
    return [_summed_back(call.cotangent, call.args[0]), None, None]


def _repeats(x: Tensor, times: Any) -> list[tuple[int, int]]:
    """Return the repeats of a tensor along each axis of the result, and its size."""
    times = [int(n) for n in times]
    shape = [1] * (len(times) - x.ndim) + x.shape
    times = [1] * (len(shape) - len(times)) + times
    return [*zip(times, shape, strict=True)]


def _split_axes(pairs: Sequence[tuple[int, int]]) -> int:
    """Return how many axes there are with those that repeat split in two."""
    return sum(1 + (count > 1) for count, _ in pairs)


def _tiled_in_turn(x: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """Repeat along one axis after another, by tensors of three axes."""
    shape = [size for _, size in pairs]
    for axis, (count, size) in enumerate(pairs):
        if count != 1:
            before = math.prod(shape[:axis])
            rows = ops.reshape(x, [before, 1, size * math.prod(shape[axis + 1 :])])
            x = ops.expand(rows, [before, count, rows.shape[2]])
            shape[axis] = count * size
    return ops.reshape(x, shape)


def _summed_in_turn(g: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """Return the gradient of what repeats along one axis after another."""
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
    pairs = _repeats(x, times)
    if _split_axes(pairs) > MAX_AXES:
        return _tiled_in_turn(x, pairs)
    split = [n for count, size in pairs for n in ([1, size] if count > 1 else [size])]
    every = [
        n for count, size in pairs for n in ([count, size] if count > 1 else [size])
    ]
    repeated = ops.expand(ops.reshape(x, split), every)
    return ops.reshape(repeated, [count * size for count, size in pairs])


@reverse_of("tile")
def _tile_reverse(call: Call) -> list[Any]:
    x, times = call.args
    split: list[int] = []
    repeats = []
    pairs = _repeats(x, times)
    if _split_axes(pairs) > MAX_AXES:
        return [shaped_as(_summed_in_turn(call.cotangent, pairs), x), None]
    for count, size in pairs:
        if count > 1:
            repeats.append(len(split))
            split.append(count)
        split.append(size)
    g = ops.reshape(call.cotangent, split)
    g = ops.sum(g, repeats, None, False) if repeats else g
    return [shaped_as(g, x), None]


@reverse_of("tril")
def _tril_reverse(call: Call) -> list[Any]:
    return [ops.tril(call.cotangent, call.args[1]), None]


@reverse_of("triu")
def _triu_reverse(call: Call) -> list[Any]:
    return [ops.triu(call.cotangent, call.args[1]), None]


@formula_of("tril")
def _tril_formula(x: Tensor, diagonal: int) -> Tensor:
    return _kept(x, lambda row, column: column - row <= diagonal)


@formula_of("triu")
def _triu_formula(x: Tensor, diagonal: int) -> Tensor:
    return _kept(x, lambda row, column: column - row >= diagonal)


def _kept(x: Tensor, where: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return the entries at some places of matrices, and zeros elsewhere."""
    rows = paddle.arange(x.shape[-2], dtype="float32").reshape([-1, 1])
    columns = paddle.arange(x.shape[-1], dtype="float32").reshape([1, -1])
    mask = ops.expand(where(rows, columns), x.shape)
    return ops.where(mask, x, ops.expand(paddle.zeros([], x.dtype), x.shape))


@formula_of("masked_fill")
def _masked_fill_formula(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    shape = paddle.broadcast_shape(x.shape, mask.shape)
    value = value if value.dtype == x.dtype else value.astype(x.dtype)
    x, mask, value = (ops.expand(part, shape) for part in (x, mask, value))
    result: Tensor = ops.where(mask, value, x)
    return result


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
    (parts,) = call.args
    grads = []
    for k, (part, g) in enumerate(zip(parts, call.cotangents, strict=True)):
        others = [i for i in range(len(parts)) if i != k]
        g = ops.sum(g, others, None, False) if g is not None and others else g
        grads.append(None if g is None else ops.reshape(g, part.shape))
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


@jet_of("reshape", "unsqueeze", "squeeze", "flatten")
def _reshape_jet(call: JetCall) -> list[Any]:
    shape = call.out.shape
    rest = linear_series(lambda part: ops.reshape(part, shape), call.args[0][1:])
    return [[call.out, *rest]]


@jet_of("transpose")
def _transpose_jet(call: JetCall) -> list[Any]:
    x, perm = call.args
    return [[call.out, *linear_series(lambda part: ops.transpose(part, perm), x[1:])]]


@jet_of("concat")
def _concat_jet(call: JetCall) -> list[Any]:
    series, axis = call.args
    axis = axis[0] if isinstance(axis, list) else axis
    results: list[Any] = [call.out]
    for parts in [*zip(*series, strict=True)][1:]:
        if all(part is None for part in parts):
            results.append(None)
            continue
        pairs = zip(series, parts, strict=True)
        full = [paddle.zeros_like(x[0]) if p is None else p for x, p in pairs]
        results.append(ops.concat(full, axis))
    return [results]


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
