"""Loops of as many steps as it takes, and choices, in the semantics of ``jax.lax``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree
import paddle
from paddle import Tensor

from ...errors import CaptureError
from ...paddle_side.arguments import checked_function
from ...paddle_side.autograd.hooked_layers import HookedLayer
from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.listener import is_plain, listener
from ...paddle_side.rules.derivatives.piecewise import is_nonzero
from ...programs import trace_cond, trace_while
from ...settings import programs_are_on
from ..as_programs.program_cache import CompiledFunction
from ..as_programs.program_recording import run
from ..containers.tree import Tree, flatten_tree, nesting
from ..recordings.effects import tensors_among
from ..recordings.recording import records_graph
from .carry import (
    as_tensor,
    call_step_checked,
    check_same_carry,
    copy,
    fill_tensors,
    inputs_unchanged,
    leaf_kind,
    program_of,
    with_distinct_tensors,
)


def while_loop(
    condition: Callable[[Tree], Any], body: Callable[[Tree], Tree], init: Tree
) -> Tree:
    """Apply ``body(value)`` to ``init`` for as long as ``condition(value)`` holds.

    Within a program the loop is one operator, which has no gradient, as in JAX.
    Otherwise the turns are differentiated as they ran. Under :func:`vmap` each sample
    takes its own number of turns.

    Raises:
        CaptureError: within a program, its gradient is taken, or it draws random
            numbers.
        ValueError: as :func:`scan`; or the condition gives several elements.
    """
    checked_function("condition", condition)
    checked_function("body", body)
    leaves, spec = flatten_tree(init)
    leaves = with_distinct_tensors([*map(as_tensor, leaves)])
    if getattr(listener(), "is_reused", False):
        return _while_as_operator(condition, body, leaves, spec)
    is_native = is_plain() or records_graph(leaves)
    value = spec.unflatten(leaves)
    compiled = (
        None if is_native or not programs_are_on() else _body_program(body, value)
    )
    is_first = True
    while bool(_check_single("what a condition gave", condition(value))):
        if compiled is not None and not compiled.is_stale():
            outputs = run(
                compiled.captured.program, tensors_among(leaves), trusted=True
            )
            new_value = compiled.structure.unflatten(compiled.captured.filled(outputs))
        else:
            new_value = call_step_checked(
                lambda value, _: body(value), value, None, is_first
            )
        new_leaves, new_spec = flatten_tree(new_value)
        new_leaves = [*map(as_tensor, new_leaves)]
        check_same_carry(leaves, spec, new_leaves, new_spec)
        leaves, is_first = new_leaves, False
        value = spec.unflatten(leaves)
    return spec.unflatten([*map(copy, leaves)]) if is_first else value


def _body_program(body: Callable[[Tree], Tree], value: Tree) -> CompiledFunction | None:
    """Return the body's program; None if there is none off the caller's graph."""
    try:
        result = program_of(body)._fixed_size_program(value)
    except CaptureError:
        return None
    return None if True in result.captured.requires else result


def _while_as_operator(
    condition: Callable[[Tree], Any],
    body: Callable[[Tree], Tree],
    leaves: list[Any],
    spec: optree.PyTreeSpec,
) -> Tree:
    """Run a loop as one operator of the program that is being captured."""

    def run_condition(tensors: list[Tensor]) -> Tensor:
        new_leaves = condition(spec.unflatten(fill_tensors(leaves, iter(tensors))))
        truth: Tensor = as_tensor(_check_single("what a condition gave", new_leaves))
        return truth

    def run_body(tensors: list[Tensor]) -> list[Tensor]:
        with inputs_unchanged(tensors):
            new_value = body(spec.unflatten(fill_tensors(leaves, iter(tensors))))
        new_leaves, new_spec = flatten_tree(new_value)
        new_leaves = [*map(as_tensor, new_leaves)]
        check_same_carry(leaves, spec, new_leaves, new_spec)
        return tensors_among(new_leaves)

    last = trace_while(run_condition, run_body, tensors_among(leaves))
    return spec.unflatten(fill_tensors(leaves, iter(last)))


def _check_single(name: str, value: Any) -> Any:
    """Return a truth value unchanged; refuse arrays of several elements.

    Raises:
        ValueError: it has several, or none.
    """
    if isinstance(value, Tensor | np.ndarray) and value.size != 1:
        raise ValueError(
            f"{name} has shape {list(value.shape)}, and must be a single truth; take "
            ".all() or .any() of it, or choose element by element by paddle.where or "
            "vmap"
        )
    return value


def cond(
    predicate: Any,
    true_fn: Callable[..., Tree],
    false_fn: Callable[..., Tree],
    *operands: Tree,
) -> Tree:
    """Call ``true_fn(*operands)`` if a predicate is true, and ``false_fn`` if not.

    The function that is not chosen does not run: it may fail, and its values and
    derivatives do not matter. Within a program both are traced, and one of them runs.
    Under :func:`vmap` a predicate of each sample chooses for it.

    Args:
        predicate: a tensor of one element, or any value that Python takes as a truth
            value.
        true_fn: gives a tree of tensors and numbers.
        false_fn: gives the same, with equal nesting, shapes and dtypes.
        operands: the arguments of the chosen function. Both may close over tensors.

    Raises:
        ValueError: the predicate has several elements; or, within a program, the
            functions give other nestings, shapes or dtypes.
        NotImplementedError: within a program, a function writes into an operand.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import cond, grad
        >>> def f(x):
        ...     return cond(x > 0, lambda x: x * x, lambda x: paddle.sqrt(-x) * 0, x)
        >>> float(grad(f)(paddle.to_tensor(3.0)))
        6.0
    """
    checked_function("true_fn", true_fn)
    checked_function("false_fn", false_fn)
    if not isinstance(_check_single("the predicate of cond", predicate), Tensor):
        return (true_fn if predicate else false_fn)(*operands)
    if listener() is None:
        chosen = true_fn if is_nonzero(predicate) else false_fn
        return _depend_on_operands(chosen(*operands), operands)
    leaves, spec = flatten_tree(operands)
    results: list[tuple[list[Any], Any]] = []

    def branch(fn: Callable[..., Tree]) -> Callable[[list[Tensor]], list[Tensor]]:
        def run_branch(tensors: list[Tensor]) -> list[Tensor]:
            operand_tensors: Any = spec.unflatten(fill_tensors(leaves, iter(tensors)))
            with inputs_unchanged(tensors, _WRITE_REFUSAL):
                branch_leaves, out_spec = flatten_tree(fn(*operand_tensors))
            results.append(([*map(as_tensor, branch_leaves)], out_spec))
            _check_same_results(results)
            return tensors_among(results[-1][0])

        return run_branch

    branches = branch(true_fn), branch(false_fn)
    operand_tensors = tensors_among(leaves)
    out_tensors = trace_cond(
        branches, predicate, operand_tensors, operands=len(operand_tensors)
    )
    out_leaves, out_spec = results[0]
    return out_spec.unflatten(fill_tensors(out_leaves, out_tensors))


def _depend_on_operands(result: Tree, operands: Tree) -> Tree:
    """Make a result depend on all operands, with zero gradients where unused."""
    leaves, spec = flatten_tree(result)
    leaves = [*map(as_tensor, leaves)]
    positions = [i for i, leaf in enumerate(leaves) if is_differentiable(leaf)]
    sources = [
        x for x in tensors_among(flatten_tree(operands)[0]) if is_differentiable(x)
    ]
    if positions and records_graph(sources):
        dependent = _ZeroGradientDependency.apply(
            len(positions), *(leaves[i] for i in positions), *sources
        )
        dependent = dependent if isinstance(dependent, tuple) else (dependent,)
        for i, leaf in zip(positions, dependent, strict=True):
            leaves[i] = leaf
    return spec.unflatten(leaves)


class _ZeroGradientDependency(HookedLayer):
    """Copies of tensors that depend on others, too, with zero gradients."""

    @staticmethod
    def forward(ctx: Any, count: int, *inputs: Tensor) -> Any:
        ctx.inputs = inputs
        return tuple(x.clone() for x in inputs[:count])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        others = map(_dependent_zeros, ctx.inputs[len(cotangents) :])
        pairs = zip((*cotangents, *others), ctx.inputs, strict=True)
        return tuple(None if x.stop_gradient else grad for grad, x in pairs)


def _dependent_zeros(x: Tensor) -> Tensor:
    """Return zeros whose derivative with respect to x is zero and not missing."""
    zeros = paddle.zeros_like(x)
    if paddle.is_grad_enabled():
        zeros = paddle.where(paddle.zeros(x.shape, "bool"), x, zeros)
    return zeros


_WRITE_REFUSAL = (
    "a function of cond writes in place into an operand, which others read; give new "
    "tensors, as c + x for c.add_(x)"
)


def _check_same_results(
    results: Sequence[tuple[Sequence[Any], optree.PyTreeSpec]],
) -> None:
    """Refuse two functions that give other nestings, shapes or dtypes."""
    if len(results) < 2:
        return
    (true_leaves, spec), (false_leaves, false_spec) = results
    kinds = [*map(leaf_kind, true_leaves)], [*map(leaf_kind, false_leaves)]
    if spec != false_spec or kinds[0] != kinds[1]:
        nestings = nesting(spec), nesting(false_spec)
        a, b = nestings if spec != false_spec else map(", ".join, kinds)
        raise ValueError(
            f"true_fn of cond gives {a}, and false_fn gives {b}; have both give the "
            "same nesting, shapes and dtypes"
        )
