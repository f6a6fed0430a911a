"""Operators whose gradients Paddle gets wrong at some numbers only.

There the tape refuses, so that a program answers, whose rules are right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
from paddle import Tensor

from ..watch import Context, is_traced, tensors_in


def refused_where(
    name: str, reason: str, is_wrong: Callable[..., bool]
) -> Callable[..., Any]:
    """Return a rule that refuses to be differentiated at some numbers.

    Args:
        name: the operator's.
        reason: words that say which numbers these are.
        is_wrong: tells that, from the operator's result and its arguments.
    """

    def rule(operator: Any, context: Context, *args: Any, **kwargs: Any) -> Any:
        found = operator(*args, **kwargs)
        if any(map(is_traced, tensors_in([*args, *kwargs.values()]))):
            with paddle.no_grad():
                wrong = is_wrong(found, *args, **kwargs)
            if wrong:
                raise NotImplementedError(
                    f"Paddle's gradient of {name} is wrong {reason}. A program has the "
                    "right one: use jit, or give the transform tensors that require no "
                    "gradients"
                )
        return found

    return rule


def _is_small(found: Tensor, x: Tensor) -> bool:
    """Tell where Paddle gives zeros: below some 1e-14, in float32 some 1e-6."""
    least = 1e-4 if x.dtype in (paddle.float32, paddle.complex64) else 1e-10
    return bool((found.abs() <= least).any())


def _has_equal(found: Any, x: Tensor, *_: Any) -> bool:
    """Tell whether two eigenvalues are equal, or several matrices are given."""
    if x.ndim > 2:
        return True
    values = found[0] if isinstance(found, list | tuple) else found
    apart = values.unsqueeze(-1) - values.unsqueeze(-2)
    return int((apart.abs() <= 0).sum()) > values.size


def _has_zeros(
    found: Tensor, x: Tensor, index: Tensor, value: Any, axis: int, how: str, *_: Any
) -> bool:
    if isinstance(value, Tensor) and value.shape != index.shape:
        return True
    return how in ("mul", "multiply") and not bool((x.abs() > 0).all())


RULES = {
    "det": refused_where("det", "where it is nearly zero", _is_small),
    **{
        name: refused_where(name, "of a batch, or of equal values", _has_equal)
        for name in ("eigh", "eigvalsh", "eig")
    },
    "put_along_axis": refused_where(
        "put_along_axis",
        "of products where there are zeros, and of other values than indices",
        _has_zeros,
    ),
}
"""Rules by the names of ``paddle._C_ops``."""
