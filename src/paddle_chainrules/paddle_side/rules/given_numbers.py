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


def places(name: str) -> list[int]:
    """Return the positions of an operator's arguments that take no tensors."""
    return [i for i, kind in enumerate(_KINDS.get(name, ())) if not kind]


def made(args: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...]:
    """Return arguments, with numbers for constant tensors in these places."""

    def number(arg: Any) -> Any:
        return arg.item() if isinstance(arg, Tensor) and arg.size == 1 else arg

    return tuple(number(arg) if i in places else arg for i, arg in enumerate(args))


def _is_traced(args: Iterable[Any], kwargs: dict[str, Any]) -> bool:
    return any(map(is_traced, args)) or any(map(is_traced, kwargs.values()))


def filled(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
    """Run ``full`` and ``full_like`` with a traced value, or one that is recorded."""
    if not any(isinstance(arg, Tensor) for arg in (*args, *kwargs.values())):
        return operator(*args, **kwargs)
    given = inspect.signature(operator).bind(*args, **kwargs).arguments
    value: Any = given.get("fill_value")
    if not isinstance(value, Tensor) or given.get("out") is not None:
        return operator(*args, **kwargs)
    if not is_traced(value) and listener() is None:
        return operator(*args, **kwargs)
    given["fill_value"] = 0.0
    made = operator(**given)
    return value.reshape([]).astype(made.dtype).expand(made.shape)


def arange(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
    if not _is_traced(args, kwargs):
        return operator(*args, **kwargs)
    given = inspect.signature(operator).bind(*args, **kwargs).arguments
    start: Any = 0 if given.get("end") is None else given["start"]
    step: Any = given.get("step")
    if not (is_traced(start) or is_traced(step)):
        return operator(*args, **kwargs)
    with paddle.no_grad():
        made = operator(*args, **kwargs)
    places = paddle.arange(len(made), dtype="int64").astype(made.dtype)
    result = start + (1 if step is None else step) * places
    whole: Tensor = result.astype(made.dtype)
    return whole


def padded(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
    """Run ``nn.functional.pad`` with a traced value."""
    if not _is_traced(args, kwargs):
        return operator(*args, **kwargs)
    given = inspect.signature(operator).bind(*args, **kwargs).arguments
    value: Any = given.get("value")
    if not is_traced(value):
        return operator(*args, **kwargs)
    x, given["value"] = given["x"], 0.0
    zeros, inside = operator(**given), operator(**{**given, "x": paddle.ones_like(x)})
    return paddle.where(inside > 0, zeros, value.astype(zeros.dtype).expand_as(zeros))
