"""Loops of as many steps as it takes, and choices, in the semantics of ``jax.lax``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.listener import is_plain
from ...programs.capture_error import CaptureError
from ...programs.switch import programs_are_on
from ..containers.tree import Tree, flatten_tree
from ..tape.recording import records_graph
from .carry import apart, check_alike, copy, program_of, tensor_of, unwritten


def while_loop(
    condition: Callable[[Tree], Any], body: Callable[[Tree], Tree], init: Tree
) -> Tree:
    """``init`` after ``body(value)`` for as long as ``condition(value)``.

    Raises:
        CaptureError: within another program, which is a straight line.
        ValueError: as :func:`scan`.
    """
    leaves, spec = flatten_tree(init)
    leaves = apart([*map(tensor_of, leaves)])
    inside = is_plain() or records_graph(leaves)
    value = spec.unflatten(leaves)
    move = None if inside or not programs_are_on() else program_of(body)
    try:
        if move is not None:
            move.found(value)
    except CaptureError:
        move = None
    is_first = True
    while bool(condition(value)):
        if move is not None:
            moved = move(value)
        else:
            moved = unwritten(lambda value, _: body(value), value, None, is_first)
        found, its = flatten_tree(moved)
        found = [*map(tensor_of, found)]
        check_alike(leaves, spec, found, its)
        leaves, is_first = found, False
        value = spec.unflatten(leaves)
    return spec.unflatten([*map(copy, leaves)]) if is_first else value


def cond(
    predicate: Any,
    true_fn: Callable[..., Tree],
    false_fn: Callable[..., Tree],
    *operands: Tree,
) -> Tree:
    """``true_fn(*operands)`` or ``false_fn(*operands)``, by a truth.

    Within another program or derivative both are computed, and one is chosen element by
    element; what the other gives, numbers that are none among it, does not matter for
    values, and may for derivatives, as that of ``paddle.where``.

    Raises:
        ValueError: the two give other nestings, shapes or dtypes.
    """
    if not is_plain() and not isinstance(predicate, Tensor):
        return (true_fn if predicate else false_fn)(*operands)
    if not is_plain() and not records_graph([predicate]):
        return (true_fn if bool(predicate) else false_fn)(*operands)
    one, spec = flatten_tree(true_fn(*operands))
    other, its = flatten_tree(false_fn(*operands))
    one, other = ([*map(tensor_of, row)] for row in (one, other))
    check_alike(one, spec, other, its)
    chosen = [
        a if a is None else paddle.where(predicate, a, b)
        for a, b in zip(one, other, strict=True)
    ]
    return spec.unflatten(chosen)
