"""Operations that compute what others have computed before, found by a table."""

from __future__ import annotations

from typing import Any

from .operations import Operation, Value, with_values


class CommonSubexpressions:
    """The operations that were met, in their order.

    Attributes:
        alias: maps a value to the earlier value that is the same.
    """

    def __init__(self) -> None:
        self.alias: dict[Value, Value] = {}
        self._known: dict[Any, Operation] = {}

    def named(self, op: Operation) -> Operation:
        """Return the operation on values that are no aliases of others."""
        alias = self.alias
        if alias.keys().isdisjoint(op.inputs):
            return op
        args = tuple(with_values(a, lambda v: alias.get(v, v)) for a in op.args)
        return Operation(op.operator, args, op.outputs, op.many, op.where)

    def is_known(self, op: Operation, *more: Any) -> bool:
        """Tell whether an earlier operation gives the same; its results become aliases.

        Args:
            more: further items that two equal operations must share.
        """
        entry = op.operator
        if entry.random:
            return False
        first = self._known.setdefault((entry.name, *more, *map(key_of, op.args)), op)
        if first is op:
            return False
        self.alias.update(zip(op.outputs, first.outputs, strict=True))
        return True


def key_of(arg: Any) -> Any:
    """Return a key that is the same for equal arguments."""
    if isinstance(arg, (list, tuple)):
        return (type(arg).__name__, *map(key_of, arg))
    if isinstance(arg, slice):
        return ("slice", arg.start, arg.stop, arg.step)
    return arg if isinstance(arg, Value) else (type(arg).__name__, str(arg))
