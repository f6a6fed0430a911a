"""Gradients by Paddle's own kernels, for operators whose kernels are right."""

from __future__ import annotations

from typing import Any

import paddle

from ...paddle_side.interception import RAW
from ...paddle_side.rules.arguments import ARGUMENTS
from .calls import Call
from .entry import TABLE, Operator, define
from .shared import ops

_OUTPUTS: dict[str, list[str]] = RAW.get_core_ops_returns_info()


def by_kernel(
    *names: str, outputs: str | None = None, arguments: str | None = None
) -> None:
    """Make ``name_grad`` give the gradients of each operator, and define it too.

    We find its arguments by their names: the operator's arguments, its results, and the
    cotangents, named after the results with ``_grad`` appended. A missing cotangent is
    zeros. We request all gradients, since some kernels are wrong for only some.

    Args:
        names: of operators in the table whose kernel takes no list of tensors.
        outputs: names of the operator's results, where Paddle has others.
        arguments: of the kernel, where Paddle has others.

    Raises:
        TypeError: an argument of a kernel is none of these.
    """
    for name in names:
        output_names = outputs.split() if outputs else _OUTPUTS[name]
        kernel = f"{name}_grad"
        kernel_args = arguments.split() if arguments else ARGUMENTS[kernel]
        if kernel not in TABLE:
            define(kernel, " ".join(kernel_args), axes=TABLE[name].axes)
        TABLE[name].reverse = _kernel_rule(
            TABLE[name], kernel, kernel_args, output_names
        )


def _kernel_rule(
    entry: Operator, kernel: str, kernel_args: list[str], output_names: list[str]
) -> Any:
    output_of_cotangent = {f"{r}_grad": r for r in output_names} | {
        f"grad_{r}": r for r in output_names
    }
    known_names = {*entry.arguments, *output_names, *output_of_cotangent}
    if unknown := {*kernel_args} - known_names:
        raise TypeError(
            f"{kernel} takes {', '.join(sorted(unknown))}, which {entry.name} neither "
            "takes nor gives; write a rule of its own"
        )
    arg_index = {name: k for k, name in enumerate(entry.arguments)}
    kernel_outputs = (
        g.removesuffix("_grad").removeprefix("grad_") for g in _OUTPUTS[kernel]
    )
    grad_positions = [arg_index[name] for name in kernel_outputs]

    def rule(call: Call) -> list[Any]:
        values: dict[str, Any] = dict(zip(entry.arguments, call.args, strict=True))
        values |= dict(zip(output_names, call.outputs, strict=False))
        cotangents = dict(zip(output_names, call.cotangents, strict=False))
        for name, result in output_of_cotangent.items():
            is_zero = name in kernel_args and cotangents.get(result) is None
            values[name] = (
                paddle.zeros_like(values[result]) if is_zero else cotangents.get(result)
            )
        kernel_outputs = getattr(ops, kernel)(*map(values.__getitem__, kernel_args))
        kernel_grads = (
            [*kernel_outputs]
            if isinstance(kernel_outputs, list | tuple)
            else [kernel_outputs]
        )
        grads: list[Any] = [None] * len(call.args)
        for k, grad in zip(grad_positions, kernel_grads, strict=True):
            if k in call.wanted:
                grads[k] = grad
        return grads

    return rule


def linear_in_first(*names: str, **overrides: Any) -> None:
    """Call :func:`by_kernel` for operators that are linear in their first argument.

    The derivative of ``name_grad`` with respect to its cotangent is then the operator.

    Args:
        overrides: arguments that make an operator linear that is not quite linear.
    """
    by_kernel(*names)
    for name in names:
        entry, kernel = TABLE[name], TABLE[f"{name}_grad"]
        result = _OUTPUTS[name][0]
        (cotangent_index,) = (
            k
            for k, argument in enumerate(kernel.arguments)
            if argument in (f"{result}_grad", f"grad_{result}")
        )
        kernel.differentiable = (cotangent_index,)
        kernel.shapes = frozenset(
            k for k, a in enumerate(kernel.arguments) if a == entry.arguments[0]
        )
        entry.linear = () if overrides else (0,)
        kernel.reverse = _linear_rule(entry, kernel, cotangent_index, overrides)


def _linear_rule(
    entry: Operator, kernel: Operator, cotangent_index: int, overrides: Any
) -> Any:
    def rule(call: Call) -> list[Any]:
        values = dict(zip(kernel.arguments, call.args, strict=True)) | overrides
        attrs = map(values.__getitem__, entry.arguments[1:])
        grads: list[Any] = [None] * len(call.args)
        grads[cotangent_index] = getattr(ops, entry.name)(call.cotangent, *attrs)
        return grads

    return rule
