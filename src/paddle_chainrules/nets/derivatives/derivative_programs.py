"""Derivatives by the input as programs, which are kept with the net."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paddle import Tensor

from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.listener import listener
from ...transforms.as_programs.jitted import Jitted, run_strictly
from ...transforms.containers.tree import Tree, flatten_tree
from ..net import Net


def run_as_program(
    net: Any, key: Any, fn: Callable[..., Any], params: Any, *inputs: Any
) -> Any:
    """Run ``fn(params, *inputs)`` as a program, cached if the net has programs."""
    args = params, *inputs
    if any(x.size == 0 for x in _tensors(inputs)):
        return _connected_to(fn(*args), _tensors(args))
    if listener() is not None:
        return fn(*args)
    net_programs = net._programs if isinstance(net, Net) else None
    if net_programs is None:
        return run_strictly(Jitted(fn, strict=True, empty=True), fn, *args)
    program = net_programs.derivatives.get(key)
    if program is None:
        program = Jitted(fn, strict=True, empty=True, state=net_programs.state)
        program = net_programs.derivatives.setdefault(key, program)
    return run_strictly(program, fn, *args, reused=True)


def _tensors(tree: Tree) -> list[Tensor]:
    return [x for x in flatten_tree(tree)[0] if isinstance(x, Tensor)]


def _connected_to(tree: Tree, leaves: Sequence[Tensor]) -> Tree:
    """Make results without elements depend on leaves, with zero gradients.

    Paddle's tape has none of a slice of such a tensor.
    """
    is_traced = listener() is not None
    sums = [x.sum() for x in leaves if not x.stop_gradient and is_differentiable(x)]
    results, spec = flatten_tree(tree)
    for i, y in enumerate(results):
        if isinstance(y, Tensor) and y.size == 0:
            start = y if is_traced else y.detach()
            results[i] = sum((x.astype(y.dtype) for x in sums), start)
    return spec.unflatten(results)
