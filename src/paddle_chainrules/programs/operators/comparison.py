"""Comparisons and choices."""

from __future__ import annotations

from typing import Any

import paddle

from .calls import Call
from .entry import define, reverse_of
from .shared import ops, summed_to

for name, infix in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">")):
    define(f"Tensor.__{name}__", "x y", infix=infix, differentiable=())
define("Tensor.__ge__", "x y", infix=">=", differentiable=())
for name in ("and", "or", "xor"):
    define(f"Tensor.__{name}__", "x y", differentiable=())
for name in (
    *("equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal"),
    *("logical_and", "logical_or", "logical_not", "isnan", "isinf", "isfinite"),
):
    define(name, differentiable=())
for name in ("argmax", "argmin"):
    define(
        name,
        "x axis keepdim dtype",
        differentiable=(),
        defaults={"axis": None, "keepdim": False, "dtype": paddle.int64},
    )
define("where", differentiable=(1, 2))


@reverse_of("where")
def _(call: Call) -> list[Any]:
    condition, x, y = call.args
    g = call.cotangent
    zero = paddle.zeros_like(g)
    return [
        None,
        summed_to(ops.where(condition, g, zero), x) if 1 in call.wanted else None,
        summed_to(ops.where(condition, zero, g), y) if 2 in call.wanted else None,
    ]
