"""Operators whose results have shapes that depend on values.

The shape found at capture becomes an argument. Every call of the program must have that
shape. Where it differs, jit runs the function as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import CaptureError
from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.rules.arguments import ARGUMENTS
from .entry import Operator, raw, register


class ShapedOperator(Operator):
    """An operator with the shape of its first result as its last argument."""

    def canonical(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        *inputs, shape = super().canonical(args, kwargs)
        if shape is None:
            with grad_mode(False):
                shape = _first_output(raw(self.name)(*inputs)).shape
        return *inputs, [*shape]


def define_of_known_shape(name: str, **kinds: Any) -> None:
    """Register such an operator. Its rules get the shape as last argument."""
    arguments = " ".join((*ARGUMENTS[name], "shape"))
    kinds["defaults"] = {**kinds.get("defaults", {}), "shape": None}
    register(ShapedOperator(name, arguments, _with_checked_shape(name), **kinds))


def _first_output(result: Any) -> Any:
    return result[0] if isinstance(result, list | tuple) else result


def _with_checked_shape(name: str) -> Callable[..., Any]:
    run = raw(name)

    def checked(*args: Any) -> Any:
        *inputs, shape = args
        result = run(*inputs)
        if (actual := _first_output(result).shape) != shape:
            raise CaptureError(
                f"{name} gives shape {actual} here and gave {shape} when the program "
                "was captured, since its shape depends on values; call the function "
                "without jit, or make its integers constants"
            )
        return result

    return checked
