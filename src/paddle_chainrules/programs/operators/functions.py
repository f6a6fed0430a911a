"""Paddle's functions in Python that are one operation of a program.

Otherwise the values that they decide by would leave the program.
"""

from __future__ import annotations

from typing import Any

import paddle

from ...paddle_side.listener import listener
from ...paddle_side.rules.table import FUNCTIONS
from ...paddle_side.watch import RuleContext
from .axes import Matrices
from .calls import Call
from .entry import TABLE, define, reverse_of
from .linear_algebra.adjoints import adjoint, slice_axis
from .shared import ops

define("matrix_exp", "x", run=paddle.linalg.matrix_exp, axes=Matrices(batches=False))


def _matrix_exp(operator: Any, context: RuleContext, x: Any, name: Any = None) -> Any:
    if listener() is None or not isinstance(x, paddle.Tensor):
        return operator(x)
    return TABLE["matrix_exp"].bind([x])[0]


FUNCTIONS[paddle.linalg.matrix_exp] = _matrix_exp


@reverse_of("matrix_exp")
def _matrix_exp_reverse(call: Call) -> list[Any]:
    """Return the block beside the diagonal of the exponential of a block matrix.

    Source: Mathias, "A chain rule for matrix functions and applications", 1996.
    """
    x, g = call.args[0], call.cotangent
    if x.ndim < 2:
        return [g * call.out]
    x_adjoint, n = adjoint(x), x.shape[-1]
    upper = ops.concat([x_adjoint, g], x.ndim - 1)
    lower = ops.concat([paddle.zeros_like(x_adjoint), x_adjoint], x.ndim - 1)
    result = paddle.linalg.matrix_exp(ops.concat([upper, lower], x.ndim - 2))
    return [slice_axis(slice_axis(result, -2, 0, n), -1, n, 2 * n)]
