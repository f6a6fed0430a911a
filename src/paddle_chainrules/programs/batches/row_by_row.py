"""Whether operations work row by row, as far as their arguments show it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..operators.manipulation.brackets import parts_of
from ..tracing.operations import Operation, Value


def is_row_by_row(ops: Iterable[Operation], moved: Sequence[Value]) -> bool:
    """Whether all that is made of rows has in each row what is made of that row alone.

    False where that does not show: not each operator is known here.

    Args:
        moved: values of which rows are the leading axes, all but the last.
    """
    shapes = {x.shape[:-1] if len(x.shape) > 1 else x.shape for x in moved}
    if len(shapes) != 1:
        return False
    rows = shapes.pop()
    by_rows = {*moved}
    for op in ops:
        given = [v for v in op.inputs if v in by_rows]
        if not given:
            continue
        if not all(v.shape[: len(rows)] == rows for v in (*given, *op.outputs)):
            return False
        if not _keeps_rows(op, given, len(rows)):
            return False
        by_rows.update(op.outputs)
    return True


def _keeps_rows(op: Operation, given: Sequence[Value], count: int) -> bool:
    """Whether an operation keeps so many leading axes, which all that is given has."""
    rule = RULES.get(op.operator.name)
    if rule is not None:
        return rule(op.named, given, count)
    if op.operator.loop is None:
        return False
    ranks = {len(v.shape) for v in (*given, *op.outputs)}
    return len(ranks) == 1  # else they are broadcast along other axes


def _product(args: Mapping[str, Any], given: Sequence[Value], count: int) -> bool:
    """Of rows by a matrix that is the same for all."""
    x, *others = (v for v in args.values() if isinstance(v, Value))
    turned = args.get("transpose_x", False) or args.get("transpose_weight", False)
    return (
        [*given] == [x]
        and not turned
        and len(x.shape) > count
        and len(others[0].shape) == 2
    )


def _along(args: Mapping[str, Any], given: Sequence[Value], count: int) -> bool:
    """Of parts along axes that are no rows."""
    found = args["axes"] if "axes" in args else args["axis"]
    axes = [found] if isinstance(found, int) else found
    rank = len(given[0].shape)
    if not isinstance(axes, list | tuple) or not axes:
        return False
    return all(isinstance(a, int) and a % rank >= count for a in axes)


def _stacked(args: Mapping[str, Any], given: Sequence[Value], count: int) -> bool:
    axis, rank = args["axis"], len(given[0].shape) + 1
    return isinstance(axis, int) and axis % rank >= count


def _transposed(args: Mapping[str, Any], given: Sequence[Value], count: int) -> bool:
    return [*args["perm"][:count]] == [*range(count)]


def _indexed(args: Mapping[str, Any], given: Sequence[Value], count: int) -> bool:
    """By numbers and slices alone: what lists take may come first in the result."""
    parts = [*parts_of(args["index"], len(given[0].shape))]
    if not all(type(part) in (int, slice) for part in parts):
        return False
    return len(given) == 1 and parts[:count] == [slice(None)] * count


def _in_place(args: Mapping[str, Any], given: Sequence[Value], count: int) -> bool:
    """Numbers that stay in their order keep the leading axes that shapes keep."""
    return len(given) == 1


RULES: dict[str, Callable[[Mapping[str, Any], Sequence[Value], int], bool]] = {
    **dict.fromkeys(("linear", "matmul", "Tensor.__matmul__", "linear_v2"), _product),
    **dict.fromkeys(("concat", "split", "split_with_num", "slice"), _along),
    **dict.fromkeys(("strided_slice", "softmax", "unbind"), _along),
    **dict.fromkeys(("sum", "mean", "prod", "max", "min", "amax", "amin"), _along),
    **dict.fromkeys(("reshape", "squeeze", "unsqueeze", "flatten", "cast"), _in_place),
    **dict.fromkeys(("assign", "Tensor.clone"), _in_place),
    "stack": _stacked,
    "transpose": _transposed,
    "Tensor._getitem_dygraph": _indexed,
}
"""Of operators that are more than a function of each entry."""
