"""Integers and Booleans, which have no derivative, nor has what is made of them.

Paddle passes gradients on where a tensor becomes one of integers, and where that
becomes one of floats again.
"""

from __future__ import annotations

from typing import Any

from paddle import Tensor

from ..dtypes import is_integral, same_real_dtype
from ..watch import RuleContext, is_traced
from . import in_place


def detach_integers(
    operator: Any, context: RuleContext, *args: Any, **kwargs: Any
) -> Any:
    """Run an operator; take its result off the graph if dtypes have no derivative."""
    result = operator(*args, **kwargs)
    if is_traced(result) and (is_integral(result) or any(map(is_integral, args[:1]))):
        return result.detach()
    return result


def detach_indices(
    operator: Any, context: RuleContext, *args: Any, **kwargs: Any
) -> Any:
    """Run an operator that gives indices, and take these off the graph."""
    results = operator(*args, **kwargs)
    for output in results:
        if is_traced(output) and is_integral(output):
            output.stop_gradient = True
    return results


def view_of_bits(operator: Any, context: RuleContext, x: Tensor, dtype: Any) -> Tensor:
    """Return the same bits as values of another dtype."""
    result: Tensor = in_place.view(operator, context, x, dtype)
    if not is_traced(result):
        return result
    if is_integral(x) or is_integral(result):
        return result.detach()
    if not same_real_dtype(x.dtype, result.dtype):
        raise NotImplementedError(
            f"the bits of {x.dtype} taken for {result.dtype} have no derivative; use "
            "x.astype(dtype) for the same numbers, or x.detach().view(dtype)"
        )
    return result


def cast_in_place(operator: Any, context: RuleContext, x: Tensor, *args: Any) -> Any:
    was_whole = is_integral(x)
    result = _cast_in_place(operator, context, x, *args)
    if is_traced(x) and (was_whole or is_integral(x)):
        x.stop_gradient = True
    return result


_cast_in_place = in_place.rule_of("cast_")
