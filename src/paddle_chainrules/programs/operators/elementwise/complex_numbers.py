"""Complex numbers and their parts.

Gradients are of ``Re <cotangent, output>``, as Paddle and PyTorch have them: that of a
real tensor is real.
"""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.dtypes import same_real_dtype
from ....paddle_side.rules import in_place, integer_results
from ..axes import ELEMENTS
from ..calls import Call, NoRule
from ..entry import define, holds_for_complex, reverse_of
from ..shared import broadcast_gradients, ops, phase_gradient

define("conj", axes=ELEMENTS)
define("real", view=True, axes=ELEMENTS, tape=in_place.part_view)
define("imag", view=True, axes=ELEMENTS, tape=in_place.part_view)
define("real_grad", axes=ELEMENTS)
define("imag_grad", axes=ELEMENTS)
define("complex", axes=ELEMENTS)
define("as_complex", view=True)
define("as_real", view=True)
define("angle", axes=ELEMENTS)
define("view_dtype", "x dtype", view=True, tape=integer_results.view_of_bits)
holds_for_complex("conj", "real", "imag", "real_grad", "imag_grad", "complex")
holds_for_complex("as_complex", "as_real", "angle", "view_dtype")


@reverse_of("conj")
def _conj_reverse(call: Call) -> list[Any]:
    return [ops.conj(call.cotangent)]


@reverse_of("real")
def _real_reverse(call: Call) -> list[Any]:
    return [ops.real_grad(call.cotangent)]


@reverse_of("imag")
def _imag_reverse(call: Call) -> list[Any]:
    return [ops.imag_grad(call.cotangent)]


@reverse_of("real_grad")
def _real_grad_reverse(call: Call) -> list[Any]:
    return [ops.real(call.cotangent)]


@reverse_of("imag_grad")
def _imag_grad_reverse(call: Call) -> list[Any]:
    return [ops.imag(call.cotangent)]


@reverse_of("complex")
def _complex_reverse(call: Call) -> list[Any]:
    g = call.cotangent
    return broadcast_gradients(call, lambda: ops.real(g), lambda: ops.imag(g))


@reverse_of("as_complex")
def _as_complex_reverse(call: Call) -> list[Any]:
    return [ops.as_real(call.cotangent)]


@reverse_of("as_real")
def _as_real_reverse(call: Call) -> list[Any]:
    return [ops.as_complex(call.cotangent)]


@reverse_of("angle")
def _angle_reverse(call: Call) -> list[Any]:
    x = call.args[0]
    if not x.is_complex():
        return [paddle.zeros_like(x)]
    return [phase_gradient(ops.sign(x), call.cotangent, ops.abs(x))]


@reverse_of("view_dtype")
def _view_dtype_reverse(call: Call) -> list[Any]:
    x: Tensor = call.args[0]
    if not same_real_dtype(x.dtype, call.out.dtype):
        raise NoRule("the bits of numbers as other numbers; use cast")
    return [ops.view_dtype(call.cotangent, x.dtype), None]
