"""Integers and Booleans: bits, counts, positions, and tests of all elements."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.rules.derivatives.formulas import by_rules, refuse_derivative
from ..axes import ANYWHERE, ELEMENTS, AxesArgument
from ..calls import Call, NoRule
from ..entry import define, formula_of, reverse_of, tape_of
from ..known_shapes import define_of_known_shape
from ..shared import ops

for name in ("and", "or", "xor", "not", "left_shift", "right_shift"):
    define(
        f"bitwise_{name}",
        axes=ELEMENTS,
        differentiable=(),
        defaults={"is_arithmetic": True},
    )
for name in ("lshift", "rshift", "rlshift", "rrshift"):
    define(f"Tensor.__{name}__", "x y", axes=ELEMENTS, differentiable=())
for name in ("all", "any"):
    define(
        name,
        axes=AxesArgument("axis"),
        differentiable=(),
        defaults={"axis": [], "keepdim": False},
    )
for name, axes in (("isclose", ELEMENTS), ("allclose", ANYWHERE)):
    define(
        name,
        axes=axes,
        differentiable=(),
        defaults={"rtol": 1e-05, "atol": 1e-08, "equal_nan": False},
    )
for name in ("logical_xor", "one_hot"):
    define(name, axes=ELEMENTS, differentiable=())
define("equal_all", axes=ANYWHERE, differentiable=())
for name in ("is_empty", "shard_index"):
    define(name, differentiable=())


@formula_of("all")
def _all_formula(x: Tensor, axis: Any, keepdim: bool) -> Any:
    if x.dtype != paddle.bool:
        raise NoRule("truths of numbers; compare them with zero first")
    return ops.min(ops.cast(x, paddle.float32), axis, keepdim) > 0.0


@formula_of("any")
def _any_formula(x: Tensor, axis: Any, keepdim: bool) -> Any:
    if x.dtype != paddle.bool:
        raise NoRule("truths of numbers; compare them with zero first")
    return ops.max(ops.cast(x, paddle.float32), axis, keepdim) > 0.0


define("searchsorted", differentiable=(), structure=(0,), axes=ANYWHERE)
define("gather_tree", differentiable=())
define("histogram", tape=refuse_derivative("histogram", 1))
define_of_known_shape("bincount", differentiable=(1,))
define_of_known_shape("sequence_mask", differentiable=())


@reverse_of("histogram")
def _histogram_reverse(call: Call) -> list[Any]:
    if 1 in call.wanted:
        raise NoRule("the weights of a histogram; use paddle.bincount")
    return [None] * len(call.args)


@reverse_of("bincount")
def _bincount_reverse(call: Call) -> list[Any]:
    x, *_ = call.args
    return [None, ops.gather(call.cotangent, x, 0), None, None]


for name in (
    *("unique", "unique_consecutive", "clip_by_norm"),
    *("box_coder", "yolo_box", "viterbi_decode"),
):
    tape_of(name)(refuse_derivative(name))  # which have no entry

tape_of("bincount")(by_rules("bincount", 1))
