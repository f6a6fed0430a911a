"""Operators that write into a tensor, and what of it Paddle would lose without a word.

A view shares memory with the tensor that it was made of, but Paddle's graph does not
know: what is written by way of the one does not change the gradients of the other. So
a write is refused where a part of a tensor is written, and where both are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ..autograd.partial_gradients import node_of
from ..dtypes import is_integral
from ..index_lists import (
    read_item,
    split_strided_slices,
    squeeze_leading_ones,
    without_new_axes,
    write_item,
)
from ..shared_memory import share_memory
from ..watch import RuleContext, has_view, is_traced, tensors_in_arguments
from .derivatives import every_order as closed
from .derivatives.formulas import broadcast_to

ops: Any = paddle._C_ops

REFUSED_WRITE = "IsLeafTensor"
"""Words of Paddle's error about a write into a leaf of the graph."""


def _grad_node_names(*names: str) -> frozenset[str]:
    return frozenset(f"{name}GradNode" for name in names)


_PARTIAL_VIEWS = _grad_node_names(
    *("Slice", "StridedSlice", "AsStrided", "TensorUnfold", "Diagonal", "Unbind"),
    *("ViewSlice", "Real", "Imag"),
) | {"GradNodePyLayer__Indexed"}
"""Views of a part of a tensor."""

_FULL_VIEWS = _grad_node_names(
    *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "ViewShape"),
    *("ViewDtype", "AsComplex", "AsReal"),
)
"""Views of all of it."""


class Write(NamedTuple):
    """A node of which another use than the one by a write would miss what it wrote."""

    node: Any
    by: Any
    """The view that was written; None where views alone are other uses."""


def overwrite(x: Tensor, value: Tensor) -> Tensor:
    """Put a value into a tensor, which forgets what it depended on.

    It does so by a choice. Its gradient with respect to the old value is zero, also
    where cotangents are infinite or NaN, and it can be differentiated any number of
    times.
    """
    nowhere = paddle.zeros(x.shape, "bool")
    ops.where_(nowhere, x, broadcast_to(x.shape, value))
    return x


