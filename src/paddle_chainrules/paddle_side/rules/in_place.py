"""Operators that write into a tensor, and what of it Paddle would lose without a word.

A view shares memory with the tensor that it was made of, but Paddle's graph does not
know: what is written by way of the one does not change the gradients of the other. So
a write is refused where a part of a tensor is written, and where both are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ..partial_gradients import consumers, node_of
from ..watch import Context, has_view, is_traced
from . import every_order as closed
from .formulas import spread_to, where_traced

REFUSED_WRITE = "IsLeafTensor"
"""What Paddle's error says where a leaf of the graph would be written into."""


def _nodes(*names: str) -> frozenset[str]:
    return frozenset(f"{name}GradNode" for name in names)


_PARTS = _nodes(
    *("Slice", "StridedSlice", "AsStrided", "TensorUnfold", "Diagonal", "Unbind"),
    *("ViewSlice", "Real", "Imag"),
) | {"GradNodePyLayer__Indexed"}
"""Views of a part of a tensor."""

_WHOLES = _nodes(
    *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "ViewShape"),
    *("ViewDtype", "AsComplex", "AsReal"),
)
"""Views of all of it."""

VIEWS = ("reshape", "flatten", "squeeze", "unsqueeze", "view_shape", "view_dtype")


class Write(NamedTuple):
    """A node of which another use than the one by a write would miss what it wrote."""

    node: Any
    by: Any
    """The view that was written; None where views alone are other uses."""


def overwrite(x: Tensor, value: Tensor) -> Tensor:
    """Put a value into a tensor, which forgets what it depended on.

    In sums, which are differentiated as often as one likes; the value is then written
    once more, since the sum has roundoff.
    """
    refuse_write(x, [value])
    x.add_(value - x)
    with paddle.no_grad():
        paddle.assign(value, output=x.detach())
    return x


def view(operator: Any, context: Context, x: Any, *args: Any, **kwargs: Any) -> Any:
    """The rule of an operator that gives its argument another shape."""
    found = operator(x, *args, **kwargs)
    if isinstance(x, Tensor) and x.stop_gradient:
        context.note_view(x, found)
    return found


def written(operator: Any, context: Context, x: Any, *args: Any, **kwargs: Any) -> Any:
    """The rule of an operator that writes into its first argument."""
    refuse_write(x, args)
    if is_traced(x):
        context.note_writes(_writes(x))
    return operator(x, *args, **kwargs)


def added(operator: Any, context: Context, x: Any, *args: Any, **kwargs: Any) -> Any:
    """As :func:`written`, of a sum, which to add a constant does not change."""
    rule = written if any(map(is_traced, args)) else reshaped
    return rule(operator, context, x, *args, **kwargs)


def reshaped(operator: Any, context: Context, x: Any, *args: Any, **kwargs: Any) -> Any:
    """The rule of one that changes no derivative."""
    refuse_write(x, ())
    return operator(x, *args, **kwargs)


