"""Tensors in place of numbers: Paddle forgets their gradient."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import paddle
from paddle import Tensor
from paddle.base import core

from ..listener import listener
from ..watch import RuleContext, is_traced

_KINDS = core.eager.ops.get_core_ops_args_type_info()


def number_positions(name: str) -> list[int]:
    """Return the positions of an operator's arguments that take no tensors."""
    return [i for i, kind in enumerate(_KINDS.get(name, ())) if not kind]


def tensors_to_numbers(
    args: Sequence[Any], positions: Sequence[int]
) -> tuple[Any, ...]:
    """Return arguments, with numbers for constant tensors at these positions."""

    def number(arg: Any) -> Any:
        return arg.item() if isinstance(arg, Tensor) and arg.size == 1 else arg

    return tuple(number(arg) if i in positions else arg for i, arg in enumerate(args))


def _is_traced(args: Iterable[Any], kwargs: dict[str, Any]) -> bool:
    return any(map(is_traced, args)) or any(map(is_traced, kwargs.values()))


def full_of_tensor(
    operator: Any, context: RuleContext, *args: Any, **kwargs: Any
) -> Any:
    """Run ``full`` and ``full_like`` with a traced value, or one that is recorded."""
    if not any(isinstance(arg, Tensor) for arg in (*args, *kwargs.values())):
        return operator(*args, **kwargs)
    bound = inspect.signature(operator).bind(*args, **kwargs).arguments
    value: Any = bound.get("fill_value")
    if not isinstance(value, Tensor) or bound.get("out") is not None:
        return operator(*args, **kwargs)
    if not is_traced(value) and listener() is None:
        return operator(*args, **kwargs)
    bound["fill_value"] = 0.0
    zeros = operator(**bound)
    return value.reshape([]).astype(zeros.dtype).expand(zeros.shape)


def arange(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
    if not _is_traced(args, kwargs):
        return operator(*args, **kwargs)
    bound = inspect.signature(operator).bind(*args, **kwargs).arguments
    start: Any = 0 if bound.get("end") is None else bound["start"]
    step: Any = bound.get("step")
    if not (is_traced(start) or is_traced(step)):
        return operator(*args, **kwargs)
    with paddle.no_grad():
        values = operator(*args, **kwargs)
    steps = paddle.arange(len(values), dtype="int64").astype(values.dtype)
    result = start + (1 if step is None else step) * steps
    cast: Tensor = result.astype(values.dtype)
    return cast


def pad_with_tensor(
    operator: Any, context: RuleContext, *args: Any, **kwargs: Any
) -> Any:
    """Run ``nn.functional.pad`` with a traced value."""
    if not _is_traced(args, kwargs):
        return operator(*args, **kwargs)
    bound = inspect.signature(operator).bind(*args, **kwargs).arguments
    value: Any = bound.get("value")
    if not is_traced(value):
        return operator(*args, **kwargs)
    x, bound["value"] = bound["x"], 0.0
    zeros, inside = operator(**bound), operator(**{**bound, "x": paddle.ones_like(x)})
    return paddle.where(inside > 0, zeros, value.astype(zeros.dtype).expand_as(zeros))