def view(operator: Any, context: RuleContext, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operator whose results are views of its argument, and note these.

    Those of a traced tensor are noted where it is a view of a part.
    """
    if is_traced(x) and context.is_part_view(x):
        return part_view(operator, context, x, *args, **kwargs)
    result = operator(x, *args, **kwargs)
    if isinstance(x, Tensor) and x.stop_gradient:
        for output in result if isinstance(result, list | tuple) else (result,):
            context.note_view(x, output)
    return result


def part_view(
    operator: Any, context: RuleContext, x: Any, *args: Any, **kwargs: Any
) -> Any:
    """Run an operator whose results are views of parts of x, and note these."""
    if not is_traced(x) or not context.records:
        return view(operator, context, x, *args, **kwargs)

    def take(number: int) -> Callable[[Tensor], Tensor]:
        def of_base(base: Tensor) -> Tensor:
            result = operator(base, *args, **kwargs)
            taken: Tensor = result[number] if is_many else result
            return taken

        return of_base

    result = operator(x, *args, **kwargs)
    is_many = isinstance(result, list | tuple)
    for number, output in enumerate(result if is_many else (result,)):
        context.note_part_view(x, output, take(number))
    return result


_RESHAPES = ("reshape_", "flatten_", "squeeze_", "unsqueeze_", "transpose_")
"""Operators that write no element."""

_SUMS = ("add_", "subtract_", "increment_")
"""Operators that keep nothing, and can be differentiated any number of times."""

_WITHOUT_TWIN = (
    *("cast_", "dropout_", "batch_norm_", "uniform_inplace_", "gaussian_inplace_"),
    "where_",
)
"""Operators without a twin to use: it draws other numbers, has other results, or is not
needed, as a choice can be differentiated any number of times."""

_WRONG_BY_VALUES = (
    *("masked_fill_", "index_put_", "fill_diagonal_tensor_", "lerp_", "clip_"),
    *("scale_", "scatter_"),
)
"""Operators whose gradients by further arguments Paddle has wrong, or not at all."""

_WRONG_BY_TARGET = ("gammaincc_",)
"""Operators for which Paddle's gradient by the written tensor is none."""


_FILLS = ("full_", "assign_value_")
"""Operators that write constants, into leaves too; Paddle's graph does not know of
them."""


def rule_of(name: str) -> Callable[..., Any]:
    """Return the rule of the operator in place of this name in ``paddle._C_ops``.

    Where its own gradient is wrong, or is to be differentiated, what the operator out
    of place gives is written, which has rules of its own.
    """
    written_position = 1 if name == "where_" else 0
    alone = (*_SUMS, *_RESHAPES, *_WITHOUT_TWIN)
    has_twin = hasattr(paddle._C_ops, name[:-1]) and name not in alone

    def rule(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
        x = args[written_position]
        if name in _FILLS and is_traced(x):
            if not x.is_leaf:
                refuse_write(x, [], context.neutral_writes)
                constant = paddle.empty_like(x)
                operator(constant, *args[1:], **kwargs)
                return overwrite(x, constant)
            if not context.is_any_leaf(x):  # a parameter that is being made
                return operator(*args, **kwargs)
        values = tensors_in_arguments(
            [*args[:written_position], *args[written_position + 1 :], *kwargs.values()]
        )
        views = refuse_write(x, values, context.neutral_writes)
        by_values = any(map(is_traced, values))
        if not (by_values or is_traced(x)):
            return operator(*args, **kwargs)
        if has_twin and (
            name in _WRONG_BY_TARGET
            or (by_values and name in _WRONG_BY_VALUES)
            or context.create_graph([x, *values])
        ):
            if name == "fill_":
                return overwrite(x, paddle.full_like(x, *args[1:], **kwargs))
            copy = paddle.assign(x)  # what it keeps is not to be overwritten
            twin_args = [*args[:written_position], copy, *args[written_position + 1 :]]
            result = getattr(paddle._C_ops, name[:-1])(*twin_args, **kwargs)
            is_same_shape = isinstance(result, Tensor) and result.shape == x.shape
            if is_same_shape and result.dtype == x.dtype:
                return overwrite(x, result)
        if name in _RESHAPES or (name in _SUMS and not by_values):
            return _write_neutrally(context, x, partial(operator, *args, **kwargs))
        return _write_and_note(
            context, x, views, values, partial(operator, *args, **kwargs)
        )

    return refreshing_views(rule, written_position, reshapes=name in _RESHAPES)


def _write_neutrally(context: RuleContext, x: Tensor, write: Callable[[], Any]) -> Any:
    """Make a write that changes no derivative, and note that."""
    before = node_of(x)
    result = write()
    context.note_neutral_write(node_of(x), before)
    return result


def _write_and_note(
    context: RuleContext,
    x: Tensor,
    views: Sequence[Any],
    values: Sequence[Any],
    write: Callable[[], Any],
) -> Any:
    """Make a write, and note what must not be used otherwise."""
    if views:
        context.note_writes(_list_writes(views, context.neutral_writes))
        return write()
    result = write()
    if is_traced(x):
        # Paddle makes a leaf of what was a constant.
        value_nodes = {
            node_of(value).node_ptr() for value in values if is_traced(value)
        }
        for node in node_of(x).next_functions:
            if node is not None and node.node_ptr() not in value_nodes:
                context.note_constant(node)
    return result


def assign_out(
    operator: Any, context: RuleContext, value: Tensor, output: Tensor
) -> Any:
    refuse_write(output, [value], context.neutral_writes)
    return (
        overwrite(output, value * 1) if is_traced(output) else operator(value, output)
    )


def get_item(operator: Any, context: RuleContext, x: Tensor, item: Any) -> Any:
    """Return ``x[item]``, which may be a view of part of x."""
    result = read_item(operator, x, item)
    if context.records and result is not x and share_memory(result, x):
        if is_traced(result):
            context.note_part_view(x, result, lambda x: read_item(operator, x, item))
        elif x.stop_gradient:
            context.note_view(x, result)
    return result


def refreshing_views(
    rule: Callable[..., Any], written_position: int = 0, reshapes: bool = False
) -> Callable[..., Any]:
    """Return the rule of a write, after which views of parts hold what was written.

    Args:
        reshapes: whether it writes another shape, which views of parts are not of.
    """

    def call(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
        x = args[written_position]
        if reshapes and context.records and is_traced(x) and context.part_views_of(x):
            raise NotImplementedError(
                "an operation in place that reshapes a tensor, such as "
                "y.unsqueeze_(0), after a view of a part of it, such as y[1:], was "
                "taken: reshape it out of place, y = y.unsqueeze(0)"
            )
        result = rule(operator, context, *args, **kwargs)
        if not context.records:
            return result
        context.note_overwritten()  # also of a constant that a gradient needs
        if is_traced(x):
            _refresh_views(context, x)
        return result

    return call


def _refresh_views(context: RuleContext, x: Tensor) -> None:
    for view, take in context.part_views_of(x):
        if view is not x and share_memory(view, x):
            view.reconstruct_from_(take(x))


def set_item(
    operator: Any, context: RuleContext, x: Tensor, item: Any, value: Any
) -> Any:
    """Run ``x[item] = value`` for indices of tensors, lists, masks or new axes."""
    if not context.records:
        return write_item(operator, x, item, value, has_gaps=True)
    item, value = without_new_axes(x, item, value)
    if split_strided_slices(item if isinstance(item, tuple) else (item,)) is not None:
        raise NotImplementedError(
            "x[::2, index] = y, a tensor as an index beside a slice with a step, ends "
            "Paddle's process; write y into a copy of x[::2], and that into x"
        )
    return _set_item(operator, context, x, item, value)


def _set_item(
    operator: Any, context: RuleContext, x: Tensor, item: Any, value: Any
) -> Any:
    value = squeeze_leading_ones(x, item, value)
    if is_integral(x) and isinstance(value, Tensor):
        value = value.detach()
    entries = item if isinstance(item, tuple) else (item,)
    views = refuse_write(x, [value], context.neutral_writes)
    basic = int | slice | type(Ellipsis)
    if any(entry is None for entry in entries) and any(
        isinstance(entry, Tensor) for entry in entries
    ):
        raise NotImplementedError(
            "x[None, index] = y with a tensor as an index ends Paddle's process; "
            "assign without the new axis"
        )
    write = partial(operator, x, item, value)
    if not (is_traced(x) or is_traced(value)):
        return write()
    is_plain = all(isinstance(p, basic) and not isinstance(p, bool) for p in entries)
    differentiated_again = context.create_graph([x, value])
    if any(isinstance(entry, Tensor) and not entry.size for entry in entries) or not (
        differentiated_again or (is_traced(value) and not is_plain)
    ):
        return _write_and_note(context, x, views, [value], write)
    if not isinstance(value, Tensor):
        value = paddle.to_tensor(value, x.dtype, x.place)
    with paddle.no_grad():
        written = paddle.arange(x.size).reshape(x.shape)[item]
        if not written.size:
            return write()
        # As Paddle writes: whose value it is at each place, and where there is none.
        owner = paddle.full(x.shape, -1, "int64")
        owner[item] = paddle.arange(written.size).reshape(written.shape)
    index = paddle.maximum(owner, paddle.zeros_like(owner)).reshape([-1])
    values = broadcast_to(written.shape, value.astype(x.dtype)).reshape([1, -1])
    result = closed.gather_columns(values, index).reshape(x.shape)
    return overwrite(x, paddle.where(owner >= 0, result, x))


def copy(operator: Any, context: RuleContext, x: Tensor, value: Any, *rest: Any) -> Any:
    """Run ``x.copy_(value)``, which Paddle's graph does not know of."""
    if is_traced(x) or is_traced(value):
        raise NotImplementedError(
            "x.copy_(y) is not differentiated: x would keep its old gradients, and y "
            "have none. Write paddle.assign(y, output=x), or x = y.clone()"
        )
    return operator(x, value, *rest)


def set_value(operator: Any, context: RuleContext, x: Tensor, value: Any) -> Any:
    """Run ``x.set_value(value)``, which sets the value of a leaf, and no more."""
    if is_traced(x) and not x.is_leaf:
        raise NotImplementedError(
            "x.set_value(y) of a tensor that was computed: it would keep its old "
            "gradients. Write x = y, or paddle.assign(y, output=x)"
        )
    return operator(x, value)


def refuse_write(
    x: Any, values: Sequence[Any], neutral: Mapping[int, Any]
) -> list[Any]:
    """Refuse to write into a leaf or a view of a part, before anything is written.

    Returns:
        The result of :func:`_views_of`; nothing for a constant.

    Raises:
        ValueError: a leaf; Paddle raises the same, but only after it has written.
        NotImplementedError: a view of a part, or of a constant.
    """
    if is_traced(x) and x.is_leaf:
        raise ValueError(
            f"the leaf {x.name} requires a gradient, so that nothing can be written "
            f"into it in place; write into a copy, x = x.clone() ({REFUSED_WRITE})"
        )
    has_traced_values = any(map(is_traced, values))
    views = _views_of(x, neutral) if is_traced(x) else []
    if (
        views[-1].name() in _PARTIAL_VIEWS
        if views
        else has_traced_values and _is_partial_view(x)
    ):
        raise NotImplementedError(
            "an operation in place on a view of a part of a tensor, such as "
            "x[1:].add_(y): Paddle loses the gradient of the whole there. Assign to "
            "the whole instead: x[1:] = x[1:] + y, and x[0, 1] = y for x[0][1] = y"
        )
    if (
        has_traced_values
        and not is_traced(x)
        and (not x.is_contiguous() or has_view(x))
    ):
        raise NotImplementedError(
            "an operation in place on a constant that shares memory with a view of it, "
            "such as x.T.add_(y): one of both would go on being a constant. Write it "
            "out of place: x = x + y.T"
        )
    return views


def _is_partial_view(x: Tensor) -> bool:
    """Tell whether a constant has more memory than an allocator gives for its size."""
    granularity = 1 if x.place.is_cpu_place() else 512
    needed = -(-x.size * x.element_size() // granularity) * granularity
    return bool(x._holder_size() > needed)


def _views_of(x: Tensor, neutral: Mapping[int, Any]) -> list[Any]:
    """Return the nodes of a traced tensor and of those that it is a view of."""
    results = [node_of(x)]
    while True:
        node = results[-1]
        if (pair := neutral.get(node.node_ptr())) is not None:
            results.append(pair[1])
        elif node.name() in _FULL_VIEWS:
            results.append(node.next_functions[0])
        else:
            return results


def _list_writes(views: Sequence[Any], neutral: Mapping[int, Any]) -> list[Write]:
    """List what must not be used otherwise after a write into a traced tensor."""
    results = [Write(views[0], None)]
    for by, node in pairwise(views):
        results.append(Write(node, None if by.node_ptr() in neutral else by))
    return results


def refuse_other_uses(outputs: Sequence[Any], writes: Sequence[Write]) -> None:
    """Refuse results that a write by way of another view has changed.

    Raises:
        NotImplementedError: they depend on a tensor and on a view of it that was
            written into.
    """
    allowed: dict[int, set[int | None]] = {}
    for node, by in writes:
        allowed.setdefault(node.node_ptr(), set()).add(by and by.node_ptr())
    stack = [node_of(t) for t in outputs if is_traced(t)]
    wrong = any(allowed.get(node.node_ptr(), {None}) != {None} for node in stack)
    seen: set[int] = set()
    while stack and not wrong:
        node = stack.pop()
        address = node.node_ptr()
        if address in seen:
            continue
        seen.add(address)
        for edge in node.next_functions:
            if edge is None:
                continue
            target = edge.node_ptr()
            for by in allowed.get(target, ()):
                wrong |= node.name() in _FULL_VIEWS if by is None else by != address
            if target not in seen:
                stack.append(edge)
    if wrong:
        raise NotImplementedError(
            "an operation in place, such as y.T.add_(v), where both a tensor and a "
            "view of it (reshape, flatten, squeeze, unsqueeze, transpose) are used: "
            "Paddle's gradients of one of them miss what was written. Write it out of "
            "place: y = y + v.T"
        )
