"""Integers and Booleans, which have no derivative, nor has what is made of them.

Paddle passes gradients on where a tensor becomes one of integers, and where that
becomes one of floats again.
"""

from __future__ import annotations

from typing import Any

from paddle import Tensor

from ..dtypes import is_whole, same_parts
from ..watch import RuleContext, is_traced
from . import in_place


def cut(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
    """Run an operator; take its result off the graph if dtypes have no derivative."""
    found = operator(*args, **kwargs)
    if is_traced(found) and (is_whole(found) or any(map(is_whole, args[:1]))):
        return found.detach()
    return found


WITH_PLACES = (
    *("argsort", "topk", "kthvalue", "mode", "cummax", "cummin"),
    *("max_pool2d_with_index", "max_pool3d_with_index"),
)
"""Operators that give the places of elements, beside their values or alone."""


def cut_places(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
    """Run an operator that gives places, and take these off the graph."""
    found = operator(*args, **kwargs)
    for part in found:
        if is_traced(part) and is_whole(part):
            part.stop_gradient = True
    return found


def view_of_bits(operator: Any, context: RuleContext, x: Tensor, dtype: Any) -> Tensor:
    """Return the same bits as values of another dtype."""
    found: Tensor = in_place.view(operator, context, x, dtype)
    if not is_traced(found):
        return found
    if is_whole(x) or is_whole(found):
        return found.detach()
    if not same_parts(x.dtype, found.dtype):
        raise NotImplementedError(
            f"the bits of {x.dtype} taken for {found.dtype} have no derivative; use "
            "x.astype(dtype) for the same numbers, or x.detach().view(dtype)"
        )
    return found


def cast_in_place(operator: Any, context: RuleContext, x: Tensor, *args: Any) -> Any:
    was_whole = is_whole(x)
    found = _cast_in_place(operator, context, x, *args)
    if is_traced(x) and (was_whole or is_whole(x)):
        x.stop_gradient = True
    return found


_cast_in_place = in_place.rule_of("cast_")
