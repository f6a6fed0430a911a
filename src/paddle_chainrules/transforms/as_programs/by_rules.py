"""Calls whose derivatives are taken by rules, since they are known to be nested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ...paddle_side.listener import listener
from ...paddle_side.static_graphs import need_tensors, sot
from ..containers.tree import flatten_tree
from ..recordings.eager import run_by_rules


def call_by_rules(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run ``fn(*args, **kwargs)`` on trees by rules; see :mod:`..recordings.eager`."""
    if listener() is not None:
        return fn(*args, **kwargs)
    need_tensors(sot.fallback(True))
    leaves, spec = flatten_tree((args, kwargs))
    out_spec: Any = None

    def flat(leaves: list[Any]) -> list[Any]:
        nonlocal out_spec
        args, kwargs = cast(Any, spec.unflatten(leaves))
        result, out_spec = flatten_tree(fn(*args, **kwargs))
        return result

    result = run_by_rules(flat, leaves)
    return out_spec.unflatten(result)
