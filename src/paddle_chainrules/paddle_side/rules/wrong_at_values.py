"""Operators whose gradients Paddle gets wrong at some numbers only.

There the tape refuses, so that a program answers, whose rules are right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import paddle
from paddle import Tensor

from ..watch import RuleContext, is_traced, tensors_in_arguments


def refuse_where(
    name: str,
    reason: str,
    is_wrong: Callable[..., bool],
    otherwise: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Return a rule that refuses to be differentiated at some argument values.

    Args:
        name: the operator's.
        reason: words that say which values these are.
        is_wrong: tells from the operator's result and its arguments whether Paddle's
            gradient is wrong there.
        otherwise: the rule that gives the result; the operator itself if None.
    """

    def rule(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
        if otherwise is None:
            result = operator(*args, **kwargs)
        else:
            result = otherwise(operator, context, *args, **kwargs)
        if any(map(is_traced, tensors_in_arguments([*args, *kwargs.values()]))):
            with paddle.no_grad():
                wrong = is_wrong(result, *args, **kwargs)
            if wrong:
                raise NotImplementedError(
                    f"Paddle's gradient of {name} is wrong {reason}. A program has the "
                    "right one: use jit, or give the transform tensors that require no "
                    "gradients"
                )
        return result

    return rule


def is_nearly_singular(result: Tensor, x: Tensor) -> bool:
    """Tell where Paddle gives zeros: below some 1e-14, in float32 some 1e-6."""
    threshold = 1e-4 if x.dtype in (paddle.float32, paddle.complex64) else 1e-10
    return bool((result.abs() <= threshold).any())


def has_equal_eigenvalues(result: Any, x: Tensor, *_: Any) -> bool:
    """Tell whether two eigenvalues are equal, or several matrices are given."""
    if x.ndim > 2:
        return True
    values = result[0] if isinstance(result, list | tuple) else result
    gaps = values.unsqueeze(-1) - values.unsqueeze(-2)
    return int((gaps.abs() <= 0).sum()) > values.size


def is_put_along_axis_wrong(
    result: Tensor,
    x: Tensor,
    index: Tensor,
    value: Any,
    axis: int,
    reduction: str,
    *_: Any,
) -> bool:
    if isinstance(value, Tensor) and value.shape != index.shape:
        return True
    return reduction in ("mul", "multiply") and not bool((x.abs() > 0).all())


def _has_duplicates(positions: Tensor) -> bool:
    distinct: Any = paddle.unique(positions)
    return bool(distinct.size < positions.size)


def is_put_twice(
    result: Tensor, x: Tensor, indices: Any, value: Tensor, accumulate: bool = False
) -> bool:
    is_mask = any(index.dtype == paddle.bool for index in indices)
    if accumulate or is_mask or not is_traced(value):
        return False
    sizes = x.shape[: len(indices)]
    numbers = paddle.arange(math.prod(sizes)).reshape(sizes)
    return _has_duplicates(numbers[tuple(indices)])


def is_scattered_twice(
    result: Tensor, x: Tensor, index: Tensor, updates: Tensor, overwrite: bool = True
) -> bool:
    return overwrite and is_traced(updates) and _has_duplicates(index % x.shape[0])


def is_unpooled_twice(result: Tensor, x: Tensor, indices: Tensor, *_: Any) -> bool:
    ordered = paddle.sort(indices.flatten(2), -1)
    return bool((ordered[..., 1:] == ordered[..., :-1]).any())


def has_empty_windows(result: Any, *_: Any) -> bool:
    return bool((result[1] < 0).any())


def _is_tied(result: Any, message: Tensor, target: Tensor, reduction: str) -> bool:
    """Tell whether several messages are the largest, or smallest, of a row."""
    if reduction not in ("MIN", "MAX"):
        return False
    out = result[0] if isinstance(result, list | tuple) else result
    is_extremum = (message == out[target]).astype("int64")
    count = paddle.index_add(paddle.zeros(out.shape, "int64"), target, 0, is_extremum)
    return bool((count > 1).any())


def is_pool_tied(
    result: Any, x: Tensor, target: Tensor, reduction: str, *_: Any
) -> bool:
    return _is_tied(result, x, target, reduction)


def are_sent_tied(
    result: Any, x: Tensor, source: Tensor, target: Tensor, reduction: str, *_: Any
) -> bool:
    return _is_tied(result, x[source], target, reduction)


def are_edges_tied(*args: Any) -> bool:
    """Tell that of ``send_ue_recv``."""
    result, x, y, source, target, op, reduction, *_ = args
    gathered = x[source]
    return _is_tied(
        result, gathered + y if op == "ADD" else gathered * y, target, reduction
    )


TIES = "where several entries are the largest, or smallest: it counts each as a whole"
EMPTY_WINDOWS = "where a window holds no pixel: it writes past its memory"
DUPLICATES = "where one place is written twice: what is overwritten has some too"
