"""Comparisons and choices."""

from __future__ import annotations

from typing import Any

import paddle

from ..axes import ELEMENTS, AxesArgument
from ..calls import Call
from ..entry import define, holds_for_complex, reverse_of
from ..shared import broadcast_gradients, ops

COMPARISON: dict[str, Any] = {
    "axes": ELEMENTS,
    "promotes": (0, 1),
    "differentiable": (),
}
"""The settings that all comparisons of two tensors share."""

for name, infix in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">")):
    define(f"Tensor.__{name}__", "x y", infix=infix, **COMPARISON)
define("Tensor.__ge__", "x y", infix=">=", **COMPARISON)
for name in ("and", "or", "xor"):
    define(f"Tensor.__{name}__", "x y", **COMPARISON)
for name in (
    *("equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal"),
):
    define(name, **COMPARISON)
for name in ("logical_and", "logical_or", "logical_not", "isnan", "isinf", "isfinite"):
    define(name, axes=ELEMENTS, differentiable=())
for name in ("argmax", "argmin"):
    define(
        name,
        "x axis keepdim dtype",
        axes=AxesArgument("axis", none_flattens=True),
        differentiable=(),
        defaults={"axis": None, "keepdim": False, "dtype": paddle.int64},
    )
define("where", differentiable=(1, 2), axes=ELEMENTS, promotes=(1, 2))
holds_for_complex("where")


@reverse_of("where")
def _where_reverse(call: Call) -> list[Any]:
    chosen, g = call.args[0], call.cotangent
    zero = paddle.zeros_like(g)
    return broadcast_gradients(
        call,
        None,
        lambda: ops.where(chosen, g, zero),
        lambda: ops.where(chosen, zero, g),
    )
