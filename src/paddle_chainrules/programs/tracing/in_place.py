"""Writes into tensors. Programs have none.

A program's values never change. What an operator in place writes is a new value. From
then on the tensor stands for that value, and so do all tensors that share its memory:
its views, the tensor that it is a view of, and other views of that tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import paddle
from paddle import Tensor

from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.dtypes import single
from ...paddle_side.interception import RAW
from ...paddle_side.listener import not_listening
from ..operators.entry import Operator
from ..operators.manipulation.brackets import without_new_axes
from ..operators.table import TABLE
from .memory import AliasMap
from .operations import Value, with_values


class WritableTrace(Protocol):
    """The methods of :class:`.record.Tracer` that this module uses."""

    memory: AliasMap

    def value_of(self, tensor: Tensor) -> Value: ...

    def tensor(self, value: Value) -> Any: ...

    def requires(self, value: Value) -> bool: ...

    def is_own(self, value: Value) -> bool: ...

    def may_write(self, value: Value) -> bool: ...

    def shares_input(self, x: Tensor) -> bool: ...

    def refuse_write(self, name: str) -> Any: ...

    def preserve_aliases(self, x: Tensor) -> None: ...

    def trace_constant_views(self, x: Tensor) -> None: ...

    def bind(self, tensor: Tensor, value: Value) -> None: ...

    def every(self, entry: Operator, args: Any) -> Any: ...

    def fail(self, reason: str) -> Any: ...


def _copy_formula(x: Tensor, value: Tensor, *_: Any) -> Tensor:
    if value.shape != x.shape:
        raise NotImplementedError(
            f"copy_ of {value.shape} into {x.shape}, which takes that shape; write "
            "x[...] = y"
        )
    return paddle.assign(paddle.cast(value, x.dtype))


def _assign_formula(value: Tensor, _: Tensor) -> Tensor:
    return paddle.assign(value)


def _increment_formula(x: Tensor, value: float = 1.0) -> Tensor:
    return x + single(value)


def _detach_formula(x: Tensor) -> Tensor:
    return x.detach()  # the method that is traced, which is not there at the import


IN_PLACE_FORMULAS: dict[str, Callable[..., Any]] = {
    "fill_": paddle.full_like,
    "assign_out_": _assign_formula,
    "increment_": _increment_formula,
    "Tensor.copy_": _copy_formula,
    "Tensor.detach_": _detach_formula,
}
"""Formulas of in-place operators that have no twin among the operators."""

ITEM, DETACH = "Tensor._setitem_dygraph", "Tensor.detach"

TARGETS = {"where_": 1, "assign_out_": 1}
"""The argument that is written into, where it is not the first."""

NO_ELEMENT_WRITTEN = frozenset(
    ("reshape_", "flatten_", "squeeze_", "unsqueeze_", "transpose_", "Tensor.detach_")
)
"""Operators that give the tensor another shape, or take its gradient away."""


@cache
def is_write(name: str) -> bool:
    """Tell whether the operator of this name is known to write into an argument."""
    if name in IN_PLACE_FORMULAS or name == ITEM:
        return True
    return name.endswith("_") and not name.endswith("__") and name[:-1] in TABLE


def trace_write(
    tracer: WritableTrace, name: str, call: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """Trace an in-place operator, and return its result.

    Raises:
        CaptureError: it writes into a tensor that the function has not created.
    """
    x: Tensor = args[TARGETS.get(name, 0)]
    with not_listening():
        begin_write(tracer, name, x)
        values_before = {id(t): tracer.value_of(t) for t in tracer.memory.aliases_of(x)}

    def old_contents(arg: Any) -> Any:
        if isinstance(arg, Tensor):
            return (
                tracer.tensor(values_before[id(arg)])
                if id(arg) in values_before
                else arg
            )
        if type(arg) in (list, tuple):
            return type(arg)(map(old_contents, arg))
        return arg

    old_args = [*map(old_contents, args)]
    old_kwargs = {key: old_contents(arg) for key, arg in kwargs.items()}
    if name == ITEM:
        with not_listening():
            result = tracer.every(TABLE[ITEM], old_args)
    else:
        formula = IN_PLACE_FORMULAS.get(name) or getattr(paddle._C_ops, name[:-1])
        result = formula(*old_args, **old_kwargs)
    with not_listening():
        if name == "cast_" and result.dtype != x.dtype:  # which gives it other memory
            with grad_mode(False):
                call(*args, **kwargs)
            x.stop_gradient = result.stop_gradient
            tracer.bind(x, tracer.value_of(result))
        elif name in NO_ELEMENT_WRITTEN:
            with grad_mode(False):
                call(*args, **kwargs)
            tracer.bind(x, tracer.value_of(result))
            for alias in tracer.memory.aliases_of(x):
                if tuple(alias.shape) != tracer.value_of(alias).shape:
                    tracer.fail(
                        f"{name} of a tensor gives another the new shape too, as "
                        "Paddle has y[...]; write x = x.reshape(...)"
                    )
        else:
            finish_write(tracer, name, x, result)
    return None if name == ITEM else x


def begin_write(tracer: WritableTrace, name: str, x: Tensor) -> None:
    """Copy the contents of values whose memory will be written into.

    Raises:
        CaptureError: the tensor is not the function's own, or its gradient would be
            lost.
    """
    tracer.trace_constant_views(x)
    chain = tracer.memory.view_chain(tracer.value_of(x))
    if not tracer.may_write(chain[0]) or tracer.shares_input(x):
        tracer.refuse_write(name)
    has_gradients = [*map(tracer.requires, chain)]
    if has_gradients[0] and not (all(has_gradients) and paddle.is_grad_enabled()):
        tracer.fail(
            f"{name} writes past the gradient of a tensor, under no_grad or by way of "
            "detach; write into its detach().clone()"
        )
    tracer.preserve_aliases(x)


def finish_write(tracer: WritableTrace, name: str, x: Tensor, result: Tensor) -> None:
    """Bind x to the written result, and its aliases to views of that.

    Raises:
        CaptureError: it has another shape or dtype.
    """
    if result.shape != x.shape or result.dtype != x.dtype:
        tracer.fail(
            f"{name} writes {result.dtype} of shape {result.shape} into {x.dtype} of "
            f"shape {x.shape}; write what has the same"
        )
    aliases = tracer.memory.aliases_of(x)
    chain = tracer.memory.view_chain(tracer.value_of(x))
    if not (tracer.is_own(chain[0]) or result.stop_gradient):
        tracer.fail(
            f"{name} writes what is differentiated into a tensor that the function has "
            "not made; give it as an argument, and return its new value"
        )
    retaken = _updated_roots(tracer, chain, result)
    with grad_mode(False):
        RAW.assign_out_(result, x.detach())
    values = [*map(tracer.value_of, aliases)]  # before flags change, which some share
    for tensor, value in zip(aliases, values, strict=True):
        new_contents = _retake_view(tracer, value, retaken)
        tensor.stop_gradient = new_contents.stop_gradient
        tracer.bind(tensor, tracer.value_of(new_contents))


def _updated_roots(
    tracer: WritableTrace, chain: list[Value], result: Tensor
) -> dict[Value, Tensor]:
    """Return the new root of a chain of views.

    Where the chain has been detached, and what is written is differentiated, the
    written one has the gradient from then on, and the root, as Paddle has it, none.
    """
    detached = [
        k
        for k, value in enumerate(chain)
        if k and tracer.memory.view_operation(value).operator.differentiable == ()
    ]
    if result.stop_gradient or not detached:
        return {chain[0]: _updated_root(tracer, chain, result)}
    own = chain[detached[-1] :]
    written = _updated_root(tracer, own, result)
    if detached == [1]:  # all of the root, which is a view of what is written now
        return {own[0]: written, chain[0]: tracer.every(TABLE[DETACH], (written,))}
    constant = tracer.every(TABLE[DETACH], (result,))
    return {own[0]: written, chain[0]: _updated_root(tracer, chain, constant)}


def _updated_root(tracer: WritableTrace, chain: list[Value], result: Tensor) -> Tensor:
    """Return the new root of a chain of views, whose last value is the result.

    Each value of the chain is a view of the one before it.
    """
    if len(chain) == 1:
        return result
    if len({value.dtype for value in chain}) > 1:
        tracer.fail(
            "a tensor is written into by way of a view of another dtype, such as its "
            "real part; write the whole of it"
        )
    base = tracer.tensor(chain[0])
    view = tracer.memory.view_operation(chain[1])
    if len(chain) == 2 and view.operator.name == "Tensor._getitem_dygraph":
        index = with_values(view.args[1], tracer.tensor)
        index, shape = without_new_axes(index, base.shape)
        if shape != result.shape:
            result = tracer.every(TABLE["reshape"], (result, shape))
        return tracer.every(TABLE[ITEM], (base, index, result))
    offsets = tracer.memory.element_offsets(chain, tracer.tensor)
    if offsets.size > base.size:
        tracer.fail("a tensor is written into by way of an expanded view; clone it")
    flat = tracer.every(TABLE["reshape"], (base, [-1]))
    row = tracer.every(TABLE["reshape"], (result, [-1]))
    flat = tracer.every(TABLE[ITEM], (flat, offsets.reshape([-1]), row))
    return tracer.every(TABLE["reshape"], (flat, base.shape))


def _retake_view(
    tracer: WritableTrace, value: Value, retaken: dict[Value, Tensor]
) -> Tensor:
    """Take a view once more, of the new value of its root."""
    if value not in retaken:
        if not tracer.memory.is_view(value):
            tracer.fail(
                "a tensor is written into that shares memory with a detached one that "
                "was written into before; write into its clone()"
            )
        op = tracer.memory.view_operation(value)
        source = _retake_view(tracer, op.args[0], retaken)
        args = [with_values(arg, tracer.tensor) for arg in op.args[1:]]
        result = tracer.every(op.operator, (source, *args))
        outputs = [*result] if op.many else [result]
        retaken.update(zip(op.outputs, outputs, strict=True))
    return retaken[value]
