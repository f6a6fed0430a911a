"""Loops whose body is given the number of the step, as ``jax.lax.fori_loop``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.arguments import checked_function, checked_integer
from ..as_programs.jitted import Jitted
from ..containers.tree import Tree
from .scan import scan


def fori_loop(
    lower: int, upper: int, body: Callable[[Tensor, Tree], Tree], init: Tree
) -> Tree:
    """Apply ``body(i, value)`` to ``init`` for each ``i`` from lower to below upper.

    Args:
        body: a function from an integer, a tensor, and a value to the next value, of
            the same nesting, shapes and dtypes. The program of ``jit(body)`` is kept
            from call to call.

    Raises:
        ValueError: as :func:`scan`; or there are 2**31 steps, or more.
        TypeError: lower or upper is no integer.
    """
    lower, upper = checked_integer("lower", lower), checked_integer("upper", upper)
    if upper <= lower:
        lower = upper = 0  # no steps
    if upper - lower >= MAX_STEPS or lower < -(2**63) or upper > 2**63 - 1:
        raise ValueError(
            f"fori_loop is given steps from {lower} to {upper}, and makes fewer than "
            f"{MAX_STEPS}, of 64-bit numbers; write a loop of loops"
        )
    checked_function("body", body)

    def step(value: Tree, i: Tensor) -> tuple[Tree, None]:
        return body(i, value), None

    step_fn: Any = step
    if isinstance(body, Jitted):
        step_fn = body.derived_programs.setdefault(fori_loop, Jitted(step))
    for first in range(lower, upper, STEPS_AT_ONCE) or (lower,):
        indices = paddle.arange(
            first, max(first, min(upper, first + STEPS_AT_ONCE)), dtype="int64"
        )
        init = scan(step_fn, init, indices)[0]
    return init


MAX_STEPS, STEPS_AT_ONCE = 1 << 31, 1 << 24
"""Steps of ``fori_loop``: below the one, and so many with their numbers in memory."""
