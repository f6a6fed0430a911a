"""Common subexpression elimination: operations that repeat earlier ones, by a table."""

from __future__ import annotations

from typing import Any

from .operations import Operation, Value, with_values


class CommonSubexpressions:
    """A table of the operations seen so far, in their order.

    Attributes:
        alias: maps a value to the earlier value that is the same.
    """

    def __init__(self) -> None:
        self.alias: dict[Value, Value] = {}
        self._first_by_key: dict[Any, Operation] = {}

    def canonical(self, op: Operation) -> Operation:
        """Return the operation with aliases among its inputs resolved."""
        alias = self.alias
        if alias.keys().isdisjoint(op.inputs):
            return op
        args = tuple(with_values(a, lambda v: alias.get(v, v)) for a in op.args)
        return Operation(op.operator, args, op.outputs, op.many, op.where)

    def is_duplicate(self, op: Operation, *extra_keys: Any) -> bool:
        """Tell whether an earlier operation is equal; the outputs become aliases.

        Args:
            extra_keys: further items that two equal operations must share.
        """
        operator = op.operator
        if operator.random:
            return False
        earlier = self._first_by_key.setdefault(
            (operator.name, *extra_keys, *map(key_of, op.args)), op
        )
        if earlier is op:
            return False
        self.alias.update(zip(op.outputs, earlier.outputs, strict=True))
        return True


def key_of(arg: Any) -> Any:
    """Return a key that is the same for equal arguments."""
    if isinstance(arg, (list, tuple)):
        return (type(arg).__name__, *map(key_of, arg))
    if isinstance(arg, slice):
        return ("slice", arg.start, arg.stop, arg.step)
    return arg if isinstance(arg, Value) else (type(arg).__name__, str(arg))
