"""Arguments of Paddle's operators by the names that the operators have for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle

ARGUMENTS: dict[str, list[str]] = paddle._C_ops.get_core_ops_args_info()
"""Names of the arguments by operator, in the order of a call."""

ARGUMENTS["matmul"] = ["x", "y", "transpose_x", "transpose_y"]
"""Paddle lists those of the sparse operator of this name."""

ALIASES = (
    {"input": "x", "other": "y", "mat2": "y", "tensor": "y", "dim": "axis"}
    | {"dims": "axis", "dim1": "axis1", "dim2": "axis2", "values": "value"}
)  # fmt: skip
"""Argument names of PyTorch's that Paddle's operators accept, too."""


def without_aliases(
    arguments: Sequence[str] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments of a call without aliases, and without a name for the result.

    Paddle's operators take a ``name`` after their own arguments, and use it nowhere.

    Args:
        arguments: the operator's own names, None if they are not known.
    """
    if arguments is None or not (kwargs or len(args) > len(arguments)):
        return args, kwargs
    if len(args) == len(arguments) + 1 and isinstance(args[-1], str | None):
        args = args[:-1]
    return args, {
        name if name in arguments else ALIASES.get(name, name): value
        for name, value in kwargs.items()
        if name != "name"
    }
