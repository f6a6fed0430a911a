"""Gradients by Paddle's own kernels, for operators whose kernels are right."""

from __future__ import annotations

from typing import Any

import paddle

from ...paddle_side.interception import RAW
from .calls import Call
from .entry import INFO, TABLE, Operator, define
from .shared import ops

_OUTPUTS: dict[str, list[str]] = RAW.get_core_ops_returns_info()


def by_kernel(
    *names: str, outputs: str | None = None, arguments: str | None = None
) -> None:
    """Make ``name_grad`` give the gradients of each operator, and define it too.

    We find its arguments by their names: the operator's arguments, its results, and the
    cotangents, named after the results with ``_grad`` appended. A missing cotangent is
    zeros. We ask for all of its gradients, since some kernels are wrong for a part.

    Args:
        names: of operators in the table whose kernel takes no list of tensors.
        outputs: names of the operator's results, where Paddle has others.
        arguments: of the kernel, where Paddle has others.

    Raises:
        TypeError: an argument of a kernel is none of these.
    """
    for name in names:
        results = outputs.split() if outputs else _OUTPUTS[name]
        kernel = f"{name}_grad"
        takes = arguments.split() if arguments else INFO[kernel]
        if kernel not in TABLE:
            define(kernel, " ".join(takes), axes=TABLE[name].axes)
        TABLE[name].reverse = _rule(TABLE[name], kernel, takes, results)


def _rule(entry: Operator, kernel: str, takes: list[str], results: list[str]) -> Any:
    of = {f"{r}_grad": r for r in results} | {f"grad_{r}": r for r in results}
    known = {*entry.arguments, *results, *of}
    if unknown := {*takes} - known:
        raise TypeError(
            f"{kernel} takes {', '.join(sorted(unknown))}, which {entry.name} neither "
            "takes nor gives; write a rule of its own"
        )
    places = {name: k for k, name in enumerate(entry.arguments)}
    outcomes = (g.removesuffix("_grad").removeprefix("grad_") for g in _OUTPUTS[kernel])
    order = [places[name] for name in outcomes]

    def rule(call: Call) -> list[Any]:
        given: dict[str, Any] = dict(zip(entry.arguments, call.args, strict=True))
        given |= dict(zip(results, call.outputs, strict=False))
        cotangents = dict(zip(results, call.cotangents, strict=False))
        for name, result in of.items():
            zero = name in takes and cotangents.get(result) is None
            given[name] = (
                paddle.zeros_like(given[result]) if zero else cotangents.get(result)
            )
        outcomes = getattr(ops, kernel)(*map(given.__getitem__, takes))
        parts = [*outcomes] if isinstance(outcomes, list | tuple) else [outcomes]
        grads: list[Any] = [None] * len(call.args)
        for k, part in zip(order, parts, strict=True):
            if k in call.wanted:
                grads[k] = part
        return grads

    return rule


def linear_in_first(*names: str, **instead: Any) -> None:
    """Do the same for operators that are linear in their first argument.

    The derivative of ``name_grad`` with respect to its cotangent is then the operator.

    Args:
        instead: arguments that make an operator linear that is not quite linear.
    """
    by_kernel(*names)
    for name in names:
        entry, kernel = TABLE[name], TABLE[f"{name}_grad"]
        result = _OUTPUTS[name][0]
        (at,) = (
            k
            for k, argument in enumerate(kernel.arguments)
            if argument in (f"{result}_grad", f"grad_{result}")
        )
        kernel.differentiable = (at,)
        kernel.shapes = frozenset(
            k for k, a in enumerate(kernel.arguments) if a == entry.arguments[0]
        )
        kernel.reverse = _itself(entry, kernel, at, instead)


def _itself(entry: Operator, kernel: Operator, at: int, instead: Any) -> Any:
    def rule(call: Call) -> list[Any]:
        given = dict(zip(kernel.arguments, call.args, strict=True)) | instead
        attrs = map(given.__getitem__, entry.arguments[1:])
        grads: list[Any] = [None] * len(call.args)
        grads[at] = getattr(ops, entry.name)(call.cotangent, *attrs)
        return grads

    return rule