def in_place(formula: Callable[..., Any], *positions: int) -> Callable[..., Any]:
    """As :func:`where_traced`, for the operator that writes into its first argument."""

    def write(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return overwrite(x, formula(x, *args, **kwargs))

    rule = where_traced(write, *positions)

    def guarded(operator: Any, context: Context, *args: Any, **kwargs: Any) -> Any:
        refuse_write(args[0], args[1:])
        return rule(operator, context, *args, **kwargs)

    return guarded


def assign_out(operator: Any, context: Context, value: Tensor, output: Tensor) -> Any:
    refuse_write(output, [value])
    return (
        overwrite(output, value * 1) if is_traced(output) else operator(value, output)
    )


def index_put(x: Tensor, indices: Any, value: Tensor, accumulate: bool = False) -> Any:
    return paddle.index_put(x, indices, value, accumulate)


def set_item(operator: Any, context: Context, x: Tensor, item: Any, value: Any) -> Any:
    """``x[item] = value`` for indices that are tensors, lists or masks."""
    parts = item if isinstance(item, tuple) else (item,)
    refuse_write(x, [value])
    plain = int | slice | type(Ellipsis) | None
    if any(part is None for part in parts) and any(
        isinstance(part, Tensor) for part in parts
    ):
        raise NotImplementedError(
            "x[None, index] = y with a tensor as an index ends Paddle's process; "
            "assign without the new axis"
        )
    if (
        not is_traced(value)
        or any(isinstance(part, Tensor) and not part.size for part in parts)
        or (
            not context.create_graph([x, value])
            and all(isinstance(p, plain) and not isinstance(p, bool) for p in parts)
        )
    ):
        if is_traced(x):
            context.note_writes(_writes(x))
        return operator(x, item, value)
    with paddle.no_grad():
        places = paddle.arange(x.size).reshape(x.shape)[item]
        if not places.size:
            return operator(x, item, value)
        # As Paddle writes: whose value it is at each place, and where there is none.
        owner = paddle.full(x.shape, -1, "int64")
        owner[item] = paddle.arange(places.size).reshape(places.shape)
    index = paddle.maximum(owner, paddle.zeros_like(owner)).reshape([-1])
    values = spread_to(places.shape, value.astype(x.dtype)).reshape([1, -1])
    found = closed.gathered(values, index).reshape(x.shape)
    return overwrite(x, paddle.where(owner >= 0, found, x))


def copy(operator: Any, context: Context, x: Tensor, value: Any, *rest: Any) -> Any:
    """``x.copy_(value)``, of which Paddle's graph knows nothing."""
    if is_traced(x) or is_traced(value):
        raise NotImplementedError(
            "x.copy_(y) is not differentiated: x would keep its old gradients, and y "
            "have none. Write paddle.assign(y, output=x), or x = y.clone()"
        )
    return operator(x, value, *rest)


def set_value(operator: Any, context: Context, x: Tensor, value: Any) -> Any:
    """``x.set_value(value)``, which sets what a leaf is, and no more."""
    if is_traced(x) and not x.is_leaf:
        raise NotImplementedError(
            "x.set_value(y) of a tensor that was computed: it would keep its old "
            "gradients. Write x = y, or paddle.assign(y, output=x)"
        )
    return operator(x, value)


def refuse_write(x: Any, values: Sequence[Any]) -> None:
    """Refuse to write into a leaf or a view of a part, before anything is written.

    Raises:
        ValueError: a leaf; Paddle raises the same, but when it has written.
        NotImplementedError: a view of a part, or of a constant.
    """
    if is_traced(x) and x.is_leaf:
        raise ValueError(
            f"the leaf {x.name} requires a gradient, so that nothing can be written "
            f"into it in place; write into a copy, x = x.clone() ({REFUSED_WRITE})"
        )
    adds = any(map(is_traced, values))
    if _views_of(x)[-1].name() in _PARTS if is_traced(x) else adds and _is_part(x):
        raise NotImplementedError(
            "an operation in place on a view of a part of a tensor, such as "
            "x[1:].add_(y): Paddle loses the gradient of the whole there. Assign to "
            "the whole instead: x[1:] = x[1:] + y, and x[0, 1] = y for x[0][1] = y"
        )
    if adds and not is_traced(x) and (not x.is_contiguous() or has_view(x)):
        raise NotImplementedError(
            "an operation in place on a constant that shares memory with a view of it, "
            "such as x.T.add_(y): one of both would go on being a constant. Write it "
            "out of place: x = x + y.T"
        )


def _is_part(x: Tensor) -> bool:
    """Whether a constant's memory is more than it needs, up to an allocator's step."""
    step = 1 if x.place.is_cpu_place() else 512
    needed = -(-x.size * x.element_size() // step) * step
    return bool(x._holder_size() > needed)


def _views_of(x: Tensor) -> list[Any]:
    """The node of a traced tensor and, where it is a view, those that it is one of."""
    found = [node_of(x)]
    while found[-1].name() in _WHOLES:
        found.append(found[-1].next_functions[0])
    return found


def _writes(x: Tensor) -> list[Write]:
    """What must not be used otherwise when a traced tensor has been written into."""
    views = _views_of(x)
    found = [Write(node, by) for by, node in pairwise(views)]
    return [Write(views[0], None), *found]


def refuse_other_uses(outputs: Sequence[Any], writes: Sequence[Write]) -> None:
    """Refuse results that a write by way of another view has changed.

    Raises:
        NotImplementedError: they depend on a tensor and on a view of it that was
            written into.
    """
    nodes = [node_of(t) for t in outputs if is_traced(t)]
    users = consumers(nodes)
    ends = {node.node_ptr() for node in nodes}
    for node, by in writes:
        address = node.node_ptr()
        others = users.get(address, [])
        if by is None:
            wrong = any(other.name() in _WHOLES for other in others)
        else:
            own = by.node_ptr()
            wrong = address in ends or any(o.node_ptr() != own for o in others)
        if wrong:
            raise NotImplementedError(
                "an operation in place, such as y.T.add_(v), where both a tensor and a "
                "view of it (reshape, flatten, squeeze, unsqueeze, transpose) are "
                "used: Paddle's gradients of one of them miss what was written. Write "
                "it out of place: y = y + v.T"
            )


def rule_of(name: str) -> Callable[..., Any]:
    """The rule of an operator in place of which only the name is known."""
    if name in ("reshape_", "flatten_", "squeeze_", "unsqueeze_", "transpose_"):
        return reshaped
    return added if name in ("add_", "subtract_") else written
