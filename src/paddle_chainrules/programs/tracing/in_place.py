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
    """The part of :class:`.record.WritableTrace` that this module uses."""

    memory: AliasMap

    def value_of(self, tensor: Tensor) -> Value: ...

    def tensor(self, value: Value) -> Any: ...

    def requires(self, value: Value) -> bool: ...

    def is_own(self, value: Value) -> bool: ...

    def may_write(self, value: Value) -> bool: ...

    def shares_input(self, x: Tensor) -> bool: ...

    def refuse_write(self, name: str) -> Any: ...

    def set_apart(self, x: Tensor) -> None: ...

    def show_views(self, x: Tensor) -> None: ...

    def stand_for(self, tensor: Tensor, value: Value) -> None: ...

    def every(self, entry: Operator, given: Any) -> Any: ...

    def fail(self, reason: str) -> Any: ...


def _copied(x: Tensor, value: Tensor, *_: Any) -> Tensor:
    if value.shape != x.shape:
        raise NotImplementedError(
            f"copy_ of {value.shape} into {x.shape}, which takes that shape; write "
            "x[...] = y"
        )
    return paddle.assign(paddle.cast(value, x.dtype))


def _assigned(value: Tensor, _: Tensor) -> Tensor:
    return paddle.assign(value)


def _incremented(x: Tensor, value: float = 1.0) -> Tensor:
    return x + single(value)


FORMULAS: dict[str, Callable[..., Any]] = {
    "fill_": paddle.full_like,
    "assign_out_": _assigned,
    "increment_": _incremented,
    "Tensor.copy_": _copied,
}
"""Formulas of in-place operators that have no out-of-place twin."""

ITEM = "Tensor._setitem_dygraph"

TARGETS = {"where_": 1, "assign_out_": 1}
"""The argument that is written into, where it is not the first."""

RESHAPING = frozenset({"reshape_", "flatten_", "squeeze_", "unsqueeze_", "transpose_"})
"""Operators that write no element, but give the tensor another shape."""


@cache
def is_write(name: str) -> bool:
    """Tell whether the operator of this name is known to write into an argument."""
    if name in FORMULAS or name == ITEM:
        return True
    return name.endswith("_") and not name.endswith("__") and name[:-1] in TABLE


def write(
    record: WritableTrace, name: str, call: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """Note an operator in place, and return its result.

    Raises:
        CaptureError: it writes into a tensor that the function has not made.
    """
    x: Tensor = args[TARGETS.get(name, 0)]
    with not_listening():
        begin(record, name, x)
        met = {id(t): record.value_of(t) for t in record.memory.sharing(x)}

    def before(arg: Any) -> Any:
        if isinstance(arg, Tensor):
            return record.tensor(met[id(arg)]) if id(arg) in met else arg
        if type(arg) in (list, tuple):
            return type(arg)(map(before, arg))
        return arg

    given = [*map(before, args)]
    options = {key: before(arg) for key, arg in kwargs.items()}
    if name == ITEM:
        with not_listening():
            result = record.every(TABLE[ITEM], given)
    else:
        formula = FORMULAS.get(name) or getattr(paddle._C_ops, name[:-1])
        result = formula(*given, **options)
    with not_listening():
        if name == "cast_" and result.dtype != x.dtype:  # which gives it other memory
            with grad_mode(False):
                call(*args, **kwargs)
            x.stop_gradient = result.stop_gradient
            record.stand_for(x, record.value_of(result))
        elif name in RESHAPING:
            with grad_mode(False):
                call(*args, **kwargs)
            record.stand_for(x, record.value_of(result))
            for other in record.memory.sharing(x):
                if tuple(other.shape) != record.value_of(other).shape:
                    record.fail(
                        f"{name} of a tensor gives another the new shape too, as "
                        "Paddle has y[...]; write x = x.reshape(...)"
                    )
        else:
            end(record, name, x, result)
    return None if name == ITEM else x


def begin(record: WritableTrace, name: str, x: Tensor) -> None:
    """Keep the contents of values whose memory will be written into.

    Raises:
        CaptureError: the tensor is not the function's own, or its gradient would be
            lost.
    """
    record.show_views(x)
    chain = record.memory.chain(record.value_of(x))
    if not record.may_write(chain[0]) or record.shares_input(x):
        record.refuse_write(name)
    flows = [*map(record.requires, chain)]
    if flows[0] and not (all(flows) and paddle.is_grad_enabled()):
        record.fail(
            f"{name} writes past the gradient of a tensor, under no_grad or by way of "
            "detach; write into its detach().clone()"
        )
    record.set_apart(x)


def end(record: WritableTrace, name: str, x: Tensor, result: Tensor) -> None:
    """Make x, and all that shares its memory, stand for what was found.

    Raises:
        CaptureError: it has another shape or dtype.
    """
    if result.shape != x.shape or result.dtype != x.dtype:
        record.fail(
            f"{name} writes {result.dtype} of shape {result.shape} into {x.dtype} of "
            f"shape {x.shape}; write what has the same"
        )
    tensors = record.memory.sharing(x)
    chain = record.memory.chain(record.value_of(x))
    if not (record.is_own(chain[0]) or result.stop_gradient):
        record.fail(
            f"{name} writes what is differentiated into a tensor that the function has "
            "not made; give it as an argument, and return its new value"
        )
    known = {chain[0]: _replaced_first_value(record, chain, result)}
    with grad_mode(False):
        RAW.assign_out_(result, x.detach())
    values = [*map(record.value_of, tensors)]  # before flags change, which some share
    for tensor, value in zip(tensors, values, strict=True):
        made = _again(record, value, known)
        tensor.stop_gradient = made.stop_gradient
        record.stand_for(tensor, record.value_of(made))


def _replaced_first_value(
    record: WritableTrace, chain: list[Value], result: Tensor
) -> Tensor:
    """Return the new first value of a chain, whose last value is what was found.

    Each value of the chain is a view of the one before it.
    """
    if len(chain) == 1:
        return result
    if len({value.dtype for value in chain}) > 1:
        record.fail(
            "a tensor is written into by way of a view of another dtype, such as its "
            "real part; write the whole of it"
        )
    base = record.tensor(chain[0])
    view = record.memory.by(chain[1])
    if len(chain) == 2 and view.operator.name == "Tensor._getitem_dygraph":
        index = with_values(view.args[1], record.tensor)
        index, shape = without_new_axes(index, base.shape)
        if shape != result.shape:
            result = record.every(TABLE["reshape"], (result, shape))
        return record.every(TABLE[ITEM], (base, index, result))
    places = record.memory.places(chain, record.tensor)
    if places.size > base.size:
        record.fail("a tensor is written into by way of an expanded view; clone it")
    flat = record.every(TABLE["reshape"], (base, [-1]))
    row = record.every(TABLE["reshape"], (result, [-1]))
    flat = record.every(TABLE[ITEM], (flat, places.reshape([-1]), row))
    return record.every(TABLE["reshape"], (flat, base.shape))


def _again(record: WritableTrace, value: Value, known: dict[Value, Tensor]) -> Tensor:
    """Take a view once more, of the present value of its root."""
    if value not in known:
        op = record.memory.by(value)
        source = _again(record, op.args[0], known)
        args = [with_values(arg, record.tensor) for arg in op.args[1:]]
        made = record.every(op.operator, (source, *args))
        parts = [*made] if op.many else [made]
        known.update(zip(op.outputs, parts, strict=True))
    return known[value]
