"""Rules that ask Paddle for the gradients of all inputs, or of other inputs.

Some kernels give wrong gradients, none, or crash where one of their inputs is constant
or is not asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
from paddle import Tensor

from ..process.random_state import generator_lock, note_drawing
from ..watch import RuleContext, as_leaf, is_traced, tensors_in_arguments
from .derivatives import every_order as closed
from .derivatives import formulas, linear_algebra

Rule = Callable[..., Any]

_REAL = frozenset((paddle.float32, paddle.float64, paddle.float16, paddle.bfloat16))
_COMPLEX = frozenset((paddle.complex64, paddle.complex128))


def _is_inexact(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in _REAL | _COMPLEX


def differentiate_all(name: str, always: bool = True) -> Rule:
    """Return a rule that differentiates all inputs, constants too.

    If that is not always needed, it is needed where second derivatives may come.
    """

    def rule(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
        inputs = tensors_in_arguments(args)
        if kwargs:
            inputs += tensors_in_arguments(kwargs.values())
        if not (always or context.create_graph(inputs)) or not any(
            map(is_traced, inputs)
        ):
            return operator(*args, **kwargs)

        def as_leaves(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [as_leaves(item) for item in value]
            if not _is_inexact(value):
                return value
            if value.stop_gradient:
                if always and context.by_caller:
                    raise NotImplementedError(
                        f"Paddle crashes in the gradient of {name} where one of its "
                        "inputs is constant, and here gradients are taken by Paddle "
                        "itself, since a tensor given has stop_gradient=False. Use "
                        "net.pullback, vjp or value_and_grad, which can do it"
                    )
                value = as_leaf(value)
            context.request([value])
            return value

        return operator(
            *map(as_leaves, args), **{n: as_leaves(v) for n, v in kwargs.items()}
        )

    return rule


def embedding(
    operator: Any,
    context: RuleContext,
    x: Tensor,
    weight: Tensor,
    padding_idx: int = -1,
    sparse: bool = False,
) -> Any:
    """Give sparse gradients only to a weight differentiated itself, and once."""
    create_graph = is_traced(weight) and context.create_graph([weight])
    if create_graph:
        return closed.embedding(x, weight, padding_idx)
    if not (sparse and context.is_leaf(weight)):
        return operator(x, weight, padding_idx, False)
    context.note_sparse()
    rows = operator(x, weight, padding_idx, True)  # whose gradient knows no padding
    return closed.mask_padding(rows, x, padding_idx)


def triangular_solve(operator: Any, context: RuleContext, *args: Any) -> Any:
    *operands, unit_diagonal = args
    if unit_diagonal and any(map(is_traced, operands)):
        return linear_algebra.unit_triangular_solve(*operands)
    return _triangular_solve_of_all(operator, context, *args)


def cholesky_solve(
    operator: Any, context: RuleContext, x: Tensor, y: Tensor, upper: bool = False
) -> Any:
    if is_traced(y):  # of which the gradient takes both triangles
        y = paddle.triu(y) if upper else paddle.tril(y)
    return _cholesky_solve_of_all(operator, context, x, y, upper)


def rnn(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
    traced = [t for t in tensors_in_arguments(args) if is_traced(t)]
    if args[-1] is True and traced:
        # In evaluation it keeps nothing for the way back; without dropout it may train.
        args = *args[:5], 0.0, *args[6:-1], False
    note_drawing()  # where it has dropout
    if traced and not args[0].size:
        return formulas.rnn_without_samples(operator, traced, *args, **kwargs)
    if traced and _is_rnn_wrong(*args):
        return _rnn_by_rules(operator, context, *args, **kwargs)
    with generator_lock():
        return _rnn_of_all(operator, context, *args, **kwargs)


def _is_rnn_wrong(*args: Any) -> bool:
    """Tell whether Paddle takes another step's state for the first of the way back."""
    _, states, _, lengths, _, _, is_bidirectional, *_ = args
    if lengths is None or not is_bidirectional:
        return False
    with paddle.no_grad():
        return any(bool((state.abs() > 0).any()) for state in states)


def is_scalar(x: Tensor, *_: Any, **__: Any) -> bool:
    return x.ndim == 0


_cholesky_solve_of_all = differentiate_all("cholesky_solve")
_triangular_solve_of_all = differentiate_all("triangular_solve")
_rnn_of_all = differentiate_all("rnn")
_rnn_by_rules = formulas.by_rules("rnn of several lengths, both ways, with states")
