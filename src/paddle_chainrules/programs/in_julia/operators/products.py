"""Products of matrices, in Julia."""

from __future__ import annotations

from ...operators.calls import NoRule
from .call import Infix, JuliaCall, julia_of, reshaped_text, tuple_text


def _julia_product(call: JuliaCall, transpose_x: bool, transpose_y: bool) -> str:
    x, y = call.args[:2]
    shape_x, shape_y = call.shapes[:2]
    ndims = len(shape_x), len(shape_y)
    if ndims[0] < 2 or ndims[1] < 2 or ndims == (2, 2):
        x = f"transpose({x})" if transpose_x and ndims[0] > 1 else x
        y = f"transpose({y})" if transpose_y and ndims[1] > 1 else y
        if ndims in ((2, 2), (1, 2)):
            return f"{y} * {x}"
        if ndims == (2, 1):
            return f"vec(transpose({y}) * {x})"
        if ndims == (1, 1):
            return f"fill(sum({x} .* {y}))"
    if ndims[1] == 2 and not transpose_x:
        y = f"transpose({y})" if transpose_y else y
        return reshaped_text(f"{y} * reshape({x}, {shape_x[-1]}, :)", call)
    if min(ndims) < 2:
        raise NoRule("stacks of matrices by vectors in Julia; make the vector a matrix")
    lead = call.out[:-2]
    x, y = (_stack_text(a, s, lead) for a, s in ((x, shape_x), (y, shape_y)))
    if transpose_x:
        x = f"batched_transpose({x})"
    if transpose_y:
        y = f"batched_transpose({y})"
    return reshaped_text(f"batched_mul({y}, {x})", call)


def _stack_text(text: str, shape: tuple[int, ...], lead: tuple[int, ...]) -> str:
    """Write a stack of matrices, each repeated as often as the product needs it."""
    rows, columns = shape[-1], shape[-2]
    stack_shape = (1,) * (len(lead) - len(shape[:-2])) + tuple(shape[:-2])
    if stack_shape != tuple(lead):
        full = tuple_text([rows, columns, *reversed(stack_shape)])
        times = [
            n // m for n, m in zip(reversed(lead), reversed(stack_shape), strict=True)
        ]
        text = f"repeat(reshape({text}, {full}), 1, 1, {', '.join(map(str, times))})"
    return f"reshape({text}, {tuple_text([rows, columns, ':'])})"


@julia_of("matmul")
def _matmul_julia(call: JuliaCall) -> str:
    return _julia_product(call, *call.args[2:])


@julia_of("bmm", "Tensor.__matmul__", "mv")
def _bmm_julia(call: JuliaCall) -> str:
    return _julia_product(call, False, False)


@julia_of("linear")
def _linear_julia(call: JuliaCall) -> str:
    product, bias = _julia_product(call, False, False), call.args[2]
    return product if bias is None else Infix(f"{product} .+ {bias}")
