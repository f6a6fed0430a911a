"""Numbers that leave Paddle while a graph is recorded, which no derivative sees.

As in PyTorch an array of a tensor that is differentiated is refused, and one number of
it is a constant, since logs need them. Tracers elsewhere have a graph break there, or
refuse to make a value concrete.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from typing import Any

from paddle import Tensor

from ..watch import RuleContext, is_traced


class ConstantWarning(UserWarning):
    """A warning that numbers leave what is differentiated, and become constants."""


_CONVERSIONS = ("__float__", "__int__", "__index__", "__complex__")
"""Attributes by which Paddle's functions make numbers of tensors that they are
given."""

BREAKS = ("numpy", "item", "tolist", "__array__", *_CONVERSIONS)
"""Attributes of tensors that give their numbers."""

_NUMBERS = frozenset(name.strip("_") for name in _CONVERSIONS)
_ARRAYS = {"numpy": "x.numpy()", "tolist": "x.tolist()", "array": "np.asarray(x)"}


def warn_of_constants(
    operator: Any, context: RuleContext, tensor: Any, *args: Any, **kwargs: Any
) -> Any:
    """Warn of a number in the caller's own code; refuse one in Paddle's functions.

    But for what that does to print. An error here would end the process where it is
    Paddle's C++ that asks, so that it comes when the function has been recorded.
    """
    if is_traced(tensor) and not context.by_caller:
        refusal = constant_refusal(operator.__name__, sys._getframe(2))
        if refusal:
            context.refuse(refusal)
    return operator(tensor, *args, **kwargs)


def constant_refusal(attribute: str, frame: Any) -> str:
    """Warn of a number that code takes by an attribute of a tensor with gradients.

    Returns:
        Why that is refused, where it is a function of Paddle's; empty otherwise.

    Raises:
        TypeError: the caller's own code takes an array.
    """
    name = attribute.strip("_")
    if not _is_internal(frame):
        if name in _ARRAYS:
            raise TypeError(
                f"{_ARRAYS[name]} of a tensor that is differentiated, at "
                f"{frame.f_code.co_filename}:{frame.f_lineno}: what is computed of the "
                "array would have no gradient. Compute with tensors, or write "
                "x.detach().numpy() where a constant is meant"
            )
        _warn_at_line(name, frame)
    elif name in _NUMBERS:
        return _lost_gradient_message(_name_of_function(frame))
    return ""


def _lost_gradient_message(name: str) -> str:
    return (
        f"{name} of Paddle's takes a number where it was given a tensor that is "
        "differentiated, and would lose its gradient. Write the function in tensor "
        "operations, or give it x.detach() where a constant is meant"
    )


def refuse_traced_number(function: Any, parameter: str) -> Any:
    """Return a rule that refuses a tensor with gradients for this parameter.

    Paddle's function takes its value as a plain number, so its gradient would be lost.
    """
    position = list(inspect.signature(function).parameters).index(parameter)

    def rule(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
        value = args[position] if len(args) > position else kwargs.get(parameter)
        if is_traced(value) and not context.by_caller:
            context.refuse(_lost_gradient_message(operator.__name__))
        return operator(*args, **kwargs)

    return rule


def to_tensor(
    operator: Any, context: RuleContext, data: Any, *args: Any, **kwargs: Any
) -> Any:
    """Run ``paddle.to_tensor``, which makes constants, of tensors too.

    Within Paddle's functions it is given what is a number otherwise.
    """
    if context.by_caller or not any(map(is_traced, _leaves(data))):
        return operator(data, *args, **kwargs)
    frame: Any = sys._getframe(2)
    while _is_internal(frame) and _is_pass_through(frame):
        frame = frame.f_back
    if not _is_internal(frame):
        _warn_at_line("to_tensor", frame)
        return operator(_detached(data), *args, **kwargs)
    if not isinstance(data, Tensor):
        return operator(data, *args, **kwargs)
    dtype = args[0] if args else kwargs.get("dtype")
    return data.astype(dtype or data.dtype)


def _leaves(data: Any) -> list[Any]:
    if not isinstance(data, list | tuple):
        return [data]
    return [leaf for item in data for leaf in _leaves(item)]


def _detached(data: Any) -> Any:
    if isinstance(data, list | tuple):
        return [_detached(item) for item in data]
    return data.detach() if isinstance(data, Tensor) else data


def _warn_at_line(name: str, frame: Any) -> None:
    """Warn about the line that runs in a frame."""
    warnings.warn_explicit(
        f"{name}() takes numbers out of what is differentiated, and what is "
        "computed of them is a constant to the derivative, as to Paddle's own "
        "backward; compute with tensors, or call detach() before where a constant "
        "is meant",
        ConstantWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def _module_name(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_internal(frame: Any) -> bool:
    """Tell whether a frame runs code of Paddle or of this package."""
    return _module_name(frame).partition(".")[0] in ("paddle", "paddle_chainrules")


_PASS_THROUGH_MODULES = (
    "paddle_chainrules.",
    "paddle.tensor.creation",
    "paddle.utils.decorator",
)


def _is_pass_through(frame: Any) -> bool:
    """Tell whether a frame only passes on the result of another function of Paddle."""
    return _module_name(frame).startswith(
        (*_PASS_THROUGH_MODULES, "paddle.base.wrapped")
    )


def _name_of_function(frame: Any) -> str:
    """Return the name of Paddle's function that runs in a frame, or above it."""
    while _is_pass_through(frame) and _is_internal(frame.f_back):
        frame = frame.f_back
    return str(frame.f_code.co_name).strip("_")
